#include "common/cli/usage_error.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

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

std::vector<std::string> LongNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// For "-n" the only long option with this letter; else the name itself.
std::string LongFor(const std::string& name, const CLI::App& app) {
  if (name.size() != 2) return name;
  std::string found;
  for (const std::string& option : LongNames(app)) {
    if (option[2] != name[1]) continue;
    if (!found.empty()) return name;
    found = option;
  }
  return found.empty() ? name : found;
}

std::vector<const CLI::App*> Verbs(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

bool HasOption(const CLI::App& app, const std::string& name) {
  return app.get_option_no_throw(name) != nullptr;
}

// "list" -> "session list".
const CLI::App* VerbBelow(const CLI::App& app, const std::string& name) {
  for (const CLI::App* verb : Verbs(app)) {
    for (const CLI::App* below : Verbs(*verb)) {
      if (below->get_name() == name) return below;
    }
  }
  return nullptr;
}

// The verb that an option before it belongs to: one that was given, else any below. Null when none knows it.
const CLI::App* OwnerBelow(const CLI::App& app, const std::string& name) {
  std::vector<const CLI::App*> verbs = Verbs(app);
  std::stable_partition(verbs.begin(), verbs.end(), [](const CLI::App* verb) { return verb->parsed(); });
  for (const CLI::App* verb : verbs) {
    if (HasOption(*verb, name)) return verb;
    if (const CLI::App* owner = OwnerBelow(*verb, name)) return owner;
  }
  return nullptr;
}

std::string Unexpected(const CLI::App& app, const std::string& word, absl::string_view about_arguments) {
  if (absl::StartsWith(word, "-")) {
    const std::string name = word.substr(0, word.find('='));
    if (const CLI::App* owner = OwnerBelow(app, name)) {
      return absl::StrCat("'", name, "' stands behind its verb, as in '", FullName(*owner), " ", name, "'");
    }
    return absl::StrCat("unknown option '", name, "'", DidYouMean(LongFor(name, app), LongNames(app)));
  }
  std::vector<std::string> verbs;
  for (const CLI::App* verb : Verbs(app)) verbs.push_back(verb->get_name());
  std::string near = DidYouMean(word, verbs);
  if (const CLI::App* verb = VerbBelow(app, word))
    near = absl::StrCat(", did you mean '", FullName(*verb), "'?");
  if (!near.empty()) return absl::StrCat("unknown verb '", word, "'", near);
  if (app.get_require_subcommand_min() > 0)
    return absl::StrCat("unknown verb '", word, "', there are ", absl::StrJoin(verbs, ", "));
  return absl::StrCat("unexpected argument '", word, "'", about_arguments.empty() ? "" : ": ",
                      about_arguments);
}

// The option that the parser's text speaks of.
const CLI::Option* OptionOf(const CLI::App& app, absl::string_view text) {
  absl::ConsumePrefix(&text, "Could not convert: ");
  const absl::string_view name = text.substr(0, text.find_first_of(": "));
  for (const CLI::App* one = &app; one != nullptr; one = one->get_parent()) {
    for (const CLI::Option* option : one->get_options()) {
      if (option->get_name() == name) return option;
    }
  }
  return nullptr;
}

std::string Cause(const CLI::App& verb, const CLI::ParseError& error, absl::string_view about_arguments) {
  // What a verb left over is told before what it did not get: it is probably the same slip.
  for (const CLI::App* app = &verb; app != nullptr; app = app->get_parent()) {
    const std::vector<std::string> remaining = app->remaining();
    if (!remaining.empty()) return Unexpected(*app, remaining.front(), about_arguments);
  }
  const CLI::Option* option = OptionOf(verb, error.what());
  if (error.get_name() == "RequiredError" && option == nullptr) return "a verb is missing";
  if (option == nullptr) return error.what();
  const std::string name = option->get_name();
  const std::string usage = absl::StrCat(name, " ", option->get_type_name());
  if (error.get_name() == "RequiredError")
    return absl::StrCat(name, " is required, as in '", FullName(verb), " ", usage, "'");
  if (error.get_name() == "ArgumentMismatch")
    return absl::StrCat(name, " needs a value, as in '", FullName(verb), " ", usage, "'");
  if (error.get_name() == "ConversionError" && option->get_expected_max() == 0)
    return absl::StrCat(name, " takes no value");
  return error.what();
}

}  // namespace

std::string FullName(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : absl::StrCat(FullName(*app.get_parent()), " ", app.get_name());
}

std::string UsageErrorText(const CLI::App& verb, const CLI::ParseError& error,
                           absl::string_view about_arguments) {
  const std::string name = FullName(verb);
  const size_t space = name.find(' ');
  const std::string below = space == std::string::npos ? "" : absl::StrCat(name.substr(space + 1), ": ");
  return absl::StrCat(below, Cause(verb, error, about_arguments), " ('", name, " --help' explains)");
}

std::string DidYouMean(absl::string_view word, const std::vector<std::string>& candidates) {
  const std::string nearest = Nearest(word, candidates);
  return nearest.empty() ? "" : absl::StrCat(", did you mean '", nearest, "'?");
}

std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates) {
  std::string nearest;
  size_t best = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (word.size() >= 3 && absl::StartsWith(candidate, word)) return candidate;
    const size_t distance = Distance(word, candidate);
    // Two slips in a short word make any other; the first letter is seldom one.
    if (distance > 1 && word.size() <= 4 && word.substr(0, 1) != absl::string_view(candidate).substr(0, 1))
      continue;
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace agentmon
