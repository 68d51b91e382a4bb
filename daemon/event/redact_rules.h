// The forms in which secrets are known. Used by the redactor only.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "re2/re2.h"

namespace agentmon {

// A pattern with exactly one group, the secret, and optionally a second look at what it found: the
// text before the secret (from the start of the match) and the secret.
struct RedactionRule {
  const RE2* pattern;
  bool (*is_secret)(absl::string_view before, absl::string_view secret);
  bool cut_tail = false;  // what WithoutTail takes off is none of the secret
};

const std::vector<RedactionRule>& TextRules();
// Of paths, in which the kernel makes one slash of several.
const std::vector<RedactionRule>& PathRules();

// Without what begins the next thing: "; ls", "&x=1", " && ls". A secret may have such characters otherwise.
absl::string_view WithoutTail(absl::string_view secret);

// Replaces what a rule finds, left to right. True when it found something.
bool ApplyRule(const RedactionRule& rule, std::string* text);

// True for an option whose value is a secret: "--db-password", "-token", "--api-key".
bool IsSecretFlag(absl::string_view flag);
// False for values that are none, like a file's name after --private-key.
bool IsFlagValue(absl::string_view flag, absl::string_view value);
// NAME=VALUE where the name says secret.
bool IsSecretAssignment(absl::string_view name, absl::string_view value);

// What of an option's value is secret. AtLogin: only with a "login" among the arguments.
enum class SecretOption { kNone, kWhole, kWholeAtLogin, kAfterColon, kAfterPercent };
// `command` is a base name, `option` like "-p". `attached`: the value is in the same argument.
SecretOption OptionOf(absl::string_view command, absl::string_view option, bool attached);
bool HasSecretOptions(absl::string_view command);
// "-su" of curl is -s and -u. Where the value of the last one begins, 0 = there is none in it.
SecretOption LastOfCluster(absl::string_view command, absl::string_view arg, size_t* value_at);

// Cheap look: false = no rule can find anything in it.
bool MaySecret(absl::string_view text);

}  // namespace agentmon
