#include "daemon/app/config.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include <functional>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/status.h"
#include "daemon/resolver/upstream.h"

namespace agentmon {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

// Collects errors with their lines while a mapping is read.
class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  void Error(const YAML::Mark& mark, absl::string_view what) {
    errors_.push_back(absl::StrCat(name_, ":", mark.line + 1, ": ", what));
  }
  absl::Status status() const {
    if (errors_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(errors_, "\n"));
  }

  using Setter = std::function<std::string(const std::string&)>;  // an error text, or empty
  // Every key must be in `keys`; a value is a scalar for its setter, or a mapping for its submap.
  void Map(const YAML::Node& node, const std::string& prefix, const std::map<std::string, Setter>& keys,
           const std::map<std::string, std::map<std::string, Setter>>& submaps) {
    std::map<std::string, bool> seen;
    for (const auto& entry : node) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      const std::string full = prefix + key;
      if (seen[key]) Error(entry.first.Mark(), absl::StrCat("'", full, "' is given twice"));
      seen[key] = true;
      if (const auto sub = submaps.find(key); sub != submaps.end()) {
        if (!entry.second.IsMap()) {
          Error(entry.second.Mark(), absl::StrCat("'", full, "' must be a mapping"));
        } else {
          Map(entry.second, full + ".", sub->second, {});
        }
        continue;
      }
      const auto it = keys.find(key);
      if (it == keys.end()) {
        std::vector<std::string> known;
        for (const auto& [k, unused] : keys) known.push_back(prefix + k);
        for (const auto& [k, unused] : submaps) known.push_back(prefix + k);
        Error(entry.first.Mark(),
              absl::StrCat("unknown key '", full, "'; known: ", absl::StrJoin(known, ", ")));
      } else if (!entry.second.IsScalar()) {
        Error(entry.second.Mark(), absl::StrCat("'", full, "' must be a single value"));
      } else if (const std::string error = it->second(entry.second.Scalar()); !error.empty()) {
        Error(entry.second.Mark(), absl::StrCat("'", full, "': ", error));
      }
    }
  }

 private:
  std::string name_;
  std::vector<std::string> errors_;
};

std::string SetPath(std::string* out, const std::string& text) {
  if (text.empty() || text[0] != '/') return absl::StrCat("'", text, "' is not an absolute path");
  *out = text;
  return "";
}

std::string SetLevel(LogLevel* out, const std::string& text) {
  static const std::map<std::string, LogLevel> levels = {{"error", LogLevel::kError},
                                                         {"warning", LogLevel::kWarning},
                                                         {"info", LogLevel::kInfo},
                                                         {"debug", LogLevel::kDebug}};
  const auto it = levels.find(text);
  if (it == levels.end()) return absl::StrCat("'", text, "' is not one of error, warning, info, debug");
  *out = it->second;
  return "";
}

// "30d", "12h", "2h30m": absl's durations and days.
std::string SetAge(absl::Duration* out, const std::string& text) {
  absl::string_view rest = text;
  int64_t days = 0;
  absl::Duration d;
  if (absl::ConsumeSuffix(&rest, "d") && absl::SimpleAtoi(rest, &days)) {
    d = absl::Hours(24) * days;
  } else if (!absl::ParseDuration(text, &d)) {
    return absl::StrCat("'", text, "' is not a duration such as 30d or 12h");
  }
  if (d < absl::Minutes(1)) return "must be at least 1m";
  *out = d;
  return "";
}

std::string SetSize(uint64_t* out, const std::string& text) {
  static const std::map<std::string, int> units = {{"", 0}, {"K", 10}, {"M", 20}, {"G", 30}, {"T", 40}};
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
  absl::string_view unit = absl::string_view(text).substr(digits);
  absl::ConsumeSuffix(&unit, "iB");
  uint64_t number = 0;
  const auto it = units.find(std::string(unit));
  if (it == units.end() || !absl::SimpleAtoi(text.substr(0, digits), &number) ||
      number > (UINT64_MAX >> it->second)) {
    return absl::StrCat("'", text, "' is not a size such as 2G or 500M");
  }
  if ((number << it->second) < (uint64_t{16} << 20)) return "must be at least 16M";
  *out = number << it->second;
  return "";
}

std::string SetCount(size_t* out, const std::string& text) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(text, &number) || number == 0 || number > 100'000) {
    return absl::StrCat("'", text, "' is not a number from 1 to 100000");
  }
  *out = number;
  return "";
}

std::string SetName(std::string* out, const std::string& text) {
  if (text.empty() || text.find('/') != std::string::npos) {
    return absl::StrCat("'", text, "' is not the name of a policy");
  }
  *out = text;
  return "";
}

std::string SetRefuse(bool* out, const std::string& text) {
  if (text != "refuse" && text != "warn") return absl::StrCat("'", text, "' is not one of refuse, warn");
  *out = text == "refuse";
  return "";
}

std::string SetServers(std::string* out, const std::string& text) {
  const absl::Status checked = Upstream::CheckServers(text);
  if (!checked.ok()) return std::string(checked.message());
  *out = text;
  return "";
}

std::string SetText(std::string* out, const std::string& text) {
  *out = text;
  return "";
}

std::string SetFallback(const std::string& text) {
  return text == "none" || text == "user" ? "" : absl::StrCat("'", text, "' is not one of none, user");
}

// Of a key in a user's file.
std::string Administrators(const std::string&) { return "is for /etc/agentmon/agentmond.yaml only"; }

absl::StatusOr<Config> Parse(const std::string& text, const std::string& name, Config c, bool of_user) {
  if (text.size() > kMaxBytes) return absl::InvalidArgumentError(absl::StrCat(name, ": larger than 1 MiB"));
  Reader reader(name);
  const auto to = [](auto set, auto* field) { return [=](const std::string& v) { return set(field, v); }; };
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return c;  // an empty file: the defaults
    if (!root.IsMap()) return absl::InvalidArgumentError(absl::StrCat(name, ":1: must be a mapping of keys"));
    reader.Map(
        root, "",
        {{"state_dir", to(SetPath, &c.state_dir)},
         {"runtime_dir", to(SetPath, &c.runtime_dir)},
         {"socket", to(SetPath, &c.socket)},
         {"log_level", to(SetLevel, &c.log_level)},
         {"admin_group", of_user ? Administrators : Reader::Setter(to(SetText, &c.admin_group))},
         {"default_policy", to(SetName, &c.policies.default_policy)},
         {"floor_dir", of_user ? Administrators : Reader::Setter(to(SetPath, &c.policies.floor_dir))},
         {"policies_dir", to(SetPath, &c.policies.policies_dir)}},
        // Read by clients: where a system installation is, a user's daemon may be used only when it says so.
        {{"client", {{"fallback", of_user ? Administrators : SetFallback}}},
         {"resolver", {{"servers", to(SetServers, &c.dns_servers)}}},
         {"retention", {{"max_age", to(SetAge, &c.max_age)}, {"max_size", to(SetSize, &c.max_size_bytes)}}},
         {"limits",
          {{"sessions_per_uid", to(SetCount, &c.sessions_per_uid)},
           {"on_unavailable", to(SetRefuse, &c.refuse_missing_limits)}}}});
  } catch (const YAML::DeepRecursion& e) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ":", e.mark.line + 1, ": nested deeper than ", e.depth(), " levels"));
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(name, ":", e.mark.line + 1, ": ", e.msg));
  }
  RETURN_IF_ERROR(reader.status());
  return c;
}

}  // namespace

absl::StatusOr<Config> ParseConfig(const std::string& text, const std::string& name) {
  return Parse(text, name, Config(), false);
}

absl::StatusOr<Config> LoadUserConfig(const std::string& path, const Config& defaults) {
  ASSIGN_OR_RETURN(const std::string text, ReadRootFile(path, kMaxBytes));
  return Parse(text, path, defaults, true);
}

absl::StatusOr<Config> LoadConfig(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadRootFile(path, kMaxBytes));
  return ParseConfig(text, path);
}

}  // namespace agentmon
