#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/output/event_text.h"
#include "client/output/event_writer.h"
#include "client/output/names.h"
#include "client/output/text.h"
#include "client/output/times.h"
#include "common/base/status.h"
#include "daemon/event/kinds.h"

namespace agentmon {
namespace {

constexpr char kHeader[] =
    "seq,time,session,kind,pid,start_ns,ppid,exe,uid,source,count,count_is,as_asked,redacted,cut,verdict,"
    "enforced,"
    "mechanism,errno,rule,path,new_path,argv,cwd,address,port,protocol,result,error,detail,"
    "exe_b64,path_b64,new_path_b64,cwd_b64";
// Columns between the kind of a row and its detail, and behind the detail.
constexpr int kBetween = 25, kBehind = 4;

std::string Flag(bool value) { return value ? "true" : ""; }

// RFC 4180, \n in place of \r\n.
std::string Quoted(absl::string_view field) {
  if (field.find_first_of(",\"\r\n") == absl::string_view::npos) return std::string(field);
  std::string out = "\"";
  for (const char c : field) absl::StrAppend(&out, c == '"' ? "\"\"" : absl::string_view(&c, 1));
  return out + "\"";
}

class CsvWriter : public EventWriter {
 public:
  explicit CsvWriter(Output& output) : output_(output), terminal_(output.is_terminal()) {}

  void OnEvent(const v1::Event& event) override {
    WriteHeaderOnce();
    std::vector<std::string> fields = Common(event);
    for (std::string& field : Judged(event)) fields.push_back(std::move(field));
    for (std::string& field : Detail(event)) fields.push_back(std::move(field));
    for (std::string& field : Bytes(event)) fields.push_back(std::move(field));
    for (std::string& field : fields) field = Quoted(field);
    output_.Line(absl::StrJoin(fields, ","));
  }
  void OnGap(uint64_t missed) override {
    WriteHeaderOnce();
    output_.Line(absl::StrCat(",,,stream_gap", std::string(kBetween + 1, ','), missed, " events are missing",
                              std::string(kBehind, ',')));
  }
  void Finish() override { WriteHeaderOnce(); }

 private:
  void WriteHeaderOnce() {
    if (!header_written_) output_.Line(kHeader);
    header_written_ = true;
  }

  // Programs get what is there, as UTF-8; people nothing that moves their cursor.
  std::string Text(absl::string_view bytes) const { return terminal_ ? Printable(bytes) : ToUtf8(bytes); }

  std::vector<std::string> Common(const v1::Event& event) const {
    return {absl::StrCat(event.seq()),
            Rfc3339Utc(event.wall_ns()),
            Text(event.session()),
            KindName(event.kind()),
            absl::StrCat(event.process().pid()),
            absl::StrCat(event.process().start_ns()),
            absl::StrCat(event.parent().pid()),
            Text(event.exe()),
            absl::StrCat(event.uid()),
            SourceName(event.source()),
            absl::StrCat(event.count()),
            CountIsName(event.count_is()),
            Flag(event.as_asked()),
            Flag(event.redacted()),
            Flag(event.cut())};
  }

  std::vector<std::string> Judged(const v1::Event& event) const {
    if (!event.has_judgement()) return std::vector<std::string>(5);
    const v1::Judgement& judgement = event.judgement();
    return {DecisionName(judgement.decision()), judgement.enforced() ? "yes" : "no",
            Text(judgement.mechanism()), judgement.error() == 0 ? "" : ErrnoName(judgement.error()),
            Text(judgement.rule())};
  }

  std::vector<std::string> Detail(const v1::Event& event) const {
    std::string path, new_path, argv, cwd, address, port, protocol, result, error, detail;
    switch (event.detail_case()) {
      case v1::Event::kExec:
        argv = ShellQuoteAll({event.exec().argv().begin(), event.exec().argv().end()});
        path = Text(event.exec().filename());
        cwd = Text(event.exec().cwd());
        break;
      case v1::Event::kFile:
        path = Text(event.file().path());
        new_path = Text(event.file().new_path());
        if (event.file().mode() != 0 || event.kind() == v1::CHMOD) detail = ModeText(event.file().mode());
        break;
      case v1::Event::kNet:
        address = Text(event.net().address());
        port = absl::StrCat(event.net().port());
        protocol = Text(event.net().protocol());
        result = ResultName(event.net().result());
        if (event.net().error() != 0) error = ErrnoName(event.net().error());
        detail = Text(event.net().name());
        break;
      case v1::Event::kFork:
        detail = absl::StrCat(event.fork().child().pid());
        break;
      case v1::Event::kUnix:
        path = Text(event.unix().path());
        break;
      default:
        detail = Subject(event);
    }
    return {path, new_path, argv, cwd, address, port, protocol, result, error, detail};
  }

  // What lost something as text; arguments are quoted so that a shell reads them back.
  static std::vector<std::string> Bytes(const v1::Event& event) {
    const auto coded = [](absl::string_view bytes) {
      return IsUtf8(bytes) ? std::string() : absl::Base64Escape(bytes);
    };
    const std::string& path = event.has_exec()   ? event.exec().filename()
                              : event.has_unix() ? event.unix().path()
                                                 : event.file().path();
    return {coded(event.exe()), coded(path), coded(event.file().new_path()), coded(event.exec().cwd())};
  }

  Output& output_;
  const bool terminal_;
  bool header_written_ = false;
};

}  // namespace

std::unique_ptr<EventWriter> MakeCsvWriter(Output& output) { return std::make_unique<CsvWriter>(output); }

}  // namespace agentmon
