#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/command/cli.h"
#include "client/docgen/docgen.h"
#include "client/output/names.h"

namespace agentmon {
namespace {

// What the value of an option can be.
enum class Value { kNone, kWords, kDirectory, kFile, kSession, kPid, kOther };

std::vector<std::string> Choices(const CLI::Option& option) {
  if (option.get_type_name() == "KIND") return KindWords();
  if (!absl::StrContains(option.get_type_name(), "|")) return {};
  return absl::StrSplit(option.get_type_name(), '|');
}

Value ValueOf(const CLI::Option& option) {
  if (option.get_type_size() == 0) return Value::kNone;
  if (!Choices(option).empty()) return Value::kWords;
  const std::string name = option.get_type_name();
  if (name == "DIR") return Value::kDirectory;
  if (name == "PATH") return Value::kFile;
  if (name == "ID") return Value::kSession;
  if (name == "PID") return Value::kPid;
  return Value::kOther;
}

std::vector<const CLI::App*> VerbsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> Names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

bool TakesSession(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() && ValueOf(*option) == Value::kSession) return true;
  }
  return false;
}

template <typename Visit>
void ForEachApp(const CLI::App& app, const Visit& visit) {
  visit(app);
  for (const CLI::App* verb : VerbsOf(app)) ForEachApp(*verb, visit);
}

// --- bash ---

std::string BashValue(const CLI::Option& option) {
  switch (ValueOf(option)) {
    case Value::kWords:
      return absl::StrCat("COMPREPLY=($(compgen -W '", absl::StrJoin(Choices(option), " "),
                          "' -- \"$cur\"))");
    case Value::kDirectory:
      return "COMPREPLY=($(compgen -d -- \"$cur\"))";
    case Value::kFile:
      return "COMPREPLY=($(compgen -f -- \"$cur\"))";
    case Value::kSession:
      return "COMPREPLY=($(compgen -W \"$(_agentmon_sessions)\" -- \"$cur\"))";
    case Value::kPid:
      return "COMPREPLY=($(compgen -W \"$(ps -o pid= -u \"$(id -u)\")\" -- \"$cur\"))";
    default:
      return "COMPREPLY=()";
  }
}

// The case arms of one verb: first what follows an option, then what can stand here.
std::string BashVerb(const CLI::App& app) {
  std::string values;
  std::vector<std::string> words;
  for (const CLI::App* verb : VerbsOf(app)) words.push_back(verb->get_name());
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) continue;
    for (const std::string& name : Names(*option)) words.push_back(name);
    if (ValueOf(*option) == Value::kNone) continue;
    absl::StrAppend(&values, "        ", absl::StrJoin(Names(*option), "|"), ") ", BashValue(*option),
                    "; return ;;\n");
  }
  const std::string sessions = TakesSession(app) ? " $(_agentmon_sessions)" : "";
  return absl::StrCat("    '", FullName(app), "')\n      case $prev in\n", values,
                      "      esac\n      COMPREPLY=($(compgen -W \"", absl::StrJoin(words, " "), sessions,
                      "\" -- \"$cur\")) ;;\n");
}

constexpr char kBashHead[] = R"(# bash completion for agentmon. Made by agentmon-docgen.
# shellcheck disable=SC2207

_agentmon_sessions() {
  agentmon session list --all 2>/dev/null | awk 'NR > 1 { print $1 }'
}

_agentmon() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=agentmon i
  for ((i = 1; i < COMP_CWORD; i++)); do
    # Behind the first -- stands a command of its own.
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      if declare -F _command_offset >/dev/null; then _command_offset $((i + 1)); else COMPREPLY=($(compgen -c -f -- "$cur")); fi
      return
    fi
    case "$verb ${COMP_WORDS[i]}" in
)";

constexpr char kBashMiddle[] = R"(    esac
  done
  case $verb in
)";

constexpr char kBashTail[] = R"(  esac
}
complete -F _agentmon agentmon
)";

// --- zsh ---

std::string ZshQuote(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

std::string ZshValue(const CLI::Option& option) {
  const std::string name = absl::StrReplaceAll(option.get_type_name(), {{"|", " or "}});
  switch (ValueOf(option)) {
    case Value::kNone:
      return "";
    case Value::kWords:
      return absl::StrCat(":value:(", absl::StrJoin(Choices(option), " "), ")");
    case Value::kDirectory:
      return ":directory:_files -/";
    case Value::kFile:
      return ":file:_files";
    case Value::kSession:
      return ":session:_agentmon_sessions";
    case Value::kPid:
      return ":process:_pids";
    case Value::kOther:
      return absl::StrCat(":", name, ":");
  }
  return "";
}

std::string ZshFunction(const CLI::App& app) {
  const std::string name = absl::StrReplaceAll(FullName(app), {{" ", "_"}});
  std::string out =
      absl::StrCat("_", name, "() {\n  local curcontext=$curcontext state line\n  _arguments -C");
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      absl::StrAppend(&out, " \\\n    '1", ZshValue(*option), "'");
      continue;
    }
    for (const std::string& option_name : Names(*option)) {
      absl::StrAppend(&out, " \\\n    '*", option_name, "[", ZshQuote(option->get_description()), "]",
                      ZshValue(*option), "'");
    }
  }
  const std::vector<const CLI::App*> verbs = VerbsOf(app);
  if (!UsageTail(app).empty()) absl::StrAppend(&out, " \\\n    '*:: :_normal'");
  if (verbs.empty()) return absl::StrCat(out, "\n}\n\n");
  absl::StrAppend(&out,
                  " \\\n    '1:verb:->verb' \\\n    '*:: :->below'\n  case $state in\n    verb)\n      local "
                  "-a verbs=(\n");
  for (const CLI::App* verb : verbs) {
    absl::StrAppend(&out, "        '", verb->get_name(), ":", ZshQuote(verb->get_description()), "'\n");
  }
  absl::StrAppend(&out, "      )\n      _describe verb verbs ;;\n    below)\n      case $line[1] in\n");
  for (const CLI::App* verb : verbs) {
    absl::StrAppend(&out, "        ", verb->get_name(), ") _", name, "_", verb->get_name(), " ;;\n");
  }
  return absl::StrCat(out, "      esac ;;\n  esac\n}\n\n");
}

// --- fish ---

std::string FishQuote(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string FishValue(const CLI::Option& option) {
  switch (ValueOf(option)) {
    case Value::kNone:
      return "";
    case Value::kWords:
      return absl::StrCat(" -x -a ", FishQuote(absl::StrJoin(Choices(option), " ")));
    case Value::kDirectory:
      return " -x -a '(__fish_complete_directories)'";
    case Value::kFile:
      return " -r -F";
    case Value::kSession:
      return " -x -a '(__agentmon_sessions)'";
    case Value::kPid:
      return " -x -a '(__fish_complete_pids)'";
    case Value::kOther:
      return " -x";
  }
  return "";
}

std::string FishVerb(const CLI::App& app) {
  const std::string condition = absl::StrCat("complete -c agentmon -n '__agentmon_at ", FullName(app), "'");
  std::string out;
  for (const CLI::App* verb : VerbsOf(app)) {
    absl::StrAppend(&out, condition, " -f -a ", verb->get_name(), " -d ", FishQuote(verb->get_description()),
                    "\n");
  }
  for (const CLI::Option* option : app.get_options()) {
    absl::StrAppend(&out, condition);
    for (const std::string& name : option->get_snames()) absl::StrAppend(&out, " -s ", name);
    for (const std::string& name : option->get_lnames()) absl::StrAppend(&out, " -l ", name);
    const std::string value = FishValue(*option);
    absl::StrAppend(&out, option->get_positional() ? " -f" : "", value, " -d ",
                    FishQuote(option->get_description()), "\n");
  }
  return out;
}

constexpr char kFishHead[] = R"(# fish completion for agentmon. Made by agentmon-docgen.

function __agentmon_sessions
    agentmon session list --all 2>/dev/null | awk 'NR > 1 { print $1 }'
end

# True when the verbs given so far are exactly these, and no -- was seen.
function __agentmon_at
    set -l words (commandline -opc)
    contains -- -- $words; and return 1
    set -l verb agentmon
    for word in $words[2..-1]
        switch "$verb $word"
            case )";

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::string out = kBashHead;
  ForEachApp(app, [&](const CLI::App& one) {
    if (one.get_parent() != nullptr)
      absl::StrAppend(&out, "      '", FullName(one), "') verb='", FullName(one), "' ;;\n");
  });
  absl::StrAppend(&out, kBashMiddle);
  ForEachApp(app, [&](const CLI::App& one) { absl::StrAppend(&out, BashVerb(one)); });
  return absl::StrCat(out, kBashTail);
}

std::string ZshCompletion(const CLI::App& app) {
  std::string out =
      "#compdef agentmon\n# zsh completion for agentmon. Made by agentmon-docgen.\n\n"
      "_agentmon_sessions() {\n  local -a ids=(${(f)\"$(agentmon session list --all 2>/dev/null | "
      "awk 'NR > 1 { print $1 }')\"})\n  _describe session ids\n}\n\n";
  ForEachApp(app, [&](const CLI::App& one) { absl::StrAppend(&out, ZshFunction(one)); });
  return absl::StrCat(out, "_agentmon \"$@\"\n");
}

std::string FishCompletion(const CLI::App& app) {
  std::string out = kFishHead;
  std::vector<std::string> names;
  ForEachApp(app, [&](const CLI::App& one) {
    if (one.get_parent() != nullptr) names.push_back(absl::StrCat("'", FullName(one), "'"));
  });
  absl::StrAppend(&out, absl::StrJoin(names, " "),
                  "\n                set verb \"$verb $word\"\n        end\n    end\n    test \"$verb\" = "
                  "\"$argv\"\nend\n\n");
  ForEachApp(app, [&](const CLI::App& one) { absl::StrAppend(&out, FishVerb(one)); });
  return out;
}

}  // namespace agentmon
