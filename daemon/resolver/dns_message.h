// DNS messages as the resolver sees them: one question, and of an answer only what belongs to it. Bytes are
// read and written by ldns (docs/decisions/0050-dns-messages.md); this is its only user.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/policy/address.h"

struct ldns_struct_rr;

namespace agentmon {

constexpr size_t kMostQueryBytes = 1024;     // a question, and what a client adds to it
constexpr size_t kMostAnswerBytes = 16'384;  // of an upstream's answer; what is longer is not read
constexpr uint16_t kUdpBytes = 1232;         // of a datagram, both ways: never fragmented

enum DnsType : uint16_t {
  kDnsA = 1,
  kDnsCname = 5,
  kDnsSoa = 6,
  kDnsPtr = 12,
  kDnsMx = 15,
  kDnsTxt = 16,
  kDnsAaaa = 28,
  kDnsSrv = 33,
  kDnsSvcb = 64,
  kDnsHttps = 65,
};
constexpr uint16_t kDnsInternet = 1;  // class

enum class DnsRcode : uint8_t {
  kNoError = 0,
  kFormErr = 1,
  kServFail = 2,
  kNxDomain = 3,
  kNotImp = 4,
  kRefused = 5,
  kBadVers = 16,
};
std::string RcodeName(DnsRcode rcode);
std::string DnsTypeName(uint16_t type);  // "AAAA", "TYPE999"

struct DnsQuestion {
  std::string name;           // lower case, no dot at its end, "" = the root; bytes that need it are escaped
  bool is_host_name = false;  // letters, digits, hyphens and underscores only
  size_t longest_label = 0;   // bytes
  uint16_t type = 0, klass = 0;
};

struct DnsQuery {
  uint16_t id = 0;
  bool recursion_desired = false, checking_disabled = false;
  DnsQuestion question;
  std::string wire_name;  // as asked, its case kept: answers repeat it
  bool edns = false;
  uint16_t udp_bytes = 512;  // that the asker takes
};

// What a client sent. `query` has what could be read; a message without an id, or an answer, is to be
// dropped.
struct ReceivedQuery {
  enum class What : uint8_t { kQuestion, kError, kDrop } what = What::kDrop;
  DnsRcode error = DnsRcode::kFormErr;
  DnsQuery query;
};
ReceivedQuery ReadQuery(absl::Span<const uint8_t> message);

struct DnsAddress {
  policy::Address address;
  uint32_t ttl_s = 0;  // the shortest of those on the way to it
};

// What is given out of an upstream's answer: the records that the question asks for, the aliases on the way
// to them, and how long "there is none" holds. Nothing else of it passes.
struct DnsAlias {
  std::string name;  // normalised
  uint32_t ttl_s = 0;
};

class DnsAnswer {
 public:
  // Bounded in time and memory by kMostAnswerBytes. Fails on what is malformed, cut, or answers another
  // question.
  static absl::StatusOr<DnsAnswer> Read(absl::Span<const uint8_t> message, const DnsQuestion& question);
  // Of addresses that are known without asking. No address: the name is there, and has none.
  static DnsAnswer Of(const DnsQuery& query, const std::vector<policy::Address>& addresses, uint32_t ttl_s);
  static DnsAnswer Empty(DnsRcode rcode);

  DnsAnswer(DnsAnswer&&) = default;
  DnsAnswer& operator=(DnsAnswer&&) = default;

  DnsRcode rcode() const { return rcode_; }
  const std::vector<DnsAddress>& addresses() const { return addresses_; }
  // Other names that the name stands for, in the order of the chain.
  std::vector<DnsAlias> Aliases() const;
  bool empty() const { return records_.empty(); }
  void Remove(const policy::Address& address);
  void ShortenTtls(uint32_t most_s);
  // For the timeline: "1.2.3.4", "cname.example", "TXT"; the first `most`.
  std::vector<std::string> Describe(size_t most) const;

 private:
  friend std::vector<uint8_t> WriteAnswer(const DnsQuery&, const DnsAnswer&, size_t);
  struct Free {
    void operator()(ldns_struct_rr* rr) const;
  };
  using Record = std::unique_ptr<ldns_struct_rr, Free>;

  DnsAnswer() = default;
  void ReadAddresses();

  DnsRcode rcode_ = DnsRcode::kNoError;
  std::vector<Record> records_, authority_;
  std::vector<DnsAddress> addresses_;
};

// At most `bytes`: what does not fit is left out and marked as truncated.
std::vector<uint8_t> WriteAnswer(const DnsQuery& query, const DnsAnswer& answer, size_t bytes);

// What an answer without records says of why (RFC 8914).
enum class DnsWhy : uint16_t {
  kNothing = 0,
  kBlocked = 15,
  kProhibited = 18,
  kNotReady = 14,
  kNetworkError = 23
};
std::vector<uint8_t> WriteError(const DnsQuery& query, DnsRcode rcode, DnsWhy why = DnsWhy::kNothing,
                                absl::string_view text = {});

}  // namespace agentmon
