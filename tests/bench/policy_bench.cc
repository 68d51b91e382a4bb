// Speed of the policy engine beside a straightforward loop of fnmatch and regular expressions.
//
//   policy_bench [RULES...]     default: 10000 100000
//
// Prints one line a figure. The budgets are in docs/policy-engine.md.
#include <fnmatch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/policy/testing/snapshots.h"

namespace agentmon::policy {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point from) {
  return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
}

// Mixed rules of the kinds that people write: trees, names, extensions, commands with expressions,
// destinations.
std::string PolicyText(int from, int to) {
  std::string file = "file_rules:\n", network = "network_rules:\n", command = "command_rules:\n",
              socket = "unix_socket_rules:\n";
  for (int i = from; i < to; ++i) {
    switch (i % 10) {
      case 0:
      case 1:
      case 2:
        absl::StrAppend(&file, "  - {name: f", i, ", paths: [\"/srv/data/p", i,
                        "/**\"], operations: [read, open, write], decision: deny}\n");
        break;
      case 3:
        absl::StrAppend(&file, "  - {name: f", i, ", paths: [\"${HOME}/d", i % 97, "/x", i,
                        ".conf\"], decision: deny}\n");
        break;
      case 4:
        absl::StrAppend(&file, "  - {name: f", i, ", paths: [\"**/.secret", i, "\", \"**/*.e", i,
                        "\"], decision: ask}\n");
        break;
      case 5:
        absl::StrAppend(&file, "  - {name: f", i, ", paths: [\"${HOME}/*/q", i, "/**\"], decision: deny}\n");
        break;
      case 6:
        absl::StrAppend(&network, "  - {name: n", i, ", domains: [\"*.h", i,
                        ".example.com\"], ports: [443], decision: allow}\n");
        break;
      case 7:
        absl::StrAppend(&network, "  - {name: n", i, ", cidrs: [\"10.", i / 256 % 256, ".", i % 256,
                        ".0/24\"], decision: deny}\n");
        break;
      case 8:
        absl::StrAppend(&socket, "  - {name: u", i, ", paths: [\"/run/s", i, ".sock\"], decision: deny}\n");
        break;
      case 9:
        absl::StrAppend(&command, "  - {name: c", i, ", commands: [tool", i, "]");
        if (i % 50 == 9) absl::StrAppend(&command, ", args_patterns: [\"--force-", i, "( |$)\"]");
        absl::StrAppend(&command, ", decision: deny}\n");
        break;
    }
  }
  for (int i = 0; i < 10 && from == 0; ++i) {
    absl::StrAppend(&command, "  - {name: git", i, ", commands: [git], args_patterns: [\"push .*--never-", i,
                    "( |$)\"], decision: deny}\n");
  }
  if (from == 0) absl::StrAppend(&command, "  - {name: git, commands: [git], decision: allow}\n");
  return absl::StrCat("version: 1\nname: bench\n", file, network, command, socket);
}

std::atomic<uint64_t> sink{0};

// Nanoseconds of one call: the best of five rounds.
double Time(const std::function<uint64_t()>& call, int calls) {
  double best = 1e18;
  for (int round = 0; round < 5; ++round) {
    const auto start = Clock::now();
    uint64_t sum = 0;
    for (int i = 0; i < calls; ++i) sum += call();
    best = std::min(best, Milliseconds(start) * 1e6 / calls);
    sink += sum;
  }
  return best;
}

// The straightforward way: all rules in order, fnmatch for paths, std::regex for arguments.
struct NaiveRule {
  std::vector<std::string> patterns;
  std::string name;
  std::unique_ptr<std::regex> expression;
};

struct Naive {
  std::vector<NaiveRule> files, commands;
  explicit Naive(const Document& document) {
    for (const Rule& rule : document.rules) {
      NaiveRule out;
      for (const Text& path : rule.paths) {
        std::string text = path.value;
        if (text.find("${HOME}") == 0) text = "/home/u" + text.substr(7);
        out.patterns.push_back(text);
      }
      if (rule.kind == RuleKind::kFile) {
        files.push_back(std::move(out));
        continue;
      }
      if (rule.kind != RuleKind::kCommand) continue;
      out.name = rule.commands[0].value;
      if (!rule.args_patterns.empty())
        out.expression = std::make_unique<std::regex>(rule.args_patterns[0].value);
      commands.push_back(std::move(out));
    }
  }
  uint64_t Open(const char* path) const {
    for (size_t i = 0; i < files.size(); ++i) {
      for (const std::string& p : files[i].patterns) {
        if (fnmatch(p.c_str(), path, 0) == 0) return i;
      }
    }
    return 0;
  }
  uint64_t Exec(const std::string& name, const std::string& joined) const {
    for (size_t i = 0; i < commands.size(); ++i) {
      if (commands[i].name == name &&
          (!commands[i].expression || std::regex_search(joined, *commands[i].expression)))
        return i;
    }
    return 0;
  }
};

void Run(int rules) {
  // A file is at most 4 MiB; larger policies are put together from several.
  std::vector<std::string> texts;
  size_t bytes = 0;
  for (int from = 0; from < rules; from += 20000)
    bytes += texts.emplace_back(PolicyText(from, std::min(rules, from + 20000))).size();
  double load = 1e18, compile = 1e18;
  std::shared_ptr<const Document> document;
  std::shared_ptr<const Snapshot> snapshot;
  for (int round = 0; round < 5; ++round) {
    const auto start = Clock::now();
    Document all;
    for (const std::string& text : texts) {
      LoadResult loaded = LoadPolicy(text, "bench.yaml");
      if (!loaded.ok()) std::printf("%s\n", FormatDiagnostic(loaded.diagnostics[0]).c_str()), std::exit(1);
      if (all.rules.empty())
        all = std::move(loaded.document);
      else
        all.rules.insert(all.rules.end(), loaded.document.rules.begin(), loaded.document.rules.end());
    }
    load = std::min(load, Milliseconds(start));
    document = std::make_shared<const Document>(std::move(all));
    const auto from = Clock::now();
    CompileResult compiled = Compile({{LayerKind::kBase, document}}, TestOptions());
    compile = std::min(compile, Milliseconds(from));
    if (compiled.snapshot == nullptr)
      std::printf("%s\n", FormatDiagnostic(compiled.diagnostics[0]).c_str()), std::exit(1);
    snapshot = compiled.snapshot;
  }
  std::printf("%7d rules: %.1f MB of text, parse %.1f ms, compile %.1f ms, load in all %.1f ms\n", rules,
              bytes / 1e6, load, compile, load + compile);

  const EvaluateOptions options;
  const auto effect = [&](const Subject& s) {
    return static_cast<uint64_t>(Evaluate(*snapshot, s, options).effective);
  };
  const Subject miss = FileSubject(kOpen | kRead, "/home/u/ws/src/component/module/file_name.cc");
  const Subject hit = FileSubject(kOpen | kRead, "/srv/data/p1/some/deep/file");
  const std::vector<absl::string_view> argv = {
      "git", "-c", "a=b", "push", "--set-upstream", "origin", "feature/some-branch"};
  const std::vector<absl::string_view> plain = {"git", "push", "--set-upstream", "origin",
                                                "feature/some-branch"};
  const Subject exec = ExecSubject("/usr/bin/git", plain), behind = ExecSubject("/usr/bin/git", argv);
  const Subject connect = ConnectSubject(*ParseAddress("93.184.216.34"), 443, kTcp, "api.h6.example.com");
  const Subject socket = UnixSubject(kUnixConnect, "/run/user/1000/bus");
  std::printf(
      "%7d rules: open (no rule) %.0f ns, open (a rule) %.0f ns, exec with 10 expressions %.0f ns, behind "
      "options %.0f ns, "
      "connect by name %.0f ns, unix %.0f ns\n",
      rules, Time([&] { return effect(miss); }, 100000), Time([&] { return effect(hit); }, 100000),
      Time([&] { return effect(exec); }, 20000), Time([&] { return effect(behind); }, 20000),
      Time([&] { return effect(connect); }, 100000), Time([&] { return effect(socket); }, 100000));

  if (rules <= 10000) {
    const Naive naive(*document);
    const std::string joined = absl::StrJoin(plain, " ");
    std::printf("%7d rules: the straightforward loop: open (no rule) %.0f ns, exec %.0f ns\n", rules,
                Time([&] { return naive.Open("/home/u/ws/src/component/module/file_name.cc"); }, 20),
                Time([&] { return naive.Exec("git", joined); }, 200));
  }
  std::shared_ptr<const Snapshot> current = snapshot;
  const CompileResult other = Compile({{LayerKind::kBase, document}}, TestOptions());
  const auto start = Clock::now();
  std::atomic_store(&current, other.snapshot);
  std::printf("%7d rules: swap %.4f ms\n", rules, Milliseconds(start));
}

}  // namespace
}  // namespace agentmon::policy

int main(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {10, 10000, 100000};
  for (const int rules : sizes) agentmon::policy::Run(rules);
}
