// One socket of a relay, with what was read of it and what waits to be written to it.
#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"
#include "daemon/resolver/poll_loop.h"

namespace agentmon {

// The loop's thread. The socket does not block.
class Stream {
 public:
  static constexpr size_t kRoom = 256 * 1024;  // then nobody should read more for it

  Stream(PollLoop& loop, UniqueFd fd, PollLoop::OnReady on_ready)
      : loop_(loop), fd_(std::move(fd)), on_ready_(std::move(on_ready)) {}
  ~Stream() { loop_.Unwatch(fd_.get()); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  std::string in;  // read, and not taken yet
  // Reads what is there, up to a bound. False: the connection is broken.
  bool Read();
  bool ended() const { return ended_; }  // nothing more comes

  void Write(absl::string_view bytes) { out_.append(bytes.data(), bytes.size()); }
  // After what waits: tells the other side that nothing more comes.
  void Finish() { finish_ = true; }
  // Writes what waits, as far as there is room. False: the connection is broken.
  bool Flush();
  bool has_room() const { return out_.size() < kRoom; }
  bool finished() const { return finished_; }

  // Calls on_ready from now on when there is something to read, if that is wanted, or room to write what
  // waits. False: it cannot be watched.
  bool Watch(bool wants_input);

 private:
  PollLoop& loop_;
  const UniqueFd fd_;
  const PollLoop::OnReady on_ready_;
  std::string out_;
  uint32_t watched_ = 0;
  bool ended_ = false, finish_ = false, finished_ = false;
};

}  // namespace agentmon
