#include "daemon/resolver/question_limits.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace agentmon {

absl::string_view ParentDomain(absl::string_view name) {
  const size_t last = name.rfind('.');
  if (last == absl::string_view::npos || last == 0) return name;
  const size_t second = name.rfind('.', last - 1);
  if (second == absl::string_view::npos) return name;
  const bool short_suffix = name.size() - last - 1 == 2 && last - second - 1 <= 3;
  if (!short_suffix || second == 0) return name.substr(second + 1);
  const size_t third = name.rfind('.', second - 1);
  return third == absl::string_view::npos ? name : name.substr(third + 1);
}

bool QuestionLimits::TakeQuestion(absl::Time now) {
  if (now > filled_) {
    const double seconds = filled_ == absl::InfinitePast() ? 0 : absl::ToDoubleSeconds(now - filled_);
    tokens_ = std::min(options_.burst, tokens_ + seconds * options_.per_second);
    filled_ = now;
  }
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

absl::string_view QuestionLimits::Suspicion(const DnsQuestion& question, absl::Time now) {
  if (question.longest_label > options_.longest_label) return "a label of this length carries data";
  if (question.name.size() > options_.longest_name) return "a name of this length carries data";
  if (now >= window_ends_) {
    names_.clear();
    window_ends_ = now + options_.names_window;
  }
  const std::string parent(ParentDomain(question.name));
  if (parent == question.name) return "";
  auto it = names_.find(parent);
  if (it == names_.end()) {
    if (names_.size() >= options_.parents) return "too many different domains in a short time";
    it = names_.emplace(parent, absl::flat_hash_set<uint64_t>()).first;
  }
  const uint64_t hash = absl::Hash<absl::string_view>()(question.name);
  if (it->second.contains(hash)) return "";
  if (it->second.size() >= options_.names_per_parent)
    return "too many different names below one domain in a short time";
  it->second.insert(hash);
  return "";
}

}  // namespace agentmon
