// Keeps file records in readable form.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "agentmon/v1/event.pb.h"
#include "bpf/event_abi.h"
#include "daemon/event/record.h"

namespace agentmon {

struct SeenFile {
  am_file file;
  std::string path;
  std::string new_path;
};

// "MKDIR /a", "RENAME /a > /b".
inline std::string Describe(const SeenFile& seen) {
  std::string text = v1::EventKind_Name(static_cast<v1::EventKind>(seen.file.kind)) + " " + seen.path;
  if (!seen.new_path.empty()) text += " > " + seen.new_path;
  return text;
}

class RecordCollector : public RecordSink {
 public:
  void OnRecord(absl::Span<const uint8_t> record) override {
    SeenFile seen;
    std::memcpy(&seen.file, record.data(), sizeof(seen.file));
    const char* names = reinterpret_cast<const char*>(record.data()) + sizeof(seen.file);
    seen.path.assign(names, seen.file.path_len);
    seen.new_path.assign(names + seen.file.path_len, seen.file.new_path_len);
    files.push_back(seen);
  }
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    for (const SeenFile& seen : files) lines.push_back(Describe(seen));
    return lines;
  }
  bool Has(const std::string& line) const {
    for (const SeenFile& seen : files) {
      if (Describe(seen) == line) return true;
    }
    return false;
  }

  std::vector<SeenFile> files;
};

}  // namespace agentmon
