#include "client/output/event_json.h"

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "client/output/names.h"
#include "client/output/text.h"
#include "client/output/times.h"
#include "common/base/status.h"
#include "daemon/event/kinds.h"

namespace agentmon {
namespace {

using Json = nlohmann::ordered_json;

void SetJudgement(Json& out, const v1::Judgement& judgement) {
  out["verdict"] = DecisionName(judgement.decision());
  out["enforced"] = judgement.enforced();
  if (!judgement.mechanism().empty()) out["mechanism"] = ToUtf8(judgement.mechanism());
  if (judgement.error() != 0) {
    out["errno"] = judgement.error();
    out["errno_name"] = ErrnoName(judgement.error());
  }
  if (!judgement.layer().empty()) out["layer"] = ToUtf8(judgement.layer());
  if (!judgement.rule().empty()) out["rule"] = ToUtf8(judgement.rule());
  if (!judgement.message().empty()) out["message"] = ToUtf8(judgement.message());
  if (!judgement.file().empty()) out["rule_file"] = ToUtf8(judgement.file());
  if (judgement.line() != 0) out["rule_line"] = judgement.line();
}

void SetExec(Json& out, const v1::Exec& exec) {
  SetWords(out, "argv", exec.argv());
  SetBytes(out, "cwd", exec.cwd());
  SetBytes(out, "filename", exec.filename());
  out["argv_bytes"] = exec.argv_bytes();
  if (exec.argv_cut()) out["argv_cut"] = true;
}

void SetExit(Json& out, const v1::Exit& exit) {
  if (exit.signal() == 0) {
    out["status"] = exit.status();
  } else {
    out["signal"] = exit.signal();
    out["signal_name"] = SignalName(exit.signal());
    out["core_dumped"] = exit.core_dumped();
  }
  out["cpu_ns"] = exit.cpu_ns();
  out["peak_rss_bytes"] = exit.peak_rss_bytes();
}

void SetFile(Json& out, v1::EventKind kind, const v1::File& file) {
  SetBytes(out, "path", file.path());
  if (kind == v1::RENAME || kind == v1::LINK || kind == v1::SYMLINK)
    SetBytes(out, "new_path", file.new_path());
  if (file.open_flags() != 0) {
    out["open_flags"] = file.open_flags();
    out["open_flags_text"] = OpenFlagsText(file.open_flags());
  }
  if (file.mode() != 0 || kind == v1::CHMOD) out["mode"] = ModeText(file.mode());
  if (kind == v1::CHOWN) {
    out["owner_uid"] = file.uid();
    out["owner_gid"] = file.gid();
  }
  if (kind == v1::TRUNCATE) out["size"] = file.size();
}

void SetNet(Json& out, const v1::Net& net) {
  out["protocol"] = ToUtf8(net.protocol());
  out["address"] = ToUtf8(net.address());
  out["port"] = net.port();
  out["result"] = ResultName(net.result());
  if (net.error() != 0) {
    out["error"] = ErrnoName(net.error());
    out["error_number"] = net.error();
  }
  if (net.flow() != 0) out["flow"] = net.flow();
  if (!net.name().empty()) out["name"] = ToUtf8(net.name());
}

void SetDns(Json& out, const v1::Dns& dns) {
  out["name"] = ToUtf8(dns.name());
  out["type"] = ToUtf8(dns.type());
  SetWords(out, "answers", dns.answers());
  out["rcode"] = ToUtf8(dns.rcode());
  out["protocol"] = ToUtf8(dns.protocol());
  out["server"] = ToUtf8(dns.server());
}

void SetHttp(Json& out, const v1::Http& http) {
  out["method"] = ToUtf8(http.method());
  out["host"] = ToUtf8(http.host());
  out["port"] = http.port();
  if (!http.path().empty()) out["path"] = ToUtf8(http.path());
  out["status"] = http.status();
}

void SetLimit(Json& out, const v1::Limit& limit) {
  out["resource"] = ToUtf8(limit.resource());
  out["limit"] = limit.limit();
  out["hits"] = limit.hits();
  out["killed"] = limit.killed();
}

void SetDetail(Json& out, const v1::Event& event) {
  switch (event.detail_case()) {
    case v1::Event::kExec:
      return SetExec(out, event.exec());
    case v1::Event::kFork:
      out["child_pid"] = event.fork().child().pid();
      out["child_start_ns"] = event.fork().child().start_ns();
      return;
    case v1::Event::kExit:
      return SetExit(out, event.exit());
    case v1::Event::kFile:
      return SetFile(out, event.kind(), event.file());
    case v1::Event::kNet:
      return SetNet(out, event.net());
    case v1::Event::kDns:
      return SetDns(out, event.dns());
    case v1::Event::kHttp:
      return SetHttp(out, event.http());
    case v1::Event::kUnix:
      SetBytes(out, "path", event.unix().path());
      out["abstract"] = event.unix().abstract();
      out["datagram"] = event.unix().datagram();
      return;
    case v1::Event::kSessionChange:
      out["change"] = ChangeName(event.session_change().what());
      if (!event.session_change().detail().empty()) out["detail"] = ToUtf8(event.session_change().detail());
      if (event.session_change().gap_ns() != 0) out["gap_ns"] = event.session_change().gap_ns();
      return;
    case v1::Event::kLoss:
      out["lost"] = event.loss().lost();
      out["lost_source"] = SourceName(event.loss().source());
      out["where"] = ToUtf8(event.loss().where());
      return;
    case v1::Event::kCall:
      out["call"] = ToUtf8(event.call().name());
      return;
    case v1::Event::kSignal:
      out["signal"] = event.signal().signal();
      out["signal_name"] = SignalName(event.signal().signal());
      out["target_pid"] = event.signal().target().pid();
      out["target_start_ns"] = event.signal().target().start_ns();
      return;
    case v1::Event::kLimit:
      return SetLimit(out, event.limit());
    case v1::Event::kUsage:
      return SetUsage(out, event.usage());
    case v1::Event::DETAIL_NOT_SET:
      return;
  }
}

}  // namespace

Json EventToJson(const v1::Event& event) {
  Json out;
  out["seq"] = event.seq();
  out["time"] = Rfc3339Utc(event.wall_ns());
  out["time_ns"] = event.wall_ns();
  out["boot_ns"] = event.boot_ns();
  out["session"] = ToUtf8(event.session());
  out["kind"] = KindName(event.kind());
  out["pid"] = event.process().pid();
  out["start_ns"] = event.process().start_ns();
  out["ppid"] = event.parent().pid();
  out["parent_start_ns"] = event.parent().start_ns();
  SetBytes(out, "exe", event.exe());
  out["uid"] = event.uid();
  out["source"] = SourceName(event.source());
  out["count"] = event.count();
  out["count_is"] = CountIsName(event.count_is());
  if (event.as_asked()) out["as_asked"] = true;
  if (event.redacted()) out["redacted"] = true;
  if (event.cut()) out["cut"] = true;
  if (event.has_judgement()) SetJudgement(out, event.judgement());
  SetDetail(out, event);
  return out;
}

void SetUsage(Json& out, const v1::Usage& usage) {
  out["cpu_ns"] = usage.cpu_ns();
  out["memory_bytes"] = usage.memory_bytes();
  out["memory_peak_bytes"] = usage.memory_peak_bytes();
  out["processes"] = usage.processes();
  out["read_bytes"] = usage.read_bytes();
  out["written_bytes"] = usage.written_bytes();
}

void SetBytes(Json& object, const std::string& key, absl::string_view bytes) {
  object[key] = ToUtf8(bytes);
  if (!IsUtf8(bytes)) object[key + "_b64"] = absl::Base64Escape(bytes);
}

void SetWords(Json& out, const std::string& key,
              const google::protobuf::RepeatedPtrField<std::string>& words) {
  Json texts = Json::array();
  bool lost = false;
  for (const std::string& word : words) {
    lost = lost || !IsUtf8(word);
    texts.push_back(ToUtf8(word));
  }
  out[key] = std::move(texts);
  if (!lost) return;
  Json raw = Json::array();
  for (const std::string& word : words) raw.push_back(absl::Base64Escape(word));
  out[key + "_b64"] = std::move(raw);
}

std::string DumpJson(const Json& value, int indent) {
  return EscapedJson(value.dump(indent, ' ', false, Json::error_handler_t::replace));
}

}  // namespace agentmon
