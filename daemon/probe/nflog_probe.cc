#include "daemon/probe/nflog_probe.h"

#include <arpa/inet.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/policy/builtin.h"
#include "daemon/enforce/nft_ruleset.h"
#include "daemon/probe/event_record.h"

namespace agentmon {
namespace {

constexpr int kGroupsToTry = 16;
constexpr size_t kBuffer = 64 << 10;
constexpr int kMostReads = 64;  // of one wake-up
constexpr uint32_t kCopied = 128;
constexpr int kMostExtensions = 4;

template <typename T>
std::optional<T> ReadAt(absl::Span<const uint8_t> bytes, size_t at) {
  if (at > bytes.size() || bytes.size() - at < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

template <typename T>
std::optional<T> ReadBigEndian(absl::Span<const uint8_t> bytes, size_t at) {
  const auto value = ReadAt<T>(bytes, at);
  if (!value.has_value()) return std::nullopt;
  if constexpr (sizeof(T) == 2) return ntohs(*value);
  return ntohl(*value);
}

bool HasPorts(uint8_t protocol) {
  return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP ||
         protocol == IPPROTO_DCCP || protocol == IPPROTO_UDPLITE;
}

bool IsExtension(uint8_t protocol) {
  return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING || protocol == IPPROTO_DSTOPTS ||
         protocol == IPPROTO_FRAGMENT;
}

void ReadPort(absl::Span<const uint8_t> packet, size_t at, StoppedPacket& out) {
  if (HasPorts(out.protocol)) out.port = ReadBigEndian<uint16_t>(packet, at + 2).value_or(0);
}

bool ReadPacket(absl::Span<const uint8_t> packet, StoppedPacket& out) {
  if (packet.empty()) return false;
  if (packet[0] >> 4 == 4) {
    if (packet.size() < 20) return false;
    out.destination = policy::FromBytes4(packet.data() + 16);
    out.protocol = packet[9];
    const bool first = (ReadBigEndian<uint16_t>(packet, 6).value_or(0) & 0x1fff) == 0;
    if (first) ReadPort(packet, (packet[0] & 15u) * 4u, out);
    return true;
  }
  if (packet[0] >> 4 != 6 || packet.size() < 40) return false;
  out.destination = policy::FromBytes16(packet.data() + 24);
  out.protocol = packet[6];
  size_t at = 40;
  for (int i = 0; i < kMostExtensions && IsExtension(out.protocol); ++i) {
    if (packet.size() < at + 2) return true;
    const size_t size = out.protocol == IPPROTO_FRAGMENT ? 8 : (packet[at + 1] + 1u) * 8u;
    out.protocol = packet[at];
    at += size;
  }
  ReadPort(packet, at, out);
  return true;
}

// One request of configuration, and the kernel's answer to it.
absl::Status Configure(int socket, uint16_t group, uint16_t type, const void* value, uint16_t size) {
  struct {
    nlmsghdr header;
    nfgenmsg generic;
    nlattr attribute;
    unsigned char value[16];
  } request{};
  request.attribute.nla_type = type;
  request.attribute.nla_len = static_cast<uint16_t>(sizeof(nlattr) + size);
  std::memcpy(request.value, value, size);
  request.generic.version = NFNETLINK_V0;
  request.generic.res_id = htons(group);
  request.header.nlmsg_type = NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
  request.header.nlmsg_len = static_cast<uint32_t>(
      NLMSG_ALIGN(sizeof(request.header) + sizeof(request.generic) + request.attribute.nla_len));
  if (::send(socket, &request, request.header.nlmsg_len, 0) < 0)
    return ErrnoStatus(errno, "ask for log entries");
  // The kernel answers within the call; entries may come before.
  for (int i = 0; i < kMostReads; ++i) {
    alignas(nlmsghdr) unsigned char answer[4096];
    const ssize_t got = ::recv(socket, answer, sizeof(answer), 0);
    if (got < 0) return ErrnoStatus(errno, "ask for log entries");
    nlmsghdr header;
    nlmsgerr error;
    if (static_cast<size_t>(got) < sizeof(header) + sizeof(error)) continue;
    std::memcpy(&header, answer, sizeof(header));
    if (header.nlmsg_type != NLMSG_ERROR) continue;
    std::memcpy(&error, answer + sizeof(header), sizeof(error));
    return error.error == 0 ? absl::OkStatus() : ErrnoStatus(-error.error, "listen to the log group");
  }
  return absl::DeadlineExceededError("listen to the log group: no answer");
}

absl::Status Bind(int socket, uint16_t group) {
  nfulnl_msg_config_cmd bind{};
  bind.command = NFULNL_CFG_CMD_BIND;
  RETURN_IF_ERROR(Configure(socket, group, NFULA_CFG_CMD, &bind, sizeof(bind)));
  nfulnl_msg_config_mode mode{};
  mode.copy_range = htonl(kCopied);
  mode.copy_mode = NFULNL_COPY_PACKET;
  return Configure(socket, group, NFULA_CFG_MODE, &mode, sizeof(mode));
}

}  // namespace

std::optional<StoppedPacket> ParseLogEntry(absl::Span<const uint8_t> message) {
  StoppedPacket out;
  bool ours = false, packet = false;
  for (size_t at = NLMSG_ALIGN(sizeof(nfgenmsg)); at < message.size();) {
    const auto attribute = ReadAt<nlattr>(message, at);
    if (!attribute.has_value() || attribute->nla_len < sizeof(nlattr) ||
        attribute->nla_len > message.size() - at)
      return std::nullopt;
    const absl::Span<const uint8_t> value =
        message.subspan(at + sizeof(nlattr), attribute->nla_len - sizeof(nlattr));
    at += NLA_ALIGN(attribute->nla_len);
    switch (attribute->nla_type & NLA_TYPE_MASK) {
      case NFULA_PREFIX: {
        absl::string_view prefix(reinterpret_cast<const char*>(value.data()), value.size());
        prefix = prefix.substr(0, prefix.find('\0'));
        ours = absl::ConsumePrefix(&prefix, kNftLogPrefix) && absl::SimpleAtoi(prefix, &out.cgroup_id);
        break;
      }
      case NFULA_PAYLOAD:
        packet = ReadPacket(value, out);
        break;
      case NFULA_UID:
        out.uid = ReadBigEndian<uint32_t>(value, 0).value_or(0);
        break;
      default:
        break;
    }
  }
  return ours && packet ? std::optional(out) : std::nullopt;
}

NflogProbe::NflogProbe(TaskRunner& core, const Clock& clock, UniqueFd socket, uint16_t group,
                       Describe describe)
    : core_(core), clock_(clock), socket_(std::move(socket)), group_(group), describe_(std::move(describe)) {}

NflogProbe::~NflogProbe() {
  if (watched_) core_.UnwatchFd(socket_.get());
}

absl::StatusOr<std::unique_ptr<NflogProbe>> NflogProbe::Create(TaskRunner& core, const Clock& clock,
                                                               uint16_t first_group, Describe describe) {
  UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER));
  if (!socket.valid()) return ErrnoStatus(errno, "make a netlink socket");
  absl::Status bound;
  for (int i = 0; i < kGroupsToTry; ++i) {
    const auto group = static_cast<uint16_t>(first_group + i);
    bound = Bind(socket.get(), group);
    if (bound.ok()) {
      return std::unique_ptr<NflogProbe>(
          new NflogProbe(core, clock, std::move(socket), group, std::move(describe)));
    }
  }
  return bound;
}

absl::Status NflogProbe::Attach(RecordSink& sink) {
  sink_ = &sink;
  RETURN_IF_ERROR(core_.WatchFd(socket_.get(), [this] { Drain(); }));
  watched_ = true;
  return absl::OkStatus();
}

uint64_t NflogProbe::Told(uint64_t cgroup_id) const {
  const auto told = told_.find(cgroup_id);
  return told == told_.end() ? 0 : told->second;
}

void NflogProbe::Drain() {
  std::vector<uint8_t> buffer(kBuffer);
  for (int i = 0; i < kMostReads; ++i) {
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == ENOBUFS) continue;  // the counter of the session has them
    if (got <= 0) return;
    Take(absl::MakeConstSpan(buffer).subspan(0, static_cast<size_t>(got)));
  }
}

void NflogProbe::Take(absl::Span<const uint8_t> messages) {
  while (const auto header = ReadAt<nlmsghdr>(messages, 0)) {
    const size_t size = header->nlmsg_len;
    if (size < sizeof(nlmsghdr) || size > messages.size()) return;
    if (header->nlmsg_type == (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET)) {
      if (const auto packet = ParseLogEntry(messages.subspan(sizeof(nlmsghdr), size - sizeof(nlmsghdr))))
        Tell(*packet);
    }
    messages.remove_prefix(std::min<size_t>(NLMSG_ALIGN(size), messages.size()));
  }
}

void NflogProbe::Tell(const StoppedPacket& packet) {
  ++told_[packet.cgroup_id];
  if (on_packet_) on_packet_(packet.cgroup_id);
  const std::string address = policy::ToString(packet.destination);
  if (address == policy::kCanaryAddress && packet.port == policy::kCanaryPort) return;  // our own try
  const bool tcp = packet.protocol == IPPROTO_TCP, udp = packet.protocol == IPPROTO_UDP;
  const int error = tcp ? ECONNREFUSED : EPERM;
  Event event;
  event.set_kind(tcp ? v1::CONNECT : v1::SEND);
  v1::Net* net = event.mutable_net();
  net->set_protocol(tcp ? "tcp" : udp ? "udp" : absl::StrCat(packet.protocol));
  net->set_address(address);
  net->set_port(packet.port);
  net->set_result(v1::Net::FAILED);
  net->set_error(error);
  const uint8_t protocol = tcp ? policy::kTcp : udp ? policy::kUdp : 0;
  *event.mutable_judgement() = describe_(
      packet.cgroup_id, policy::ConnectSubject(packet.destination, packet.port, protocol, ""), error);
  EventOrigin origin;
  origin.source = v1::NFLOG;
  origin.boot_ns = clock_.BootNs();
  origin.cgroup_id = packet.cgroup_id;
  origin.uid = packet.uid;
  ++stats_.records;
  sink_->OnRecord(EncodeEventRecord(origin, event));
}

}  // namespace agentmon
