#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/output/color.h"
#include "client/output/event_text.h"
#include "client/output/event_writer.h"
#include "client/output/text.h"
#include "client/output/times.h"
#include "daemon/event/kinds.h"

namespace agentmon {
namespace {

constexpr size_t kNamesShown = 5;  // of the objects of one kind below one process

using Key = std::pair<int32_t, uint64_t>;  // pid, start

Key KeyOf(const v1::ProcessKey& process) { return {process.pid(), process.start_ns()}; }

// The objects on which a process did one kind of act, in the order of their first time.
struct Acts {
  std::vector<std::string> names;
  std::map<std::string, uint64_t> counts;
  uint64_t total = 0;
  bool at_least = false;
  bool as_asked = false;
};

struct Process {
  Key parent{0, 0};
  std::string name;
  std::vector<std::string> execs;
  std::string exit;
  int64_t first_ns = 0;
  std::map<v1::EventKind, Acts> acts;
  std::vector<Key> children;
};

class TreeWriter : public EventWriter {
 public:
  TreeWriter(const EventWriterOptions& options, Output& output)
      : options_(options), output_(output), terminal_(output.is_terminal()), paint_(options.color) {}

  void OnEvent(const v1::Event& event) override {
    Session& session = SessionOf(event.session());
    if (event.process().pid() == 0 || event.kind() == v1::SESSION || event.kind() == v1::LOSS) {
      session.notes.push_back(What(event).Whole());
      return;
    }
    Process& process = ProcessOf(session, event);
    switch (event.kind()) {
      case v1::EXEC:
        process.execs.push_back(Subject(event));
        break;
      case v1::EXIT:
        process.exit = ExitText(event.exit());
        break;
      case v1::FORK:
        OnFork(session, event);
        break;
      default:
        OnAct(process, event);
    }
  }

  void OnGap(uint64_t missed) override { missed_ += missed; }

  void Finish() override {
    for (const auto& [id, session] : sessions_) WriteSession(id, session);
    if (missed_ != 0) output_.Line(absl::StrCat(missed_, " events are missing"));
  }

 private:
  struct Session {
    std::map<Key, Process> processes;
    std::vector<Key> order;  // of first sight
    std::vector<std::string> notes;
  };

  Session& SessionOf(const std::string& id) {
    for (auto& [known, session] : sessions_) {
      if (known == id) return session;
    }
    return sessions_.emplace_back(id, Session{}).second;
  }

  static Process& Seen(Session& session, const Key& key, int64_t at_ns) {
    const auto [it, is_new] = session.processes.try_emplace(key);
    if (is_new) {
      session.order.push_back(key);
      it->second.first_ns = at_ns;
    }
    return it->second;
  }

  static Process& ProcessOf(Session& session, const v1::Event& event) {
    Process& process = Seen(session, KeyOf(event.process()), event.wall_ns());
    if (event.parent().pid() != 0) process.parent = KeyOf(event.parent());
    if (!event.exe().empty()) process.name = ProcessName(event);
    return process;
  }

  static void OnFork(Session& session, const v1::Event& event) {
    Process& child = Seen(session, KeyOf(event.fork().child()), event.wall_ns());
    child.parent = KeyOf(event.process());
    if (child.name.empty()) child.name = ProcessName(event);
  }

  static void OnAct(Process& process, const v1::Event& event) {
    Acts& acts = process.acts[event.kind()];
    const WhatText what = What(event);
    const std::string name = what.decision + what.subject;
    const auto [it, is_new] = acts.counts.try_emplace(name, 0);
    if (is_new) acts.names.push_back(name);
    it->second += event.count();
    acts.total += event.count();
    acts.at_least = acts.at_least || event.count_is() == v1::AT_LEAST;
    acts.as_asked = acts.as_asked || event.as_asked();
  }

  void WriteSession(const std::string& id, const Session& session) {
    output_.Line(paint_(Color::kBold, absl::StrCat("session ", Printable(id))));
    for (const std::string& note : session.notes) output_.Line(Fit(absl::StrCat("  ", note)));
    std::map<Key, std::vector<Key>> children;
    std::vector<Key> roots;
    for (const Key& key : session.order) {
      const Key& parent = session.processes.at(key).parent;
      const bool known = parent != key && session.processes.count(parent) != 0;
      (known ? children[parent] : roots).push_back(key);
    }
    std::map<Key, bool> written;
    for (size_t i = 0; i < roots.size(); ++i) {
      WriteProcess(session, children, roots[i], "", i + 1 == roots.size(), &written);
    }
    // Nothing is left out, whatever parents the events claim: a circle hangs below its first process.
    for (const Key& key : session.order) WriteProcess(session, children, key, "", true, &written);
  }

  // Recursion as deep as the process tree; each process is written once.
  void WriteProcess(const Session& session, const std::map<Key, std::vector<Key>>& children, const Key& key,
                    const std::string& indent, bool last, std::map<Key, bool>* written) {
    if (std::exchange((*written)[key], true) || !output_.ok()) return;
    const Process& process = session.processes.at(key);
    const auto below = children.find(key);
    const bool has_children = below != children.end();
    output_.Line(Fit(absl::StrCat(indent, last ? "└─ " : "├─ ", Title(key, process))));
    const std::string inner = indent + (last ? "   " : "│  ");
    WriteActs(process, inner + (has_children ? "│    " : "     "));
    if (!has_children) return;
    for (size_t i = 0; i < below->second.size(); ++i) {
      WriteProcess(session, children, below->second[i], inner, i + 1 == below->second.size(), written);
    }
  }

  std::string Title(const Key& key, const Process& process) const {
    const std::string command = process.execs.empty()
                                    ? absl::StrCat("(", process.name.empty() ? "?" : process.name, ")")
                                    : process.execs[0];
    return absl::StrCat(
        key.first, " ", command,
        process.exit.empty() || process.exit == "status 0" ? "" : absl::StrCat("  [", process.exit, "]"));
  }

  void WriteActs(const Process& process, const std::string& indent) {
    for (size_t i = 1; i < process.execs.size(); ++i)
      output_.Line(Fit(absl::StrCat(indent, "became ", process.execs[i])));
    for (const auto& [kind, acts] : process.acts) {
      std::string line = absl::StrCat(indent, KindName(kind), acts.as_asked ? "? " : " ",
                                      acts.at_least && acts.total > 1 ? "≥" : "", acts.total, ": ");
      for (size_t i = 0; i < acts.names.size() && i < kNamesShown; ++i) {
        const uint64_t count = acts.counts.at(acts.names[i]);
        absl::StrAppend(&line, i == 0 ? "" : ", ", acts.names[i], count > 1 ? absl::StrCat(" ×", count) : "");
      }
      if (acts.names.size() > kNamesShown)
        absl::StrAppend(&line, " and ", acts.names.size() - kNamesShown, " more");
      output_.Line(Fit(line));
    }
  }

  std::string Fit(const std::string& line) const {
    return terminal_ ? CutToWidth(line, output_.columns()) : line;
  }

  const EventWriterOptions options_;
  Output& output_;
  const bool terminal_;
  const Paint paint_;
  std::vector<std::pair<std::string, Session>> sessions_;
  uint64_t missed_ = 0;
};

}  // namespace

std::unique_ptr<EventWriter> MakeTreeWriter(const EventWriterOptions& options, Output& output) {
  return std::make_unique<TreeWriter>(options, output);
}

}  // namespace agentmon
