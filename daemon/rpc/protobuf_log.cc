#include "daemon/rpc/protobuf_log.h"

#include <google/protobuf/stubs/logging.h>

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/log.h"

namespace agentmon {
namespace {

constexpr absl::Duration kBetween = absl::Minutes(1);

void OnComplaint(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  static ComplaintGate& gate = *new ComplaintGate;  // threads of gRPC may outlive static objects
  const uint64_t count = gate.Pass(absl::Now());
  if (count == 0) return;
  LogWarning("protobuf, ", count, count == 1 ? " complaint" : " complaints since the last line", ": ",
             message);
}

}  // namespace

uint64_t ComplaintGate::Pass(absl::Time now) {
  const absl::MutexLock lock(&mutex_);
  ++waiting_;
  if (now < next_) return 0;
  next_ = now + kBetween;
  return std::exchange(waiting_, 0);
}

void LimitProtobufLog() { google::protobuf::SetLogHandler(OnComplaint); }

}  // namespace agentmon
