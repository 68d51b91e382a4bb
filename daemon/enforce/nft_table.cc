#include "daemon/enforce/nft_table.h"

#include <arpa/inet.h>
#include <endian.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr size_t kElementsOfMessage = 256;  // an attribute has 64 KiB at most
constexpr int kBufferBytes = 8 << 20;       // of the socket: a transaction is one message to it
constexpr size_t kAnswerBytes = 64 << 10;

// Messages one behind the other, as netlink has them.
class Batch {
 public:
  void Begin(uint16_t type, uint16_t flags, uint8_t family, uint16_t resource = 0) {
    message_ = bytes_.size();
    nlmsghdr head{};
    head.nlmsg_type = type;
    head.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
    head.nlmsg_seq = ++sequence_;
    Append(&head, sizeof(head));
    const nfgenmsg about{family, NFNETLINK_V0, htons(resource)};
    Append(&about, sizeof(about));
    if ((flags & NLM_F_ACK) != 0) ++answers_;
  }
  void End() {
    const auto size = static_cast<uint32_t>(bytes_.size() - message_);
    std::memcpy(bytes_.data() + message_, &size, sizeof(size));
  }
  size_t Nest(uint16_t type) {
    const size_t at = bytes_.size();
    const nlattr head{0, static_cast<uint16_t>(type | NLA_F_NESTED)};
    Append(&head, sizeof(head));
    return at;
  }
  void EndNest(size_t at) {
    const auto size = static_cast<uint16_t>(bytes_.size() - at);
    std::memcpy(bytes_.data() + at, &size, sizeof(size));
  }
  void Put(uint16_t type, const void* data, size_t size) {
    const nlattr head{static_cast<uint16_t>(NLA_HDRLEN + size), type};
    Append(&head, sizeof(head));
    Append(data, size);
    bytes_.resize(NLMSG_ALIGN(bytes_.size()), '\0');
  }
  void Put(uint16_t type, const std::string& text) { Put(type, text.c_str(), text.size() + 1); }
  void Put32(uint16_t type, uint32_t number) {
    const uint32_t big = htonl(number);
    Put(type, &big, sizeof(big));
  }
  void Put64(uint16_t type, uint64_t number) {
    const uint64_t big = htobe64(number);
    Put(type, &big, sizeof(big));
  }
  const std::string& bytes() const { return bytes_; }
  size_t answers() const { return answers_; }

 private:
  void Append(const void* data, size_t size) { bytes_.append(static_cast<const char*>(data), size); }

  std::string bytes_;
  size_t message_ = 0, answers_ = 0;
  uint32_t sequence_ = 0;
};

constexpr uint16_t TypeOf(int message) { return NFNL_SUBSYS_NFTABLES << 8 | message; }

// Each field of the key takes whole words.
std::string KeyOf(const NftElement& element, uint16_t port) {
  const policy::Address& address = element.address;
  std::string key(reinterpret_cast<const char*>(address.bytes.data()), address.v6 ? 16 : 4);
  key.append({static_cast<char>(element.protocol), 0, 0, 0});
  key.append({static_cast<char>(port >> 8), static_cast<char>(port & 0xff), 0, 0});
  return key;
}

void PutKey(Batch& batch, uint16_t type, const std::string& key) {
  const size_t nest = batch.Nest(type);
  batch.Put(NFTA_DATA_VALUE, key.data(), key.size());
  batch.EndNest(nest);
}

void PutElement(Batch& batch, const NftElement& element) {
  const size_t nest = batch.Nest(NFTA_LIST_ELEM);
  PutKey(batch, NFTA_SET_ELEM_KEY, KeyOf(element, element.low));
  PutKey(batch, NFTA_SET_ELEM_KEY_END, KeyOf(element, element.high));
  batch.Put64(NFTA_SET_ELEM_TIMEOUT, static_cast<uint64_t>(absl::ToInt64Milliseconds(element.timeout)));
  const size_t data = batch.Nest(NFTA_SET_ELEM_DATA), verdict = batch.Nest(NFTA_DATA_VERDICT);
  batch.Put32(NFTA_VERDICT_CODE, static_cast<uint32_t>(element.chain.empty() ? NFT_RETURN : NFT_GOTO));
  if (!element.chain.empty()) batch.Put(NFTA_VERDICT_CHAIN, element.chain);
  batch.EndNest(verdict);
  batch.EndNest(data);
  batch.EndNest(nest);
}

absl::Status Send(int socket, const std::string& bytes) {
  // What an earlier call that failed has not read is no answer to this one.
  char rest[512];
  for (int i = 0; i < 1024 && ::recv(socket, rest, sizeof(rest), MSG_DONTWAIT) >= 0; ++i) continue;
  const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), 0);
  if (sent == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  return ErrnoStatus(sent < 0 ? errno : EMSGSIZE, "nftables: send a change");
}

// Calls take(type, body) for each message of one answer.
template <typename Take>
absl::Status Receive(int socket, Take take) {
  alignas(nlmsghdr) char answer[kAnswerBytes];
  const ssize_t got = ::recv(socket, answer, sizeof(answer), 0);
  if (got < 0) return ErrnoStatus(errno, "nftables: hear of a change");
  auto left = static_cast<uint32_t>(got);
  for (const auto* head = reinterpret_cast<const nlmsghdr*>(answer); NLMSG_OK(head, left);
       head = NLMSG_NEXT(head, left))
    take(*head);
  return absl::OkStatus();
}

int ErrorOf(const nlmsghdr& head) {
  nlmsgerr error{};
  if (head.nlmsg_type != NLMSG_ERROR || head.nlmsg_len < NLMSG_LENGTH(sizeof(error))) return 0;
  std::memcpy(&error, NLMSG_DATA(&head), sizeof(error));
  return -error.error;
}

// The attribute of this type among those of these bytes; empty = there is none.
absl::string_view Attribute(absl::string_view bytes, uint16_t type) {
  nlattr head{};
  while (bytes.size() >= sizeof(head)) {
    std::memcpy(&head, bytes.data(), sizeof(head));
    if (head.nla_len < sizeof(head) || head.nla_len > bytes.size()) break;
    if ((head.nla_type & NLA_TYPE_MASK) == type) return bytes.substr(NLA_HDRLEN, head.nla_len - NLA_HDRLEN);
    bytes.remove_prefix(std::min<size_t>(NLA_ALIGN(head.nla_len), bytes.size()));
  }
  return {};
}

}  // namespace

absl::StatusOr<NftTable> NftTable::Create(std::string name) {
  UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
  if (!socket.valid()) return ErrnoStatus(errno, "nftables: make a netlink socket");
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  // The kernel has answered before a call returns; the patience is for nothing.
  const timeval patience{1, 0};
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&kernel), sizeof(kernel)) != 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kBufferBytes, sizeof(kBufferBytes)) != 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0)
    return ErrnoStatus(errno, "nftables: set up a netlink socket");
  return NftTable(std::move(name), std::move(socket));
}

absl::Status NftTable::Apply(const NftChange& change) {
  Batch batch;
  batch.Begin(NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
  batch.End();
  for (const std::string& chain : change.flushed_chains) {
    batch.Begin(TypeOf(NFT_MSG_DELRULE), NLM_F_ACK, NFPROTO_INET);
    batch.Put(NFTA_RULE_TABLE, name_);
    batch.Put(NFTA_RULE_CHAIN, chain);
    batch.End();
  }
  for (const std::string& map : change.flushed_maps) {
    batch.Begin(TypeOf(NFT_MSG_DELSETELEM), NLM_F_ACK, NFPROTO_INET);
    batch.Put(NFTA_SET_ELEM_LIST_TABLE, name_);
    batch.Put(NFTA_SET_ELEM_LIST_SET, map);
    batch.End();
  }
  const std::vector<NftElement>& added = change.added;
  for (size_t i = 0; i < added.size();) {
    const std::string& map = added[i].map;
    batch.Begin(TypeOf(NFT_MSG_NEWSETELEM), NLM_F_CREATE | NLM_F_ACK, NFPROTO_INET);
    batch.Put(NFTA_SET_ELEM_LIST_TABLE, name_);
    batch.Put(NFTA_SET_ELEM_LIST_SET, map);
    const size_t nest = batch.Nest(NFTA_SET_ELEM_LIST_ELEMENTS), end = i + kElementsOfMessage;
    for (; i < added.size() && i < end && added[i].map == map; ++i) PutElement(batch, added[i]);
    batch.EndNest(nest);
    batch.End();
  }
  batch.Begin(NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
  batch.End();
  RETURN_IF_ERROR(Send(socket_.get(), batch.bytes()));
  // An error takes back the whole transaction, and there may be more than one: the answers are all there by
  // now.
  int error = 0;
  for (size_t answers = 0; answers < batch.answers();) {
    const absl::Status heard = Receive(socket_.get(), [&](const nlmsghdr& head) {
      ++answers;
      // That of the transaction as a whole comes alone.
      if (error == 0 && (error = ErrorOf(head)) != 0 && head.nlmsg_seq <= 1) answers = batch.answers();
    });
    RETURN_IF_ERROR(heard);
  }
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "nftables: change elements");
}

absl::StatusOr<uint64_t> NftTable::PacketsOf(absl::string_view counter) {
  Batch ask;
  ask.Begin(TypeOf(NFT_MSG_GETOBJ), 0, NFPROTO_INET);
  ask.Put(NFTA_OBJ_TABLE, name_);
  ask.Put(NFTA_OBJ_NAME, std::string(counter));
  ask.Put32(NFTA_OBJ_TYPE, NFT_OBJECT_COUNTER);
  ask.End();
  RETURN_IF_ERROR(Send(socket_.get(), ask.bytes()));
  int error = ENODATA;
  uint64_t packets = 0;
  RETURN_IF_ERROR(Receive(socket_.get(), [&](const nlmsghdr& head) {
    if (head.nlmsg_type == NLMSG_ERROR) error = ErrorOf(head);
    if (head.nlmsg_type != TypeOf(NFT_MSG_NEWOBJ) || head.nlmsg_len < NLMSG_LENGTH(sizeof(nfgenmsg))) return;
    const absl::string_view body(static_cast<const char*>(NLMSG_DATA(&head)) + NLMSG_ALIGN(sizeof(nfgenmsg)),
                                 head.nlmsg_len - NLMSG_LENGTH(sizeof(nfgenmsg)));
    const absl::string_view value = Attribute(Attribute(body, NFTA_OBJ_DATA), NFTA_COUNTER_PACKETS);
    if (value.size() != sizeof(packets)) return;
    std::memcpy(&packets, value.data(), sizeof(packets));
    packets = be64toh(packets);
    error = 0;
  }));
  return error == 0 ? absl::StatusOr<uint64_t>(packets) : ErrnoStatus(error, "nftables: read a counter");
}

}  // namespace agentmon
