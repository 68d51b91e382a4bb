// A service manager at the other end of a socket: notes what units are asked for, and answers as it is told.
#pragma once

#include <sys/socket.h>
#include <systemd/sd-bus.h>

#include <map>
#include <string>
#include <vector>

namespace agentmon {

// One thread, on an sd-event loop. May be used for one connection.
class FakeSystemd {
 public:
  struct Unit {
    std::string name;
    std::map<std::string, std::string> texts;
    std::map<std::string, uint64_t> numbers;
    std::vector<uint32_t> pids;
  };

  explicit FakeSystemd(sd_event* loop) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return;
    client_fd_ = ends[1];
    sd_id128_t id{};
    id.bytes[0] = 1;
    sd_bus_new(&bus_);
    sd_bus_set_fd(bus_, ends[0], ends[0]);
    sd_bus_set_server(bus_, 1, id);
    sd_bus_start(bus_);
    sd_bus_attach_event(bus_, loop, SD_EVENT_PRIORITY_NORMAL);
    sd_bus_add_filter(bus_, nullptr, OnMessage, this);
  }
  ~FakeSystemd() { HangUp(); }
  FakeSystemd(const FakeSystemd&) = delete;
  FakeSystemd& operator=(const FakeSystemd&) = delete;

  // For SystemdScopes::OpenBus.
  int Open(sd_bus** bus) const {
    int r = sd_bus_new(bus);
    if (r >= 0) r = sd_bus_set_fd(*bus, client_fd_, client_fd_);
    return r < 0 ? r : sd_bus_start(*bus);
  }
  void HangUp() {
    if (bus_ == nullptr) return;
    sd_bus_detach_event(bus_);
    sd_bus_close_unref(bus_);
    bus_ = nullptr;
  }

  std::vector<Unit> started, changed;
  std::string refusal;          // name of an error that calls get
  std::string result = "done";  // of jobs
  bool answers = true;

 private:
  static int OnMessage(sd_bus_message* m, void* userdata, sd_bus_error*) {
    auto* const self = static_cast<FakeSystemd*>(userdata);
    if (sd_bus_message_is_method_call(m, nullptr, "Subscribe") > 0) return sd_bus_reply_method_return(m, "");
    if (sd_bus_message_is_method_call(m, nullptr, "StartTransientUnit") > 0) return self->OnStart(m);
    if (sd_bus_message_is_method_call(m, nullptr, "SetUnitProperties") > 0) {
      Unit unit;
      const char* name = nullptr;
      int runtime = 0;
      sd_bus_message_read(m, "sb", &name, &runtime);
      unit.name = name;
      ReadProperties(m, &unit);
      self->changed.push_back(unit);
      return sd_bus_reply_method_return(m, "");
    }
    return 0;
  }

  int OnStart(sd_bus_message* m) {
    Unit unit;
    const char *name = nullptr, *mode = nullptr;
    sd_bus_message_read(m, "ss", &name, &mode);
    unit.name = name;
    ReadProperties(m, &unit);
    started.push_back(unit);
    if (!answers) return 1;
    if (!refusal.empty()) return sd_bus_reply_method_errorf(m, refusal.c_str(), "as the test says");
    const std::string job = "/org/freedesktop/systemd1/job/" + std::to_string(started.size());
    sd_bus_reply_method_return(m, "o", job.c_str());
    return sd_bus_emit_signal(bus_, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager",
                              "JobRemoved", "uoss", 1u, job.c_str(), name, result.c_str());
  }

  static void ReadProperties(sd_bus_message* m, Unit* unit) {
    sd_bus_message_enter_container(m, 'a', "(sv)");
    while (sd_bus_message_enter_container(m, 'r', "sv") > 0) {
      const char *name = nullptr, *contents = nullptr;
      sd_bus_message_read(m, "s", &name);
      sd_bus_message_peek_type(m, nullptr, &contents);
      const std::string type = contents;
      if (type == "s") {
        const char* text = nullptr;
        sd_bus_message_read(m, "v", "s", &text);
        unit->texts[name] = text;
      } else if (type == "t") {
        uint64_t number = 0;
        sd_bus_message_read(m, "v", "t", &number);
        unit->numbers[name] = number;
      } else if (type == "au") {
        const void* array = nullptr;
        size_t bytes = 0;
        sd_bus_message_enter_container(m, 'v', "au");
        sd_bus_message_read_array(m, 'u', &array, &bytes);
        const auto* pids = static_cast<const uint32_t*>(array);
        unit->pids.assign(pids, pids + bytes / sizeof(uint32_t));
        sd_bus_message_exit_container(m);
      } else if (type == "a(st)") {
        sd_bus_message_enter_container(m, 'v', "a(st)");
        sd_bus_message_enter_container(m, 'a', "(st)");
        const char* path = nullptr;
        uint64_t bytes = 0;
        while (sd_bus_message_read(m, "(st)", &path, &bytes) > 0) {
          unit->numbers[std::string(name) + " " + path] = bytes;
        }
        sd_bus_message_exit_container(m);
        sd_bus_message_exit_container(m);
      } else {
        sd_bus_message_skip(m, "v");
      }
      sd_bus_message_exit_container(m);
    }
    sd_bus_message_exit_container(m);
  }

  sd_bus* bus_ = nullptr;
  int client_fd_ = -1;
};

}  // namespace agentmon
