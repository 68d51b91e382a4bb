#include "daemon/event/decode.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "bpf/event_abi.h"

namespace agentmon {
namespace {

// The variable part of a record. Takes beyond the end fail and leave the reader failed.
class Tail {
 public:
  explicit Tail(absl::string_view bytes) : bytes_(bytes) {}

  absl::string_view Take(uint32_t length) {
    if (length > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const absl::string_view taken = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return taken;
  }
  bool ok() const { return ok_; }

 private:
  absl::string_view bytes_;
  bool ok_ = true;
};

template <typename Record>
bool Read(absl::Span<const uint8_t> bytes, Record* record, Tail* tail = nullptr) {
  if (bytes.size() < sizeof(Record)) return false;
  std::memcpy(record, bytes.data(), sizeof(Record));
  if (tail != nullptr) {
    *tail = Tail(absl::string_view(reinterpret_cast<const char*>(bytes.data()) + sizeof(Record),
                                   bytes.size() - sizeof(Record)));
  }
  return true;
}

// "c\0b\0a\0" -> "/a/b/c"; where the outermost part is missing ".../b/c".
std::string JoinReversed(absl::string_view components, bool cut) {
  std::vector<absl::string_view> names;
  while (!components.empty()) {
    const size_t end = components.find('\0');
    names.push_back(components.substr(0, end));
    if (end == absl::string_view::npos) break;
    components.remove_prefix(end + 1);
  }
  std::string path = cut ? "..." : "";
  for (auto name = names.rbegin(); name != names.rend(); ++name) absl::StrAppend(&path, "/", *name);
  return path.empty() ? "/" : path;
}

void SplitArgv(absl::string_view area, uint32_t argc, v1::Exec* exec) {
  for (uint32_t i = 0; i < argc && !area.empty(); ++i) {
    const size_t end = area.find('\0');
    exec->add_argv(area.data(), std::min(end, area.size()));
    if (end == absl::string_view::npos) break;
    area.remove_prefix(end + 1);
  }
}

// Of an exec that was killed before it began.
void AddVerdict(uint32_t flags, Event* event) {
  if ((flags & (AM_F_ARGV_OTHER | AM_F_NO_PERMIT | AM_F_NAMELESS)) == 0) return;
  const bool changed = (flags & AM_F_ARGV_OTHER) != 0, nameless = (flags & AM_F_NAMELESS) != 0;
  v1::Judgement* judgement = event->mutable_judgement();
  judgement->set_decision(v1::DENY);
  judgement->set_layer("built-in");
  judgement->set_file("built-in");
  judgement->set_rule(nameless  ? "nameless programs"
                      : changed ? "arguments changed after they were judged"
                                : "a program that nobody has judged");
  judgement->set_message(
      nameless  ? "a program that has no name was started in place of another: it was killed"
      : changed ? "the arguments were rewritten while the program was started: it was killed"
                : "a program was started past the policy: it was killed");
  judgement->set_enforced(true);
  judgement->set_mechanism("verifier");
}

bool DecodeExec(absl::Span<const uint8_t> bytes, Event* event) {
  am_exec rec;
  Tail tail{{}};
  if (!Read(bytes, &rec, &tail)) return false;
  const absl::string_view exe = tail.Take(rec.exe_len);
  const absl::string_view cwd = tail.Take(rec.cwd_len);
  const absl::string_view filename = tail.Take(rec.filename_len);
  const absl::string_view argv = tail.Take(rec.argv_len);
  if (!tail.ok()) return false;
  event->set_kind(v1::EXEC);
  event->set_exe(RecordPath(exe, rec.h.flags));
  event->mutable_parent()->set_pid(static_cast<int32_t>(rec.ppid));
  event->mutable_parent()->set_start_ns(rec.parent_start_ns);
  v1::Exec* exec = event->mutable_exec();
  exec->set_cwd(RecordPath(cwd, rec.h.flags));
  exec->set_filename(filename.data(), filename.size());
  exec->set_argv_bytes(rec.argv_total);
  exec->set_argv_cut((rec.h.flags & AM_F_ARGV_CUT) != 0);
  SplitArgv(argv, rec.argc, exec);
  AddVerdict(rec.h.flags, event);
  return true;
}

bool DecodeFork(absl::Span<const uint8_t> bytes, Event* event) {
  am_fork rec;
  if (!Read(bytes, &rec)) return false;
  event->set_kind(v1::FORK);
  event->mutable_fork()->mutable_child()->set_pid(static_cast<int32_t>(rec.child_pid));
  event->mutable_fork()->mutable_child()->set_start_ns(rec.child_start_ns);
  return true;
}

bool DecodeExit(absl::Span<const uint8_t> bytes, Event* event) {
  am_exit rec;
  if (!Read(bytes, &rec)) return false;
  event->set_kind(v1::EXIT);
  v1::Exit* exit = event->mutable_exit();
  exit->set_signal(rec.wait_status & 0x7f);
  exit->set_status((rec.wait_status >> 8) & 0xff);
  exit->set_core_dumped((rec.h.flags & AM_F_CORE) != 0);
  exit->set_cpu_ns(rec.cpu_ns);
  exit->set_peak_rss_bytes(rec.peak_rss_bytes);
  return true;
}

bool DecodeFile(absl::Span<const uint8_t> bytes, Event* event) {
  am_file rec;
  Tail tail{{}};
  if (!Read(bytes, &rec, &tail)) return false;
  const absl::string_view path = tail.Take(rec.path_len);
  const absl::string_view new_path = tail.Take(rec.new_path_len);
  if (!tail.ok() || rec.kind < v1::OPEN || rec.kind > v1::MKNOD) return false;
  event->set_kind(static_cast<v1::EventKind>(rec.kind));
  v1::File* file = event->mutable_file();
  file->set_path(RecordPath(path, rec.h.flags));
  if (!new_path.empty()) file->set_new_path(RecordPath(new_path, rec.h.flags));
  file->set_open_flags(rec.open_flags);
  file->set_mode(rec.mode);
  file->set_uid(rec.uid);
  file->set_gid(rec.gid);
  file->set_size(rec.size);
  return true;
}

std::string AddressOf(const am_sock& rec) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  char text[INET6_ADDRSTRLEN] = "";
  if (rec.family == AF_INET) {
    inet_ntop(AF_INET, rec.address, text, sizeof(text));
  } else if (std::memcmp(rec.address, kMapped, sizeof(kMapped)) == 0) {
    inet_ntop(AF_INET, rec.address + sizeof(kMapped), text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, rec.address, text, sizeof(text));
  }
  return text;
}

std::string ProtocolName(uint16_t protocol) {
  if (protocol == IPPROTO_TCP) return "tcp";
  if (protocol == IPPROTO_UDP) return "udp";
  return absl::StrCat(protocol);
}

bool FillNet(const am_sock& rec, v1::EventKind kind, Event* event) {
  if (rec.family != AF_INET && rec.family != AF_INET6) return false;
  event->set_kind(kind);
  v1::Net* net = event->mutable_net();
  net->set_protocol(ProtocolName(rec.protocol));
  net->set_address(AddressOf(rec));
  net->set_port(rec.port);
  net->set_flow(rec.cookie);
  return true;
}

KernelVerdict VerdictOf(const am_sock& rec) { return {rec.verdict, rec.layer, rec.policy, rec.rule}; }

bool DecodeSock(absl::Span<const uint8_t> bytes, v1::EventKind kind, Decoded* out) {
  am_sock rec;
  if (!Read(bytes, &rec) || !FillNet(rec, kind, &out->event)) return false;
  out->verdict = VerdictOf(rec);
  v1::Net* net = out->event.mutable_net();
  if (rec.verdict == AM_VERDICT_DENIED) {
    net->set_result(v1::Net::FAILED);
    net->set_error(EPERM);
  } else if (kind == v1::CONNECT && rec.protocol == IPPROTO_TCP) {
    net->set_result(v1::Net::IN_PROGRESS);
  }
  return true;
}

// A socket that was refused when it was to be made.
bool DecodeSocket(absl::Span<const uint8_t> bytes, Decoded* out) {
  am_sock rec;
  if (!Read(bytes, &rec)) return false;
  out->verdict = VerdictOf(rec);
  out->event.set_kind(v1::CALL);
  v1::Call* call = out->event.mutable_call();
  call->set_name("socket");
  for (const uint64_t arg : {rec.family, rec.port, rec.protocol}) call->add_args(arg);
  return true;
}

bool DecodeSockResult(absl::Span<const uint8_t> bytes, Decoded* out) {
  am_sock_result rec;
  Event* const event = &out->event;
  if (!Read(bytes, &rec) || !FillNet(rec.sock, v1::CONNECT, event)) return false;
  out->verdict = VerdictOf(rec.sock);
  event->mutable_net()->set_result(rec.error == 0 ? v1::Net::OK : v1::Net::FAILED);
  event->mutable_net()->set_error(rec.error);
  return true;
}

// A name as in sun_path: abstract after a leading NUL, else up to the first NUL, relative to cwd.
bool DecodeUnix(absl::Span<const uint8_t> bytes, v1::EventKind kind, Decoded* out) {
  Event* const event = &out->event;
  am_unix rec;
  Tail tail{{}};
  if (!Read(bytes, &rec, &tail)) return false;
  const absl::string_view cwd = tail.Take(rec.cwd_len);
  absl::string_view name = tail.Take(rec.name_len);
  if (!tail.ok()) return false;
  event->set_kind(kind);
  out->verdict.verdict = static_cast<uint8_t>(rec.verdict);
  v1::Unix* unix_event = event->mutable_unix();
  unix_event->set_datagram(rec.sock_type == SOCK_DGRAM);
  if (!name.empty() && name[0] == '\0') {
    unix_event->set_abstract(true);
    unix_event->set_path(absl::StrCat("@", name.substr(1)));
    return true;
  }
  name = name.substr(0, name.find('\0'));
  if (name.empty() || name[0] == '/') {
    unix_event->set_path(name.data(), name.size());
    return true;
  }
  std::string path = RecordPath(cwd, rec.h.flags);
  if (path.empty() || path.back() != '/') path += '/';
  unix_event->set_path(absl::StrCat(path, name));
  return true;
}

// What the header says is put over it afterwards.
bool DecodeEvent(absl::Span<const uint8_t> bytes, Event* event) {
  const absl::Span<const uint8_t> body = bytes.subspan(sizeof(am_header));
  Event judged;
  if (!judged.ParseFromArray(body.data(), static_cast<int>(body.size()))) return false;
  if (!v1::EventKind_IsValid(judged.kind()) || judged.kind() == v1::EVENT_KIND_UNSPECIFIED) return false;
  *event = std::move(judged);
  return true;
}

bool DecodeDetail(uint16_t type, absl::Span<const uint8_t> bytes, Decoded* out) {
  Event* const event = &out->event;
  switch (type) {
    case AM_EXEC:
      return DecodeExec(bytes, event);
    case AM_FORK:
      return DecodeFork(bytes, event);
    case AM_EXIT:
      return DecodeExit(bytes, event);
    case AM_FILE:
      return DecodeFile(bytes, event);
    case AM_CONNECT:
      return DecodeSock(bytes, v1::CONNECT, out);
    case AM_SOCK_RESULT:
      return DecodeSockResult(bytes, out);
    case AM_BIND:
      return DecodeSock(bytes, v1::BIND, out);
    case AM_LISTEN:
      return DecodeSock(bytes, v1::LISTEN, out);
    case AM_SEND:
      return DecodeSock(bytes, v1::SEND, out);
    case AM_SOCKET:
      return DecodeSocket(bytes, out);
    case AM_UNIX_CONNECT:
      return DecodeUnix(bytes, v1::UNIX_CONNECT, out);
    case AM_UNIX_SEND:
      return DecodeUnix(bytes, v1::UNIX_SEND, out);
    case AM_EVENT:
      return DecodeEvent(bytes, event);
    default:
      return false;
  }
}

void FillCommon(const am_header& h, int64_t boot_to_wall_ns, Event* event) {
  event->mutable_process()->set_pid(static_cast<int32_t>(h.pid));
  event->mutable_process()->set_start_ns(h.start_ns);
  event->set_uid(h.uid);
  event->set_boot_ns(static_cast<int64_t>(h.boot_ns));
  // Unsigned, because bytes that are no time must not overflow.
  event->set_wall_ns(static_cast<int64_t>(h.boot_ns + static_cast<uint64_t>(boot_to_wall_ns)));
  event->set_source(static_cast<v1::Source>(h.source));
  event->set_count(std::max<uint64_t>(event->count(), 1));
  event->set_count_is((h.flags & AM_F_FIRST_ONLY) != 0 ? v1::AT_LEAST : v1::EXACT);
  event->set_as_asked((h.flags & AM_F_AS_ASKED) != 0);
  event->set_cut((h.flags & AM_F_PATH_CUT) != 0);
}

}  // namespace

// Only one of a record's paths is cut as a rule: the one that fills its room.
std::string RecordPath(absl::string_view bytes, uint32_t flags) {
  if ((flags & AM_F_REVERSED) == 0) return std::string(bytes);
  const bool cut = (flags & AM_F_PATH_CUT) != 0 && bytes.size() + 256 > AM_PATH_MAX;
  return JoinReversed(bytes, cut);
}

absl::StatusOr<Decoded> Decode(absl::Span<const uint8_t> record, int64_t boot_to_wall_ns) {
  am_header h;
  if (!Read(record, &h)) return absl::InvalidArgumentError("record: shorter than its header");
  if (h.size < sizeof(h) || h.size > record.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("record: ", record.size(), " bytes, header says ", h.size));
  }
  if (!v1::Source_IsValid(h.source) || h.source == v1::SOURCE_UNSPECIFIED) {
    return absl::InvalidArgumentError(absl::StrCat("record: unknown source ", h.source));
  }
  Decoded decoded;
  if (!DecodeDetail(h.type, record.first(h.size), &decoded)) {
    return absl::InvalidArgumentError(absl::StrCat("record: malformed, type ", h.type));
  }
  FillCommon(h, boot_to_wall_ns, &decoded.event);
  decoded.cgroup_id = h.cgroup_id;
  decoded.tid = h.tid;
  return decoded;
}

}  // namespace agentmon
