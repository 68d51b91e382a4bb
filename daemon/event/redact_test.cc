#include "daemon/event/redact.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace agentmon {
namespace {

// Secrets are written in pieces, so that no scanner takes this file for a leak.
const std::string kAws = std::string("AKIA") + "IOSFODNN7EXAMPLE";
const std::string kGithub = std::string("gh") + "p_0123456789abcdefghijABCDEFGHIJ012345";
const std::string kGithubFine = std::string("github") + "_pat_11ABCDEFG0123456789_abcdefghij";
const std::string kGitlab = std::string("gl") + "pat-abcDEF0123456789xyz_";
const std::string kSlack = std::string("xo") + "xb-123456789012-abcdefghijkl";
const std::string kOpenai = std::string("s") + "k-proj-abc123DEF456ghi789JKL012";
const std::string kAnthropic = std::string("s") + "k-ant-api03-abcDEF123456_7890-xyz";
const std::string kGoogle = std::string("AI") + "zaSyA0123456789abcdefghijklmnopqrstuv";
const std::string kJwt =
    std::string("ey") + "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P";
const std::string kPem =
    std::string("-----BEGIN RSA PRIV") + "ATE KEY-----\nMIIEow\nAAAA\n-----END RSA PRIVATE KEY-----";

struct Case {
  std::vector<std::string> argv;
  std::vector<std::string> expected;
};

std::vector<std::string> Redacted(const std::vector<std::string>& argv, bool* redacted) {
  Event event;
  for (const std::string& arg : argv) event.mutable_exec()->add_argv(arg);
  *redacted = Redactor().Redact(&event);
  CHECK(event.redacted() == *redacted);
  return {event.exec().argv().begin(), event.exec().argv().end()};
}

TEST_CASE("secrets are taken out of argument lists") {
  const std::string x(Redactor::kMark);
  const std::vector<Case> cases = {
      {{"psql", "--password=hunter2"}, {"psql", "--password=" + x}},
      {{"psql", "--password=hunter 2 with spaces"}, {"psql", "--password=" + x}},
      {{"tool", "--token", "abc", "rest"}, {"tool", "--token", x, "rest"}},
      {{"tool", "-token=abc"}, {"tool", "-token=" + x}},
      {{"tool", "--db-password", "p", "--github-token=t"},
       {"tool", "--db-password", x, "--github-token=" + x}},
      {{"tool", "--api-key", "k", "--apikey=k", "--API_KEY=k"},
       {"tool", "--api-key", x, "--apikey=" + x, "--API_KEY=" + x}},
      {{"tool", "--accesskey", "k"}, {"tool", "--accesskey", x}},
      {{"tool", "--client-secret", "s", "--pwd", "w"}, {"tool", "--client-secret", x, "--pwd", x}},
      {{"mysql", "-uroot", "-phunter2", "db"}, {"mysql", "-uroot", "-p" + x, "db"}},
      {{"sudo", "/usr/bin/mysqldump", "-phunter2"}, {"sudo", "/usr/bin/mysqldump", "-p" + x}},
      {{"sh", "-c", "mysql -u root -phunter2 db < x"}, {"sh", "-c", "mysql -u root -p" + x + " db < x"}},
      {{"sshpass", "-p", "hunter2", "ssh", "-p", "2222", "host"},
       {"sshpass", "-p", x, "ssh", "-p", "2222", "host"}},
      {{"sshpass", "-phunter2", "ssh", "host"}, {"sshpass", "-p" + x, "ssh", "host"}},
      {{"curl", "-u", "bob:hunter2", "https://h/"}, {"curl", "-u", "bob:" + x, "https://h/"}},
      {{"curl", "-ubob:hunter2", "https://h/"}, {"curl", "-ubob:" + x, "https://h/"}},
      {{"curl", "--user=bob:hunter2"}, {"curl", "--user=bob:" + x}},
      {{"bash", "-c", "curl -s -u bob:hunter2 https://h"},
       {"bash", "-c", "curl -s -u bob:" + x + " https://h"}},
      {{"docker", "login", "-u", "bob", "-p", "hunter2"}, {"docker", "login", "-u", "bob", "-p", x}},
      {{"redis-cli", "-a", "hunter2"}, {"redis-cli", "-a", x}},
      {{"7z", "a", "-phunter2", "x.7z"}, {"7z", "a", "-p" + x, "x.7z"}},
      {{"openssl", "rsa", "-passin", "pass:hunter2"}, {"openssl", "rsa", "-passin", "pass:" + x}},
      {{"smbclient", "-U", "bob%hunter2"}, {"smbclient", "-U", "bob%" + x}},
      {{"curl", "-H", "Authorization: Bearer abc.def"}, {"curl", "-H", "Authorization: Bearer " + x}},
      {{"curl", "-H", "authorization:Basic Ym9iOnB3"}, {"curl", "-H", "authorization:Basic " + x}},
      {{"curl", "-H", "Authorization: opaque"}, {"curl", "-H", "Authorization: " + x}},
      {{"curl", "-H", "X-Api-Key: abc"}, {"curl", "-H", "X-Api-Key: " + x}},
      {{"curl", "-H", "PRIVATE-TOKEN: abc"}, {"curl", "-H", "PRIVATE-TOKEN: " + x}},
      {{"curl", "-b", "Cookie: sid=1; t=2"}, {"curl", "-b", "Cookie: " + x}},
      {{"sh", "-c", "curl -H 'Authorization: token abc' u"},
       {"sh", "-c", "curl -H 'Authorization: token " + x + "' u"}},
      {{"git", "clone", "https://bob:hunter2@host/r"}, {"git", "clone", "https://bob:" + x + "@host/r"}},
      {{"git", "clone", "https://:hunter2@host/r"}, {"git", "clone", "https://:" + x + "@host/r"}},
      {{"psql", "postgres://u:p@ss@db:5432/x"}, {"psql", "postgres://u:" + x + "@db:5432/x"}},
      {{"git", "clone", "https://abcdef0123456789abcdef@host/r"},
       {"git", "clone", "https://" + x + "@host/r"}},
      {{"curl", "https://h/x?a=1&token=t1&sig=t2#x"},
       {"curl", "https://h/x?a=1&token=" + x + "&sig=" + x + "#x"}},
      {{"curl", "https://h/x?key=abc"}, {"curl", "https://h/x?key=" + x}},
      {{"curl", "https://s3/x?X-Amz-Signature=abc&X-Amz-Date=1"},
       {"curl", "https://s3/x?X-Amz-Signature=" + x + "&X-Amz-Date=1"}},
      {{"env", "DB_PASSWORD=hunter2", "PGPASSWORD=a b", "GH_TOKEN=t", "run"},
       {"env", "DB_PASSWORD=" + x, "PGPASSWORD=" + x, "GH_TOKEN=" + x, "run"}},
      {{"docker", "run", "-e", "MY_API_KEY=abc", "-p", "80:80"},
       {"docker", "run", "-e", "MY_API_KEY=" + x, "-p", "80:80"}},
      {{"sh", "-c", "export SECRET_KEY=abc && run"}, {"sh", "-c", "export SECRET_KEY=" + x + " && run"}},
      {{"sh", "-c", "tool --password 'a b' --x"}, {"sh", "-c", "tool --password " + x + " --x"}},
      {{"curl", "-d", "{\"user\":\"bob\",\"password\":\"hunter2\"}"},
       {"curl", "-d", "{\"user\":\"bob\",\"password\":\"" + x + "\"}"}},
      {{"x", kAws}, {"x", x}},
      {{"x", "v" + std::string("=") + kGithub}, {"x", "v=" + x}},
      {{"x", kGithubFine}, {"x", x}},
      {{"x", kGitlab}, {"x", x}},
      {{"x", kSlack}, {"x", x}},
      {{"x", kOpenai}, {"x", x}},
      {{"x", kAnthropic}, {"x", x}},
      {{"x", kGoogle}, {"x", x}},
      {{"x", kJwt}, {"x", x}},
      {{"echo", kPem},
       {"echo", std::string("-----BEGIN RSA PRIV") + "ATE KEY-----" + x + "-----END RSA PRIVATE KEY-----"}},
      {{"git", "-c", "http.extraHeader=Authorization: Basic abc", "fetch"},
       {"git", "-c", "http.extraHeader=Authorization: Basic " + x, "fetch"}},
      {{"curl", "-su", "bob:hunter2", "https://h/"}, {"curl", "-su", "bob:" + x, "https://h/"}},
      {{"curl", "-sSLubob:hunter2", "https://h/"}, {"curl", "-sSLubob:" + x, "https://h/"}},
      {{"wget", "-u", "admin:pw", "https://h/"}, {"wget", "-u", "admin:" + x, "https://h/"}},
      {{"sh", "-c", "curl -sfu admin:pw https://h; ls"},
       {"sh", "-c", "curl -sfu admin:" + x + " https://h; ls"}},
      {{"tool", "--Password:hunter2", "-PassWord:w", "rest"},
       {"tool", "--Password:" + x, "-PassWord:" + x, "rest"}},
      {{"cmd", "/c", "tool --Password:hunter2 /y"}, {"cmd", "/c", "tool --Password:" + x + " /y"}},
      {{"mysql", "-u", "root", "-p", "hunter2"}, {"mysql", "-u", "root", "-p", x}},
      {{"mysqldump", "-p", "hunter2", "db"}, {"mysqldump", "-p", x, "db"}},
      {{"sh", "-c", "mysqldump -u r -p hunter2 db; ls"}, {"sh", "-c", "mysqldump -u r -p " + x + " db; ls"}},
      {{"plink", "-pw", "hunter2", "host"}, {"plink", "-pw", x, "host"}},
      {{"curl", "-HAuthorization: Basic abc"}, {"curl", "-HAuthorization: Basic " + x}},
      {{"curl", "-HX-Api-Key:abc"}, {"curl", "-HX-Api-Key:" + x}},
      {{"curl", "--header=X-API-KEY: abc"}, {"curl", "--header=X-API-KEY: " + x}},
      {{"sh", "-c", "curl -H 'X-Api-Key: abc' u; ls"}, {"sh", "-c", "curl -H 'X-Api-Key: " + x + "' u; ls"}},
      {{"sh", "-c", "DB_PASSWORD=hunter2; ls /tmp"}, {"sh", "-c", "DB_PASSWORD=" + x + "; ls /tmp"}},
      {{"sh", "-c", "a=1; DB_PASSWORD=hunter2&& ls"}, {"sh", "-c", "a=1; DB_PASSWORD=" + x + "&& ls"}},
      {{"sh", "-c", "tool --token abc; tool --password=b; ls"},
       {"sh", "-c", "tool --token " + x + "; tool --password=" + x + "; ls"}},
      {{"curl", "-d", "password=hunter2&x=1&token=t;", "u"},
       {"curl", "-d", "password=" + x + "&x=1&token=" + x + ";", "u"}},
      {{"curl", "-d", "user=bob&password=hunter2&x=1"}, {"curl", "-d", "user=bob&password=" + x + "&x=1"}},
      {{"env", "PASSWORD=a;b&c", "run"}, {"env", "PASSWORD=" + x, "run"}},
      {{"env", "PASSWORD=[redacted]more", "run"}, {"env", "PASSWORD=" + x, "run"}},
      {{"x", std::string("\xff\xfe --password=\x80\x81 \xff", 18)},
       {"x", std::string("\xff\xfe --password=") + x + " \xff"}},
  };
  for (const Case& c : cases) {
    bool redacted = false;
    INFO(absl::StrJoin(c.argv, " | "));
    CHECK(Redacted(c.argv, &redacted) == c.expected);
    CHECK(redacted);
    // Once more changes nothing.
    CHECK(Redacted(c.expected, &redacted) == c.expected);
    CHECK_FALSE(redacted);
  }
}

TEST_CASE("what is no secret stays as it is") {
  const std::vector<std::vector<std::string>> cases = {
      {"ls", "-la", "/home/bob/passwords", "/etc/passwd"},
      {"gcc", "-O2", "-pthread", "-c", "token.c", "-o", "token.o", "-DTOKEN_MAX"},
      {"docker", "run", "-p", "8080:80", "-u", "1000:1000", "image"},
      {"ssh", "-p", "2222", "bob@host"},
      {"mkdir", "-p", "/a/b"},
      {"ps", "-p", "123"},
      {"mysql", "-u", "root", "-p"},
      {"mysql", "-u", "root", "-p", "-h", "host"},
      {"sh", "-c", "mysql -u root -p < dump.sql"},
      {"curl", "-sS", "-o", "user:file", "https://h"},
      {"curl", "-osu", "bob:file"},
      {"git", "clone", "https://github.com/org/repo.git"},
      {"git", "clone", "git@github.com:org/repo.git"},
      {"git", "clone", "https://bob@host/repo"},
      {"git", "push", "ssh://git@host:22/repo"},
      {"curl", "-sS", "https://host:8443/a@b?q=1&page=2"},
      {"curl", "-u", "bob", "https://h"},
      {"tool", "--password-file=/run/pw", "--token-file", "/run/t", "--no-password", "x"},
      {"tool", "--max-tokens=100", "--tokens", "5", "--tokenizer", "bpe", "--token=true"},
      {"ansible", "--private-key", "/home/bob/.ssh/id_rsa"},
      {"docker", "build", "--secret", "id=npm,src=/run/npmrc"},
      {"env", "TOKENIZERS_PARALLELISM=false", "MAX_TOKENS=100", "SECRET_FILE=/x", "TOKEN_URL=https://h/t",
       "run"},
      {"sh", "-c", "tool --password \"$PASSWORD\" && echo $TOKEN"},
      {"sh", "-c", "TOKEN=$(cat /run/token) tool"},
      {"task-runner", "task-0123456789abcdefghijklmn", "disk-0123456789abcdefghijkl"},
      {"python3", "-m", "pytest", "-k", "test_token_auth", "tests/auth/test_password.py"},
      {"grep", "-r", "password", "src"},
      {"vim", "/home/bob/src/authorization.cc"},
      {"tool", "--password"},
      {"tool", "--token", "--verbose"},
      {"dd", "if=/dev/zero", "of=/tmp/key", "bs=1M"},
      {"ls", "/tmp/-----BEGIN CERTIFICATE-----"},
      {"tool", "--bypass=1", "bypass=1"},
      {""},
      {},
  };
  for (const std::vector<std::string>& argv : cases) {
    bool redacted = true;
    INFO(absl::StrJoin(argv, " | "));
    CHECK(Redacted(argv, &redacted) == argv);
    CHECK_FALSE(redacted);
  }
}

TEST_CASE("secrets in paths are taken out, ordinary paths are left alone") {
  const std::string x(Redactor::kMark);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"/cache/https://bob:hunter2@host/x?token=abc", "/cache/https://bob:" + x + "@host/x?token=" + x},
      {"/cache/https:/bob:hunter2@host/x", "/cache/https:/bob:" + x + "@host/x"},
      {"/tmp/" + kGithub + "/log", "/tmp/" + x + "/log"},
      {"/home/bob/password=hunter2/y;z", "/home/bob/password=" + x + "/y;z"},
      {"/home/bob/.cache/" + kAws + ".json", "/home/bob/.cache/" + x + ".json"},
  };
  for (const auto& [path, expected] : cases) {
    for (int field = 0; field < 5; ++field) {
      Event event;
      std::string* const fields[] = {
          field < 2 ? event.mutable_file()->mutable_path() : nullptr,
          field < 2 ? event.mutable_file()->mutable_new_path() : nullptr,
          field == 2 ? event.mutable_unix()->mutable_path() : nullptr,
          field > 2 ? event.mutable_exec()->mutable_filename() : nullptr,
          field > 2 ? event.mutable_exec()->mutable_cwd() : nullptr,
      };
      *fields[field] = path;
      CHECK(Redactor().Redact(&event));
      CHECK(event.redacted());
      CHECK(*fields[field] == expected);
      CHECK_FALSE(Redactor().Redact(&event));
    }
  }
  for (const char* path : {"/etc/passwd", "/home/bob/.ssh/id_rsa", "/srv/token/x=1", "/a/secret_file=/x",
                           "/a/b@c:/d", "/mnt/c:/users/bob@host", "./key=tool", "/proc/self/fd/3", ""}) {
    Event event;
    event.mutable_file()->set_path(path);
    INFO(path);
    CHECK_FALSE(Redactor().Redact(&event));
    CHECK(event.file().path() == path);
  }
}

TEST_CASE("a label's value is a secret when its name says so, or when it looks like one") {
  const std::string x(Redactor::kMark);
  std::string value = "hunter2";
  CHECK(Redactor::RedactNamed("db_password", &value));
  CHECK(value == x);
  CHECK_FALSE(Redactor::RedactNamed("db_password", &value));
  value = "ticket " + kGithub;
  CHECK(Redactor::RedactNamed("note", &value));
  CHECK(value == "ticket " + x);
  value = "blue";
  CHECK_FALSE(Redactor::RedactNamed("team", &value));
  CHECK(value == "blue");
}

TEST_CASE("an ordinary argument list costs about a microsecond at most", "[.bench]") {
  Event event;
  for (const char* arg : {"/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus", "-quiet", "-I", "include", "-O2",
                          "-Wall", "src/module/file.cc", "-o", "/tmp/ccXYZ123.s"}) {
    event.mutable_exec()->add_argv(arg);
  }
  const Redactor redactor;
  redactor.Redact(&event);
  constexpr int kRounds = 200'000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) redactor.Redact(&event);
  const auto ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin);
  WARN("ns per argument list: " << ns.count() / kRounds);
}

}  // namespace
}  // namespace agentmon
