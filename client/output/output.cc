#include "client/output/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/output/text.h"

namespace agentmon {
namespace {

constexpr size_t kBufferBytes = 64 * 1024;

// 0, or the errno that ended it.
int WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace

void Output::Write(absl::string_view text) {
  if (!ok()) return;
  absl::StrAppend(&buffer_, text);
  if (buffer_.size() >= kBufferBytes) Flush();
}

void Output::Line(absl::string_view text) {
  Write(text);
  Write("\n");
}

void Output::Flush() {
  if (ok()) error_ = WriteAll(fd_, buffer_);
  buffer_.clear();
}

bool Output::is_terminal() const { return isatty(fd_) == 1; }

int Output::columns() const {
  winsize size{};
  if (ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = getenv("COLUMNS");
  int number = 0;
  return columns != nullptr && absl::SimpleAtoi(columns, &number) && number > 0 ? number : 80;
}

void Complain(int fd, absl::string_view message) {
  WriteAll(fd, absl::StrCat("agentmon: ", Printable(message), "\n"));
}

}  // namespace agentmon
