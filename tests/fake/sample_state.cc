#include "tests/fake/fake_daemon.h"

namespace agentmon {
namespace {

constexpr int64_t kStartNs = 1'767'323'045'000'000'000;  // 2026-01-02T03:04:05Z

class Sampler {
 public:
  // The next event, of process 1001 (child of 1000), a millisecond after the one before.
  v1::Event& Next(v1::EventKind kind, v1::Source source, const std::string& exe) {
    v1::Event& event = events_.emplace_back();
    event.set_seq(events_.size());
    event.set_wall_ns(kStartNs + static_cast<int64_t>(events_.size()) * 1'000'000);
    event.set_boot_ns(static_cast<int64_t>(events_.size()) * 1'000'000);
    event.set_session("s-1");
    event.set_kind(kind);
    event.mutable_process()->set_pid(1001);
    event.mutable_process()->set_start_ns(500);
    event.mutable_parent()->set_pid(1000);
    event.mutable_parent()->set_start_ns(400);
    event.set_exe(exe);
    event.set_uid(1000);
    event.set_source(source);
    event.set_count(1);
    return event;
  }
  v1::Event& NextFile(v1::EventKind kind, const std::string& path) {
    v1::Event& event = Next(kind, kind == v1::OPEN ? v1::FANOTIFY : v1::NOTIFY, "/usr/bin/python3.11");
    event.set_as_asked(kind != v1::OPEN);
    event.mutable_file()->set_path(path);
    return event;
  }
  std::vector<v1::Event> Take() { return std::move(events_); }

 private:
  std::vector<v1::Event> events_;
};

void AddProcessEvents(Sampler& sampler) {
  v1::Event& started = sampler.Next(v1::SESSION, v1::DAEMON, "");
  started.clear_process();
  started.clear_parent();
  started.mutable_session_change()->set_what(v1::SessionChange::STARTED);
  v1::Event& fork = sampler.Next(v1::FORK, v1::PROCESS, "/usr/bin/claude");
  fork.mutable_process()->set_pid(1000);
  fork.mutable_process()->set_start_ns(400);
  fork.clear_parent();
  fork.mutable_fork()->mutable_child()->set_pid(1001);
  fork.mutable_fork()->mutable_child()->set_start_ns(500);
  v1::Event& exec = sampler.Next(v1::EXEC, v1::PROCESS, "/usr/bin/python3.11");
  exec.mutable_exec()->add_argv("python3");
  exec.mutable_exec()->add_argv("-c");
  exec.mutable_exec()->add_argv("print('hi')");
  exec.mutable_exec()->set_cwd("/home/dev/project");
  exec.mutable_exec()->set_filename("/usr/bin/python3");
  exec.mutable_exec()->set_argv_bytes(23);
}

void AddFileEvents(Sampler& sampler) {
  v1::Event& open = sampler.NextFile(v1::OPEN, "/etc/hosts");
  open.set_count(3);
  open.set_count_is(v1::AT_LEAST);
  v1::Event& open_write = sampler.NextFile(v1::OPEN_WRITE, "/home/dev/project/a.txt");
  open_write.mutable_file()->set_open_flags(01101);  // O_WRONLY|O_CREAT|O_TRUNC
  open_write.mutable_file()->set_mode(0644);
  open_write.set_count(2);
  sampler.NextFile(v1::DELETE, "/home/dev/project/evil\x1b[31m\nname");
  sampler.NextFile(v1::RENAME, "/home/dev/project/a.txt")
      .mutable_file()
      ->set_new_path("/home/dev/project/b\xff.txt");
  sampler.NextFile(v1::CHMOD, "/home/dev/project/run.sh").mutable_file()->set_mode(0755);
  v1::Event& denied = sampler.NextFile(v1::OPEN, "/home/dev/.ssh/id_ed25519");
  denied.mutable_judgement()->set_decision(v1::DENY);
  denied.mutable_judgement()->set_enforced(true);
  denied.mutable_judgement()->set_mechanism("fanotify");
  denied.mutable_judgement()->set_error(1);
  denied.mutable_judgement()->set_layer("base");
  denied.mutable_judgement()->set_rule("no-keys");
  denied.mutable_judgement()->set_file("/etc/agentmon/policies/default.yaml");
  denied.mutable_judgement()->set_line(12);
}

void AddEachNetKind(Sampler& sampler) {
  const auto add = [&](v1::EventKind kind, const std::string& protocol, const std::string& address,
                       uint32_t port) {
    v1::Event& event = sampler.Next(kind, v1::NETWORK, "/usr/bin/python3.11");
    event.mutable_net()->set_protocol(protocol);
    event.mutable_net()->set_address(address);
    event.mutable_net()->set_port(port);
    return &event;
  };
  add(v1::BIND, "tcp", "127.0.0.1", 8080);
  add(v1::LISTEN, "tcp", "127.0.0.1", 8080);
  add(v1::SEND, "udp", "::1", 53)->set_count(2);
  sampler.Next(v1::UNIX_SEND, v1::NETWORK, "/usr/bin/python3.11").mutable_unix()->set_path("@log");
}

void AddOtherEvents(Sampler& sampler) {
  v1::Net& net = *sampler.Next(v1::CONNECT, v1::NETWORK, "/usr/bin/python3.11").mutable_net();
  net.set_protocol("tcp");
  net.set_address("10.0.0.7");
  net.set_port(443);
  net.set_result(v1::Net::FAILED);
  net.set_error(111);
  net.set_flow(77);
  sampler.Next(v1::UNIX_CONNECT, v1::NETWORK, "/usr/bin/python3.11")
      .mutable_unix()
      ->set_path("/run/docker.sock");
  v1::Exit& exit = *sampler.Next(v1::EXIT, v1::PROCESS, "/usr/bin/python3.11").mutable_exit();
  exit.set_signal(9);
  exit.set_cpu_ns(1'500'000);
  exit.set_peak_rss_bytes(9'000'000);
  v1::Event& loss = sampler.Next(v1::LOSS, v1::DAEMON, "");
  loss.clear_process();
  loss.clear_parent();
  loss.mutable_loss()->set_source(v1::NETWORK);
  loss.mutable_loss()->set_where("ring buffer");
  loss.mutable_loss()->set_lost(12);
}

void AddResourceEvents(Sampler& sampler) {
  v1::Event& limit = sampler.Next(v1::LIMIT, v1::CGROUP, "");
  limit.clear_process();
  limit.clear_parent();
  limit.mutable_limit()->set_resource("memory");
  limit.mutable_limit()->set_limit(uint64_t{100} << 20);
  limit.mutable_limit()->set_hits(2);
  limit.mutable_limit()->set_killed(1);
  v1::Event& usage = sampler.Next(v1::USAGE, v1::CGROUP, "");
  usage.clear_process();
  usage.clear_parent();
  usage.mutable_usage()->set_cpu_ns(1'500'000'000);
  usage.mutable_usage()->set_memory_bytes(uint64_t{90} << 20);
  usage.mutable_usage()->set_memory_peak_bytes(uint64_t{100} << 20);
  usage.mutable_usage()->set_processes(3);
  usage.mutable_usage()->set_read_bytes(4096);
}

void AddRefusedEvents(Sampler& sampler) {
  sampler.Next(v1::CALL, v1::NOTIFY, "/usr/bin/python3.11").mutable_call()->set_name("ptrace");
  v1::Signal& signal = *sampler.Next(v1::SIGNAL, v1::NOTIFY, "/usr/bin/python3.11").mutable_signal();
  signal.set_signal(15);
  signal.mutable_target()->set_pid(77);
  signal.mutable_target()->set_start_ns(200);
}

void AddNameEvents(Sampler& sampler) {
  v1::Event& asked = sampler.Next(v1::DNS, v1::RESOLVER, "/usr/bin/python3.11");
  asked.mutable_judgement()->set_decision(v1::ALLOW);
  v1::Dns& dns = *asked.mutable_dns();
  dns.set_name("api.example.com");
  dns.set_type("A");
  dns.add_answers("edge.example.net");
  dns.add_answers("203.0.113.7");
  dns.set_rcode("NOERROR");
  dns.set_protocol("udp");
  dns.set_server("192.168.1.1");
  v1::Net& net = *sampler.Next(v1::CONNECT, v1::NETWORK, "/usr/bin/python3.11").mutable_net();
  net.set_protocol("tcp");
  net.set_address("203.0.113.7");
  net.set_port(443);
  net.set_result(v1::Net::OK);
  net.set_flow(78);
  net.set_name("api.example.com");
  v1::Http& http = *sampler.Next(v1::HTTP, v1::PROXY, "/usr/bin/curl").mutable_http();
  http.set_method("GET");
  http.set_host("api.example.com");
  http.set_port(80);
  http.set_path("/v1/models");
  http.set_status(200);
}

}  // namespace

std::vector<v1::Event> EventOfEachKind() {
  Sampler sampler;
  AddProcessEvents(sampler);
  const std::string dir = "/home/dev/project/";
  sampler.NextFile(v1::OPEN, "/etc/hosts").set_count_is(v1::AT_LEAST);
  v1::File* file = sampler.NextFile(v1::OPEN_WRITE, dir + "log").mutable_file();
  file->set_open_flags(02002001);  // O_WRONLY|O_APPEND|O_CLOEXEC
  file = sampler.NextFile(v1::CREATE, dir + "a.txt").mutable_file();
  file->set_open_flags(0301);  // O_WRONLY|O_CREAT|O_EXCL
  file->set_mode(0644);
  v1::Event& write = sampler.NextFile(v1::WRITE, dir + "a.txt");
  write.set_source(v1::FANOTIFY);
  write.set_count_is(v1::AT_LEAST);
  write.set_as_asked(false);
  sampler.NextFile(v1::DELETE, dir + "a\xff.txt").set_count(3);
  sampler.NextFile(v1::RENAME, dir + "a.txt").mutable_file()->set_new_path(dir + "b.txt");
  sampler.NextFile(v1::LINK, dir + "b.txt").mutable_file()->set_new_path(dir + "c.txt");
  sampler.NextFile(v1::SYMLINK, dir + "latest").mutable_file()->set_new_path("b.txt");
  sampler.NextFile(v1::CHMOD, dir + "run.sh").mutable_file()->set_mode(0755);
  file = sampler.NextFile(v1::CHOWN, dir + "run.sh").mutable_file();
  file->set_uid(-1);
  file->set_gid(100);
  sampler.NextFile(v1::TRUNCATE, dir + "b.txt").mutable_file()->set_size(4096);
  sampler.NextFile(v1::MKDIR, dir + "out").mutable_file()->set_mode(0777);
  sampler.NextFile(v1::RMDIR, dir + "out");
  sampler.NextFile(v1::MKNOD, dir + "pipe").mutable_file()->set_mode(0600);
  AddEachNetKind(sampler);
  AddOtherEvents(sampler);
  AddResourceEvents(sampler);
  AddRefusedEvents(sampler);
  AddNameEvents(sampler);
  return sampler.Take();
}

std::vector<v1::Event> SampleEvents() {
  Sampler sampler;
  AddProcessEvents(sampler);
  AddFileEvents(sampler);
  AddOtherEvents(sampler);
  return sampler.Take();
}

v1::Session SampleSession() {
  v1::Session session;
  session.set_id("s-1");
  session.set_name("fix-ci");
  session.set_uid(1000);
  session.set_state(v1::Session::RUNNING);
  session.set_origin(v1::Session::RUN);
  session.set_workspace("/home/dev/project");
  (*session.mutable_labels())["ticket"] = "42";
  session.set_started_ns(kStartNs);
  session.add_command("claude");
  session.add_command("fix the build");
  session.set_processes(3);
  session.set_events(14);
  session.set_denials(1);
  session.mutable_first_process()->set_pid(1000);
  session.set_cgroup("/agentmon-main/s-1");
  session.add_limits("memory 8192 MiB");
  session.add_limits("500 processes and threads");
  session.mutable_usage()->set_cpu_ns(1'500'000'000);
  session.mutable_usage()->set_processes(3);
  v1::SourceState& process = *session.add_sources();
  process.set_source(v1::PROCESS);
  process.set_active(true);
  process.set_counts("exact");
  process.set_events(9);
  v1::SourceState& notify = *session.add_sources();
  notify.set_source(v1::NOTIFY);
  notify.set_why("the process was attached, not started");
  return session;
}

v1::StatusResponse SampleStatus() {
  v1::StatusResponse status;
  status.set_version("0.1.0");
  status.set_pid(321);
  status.set_started_ns(kStartNs);
  status.set_role("user");
  status.set_kernel("6.1.0");
  status.set_socket("/run/agentmon/agentmond.sock");
  status.set_state_dir("/var/lib/agentmon");
  status.set_sessions(1);
  *status.mutable_sources() = SampleSession().sources();
  status.mutable_sources(0)->set_lost(5);
  status.mutable_store()->set_state("ok");
  status.mutable_store()->set_events(1234);
  status.mutable_store()->set_bytes(5'000'000);
  status.add_warnings("fanotify: only 3 of 5 mounts are marked");
  return status;
}

}  // namespace agentmon
