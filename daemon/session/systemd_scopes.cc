#include "daemon/session/systemd_scopes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr char kManager[] = "org.freedesktop.systemd1";
constexpr char kPath[] = "/org/freedesktop/systemd1";
constexpr char kInterface[] = "org.freedesktop.systemd1.Manager";
constexpr absl::Duration kJobTime = absl::Seconds(10);
constexpr absl::Duration kLimitsRetry = absl::Seconds(2);

// A message that is being written: the first error stays.
class Properties {
 public:
  explicit Properties(sd_bus_message* message) : message_(message) {}

  void Text(const char* name, const std::string& value) {
    Keep(sd_bus_message_append(message_, "(sv)", name, "s", value.c_str()));
  }
  void Flag(const char* name, bool value) {
    Keep(sd_bus_message_append(message_, "(sv)", name, "b", static_cast<int>(value)));
  }
  void Number(const char* name, uint64_t value) {
    Keep(sd_bus_message_append(message_, "(sv)", name, "t", value));
  }
  void Pid(pid_t pid) {
    Keep(sd_bus_message_append(message_, "(sv)", "PIDs", "au", 1, static_cast<uint32_t>(pid)));
  }
  void Rates(const char* name, const std::vector<std::string>& disks, int64_t bytes) {
    Keep(sd_bus_message_open_container(message_, 'r', "sv"));
    Keep(sd_bus_message_append(message_, "s", name));
    Keep(sd_bus_message_open_container(message_, 'v', "a(st)"));
    Keep(sd_bus_message_open_container(message_, 'a', "(st)"));
    for (const std::string& disk : disks) {
      if (bytes == 0) break;
      Keep(sd_bus_message_append(message_, "(st)", ("/dev/block/" + disk).c_str(),
                                 static_cast<uint64_t>(bytes)));
    }
    for (int i = 0; i < 3; ++i) Keep(sd_bus_message_close_container(message_));
  }
  // UINT64_MAX means no limit to the manager. Tasks too, or its default would hold. rates: those that are not
  // given too, to lift them; a unit that never had one does not need the controller.
  void Limits(const policy::ResourceLimits& l, const std::vector<std::string>& disks, bool rates) {
    const auto mebibytes = [](int64_t count) { return static_cast<uint64_t>(count) << 20; };
    Number("MemoryMax", l.max_memory_mb != 0 ? mebibytes(l.max_memory_mb) : UINT64_MAX);
    Number("MemorySwapMax", l.memory_swap_max_mb >= 0 ? mebibytes(l.memory_swap_max_mb) : UINT64_MAX);
    Number("CPUQuotaPerSecUSec",
           l.cpu_quota_percent != 0 ? static_cast<uint64_t>(l.cpu_quota_percent) * 10'000 : UINT64_MAX);
    Number("TasksMax", l.pids_max != 0 ? static_cast<uint64_t>(l.pids_max) : UINT64_MAX);
    if (rates || l.disk_read_bps_max != 0) Rates("IOReadBandwidthMax", disks, l.disk_read_bps_max);
    if (rates || l.disk_write_bps_max != 0) Rates("IOWriteBandwidthMax", disks, l.disk_write_bps_max);
  }
  void Keep(int result) {
    if (error_ == 0 && result < 0) error_ = -result;
  }
  int error() const { return error_; }

 private:
  sd_bus_message* message_;
  int error_ = 0;
};

struct MessageDeleter {
  void operator()(sd_bus_message* m) const { sd_bus_message_unref(m); }
};
using Message = std::unique_ptr<sd_bus_message, MessageDeleter>;

int NewCall(sd_bus* bus, const char* method, Message* out) {
  sd_bus_message* message = nullptr;
  const int r = sd_bus_message_new_method_call(bus, &message, kManager, kPath, kInterface, method);
  out->reset(message);
  return r;
}

}  // namespace

SystemdScopes::SystemdScopes(TaskRunner& core, sd_event* loop, OpenBus open)
    : core_(core), loop_(loop), open_(std::move(open)) {
  if (const absl::Status opened = Open(); !opened.ok()) LogWarning(opened.message());
}

SystemdScopes::~SystemdScopes() {
  *alive_ = false;
  if (bus_ != nullptr) {
    sd_bus_detach_event(bus_);
    sd_bus_close_unref(bus_);
  }
}

// Nothing is waited for: what is sent before the connection stands is queued.
absl::Status SystemdScopes::Open() {
  if (bus_ != nullptr && sd_bus_is_open(bus_) > 0) return absl::OkStatus();
  Close("");
  int r = open_(&bus_);
  if (r >= 0) r = sd_bus_attach_event(bus_, loop_, SD_EVENT_PRIORITY_NORMAL);
  if (r >= 0) {
    const char* sender = sd_bus_is_bus_client(bus_) > 0 ? kManager : nullptr;
    r = sd_bus_match_signal_async(bus_, nullptr, sender, kPath, kInterface, "JobRemoved", OnJobRemoved,
                                  nullptr, this);
  }
  if (r >= 0) {
    r = sd_bus_match_signal_async(bus_, nullptr, "org.freedesktop.DBus.Local", nullptr,
                                  "org.freedesktop.DBus.Local", "Disconnected", OnDisconnected, nullptr,
                                  this);
  }
  if (r >= 0) {
    r = sd_bus_call_method_async(bus_, nullptr, kManager, kPath, kInterface, "Subscribe", nullptr, nullptr,
                                 "");
  }
  if (r >= 0) {
    problem_.clear();
    return absl::OkStatus();
  }
  const absl::Status failed = ErrnoStatus(-r, "open the system bus");
  Close(absl::StrCat(failed.message(), "; sessions that begin are plain cgroups and no units of systemd"));
  return absl::UnavailableError(problem_);
}

void SystemdScopes::Close(const std::string& why) {
  if (!why.empty()) problem_ = why;
  // No answer will come.
  for (auto& [raw, job] : jobs_) {
    core_.Post([done = job->done, unit = job->unit] {
      done(absl::AbortedError(absl::StrCat("the system bus was lost while systemd made ", unit)));
    });
  }
  jobs_.clear();
  if (bus_ == nullptr) return;
  sd_bus_detach_event(bus_);
  sd_bus_close_unref(bus_);
  bus_ = nullptr;
}

void SystemdScopes::Start(const ScopeRequest& request, Done done) {
  if (const absl::Status opened = Open(); !opened.ok()) return done(opened);
  Message call;
  int r = NewCall(bus_, "StartTransientUnit", &call);
  if (r < 0) return done(absl::UnavailableError(ErrnoStatus(-r, "make a scope").message()));
  Properties properties(call.get());
  properties.Keep(sd_bus_message_append(call.get(), "ss", request.unit.c_str(), "fail"));
  properties.Keep(sd_bus_message_open_container(call.get(), 'a', "(sv)"));
  properties.Text("Description", request.description);
  properties.Text("Slice", request.slice);
  properties.Pid(request.pid);
  properties.Flag("Delegate", true);  // what is below is not the manager's to tidy up
  properties.Text("CollectMode", "inactive-or-failed");
  properties.Limits(request.limits, request.disks, false);
  properties.Keep(sd_bus_message_close_container(call.get()));
  properties.Keep(sd_bus_message_append(call.get(), "a(sa(sv))", 0));
  auto job = std::make_unique<Job>(Job{this, request.unit, "", std::move(done)});
  Job* const raw = job.get();
  r = properties.error() != 0 ? -properties.error()
                              : sd_bus_call_async(bus_, nullptr, call.get(), OnStarted, raw,
                                                  static_cast<uint64_t>(absl::ToInt64Microseconds(kJobTime)));
  if (r < 0) return job->done(absl::UnavailableError(ErrnoStatus(-r, "make " + request.unit).message()));
  jobs_[raw] = std::move(job);
  core_.PostAfter(kJobTime, [this, alive = alive_, raw, unit = request.unit] {
    if (!*alive) return;
    const auto it = jobs_.find(raw);
    if (it == jobs_.end() || it->second->unit != unit) return;
    Finish(raw, absl::DeadlineExceededError(absl::StrCat("systemd did not make ", unit, " within 10 s")));
  });
}

int SystemdScopes::OnStarted(sd_bus_message* reply, void* userdata, sd_bus_error*) {
  auto* const job = static_cast<Job*>(userdata);
  if (const sd_bus_error* failed = sd_bus_message_get_error(reply)) {
    const bool refused = sd_bus_error_has_name(failed, SD_BUS_ERROR_NO_REPLY) == 0 &&
                         sd_bus_error_has_name(failed, SD_BUS_ERROR_TIMEOUT) == 0;
    const std::string text = absl::StrCat("systemd did not make ", job->unit, ": ", failed->message);
    job->owner->Finish(job, refused ? absl::UnavailableError(text) : absl::DeadlineExceededError(text));
    return 0;
  }
  const char* path = nullptr;
  if (sd_bus_message_read(reply, "o", &path) >= 0) job->path = path;
  return 0;
}

// The manager answers the call before it says that the job has ended.
int SystemdScopes::OnJobRemoved(sd_bus_message* message, void* userdata, sd_bus_error*) {
  auto* const self = static_cast<SystemdScopes*>(userdata);
  uint32_t id = 0;
  const char *path = nullptr, *unit = nullptr, *result = nullptr;
  if (sd_bus_message_read(message, "uoss", &id, &path, &unit, &result) < 0) return 0;
  for (const auto& [job, owned] : self->jobs_) {
    if (job->path != path) continue;
    self->Finish(job, absl::string_view(result) == "done"
                          ? absl::OkStatus()
                          : absl::AbortedError(absl::StrCat("systemd did not make ", unit, ": ", result)));
    return 0;
  }
  return 0;
}

int SystemdScopes::OnDisconnected(sd_bus_message*, void* userdata, sd_bus_error*) {
  auto* const self = static_cast<SystemdScopes*>(userdata);
  self->problem_ = "the system bus was lost; it is opened again for the next session";
  LogWarning(self->problem_);
  return 0;
}

void SystemdScopes::Finish(Job* job, const absl::Status& status) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return;
  const Done done = std::move(it->second->done);
  // The manager's answer, when it is still to come, must find its job.
  if (it->second->path.empty() && absl::IsDeadlineExceeded(status)) {
    it->second->done = [](const absl::Status&) {};
  } else {
    jobs_.erase(it);
  }
  done(status);
}

void SystemdScopes::SetLimits(const std::string& unit, const policy::ResourceLimits& limits,
                              const std::vector<std::string>& disks) {
  const Limits wanted{limits, disks};
  const absl::Status status = TrySetLimits(unit, wanted);
  if (status.ok()) {
    owed_.erase(unit);
    return;
  }
  LogError("new limits of ", unit, ": ", status.message(),
           "; the kernel has them, and systemd is told again until it has them too");
  owed_[unit] = wanted;
  RetryLimitsLater();
}

void SystemdScopes::RetryLimitsLater() {
  if (std::exchange(retry_is_due_, true)) return;
  core_.PostAfter(kLimitsRetry, [this, alive = alive_] {
    if (*alive) RetryLimits();
  });
}

void SystemdScopes::RetryLimits() {
  retry_is_due_ = false;
  for (auto it = owed_.begin(); it != owed_.end();) {
    if (TrySetLimits(it->first, it->second).ok()) {
      LogInfo("systemd has the new limits of ", it->first);
      it = owed_.erase(it);
    } else {
      ++it;
    }
  }
  if (!owed_.empty()) RetryLimitsLater();
}

absl::Status SystemdScopes::TrySetLimits(const std::string& unit, const Limits& wanted) {
  RETURN_IF_ERROR(Open());
  Message call;
  int r = NewCall(bus_, "SetUnitProperties", &call);
  if (r >= 0) {
    Properties properties(call.get());
    properties.Keep(sd_bus_message_append(call.get(), "sb", unit.c_str(), 1));  // until the next boot
    properties.Keep(sd_bus_message_open_container(call.get(), 'a', "(sv)"));
    properties.Limits(wanted.limits, wanted.disks, true);
    properties.Keep(sd_bus_message_close_container(call.get()));
    r = properties.error() != 0 ? -properties.error()
                                : sd_bus_call_async(bus_, nullptr, call.get(), nullptr, nullptr, 0);
  }
  return r < 0 ? ErrnoStatus(-r, "call systemd") : absl::OkStatus();
}

}  // namespace agentmon
