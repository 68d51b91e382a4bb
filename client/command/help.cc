#include "client/command/help.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/command/cli.h"
#include "client/output/text.h"

namespace agentmon {
namespace {

constexpr int kColumns = 80;
constexpr int kIndent = 26;  // where the descriptions start

std::string Entry(const std::string& left, const std::string& right) {
  std::string out = absl::StrCat("  ", left);
  const bool fits = DisplayWidth(out) < kIndent - 1;
  out = fits ? PadRight(out, kIndent) : absl::StrCat(out, "\n", std::string(kIndent, ' '));
  const std::string join = absl::StrCat("\n", std::string(kIndent, ' '));
  return absl::StrCat(out, absl::StrJoin(WrapWords(right, kColumns - kIndent), join), "\n");
}

std::string Footer(const std::string& footer) {
  std::string out;
  for (const absl::string_view line : absl::StrSplit(footer, '\n')) {
    const bool is_example = line.substr(0, 2) == "  ";
    absl::StrAppend(&out, is_example ? std::string(line) : absl::StrJoin(WrapWords(line, kColumns), "\n"),
                    "\n");
  }
  return out;
}

}  // namespace

std::string UsageLine(const CLI::App& app) {
  std::string usage = FullName(app);
  for (const CLI::Option* option : app.get_options([](const CLI::Option* o) { return o->get_required(); }))
    absl::StrAppend(&usage, " ", OptionSynopsis(*option));
  absl::StrAppend(&usage, " [OPTIONS]");
  for (const CLI::Option* option :
       app.get_options([](const CLI::Option* o) { return o->get_positional(); })) {
    absl::StrAppend(&usage, " [", option->get_name(true), "]");
  }
  if (!app.get_subcommands([](const CLI::App*) { return true; }).empty()) {
    absl::StrAppend(&usage, app.get_require_subcommand_min() > 0 ? " VERB ..." : " [VERB ...]");
  }
  const std::string tail = UsageTail(app);
  return absl::StrCat(usage, tail.empty() ? "" : " ", tail);
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const {
  std::string out = absl::StrCat("Usage: ", UsageLine(*app), "\n\n",
                                 absl::StrJoin(WrapWords(app->get_description(), kColumns), "\n"), "\n");
  const std::vector<const CLI::App*> verbs = app->get_subcommands([](const CLI::App*) { return true; });
  if (!verbs.empty()) absl::StrAppend(&out, "\nVerbs:\n");
  for (const CLI::App* verb : verbs) absl::StrAppend(&out, Entry(verb->get_name(), verb->get_description()));
  absl::StrAppend(&out, "\nOptions:\n");
  for (const CLI::Option* option : app->get_options()) {
    absl::StrAppend(&out, Entry(OptionSynopsis(*option), option->get_description()));
  }
  if (!app->get_footer().empty()) absl::StrAppend(&out, "\n", Footer(app->get_footer()));
  return out;
}

std::string OptionSynopsis(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true);
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  const std::string value = option.get_type_size() == 0 ? "" : option.get_type_name();
  return absl::StrCat(absl::StrJoin(names, ", "), value.empty() ? "" : " ", value);
}

std::vector<std::string> WrapWords(absl::string_view text, size_t width) {
  std::vector<std::string> lines{""};
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    std::string& line = lines.back();
    if (!line.empty() && static_cast<size_t>(DisplayWidth(line) + 1 + DisplayWidth(word)) > width) {
      lines.emplace_back(word);
    } else {
      absl::StrAppend(&line, line.empty() ? "" : " ", word);
    }
  }
  return lines;
}

}  // namespace agentmon
