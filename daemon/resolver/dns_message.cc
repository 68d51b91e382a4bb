#include "daemon/resolver/dns_message.h"

#include <ldns/ldns.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace agentmon {
namespace {

constexpr size_t kHeaderBytes = 12;
constexpr int kMostAliases = 16;
constexpr size_t kMostWhyBytes = 200;

struct FreePacket {
  void operator()(ldns_pkt* packet) const { ldns_pkt_free(packet); }
};
using Packet = std::unique_ptr<ldns_pkt, FreePacket>;

struct FreeBytes {
  void operator()(void* bytes) const { std::free(bytes); }  // NOLINT(cppcoreguidelines-no-malloc)
};

uint16_t Word(absl::Span<const uint8_t> bytes, size_t at) {
  return static_cast<uint16_t>(bytes[at] << 8 | bytes[at + 1]);
}

Packet ReadPacket(absl::Span<const uint8_t> message) {
  ldns_pkt* packet = nullptr;
  const ldns_status status = ldns_wire2pkt(&packet, message.data(), message.size());
  Packet owned(packet);
  return status == LDNS_STATUS_OK ? std::move(owned) : Packet();
}

std::string TextOf(const ldns_rdf* name) {
  const std::unique_ptr<char, FreeBytes> text(ldns_rdf2str(name));
  if (text == nullptr) return "";
  std::string lower = absl::AsciiStrToLower(text.get());
  if (!lower.empty() && lower.back() == '.') lower.pop_back();
  return lower;
}

bool IsPlain(uint8_t byte) { return absl::ascii_isalnum(byte) || byte == '-' || byte == '_'; }

bool ReadQuestion(const ldns_pkt* packet, DnsQuestion& question, std::string* wire_name) {
  const ldns_rr_list* questions = ldns_pkt_question(packet);
  if (ldns_rr_list_rr_count(questions) != 1) return false;
  const ldns_rr* rr = ldns_rr_list_rr(questions, 0);
  const ldns_rdf* owner = ldns_rr_owner(rr);
  if (owner == nullptr || ldns_rdf_size(owner) == 0 || ldns_rdf_size(owner) > LDNS_MAX_DOMAINLEN)
    return false;
  const auto* bytes = static_cast<const uint8_t*>(ldns_rdf_data(owner));
  const size_t size = ldns_rdf_size(owner);
  question.type = static_cast<uint16_t>(ldns_rr_get_type(rr));
  question.klass = static_cast<uint16_t>(ldns_rr_get_class(rr));
  question.name = TextOf(owner);
  question.is_host_name = true;
  for (size_t at = 0; at < size && bytes[at] != 0; at += bytes[at] + 1) {
    const size_t length = bytes[at];
    if (at + 1 + length > size) return false;
    question.longest_label = std::max(question.longest_label, length);
    question.is_host_name =
        question.is_host_name && std::all_of(bytes + at + 1, bytes + at + 1 + length, IsPlain);
  }
  if (wire_name != nullptr) wire_name->assign(reinterpret_cast<const char*>(bytes), size);
  return true;
}

bool SameName(const ldns_rdf* a, const ldns_rdf* b) { return ldns_dname_compare(a, b) == 0; }

// A time to live with its highest bit set is none (RFC 2181, 8).
uint32_t TtlOf(const ldns_rr* rr) { return ldns_rr_ttl(rr) > INT32_MAX ? 0 : ldns_rr_ttl(rr); }

ldns_rdf* NameRdf(const std::string& wire) {
  return ldns_rdf_new_frm_data(LDNS_RDF_TYPE_DNAME, wire.size(), wire.data());
}

Packet StartReply(const DnsQuery& query, DnsRcode rcode) {
  Packet packet(ldns_pkt_new());
  ldns_pkt_set_id(packet.get(), query.id);
  ldns_pkt_set_qr(packet.get(), true);
  ldns_pkt_set_rd(packet.get(), query.recursion_desired);
  ldns_pkt_set_cd(packet.get(), query.checking_disabled);
  ldns_pkt_set_ra(packet.get(), true);
  ldns_pkt_set_rcode(packet.get(), static_cast<uint8_t>(rcode) & 0xf);
  if (!query.wire_name.empty()) {
    ldns_rr* question = ldns_rr_new();
    ldns_rr_set_question(question, true);
    ldns_rr_set_owner(question, NameRdf(query.wire_name));
    ldns_rr_set_type(question, static_cast<ldns_rr_type>(query.question.type));
    ldns_rr_set_class(question, static_cast<ldns_rr_class>(query.question.klass));
    ldns_pkt_push_rr(packet.get(), LDNS_SECTION_QUESTION, question);
  }
  if (query.edns) {
    ldns_pkt_set_edns_udp_size(packet.get(), kUdpBytes);
    ldns_pkt_set_edns_extended_rcode(packet.get(), static_cast<uint8_t>(rcode) >> 4);
  }
  return packet;
}

std::vector<uint8_t> Bytes(const ldns_pkt* packet) {
  uint8_t* data = nullptr;
  size_t size = 0;
  if (ldns_pkt2wire(&data, packet, &size) != LDNS_STATUS_OK) return {};
  const std::unique_ptr<uint8_t, FreeBytes> owned(data);
  return std::vector<uint8_t>(data, data + size);
}

}  // namespace

void DnsAnswer::Free::operator()(ldns_struct_rr* rr) const { ldns_rr_free(rr); }

std::string RcodeName(DnsRcode rcode) {
  switch (rcode) {
    case DnsRcode::kNoError:
      return "NOERROR";
    case DnsRcode::kFormErr:
      return "FORMERR";
    case DnsRcode::kServFail:
      return "SERVFAIL";
    case DnsRcode::kNxDomain:
      return "NXDOMAIN";
    case DnsRcode::kNotImp:
      return "NOTIMP";
    case DnsRcode::kRefused:
      return "REFUSED";
    case DnsRcode::kBadVers:
      return "BADVERS";
  }
  return absl::StrCat("RCODE", static_cast<int>(rcode));
}

std::string DnsTypeName(uint16_t type) {
  if (type == kDnsHttps) return "HTTPS";
  if (type == kDnsSvcb) return "SVCB";
  const std::unique_ptr<char, FreeBytes> text(ldns_rr_type2str(static_cast<ldns_rr_type>(type)));
  return text == nullptr ? absl::StrCat("TYPE", type) : std::string(text.get());
}

ReceivedQuery ReadQuery(absl::Span<const uint8_t> message) {
  ReceivedQuery received;
  if (message.size() < kHeaderBytes) return received;
  const uint16_t flags = Word(message, 2);
  if ((flags & 0x8000) != 0) return received;  // an answer: answering it could go on forever
  received.what = ReceivedQuery::What::kError;
  DnsQuery& query = received.query;
  query.id = Word(message, 0);
  query.recursion_desired = (flags & 0x0100) != 0;
  query.checking_disabled = (flags & 0x0010) != 0;
  if ((flags & 0x7800) != 0) {
    received.error = DnsRcode::kNotImp;
    return received;
  }
  const bool truncated = (flags & 0x0200) != 0;
  const uint16_t additional = Word(message, 10);
  if (truncated || message.size() > kMostQueryBytes || Word(message, 4) != 1 || Word(message, 6) != 0 ||
      Word(message, 8) != 0 || additional > 1) {
    return received;
  }
  const Packet packet = ReadPacket(message);
  if (packet == nullptr || !ReadQuestion(packet.get(), query.question, &query.wire_name)) return received;
  query.edns = ldns_pkt_edns(packet.get());
  if (additional != (query.edns ? 1 : 0)) return received;
  if (query.edns) {
    query.udp_bytes = std::clamp<uint16_t>(ldns_pkt_edns_udp_size(packet.get()), 512, kUdpBytes);
    if (ldns_pkt_edns_version(packet.get()) != 0) {
      received.error = DnsRcode::kBadVers;
      return received;
    }
  }
  received.what = ReceivedQuery::What::kQuestion;
  return received;
}

absl::StatusOr<DnsAnswer> DnsAnswer::Read(absl::Span<const uint8_t> message, const DnsQuestion& question) {
  // Names are pointers into the message; its size bounds the work that a hostile one can make.
  if (message.size() < kHeaderBytes || message.size() > kMostAnswerBytes)
    return absl::InvalidArgumentError(absl::StrCat("an answer of ", message.size(), " bytes"));
  const uint16_t flags = Word(message, 2);
  if ((flags & 0x8000) == 0 || (flags & 0x7800) != 0)
    return absl::InvalidArgumentError("not an answer to a question");
  if ((flags & 0x0200) != 0) return absl::DataLossError("the answer is cut");
  const Packet packet = ReadPacket(message);
  DnsQuestion answered;
  if (packet == nullptr || !ReadQuestion(packet.get(), answered, nullptr))
    return absl::InvalidArgumentError("the answer is malformed");
  if (answered.name != question.name || answered.type != question.type || answered.klass != question.klass)
    return absl::InvalidArgumentError("the answer is to another question");
  DnsAnswer answer;
  answer.rcode_ = static_cast<DnsRcode>(flags & 0xf);
  if (answer.rcode_ != DnsRcode::kNoError && answer.rcode_ != DnsRcode::kNxDomain)
    return absl::UnavailableError(absl::StrCat("the server answered ", RcodeName(answer.rcode_)));
  const ldns_rr_list* records = ldns_pkt_answer(packet.get());
  const size_t count = ldns_rr_list_rr_count(records);
  const ldns_rdf* at = ldns_rr_owner(ldns_rr_list_rr(ldns_pkt_question(packet.get()), 0));
  const auto add = [&answer](const ldns_rr* rr) {
    answer.records_.emplace_back(ldns_rr_clone(rr));
    ldns_rr_set_ttl(answer.records_.back().get(), TtlOf(rr));
  };
  const auto fits = [](const ldns_rr* rr, uint16_t type) {
    return ldns_rr_get_class(rr) == LDNS_RR_CLASS_IN &&
           ldns_rr_get_type(rr) == static_cast<ldns_rr_type>(type);
  };
  for (int step = 0; step < kMostAliases && question.type != kDnsCname; ++step) {
    const ldns_rr* alias = nullptr;
    for (size_t i = 0; i < count && alias == nullptr; ++i) {
      const ldns_rr* rr = ldns_rr_list_rr(records, i);
      if (fits(rr, kDnsCname) && SameName(ldns_rr_owner(rr), at) && ldns_rr_rd_count(rr) == 1) alias = rr;
    }
    if (alias == nullptr) break;
    if (step == kMostAliases - 1) return absl::InvalidArgumentError("too many aliases, or a circle of them");
    add(alias);
    at = ldns_rr_rdf(alias, 0);
  }
  for (size_t i = 0; i < count; ++i) {
    const ldns_rr* rr = ldns_rr_list_rr(records, i);
    if (fits(rr, question.type) && SameName(ldns_rr_owner(rr), at)) add(rr);
  }
  const ldns_rr_list* authority = ldns_pkt_authority(packet.get());
  for (size_t i = 0; i < ldns_rr_list_rr_count(authority); ++i) {
    const ldns_rr* rr = ldns_rr_list_rr(authority, i);
    if (!fits(rr, kDnsSoa) || !answer.authority_.empty()) continue;
    answer.authority_.emplace_back(ldns_rr_clone(rr));
    ldns_rr_set_ttl(answer.authority_.back().get(), TtlOf(rr));
  }
  answer.ReadAddresses();
  return answer;
}

void DnsAnswer::ReadAddresses() {
  uint32_t ttl = INT32_MAX;
  for (const Record& record : records_) {
    ttl = std::min(ttl, ldns_rr_ttl(record.get()));
    const ldns_rr_type type = ldns_rr_get_type(record.get());
    if (ldns_rr_rd_count(record.get()) != 1) continue;
    const ldns_rdf* data = ldns_rr_rdf(record.get(), 0);
    const auto* bytes = static_cast<const uint8_t*>(ldns_rdf_data(data));
    if (type == LDNS_RR_TYPE_A && ldns_rdf_size(data) == 4)
      addresses_.push_back({policy::FromBytes4(bytes), ttl});
    else if (type == LDNS_RR_TYPE_AAAA && ldns_rdf_size(data) == 16)
      addresses_.push_back({policy::FromBytes16(bytes), ttl});
  }
}

DnsAnswer DnsAnswer::Of(const DnsQuery& query, const std::vector<policy::Address>& addresses,
                        uint32_t ttl_s) {
  DnsAnswer answer;
  for (const policy::Address& address : addresses) {
    if (query.question.type != (address.v6 ? kDnsAaaa : kDnsA)) continue;
    Record record(ldns_rr_new());
    ldns_rr_set_owner(record.get(), NameRdf(query.wire_name));
    ldns_rr_set_type(record.get(), address.v6 ? LDNS_RR_TYPE_AAAA : LDNS_RR_TYPE_A);
    ldns_rr_set_class(record.get(), LDNS_RR_CLASS_IN);
    ldns_rr_set_ttl(record.get(), ttl_s);
    ldns_rr_push_rdf(record.get(), ldns_rdf_new_frm_data(address.v6 ? LDNS_RDF_TYPE_AAAA : LDNS_RDF_TYPE_A,
                                                         address.v6 ? 16 : 4, address.bytes.data()));
    answer.records_.push_back(std::move(record));
  }
  answer.ReadAddresses();
  return answer;
}

DnsAnswer DnsAnswer::Empty(DnsRcode rcode) {
  DnsAnswer answer;
  answer.rcode_ = rcode;
  return answer;
}

void DnsAnswer::Remove(const policy::Address& address) {
  const auto is_it = [&address](const Record& record) -> bool {
    const ldns_rr_type type = ldns_rr_get_type(record.get());
    if (type != LDNS_RR_TYPE_A && type != LDNS_RR_TYPE_AAAA) return false;
    const auto* bytes = static_cast<const uint8_t*>(ldns_rdf_data(ldns_rr_rdf(record.get(), 0)));
    return (type == LDNS_RR_TYPE_A ? policy::FromBytes4(bytes) : policy::FromBytes16(bytes)) == address;
  };
  records_.erase(std::remove_if(records_.begin(), records_.end(), is_it), records_.end());
  addresses_.erase(std::remove_if(addresses_.begin(), addresses_.end(),
                                  [&address](const DnsAddress& a) { return a.address == address; }),
                   addresses_.end());
}

void DnsAnswer::ShortenTtls(uint32_t most_s) {
  for (const std::vector<Record>* section : {&records_, &authority_}) {
    for (const Record& record : *section)
      ldns_rr_set_ttl(record.get(), std::min(ldns_rr_ttl(record.get()), most_s));
  }
  for (DnsAddress& address : addresses_) address.ttl_s = std::min(address.ttl_s, most_s);
}

std::vector<DnsAlias> DnsAnswer::Aliases() const {
  std::vector<DnsAlias> aliases;
  for (const Record& record : records_) {
    if (ldns_rr_get_type(record.get()) != LDNS_RR_TYPE_CNAME || ldns_rr_rd_count(record.get()) != 1) continue;
    aliases.push_back({TextOf(ldns_rr_rdf(record.get(), 0)), ldns_rr_ttl(record.get())});
  }
  return aliases;
}

std::vector<std::string> DnsAnswer::Describe(size_t most) const {
  std::vector<std::string> lines;
  for (const Record& record : records_) {
    if (lines.size() == most) break;
    const ldns_rr_type type = ldns_rr_get_type(record.get());
    const ldns_rdf* data = ldns_rr_rd_count(record.get()) == 1 ? ldns_rr_rdf(record.get(), 0) : nullptr;
    const bool shown = type == LDNS_RR_TYPE_A || type == LDNS_RR_TYPE_AAAA || type == LDNS_RR_TYPE_CNAME ||
                       type == LDNS_RR_TYPE_PTR;
    lines.push_back(shown && data != nullptr ? TextOf(data) : DnsTypeName(static_cast<uint16_t>(type)));
  }
  return lines;
}

std::vector<uint8_t> WriteAnswer(const DnsQuery& query, const DnsAnswer& answer, size_t bytes) {
  const Packet packet = StartReply(query, answer.rcode_);
  for (const DnsAnswer::Record& record : answer.records_)
    ldns_pkt_push_rr(packet.get(), LDNS_SECTION_ANSWER, ldns_rr_clone(record.get()));
  for (const DnsAnswer::Record& record : answer.authority_)
    ldns_pkt_push_rr(packet.get(), LDNS_SECTION_AUTHORITY, ldns_rr_clone(record.get()));
  std::vector<uint8_t> written = Bytes(packet.get());
  if (!written.empty() && written.size() <= bytes) return written;
  const Packet cut = StartReply(query, answer.rcode_);
  ldns_pkt_set_tc(cut.get(), true);
  return Bytes(cut.get());
}

std::vector<uint8_t> WriteError(const DnsQuery& query, DnsRcode rcode, DnsWhy why, absl::string_view text) {
  const Packet packet = StartReply(query, rcode);
  if (query.edns && why != DnsWhy::kNothing) {
    std::string option = {static_cast<char>(static_cast<uint16_t>(why) >> 8), static_cast<char>(why)};
    absl::StrAppend(&option, text.substr(0, kMostWhyBytes));
    ldns_edns_option_list* options = ldns_edns_option_list_new();
    ldns_edns_option_list_push(options, ldns_edns_new_from_data(LDNS_EDNS_EDE, option.size(), option.data()));
    ldns_pkt_set_edns_option_list(packet.get(), options);
  }
  return Bytes(packet.get());
}

}  // namespace agentmon
