// DNS messages put together byte by byte, so that tests do not lean on what they test.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace agentmon {

class DnsBytes {
 public:
  DnsBytes& Word(uint16_t word) {
    return Byte(static_cast<uint8_t>(word >> 8)).Byte(static_cast<uint8_t>(word));
  }
  DnsBytes& Byte(uint8_t byte) {
    bytes_.push_back(byte);
    return *this;
  }
  DnsBytes& Raw(absl::string_view raw) {
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
    return *this;
  }
  DnsBytes& Name(absl::string_view name) {
    for (const absl::string_view label : absl::StrSplit(name, '.', absl::SkipEmpty()))
      Byte(static_cast<uint8_t>(label.size())).Raw(label);
    return Byte(0);
  }
  DnsBytes& Header(uint16_t id, uint16_t flags, uint16_t questions, uint16_t answers = 0,
                   uint16_t authority = 0, uint16_t additional = 0) {
    return Word(id).Word(flags).Word(questions).Word(answers).Word(authority).Word(additional);
  }
  DnsBytes& Question(absl::string_view name, uint16_t type, uint16_t klass = 1) {
    return Name(name).Word(type).Word(klass);
  }
  DnsBytes& Record(absl::string_view name, uint16_t type, uint32_t ttl, absl::string_view data) {
    Name(name).Word(type).Word(1).Word(static_cast<uint16_t>(ttl >> 16)).Word(static_cast<uint16_t>(ttl));
    return Word(static_cast<uint16_t>(data.size())).Raw(data);
  }
  DnsBytes& Edns(uint16_t bytes, uint8_t version = 0) {
    return Byte(0).Word(41).Word(bytes).Byte(0).Byte(version).Word(0).Word(0);
  }
  DnsBytes& Pointer(uint16_t to) { return Word(static_cast<uint16_t>(0xc000 | to)); }

  static std::string NameData(absl::string_view name) {
    const std::vector<uint8_t> bytes = DnsBytes().Name(name).Take();
    return std::string(bytes.begin(), bytes.end());
  }
  static std::string V4(std::initializer_list<uint8_t> bytes) {
    return std::string(bytes.begin(), bytes.end());
  }

  std::vector<uint8_t> Take() const { return bytes_; }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<uint8_t> bytes_;
};

inline std::vector<uint8_t> Ask(absl::string_view name, uint16_t type, uint16_t id = 7) {
  return DnsBytes().Header(id, 0x0100, 1).Question(name, type).Take();
}

}  // namespace agentmon
