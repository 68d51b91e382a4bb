#include "daemon/event/redact_rules.h"

#include <algorithm>
#include <bitset>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "daemon/event/redact.h"

namespace agentmon {
namespace {

// Words that make a name a secret's when the name ends with them.
constexpr char kWords[] =
    "(?:password|passwd|passphrase|passwort|pwd|token|secret|api[-_]?key|access[-_]?key|secret[-_]?key"
    "|auth[-_]?key|private[-_]?key|encryption[-_]?key|account[-_]?key|bearer|client[-_]?secret|credential)";

// Names of variables whose value is a secret.
constexpr char kAssignedName[] =
    R"((?:[a-z0-9]+[_.\-])*[a-z0-9]*(?:pass|passwd|password|passphrase|token|secret|api_?key|access_?key)"
    R"(|private_?key|account_?key)(?:_[a-z0-9_]*)?)";

RE2* Compile(absl::string_view pattern) {
  RE2::Options options(RE2::Latin1);  // bytes, not characters
  options.set_dot_nl(true);
  options.set_log_errors(true);
  return new RE2(re2::StringPiece(pattern.data(), pattern.size()), options);
}

bool HasDigit(absl::string_view text) {
  for (char c : text) {
    if (absl::ascii_isdigit(static_cast<unsigned char>(c))) return true;
  }
  return false;
}

// A reference, a switch or nothing is no secret: $TOKEN, ${TOKEN}, true.
bool IsValue(absl::string_view, absl::string_view secret) {
  if (secret.empty() || secret[0] == '$' || absl::StartsWith(secret, "\"$") ||
      absl::StartsWith(secret, "'$")) {
    return false;
  }
  for (absl::string_view word : {"true", "false", "yes", "no", "on", "off", "none", "null", "\"\"", "''"}) {
    if (absl::EqualsIgnoreCase(secret, word)) return false;
  }
  return true;
}

bool LooksRandom(absl::string_view, absl::string_view secret) { return HasDigit(secret); }

// `before` ends with the name and '='. Files, names and sizes of secrets are none.
bool IsAssignedSecret(absl::string_view before, absl::string_view secret) {
  before = absl::StripSuffix(before, "=");
  if (absl::EndsWithIgnoreCase(before, "bypass") || absl::EndsWithIgnoreCase(before, "compass")) return false;
  if (absl::StartsWithIgnoreCase(before, "max") || absl::StartsWithIgnoreCase(before, "num")) return false;
  for (absl::string_view suffix :
       {"_file", "_path", "_dir", "_name", "_url", "_uri", "_id", "_type", "_length", "_limit", "_count",
        "_ttl", "_size", "_env", "_ref", "_version", "_expiry"}) {
    if (absl::EndsWithIgnoreCase(before, suffix)) return false;
  }
  return IsValue(before, secret);
}

// --no-password and the like take no value; --private-key mostly takes a file; docker's
// --secret id=x,src=y names a file too.
bool IsFlagSecret(absl::string_view before, absl::string_view secret) {
  const size_t flag = before.find('-');
  if (flag != absl::string_view::npos && absl::StartsWith(before.substr(flag), "--no-")) return false;
  if (absl::StartsWith(secret, "id=") || absl::StartsWith(secret, "-")) return false;
  if (absl::StrContains(before, "private") && absl::StrContains(secret, "/")) return false;
  return IsValue(before, secret);
}

#define QUOTED_OR_WORD "\"[^\"]*\"|'[^']*'|[^\\s\"']+"

// scheme://, where `slashes` is what a text or a path makes of it.
void AddUrlRules(absl::string_view slashes, std::vector<RedactionRule>* rules) {
  // scheme://user:PASSWORD@host; a password may contain '@'.
  rules->push_back(
      {Compile(absl::StrCat(R"([A-Za-z][A-Za-z0-9+.\-]*:)", slashes, R"([^\s/:@"'?#]*:([^\s/"'?#]+)@)")),
       nullptr});
  // scheme://LONG-TOKEN@host
  rules->push_back(
      {Compile(absl::StrCat(R"([A-Za-z][A-Za-z0-9+.\-]*:)", slashes, R"(([A-Za-z0-9_\-.~%]{20,})@)")),
       LooksRandom});
  rules->push_back({Compile(absl::StrCat(R"((?i)[?&;#](?:[a-z0-9_.\-]*)", kWords,
                                         R"(|key|sig|auth|[a-z0-9_.\-]*signature|jwt)=([^&;\s"'#]+))")),
                    IsValue});
}

void AddTokenRules(std::vector<RedactionRule>* rules) {
  rules->insert(
      rules->end(),
      {
          {Compile(R"(\b((?:AKIA|ASIA)[A-Z0-9]{16})\b)"), nullptr},
          {Compile(R"(\b(gh[pousr]_[A-Za-z0-9]{20,}))"), nullptr},
          {Compile(R"(\b(github_pat_[A-Za-z0-9_]{20,}))"), nullptr},
          {Compile(R"(\b(gl(?:pat|rt|dt|soat|cbt)-[A-Za-z0-9_\-]{16,}))"), LooksRandom},
          {Compile(R"(\b(xox[abeoprs]-[A-Za-z0-9\-]{10,}))"), nullptr},
          {Compile(R"(\b(sk-[A-Za-z0-9_\-]{20,}))"), LooksRandom},
          {Compile(R"(\b([sr]k_(?:live|test)_[A-Za-z0-9]{10,}))"), nullptr},
          {Compile(R"(\b(AIza[A-Za-z0-9_\-]{35}))"), nullptr},
          {Compile(R"(\b(ya29\.[A-Za-z0-9_\-]{20,}))"), nullptr},
          {Compile(R"(\b(eyJ[A-Za-z0-9_\-]{6,}\.eyJ[A-Za-z0-9_\-]{4,}\.[A-Za-z0-9_\-]*))"), nullptr},
          {Compile(R"(\b(npm_[A-Za-z0-9]{36}))"), nullptr},
          {Compile(R"(\b(pypi-AgEI[A-Za-z0-9_\-]{20,}))"), nullptr},
          {Compile(R"(\b(hf_[A-Za-z0-9]{30,}))"), nullptr},
      });
}

std::vector<RedactionRule>* MakeTextRules() {
  auto* rules = new std::vector<RedactionRule>;
  AddUrlRules("//", rules);
  rules->insert(
      rules->end(),
      {
          {Compile(R"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(.*?)(?:-----END|$))"), nullptr},
          // Headers: the scheme's name stays.
          {Compile(
               R"((?i)authorization["']?\s*[:=]\s*["']?(?:(?:basic|bearer|token|digest|negotiate|apikey|aws4-hmac-sha256)\s+)?([^\s"'][^"'\r\n]*))"),
           IsValue, true},
          {Compile(
               R"((?i)(?:\b|-H)(?:x-[a-z0-9\-]*(?:token|key|secret|auth)|private-token|api-?key)["']?\s*:\s*["']?([^\s"'][^"'\r\n]*))"),
           IsValue, true},
          {Compile(R"((?i)(?:\b|-H)(?:set-)?cookie["']?\s*:\s*["']?([^\s"'][^"'\r\n]*))"), IsValue},
          {Compile(R"((?i)\bbearer\s+([a-z0-9._~+/=\-]{12,}))"), LooksRandom},
          // --password=X, --Password:X, --db-token X, -secret=X
          {Compile(absl::StrCat(R"((?i)(?:^|[\s"'])--?(?:[a-z0-9][a-z0-9_.\-]*[\-_.]|no-)?)", kWords,
                                "(?:[=:]|\\s+)(" QUOTED_OR_WORD ")")),
           IsFlagSecret, true},
          // NAME=VALUE
          {Compile(absl::StrCat(R"((?i)\b)", kAssignedName, "=(" QUOTED_OR_WORD ")")), IsAssignedSecret,
           true},
          // "password": "X" in JSON
          {Compile(absl::StrCat(R"re((?i)"[a-z0-9_.\-]*)re", kWords, R"re("\s*:\s*"([^"]+)")re")), IsValue},
          {Compile(R"((?:^|\s)pass:(\S+))"), IsValue, true},  // openssl -passin
          // Short options inside a shell command.
          {Compile(
               R"(\b(?:mysql|mysqldump|mysqladmin|mysqlimport|mariadb|mariadb-dump)\s(?:[^|;&]*\s)?-p\s*([^\s"';|&<>\-][^\s"';|&]*))"),
           IsValue},
          {Compile(R"(\bsshpass\s+-p\s*("[^"]*"|'[^']*'|[^\s"']+))"), IsValue, true},
          {Compile(
               R"(\b(?:curl|wget)\s(?:[^|;&]*\s)?(?:-[A-Za-z]*[uU]|--user|--proxy-user)[\s=]*["']?[^\s:"']+:([^\s"']+))"),
           IsValue, true},
      });
  AddTokenRules(rules);
  return rules;
}

std::vector<RedactionRule>* MakePathRules() {
  auto* rules = new std::vector<RedactionRule>;
  AddUrlRules("/{1,3}", rules);
  rules->push_back(
      {Compile(absl::StrCat(R"((?i)\b)", kAssignedName, R"(=([^/\s"']+))")), IsAssignedSecret, true});
  AddTokenRules(rules);
  return rules;
}

// Grams of four bytes, lower case, one of which is in every text that a rule can find something in,
// but for what MaySecret looks at by itself.
constexpr const char* kGrams[] = {
    "pass", "pwd=", "pwd ", "toke", "secr", "key=", "key:", "key ",  "key\"", "-key", "_key", "apik", "auth",
    "bear", "cred", "cook", "sig=", "atur", "jwt=", "akia", "asia",  "ghp_",  "gho_", "ghu_", "ghs_", "ghr_",
    "_pat", "glpa", "glrt", "gldt", "glso", "glcb", "xoxa", "xoxb",  "xoxe",  "xoxo", "xoxp", "xoxr", "xoxs",
    "aiza", "ya29", "npm_", "pypi", "-beg", "k_li", "k_te", "pwd\"", "pwd:",  "mysq", "mari", "curl", "wget"};

constexpr uint32_t Hash(uint32_t gram) { return (gram * 2654435761u) >> 18; }  // 14 bits

const std::bitset<16384>& Grams() {
  static const auto* grams = [] {
    auto* bits = new std::bitset<16384>;
    for (const char* gram : kGrams) {
      uint32_t value = 0;
      for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(gram[i]);
      bits->set(Hash(value));
    }
    return bits;
  }();
  return *grams;
}

struct SecretOptionRow {
  absl::string_view command;
  absl::string_view option;
  SecretOption how;
  bool apart;     // "-p VALUE"
  bool attached;  // "-pVALUE"; "--user=VALUE" for long ones
};

constexpr SecretOptionRow kOptions[] = {
    {"mysql", "-p", SecretOption::kWhole, true,
     true},  // apart it is a data base's name, but many take it for the password
    {"mysqldump", "-p", SecretOption::kWhole, true, true},
    {"mysqladmin", "-p", SecretOption::kWhole, true, true},
    {"mysqlimport", "-p", SecretOption::kWhole, true, true},
    {"mariadb", "-p", SecretOption::kWhole, true, true},
    {"mariadb-dump", "-p", SecretOption::kWhole, true, true},
    {"mysqlsh", "-p", SecretOption::kWhole, true, true},
    {"mycli", "-p", SecretOption::kWhole, true, true},
    {"plink", "-pw", SecretOption::kWhole, true, false},
    {"pscp", "-pw", SecretOption::kWhole, true, false},
    {"wget", "-u", SecretOption::kAfterColon, true, true},
    {"sshpass", "-p", SecretOption::kWhole, true, true},
    {"redis-cli", "-a", SecretOption::kWhole, true, false},
    {"ldapsearch", "-w", SecretOption::kWhole, true, true},
    {"ldapmodify", "-w", SecretOption::kWhole, true, true},
    {"ldapadd", "-w", SecretOption::kWhole, true, true},
    {"mongo", "-p", SecretOption::kWhole, true, true},
    {"mongosh", "-p", SecretOption::kWhole, true, true},
    {"mongodump", "-p", SecretOption::kWhole, true, true},
    {"mongorestore", "-p", SecretOption::kWhole, true, true},
    {"sqlcmd", "-P", SecretOption::kWhole, true, true},
    {"bcp", "-P", SecretOption::kWhole, true, true},
    {"zip", "-P", SecretOption::kWhole, true, true},
    {"unzip", "-P", SecretOption::kWhole, true, true},
    {"7z", "-p", SecretOption::kWhole, false, true},
    {"7za", "-p", SecretOption::kWhole, false, true},
    {"7zz", "-p", SecretOption::kWhole, false, true},
    {"docker", "-p", SecretOption::kWholeAtLogin, true, true},  // else a port
    {"podman", "-p", SecretOption::kWholeAtLogin, true, true},
    {"buildah", "-p", SecretOption::kWholeAtLogin, true, true},
    {"skopeo", "-p", SecretOption::kWholeAtLogin, true, true},
    {"helm", "-p", SecretOption::kWholeAtLogin, true, true},
    {"az", "-p", SecretOption::kWholeAtLogin, true, true},
    {"curl", "-u", SecretOption::kAfterColon, true, true},
    {"curl", "-U", SecretOption::kAfterColon, true, true},
    {"curl", "--user", SecretOption::kAfterColon, true, true},
    {"curl", "--proxy-user", SecretOption::kAfterColon, true, true},
    {"http", "-a", SecretOption::kAfterColon, true, true},
    {"http", "--auth", SecretOption::kAfterColon, true, true},
    {"https", "-a", SecretOption::kAfterColon, true, true},
    {"https", "--auth", SecretOption::kAfterColon, true, true},
    {"xh", "-a", SecretOption::kAfterColon, true, true},
    {"ab", "-A", SecretOption::kAfterColon, true, true},
    {"ab", "-P", SecretOption::kAfterColon, true, true},
    {"smbclient", "-U", SecretOption::kAfterPercent, true, true},
};

}  // namespace

const std::vector<RedactionRule>& PathRules() {
  static const auto* rules = MakePathRules();
  return *rules;
}

absl::string_view WithoutTail(absl::string_view secret) {
  static const RE2* next =
      Compile(R"(;(?:\s|$|[A-Za-z_][\w.\-]*=)|&(?:\s|$|&|[A-Za-z_][\w.\-\[\]]*=)|\|(?:\s|$|\|))");
  re2::StringPiece found;
  if (!next->Match(re2::StringPiece(secret.data(), secret.size()), 1, secret.size(), RE2::UNANCHORED, &found,
                   1))
    return secret;
  return secret.substr(0, static_cast<size_t>(found.data() - secret.data()));
}

const std::vector<RedactionRule>& TextRules() {
  static const auto* rules = MakeTextRules();
  return *rules;
}

// Done before: with the mark alone, or with more than one word in which the first one is marked.
static bool IsMarked(absl::string_view secret) {
  return absl::ConsumePrefix(&secret, Redactor::kMark) &&
         (secret.empty() || !absl::ascii_isalnum(static_cast<unsigned char>(secret[0])));
}

bool ApplyRule(const RedactionRule& rule, std::string* text) {
  bool found = false;
  size_t from = 0;
  re2::StringPiece groups[2];
  while (from <= text->size() && rule.pattern->Match(*text, from, text->size(), RE2::UNANCHORED, groups, 2)) {
    const size_t start = static_cast<size_t>(groups[1].data() - text->data());
    const size_t length = groups[1].size();
    const size_t match = static_cast<size_t>(groups[0].data() - text->data());
    const absl::string_view all(*text);
    const absl::string_view found_here = all.substr(start, length);
    const absl::string_view secret =
        rule.cut_tail && !found_here.empty() ? WithoutTail(found_here) : found_here;
    from = std::max(start + secret.size(), match + 1);
    if (secret.empty() || IsMarked(secret)) continue;
    if (rule.is_secret != nullptr && !rule.is_secret(all.substr(match, start - match), secret)) continue;
    text->replace(start, secret.size(), Redactor::kMark.data(), Redactor::kMark.size());
    from = start + Redactor::kMark.size();
    found = true;
  }
  return found;
}

bool IsSecretAssignment(absl::string_view name, absl::string_view value) {
  static const RE2* pattern = Compile(absl::StrCat("(?i)", kAssignedName));
  return RE2::FullMatch(re2::StringPiece(name.data(), name.size()), *pattern) &&
         IsAssignedSecret(name, value);
}

bool IsFlagValue(absl::string_view flag, absl::string_view value) { return IsFlagSecret(flag, value); }

bool IsSecretFlag(absl::string_view flag) {
  static const RE2* pattern = Compile(absl::StrCat(R"((?i)--?(?:[a-z0-9][a-z0-9_.\-]*[\-_.])?)", kWords));
  if (absl::StartsWith(flag, "--no-")) return false;
  return RE2::FullMatch(re2::StringPiece(flag.data(), flag.size()), *pattern);
}

SecretOption OptionOf(absl::string_view command, absl::string_view option, bool attached) {
  for (const SecretOptionRow& row : kOptions) {
    if (row.command == command && row.option == option && (attached ? row.attached : row.apart))
      return row.how;
  }
  return SecretOption::kNone;
}

SecretOption LastOfCluster(absl::string_view command, absl::string_view arg, size_t* value_at) {
  if (command != "curl") return SecretOption::kNone;
  static constexpr absl::string_view kNoValue = "#0123469aBfgGiIjJkLlMnNOpqRsSvVZ";
  for (size_t i = 1; i < arg.size(); ++i) {
    if (arg[i] == 'u' || arg[i] == 'U') {
      *value_at = i + 1 < arg.size() ? i + 1 : 0;
      return OptionOf(command, arg[i] == 'u' ? "-u" : "-U", true);
    }
    if (kNoValue.find(arg[i]) == absl::string_view::npos) break;
  }
  return SecretOption::kNone;
}

bool HasSecretOptions(absl::string_view command) {
  for (const SecretOptionRow& row : kOptions) {
    if (row.command == command) return true;
  }
  return false;
}

bool MaySecret(absl::string_view text) {
  const std::bitset<16384>& grams = Grams();
  uint32_t gram = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    gram = gram << 8 | (byte >= 'A' && byte <= 'Z' ? byte | 0x20u : byte);
    if (grams[Hash(gram)]) return true;
    const uint32_t three = gram & 0xffffff;
    if (three == 0x736b2d || three == 0x65796a || three == 0x68665f) return true;     // "sk-", "eyJ", "hf_"
    if (three == 0x3a2f2f && text.find('@') != absl::string_view::npos) return true;  // "://"
  }
  return false;
}

}  // namespace agentmon
