// Standard output of a verb: buffered, in order, and quiet when the reader has gone away.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace agentmon {

class Output {
 public:
  // The descriptor stays the caller's.
  explicit Output(int fd) : fd_(fd) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() { Flush(); }

  void Write(absl::string_view text);
  void Line(absl::string_view text);
  void Flush();

  // False once a write failed: nothing more will be written, the verb should end.
  bool ok() const { return error_ == 0; }
  int error() const { return error_; }  // errno; EPIPE when the reader has gone away
  int fd() const { return fd_; }

  bool is_terminal() const;
  int columns() const;  // of the terminal; 80 when it does not say

 private:
  const int fd_;
  int error_ = 0;
  std::string buffer_;
};

// Writes "agentmon: message" as one line to the descriptor, unprintable bytes escaped.
void Complain(int fd, absl::string_view message);

}  // namespace agentmon
