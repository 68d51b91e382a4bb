#include "daemon/event/fold.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace agentmon {
namespace {

// Windows end on this grid, so that a flush looks through the keys at most once per step.
constexpr int64_t kGridNs = 1'000'000'000;

bool IsFolded(const Event& event) {
  switch (event.kind()) {
    case v1::EXEC:
    case v1::FORK:
    case v1::EXIT:
    case v1::EVENT_KIND_UNSPECIFIED:
      return false;
    default:
      break;
  }
  return event.kind() < v1::SESSION && event.source() != v1::DAEMON &&
         !(event.judgement().decision() == v1::DENY && event.judgement().enforced());
}

// Each field is preceded by its length: no two sequences of fields look alike.
class KeyBuilder {
 public:
  KeyBuilder& Add(const std::string& bytes) { return Add(bytes.size()).Append(bytes); }
  KeyBuilder& Add(uint64_t number) {
    do key_ += static_cast<char>((number & 0x7f) | (number > 0x7f ? 0x80 : 0));
    while ((number >>= 7) != 0);
    return *this;
  }
  std::string Take() { return std::move(key_); }

 private:
  KeyBuilder& Append(const std::string& bytes) {
    key_ += bytes;
    return *this;
  }
  std::string key_;
};

// What makes two acts of one process the same act. Times, flow, open flags and sizes do not.
std::string KeyOf(const Event& event) {
  KeyBuilder key;
  key.Add(event.kind()).Add(event.source()).Add(event.as_asked()).Add(event.exe()).Add(event.uid());
  key.Add(event.judgement().decision()).Add(event.judgement().rule()).Add(event.judgement().enforced());
  if (event.has_file()) {
    const v1::File& file = event.file();
    key.Add(file.path()).Add(file.new_path()).Add(file.mode());
    key.Add(static_cast<uint64_t>(file.uid())).Add(static_cast<uint64_t>(file.gid()));
  } else if (event.has_net()) {
    const v1::Net& net = event.net();
    key.Add(net.protocol()).Add(net.address()).Add(net.port()).Add(net.result());
    key.Add(static_cast<uint64_t>(net.error())).Add(net.name());
  } else if (event.has_dns()) {  // answers come in another order each time
    const v1::Dns& dns = event.dns();
    key.Add(dns.name()).Add(dns.type()).Add(dns.rcode()).Add(dns.protocol()).Add(dns.server());
  } else if (event.has_http()) {
    const v1::Http& http = event.http();
    key.Add(http.method()).Add(http.host()).Add(http.port()).Add(http.path()).Add(http.status());
  } else if (event.has_unix()) {
    key.Add(event.unix().path()).Add(event.unix().abstract()).Add(event.unix().datagram());
  }
  return key.Take();
}

}  // namespace

void Folder::OnEvent(const Event& event) {
  if (event.boot_ns() >= next_flush_ns_) Flush(event.boot_ns());
  if (event.kind() == v1::EXIT) EndProcess(OwnerOf(event));
  if (!IsFolded(event)) return out_.OnEvent(event);
  Entries& entries = owners_[OwnerOf(event)];
  std::string key = KeyOf(event);
  if (const auto found = entries.find(key); found != entries.end()) return Count(found->second, event);
  if (keys_ < max_keys_) {
    const int64_t end_ns = (event.boot_ns() + window_ns_) / kGridNs * kGridNs + kGridNs;
    entries[std::move(key)].window_end_ns = end_ns;
    next_flush_ns_ = std::min(next_flush_ns_, end_ns);
    ++keys_;
  } else if (entries.empty()) {
    owners_.erase(OwnerOf(event));
  }
  out_.OnEvent(event);
}

std::vector<const Event*> Folder::Pending() const {
  std::vector<const Event*> pending;
  for (const auto& [owner, entries] : owners_) {
    for (const auto& [key, entry] : entries) {
      if (entry.counted != nullptr) pending.push_back(entry.counted.get());
    }
  }
  return pending;
}

void Folder::Count(Entry& entry, const Event& event) {
  ++changes_;
  if (entry.counted == nullptr) {
    entry.counted = std::make_unique<Event>(event);
    return;
  }
  const uint64_t count = entry.counted->count() + event.count();
  const bool at_least = entry.counted->count_is() == v1::AT_LEAST || event.count_is() == v1::AT_LEAST;
  *entry.counted = event;
  entry.counted->set_count(count);
  entry.counted->set_count_is(at_least ? v1::AT_LEAST : v1::EXACT);
}

// A key whose window counted something goes on counting in a new window; one that did not is forgotten,
// and its next act goes on at once.
void Folder::Flush(int64_t now_boot_ns) {
  if (now_boot_ns < next_flush_ns_) return;
  next_flush_ns_ = INT64_MAX;
  const int64_t next_end_ns = (now_boot_ns + window_ns_) / kGridNs * kGridNs + kGridNs;
  std::vector<std::unique_ptr<Event>> ended;
  absl::erase_if(owners_, [&](auto& owner) {
    absl::erase_if(owner.second, [&](auto& keyed) {
      Entry& entry = keyed.second;
      if (entry.window_end_ns <= now_boot_ns) {
        if (entry.counted == nullptr) {
          --keys_;
          return true;
        }
        ++changes_;
        ended.push_back(std::move(entry.counted));
        entry.window_end_ns = next_end_ns;
      }
      next_flush_ns_ = std::min(next_flush_ns_, entry.window_end_ns);
      return false;
    });
    return owner.second.empty();
  });
  std::sort(ended.begin(), ended.end(),
            [](const auto& a, const auto& b) { return a->boot_ns() < b->boot_ns(); });
  for (const std::unique_ptr<Event>& event : ended) out_.OnEvent(*event);
}

void Folder::SendCounted(Entries& entries) {
  for (auto& [key, entry] : entries) {
    if (entry.counted == nullptr) continue;
    ++changes_;
    out_.OnEvent(*entry.counted);
  }
  keys_ -= entries.size();
  entries.clear();
}

void Folder::EndProcess(const Owner& owner) {
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return;
  Entries entries = std::move(found->second);
  owners_.erase(found);
  SendCounted(entries);
}

void Folder::EndSession(absl::string_view session) {
  absl::erase_if(owners_, [&](auto& owner) {
    if (owner.first.session != session) return false;
    SendCounted(owner.second);
    return true;
  });
}

void Folder::EndAll() {
  for (auto& [owner, entries] : owners_) SendCounted(entries);
  owners_.clear();
}

}  // namespace agentmon
