#include "client/command/usage_error.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/command/cli.h"

namespace agentmon {
namespace {

// Insertions, deletions, replacements and swaps of neighbours.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> VerbNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(verb->get_name());
  return names;
}

std::string Unexpected(const CLI::App& verb, const std::string& word) {
  if (absl::StartsWith(word, "-")) {
    const std::string name = word.substr(0, word.find('='));
    return absl::StrCat("unknown option '", name, "'", DidYouMean(name, OptionNames(verb)));
  }
  const std::vector<std::string> verbs = VerbNames(verb);
  if (!verbs.empty()) return absl::StrCat("unknown verb '", word, "'", DidYouMean(word, verbs));
  return absl::StrCat("unexpected argument '", word, "'",
                      UsageTail(verb).empty() ? "" : ": the agent's command stands behind '--'");
}

std::string Cause(const CLI::App& verb, const CLI::ParseError& error) {
  const std::vector<std::string> remaining = verb.remaining();
  if (!remaining.empty()) return Unexpected(verb, remaining.front());
  if (error.get_name() == "RequiredError" && !VerbNames(verb).empty()) return "a verb is missing";
  return error.what();
}

}  // namespace

std::string UsageErrorText(const CLI::App& verb, const CLI::ParseError& error) {
  const std::string name = FullName(verb);
  const std::string below = name == "agentmon" ? "" : absl::StrCat(name.substr(sizeof "agentmon"), ": ");
  return absl::StrCat(below, Cause(verb, error), " ('", name, " --help' explains)");
}

std::string DidYouMean(absl::string_view word, const std::vector<std::string>& candidates) {
  const std::string nearest = Nearest(word, candidates);
  return nearest.empty() ? "" : absl::StrCat(", did you mean '", nearest, "'?");
}

std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates) {
  std::string nearest;
  size_t best = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = Distance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace agentmon
