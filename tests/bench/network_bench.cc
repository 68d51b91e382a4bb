// What it takes to keep the network rules of many sessions: memory, and the time of a change of one policy
// and of opening addresses by name, beside the same rules as plain sets of nftables.
//   network_bench [SESSIONS] [RULES]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/policy/testing/snapshots.h"
#include "daemon/enforce/network_backstop.h"
#include "daemon/enforce/nft.h"
#include "daemon/probe/network_probe.h"
#include "tests/host/kernel_fixture.h"

namespace agentmon {
namespace {

constexpr int kPolicies = 100;  // that sessions share
constexpr int kChanges = 20;
constexpr int kNamesOfSession = 10, kAddressesOfName = 10;
constexpr char kTable[] = "agentmon-bench";

const SystemClock g_clock;
double Ms() { return static_cast<double>(g_clock.BootNs()) / 1e6; }

double Resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::atof(line.c_str() + 6) / 1024;
  }
  return 0;
}

// Not two of these have a rule in common.
std::string Address(int policy, int rule) {
  return absl::StrCat(11 + policy % 100, ".", rule / 256 % 256, ".", rule % 256, ".", 1 + policy / 100);
}

std::shared_ptr<const policy::Snapshot> Rules(int policy, int rules) {
  std::string text =
      "defaults: {network: allow}\nnetwork_rules:\n  - {domains: ['**.bench.test'], decision: allow}\n";
  for (int i = 0; i < rules; ++i)
    absl::StrAppend(&text, "  - {cidrs: [", Address(policy, i), "], ports: [443], decision: deny}\n");
  return policy::MakeBase(text);
}

void Say(const char* what, std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  std::printf("%-62s median %8.2f ms, worst %8.2f ms\n", what, ms[ms.size() / 2], ms.back());
  std::fflush(stdout);
}

void Done(const absl::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, std::string(status.message()).c_str());
  std::exit(1);
}

void WaitForBackstop(NetworkBackstop& backstop, uint64_t cgroup_id) {
  const double deadline = Ms() + 120'000;
  while (!backstop.Settle(cgroup_id) && Ms() < deadline) continue;
}

// Another policy for one session, as it counts for its acts (SetPolicy), and until packets follow.
void Change(NetworkGate& gate, NetworkBackstop& backstop, const std::vector<uint64_t>& sessions, int rules,
            int from) {
  std::vector<double> acts, packets;
  for (int i = 0; i < kChanges; ++i) {
    const auto snapshot = Rules(from + i, rules);
    const uint64_t session = sessions[static_cast<size_t>(i) * 37 % sessions.size()];
    const double began = Ms();
    Done(gate.SetPolicy(session, snapshot), "another policy");
    acts.push_back(Ms() - began);
    WaitForBackstop(backstop, session);
    packets.push_back(Ms() - began);
  }
  Say("policy of one session: acts follow", acts);
  Say("policy of one session: packets follow, too", packets);
}

void OpenNames(NetworkGate& gate, NetworkBackstop& backstop, const std::vector<uint64_t>& sessions) {
  const int64_t until = g_clock.BootNs() + 3'600'000'000'000;
  const double before = Resident(), began = Ms();
  int opened = 0;
  for (const uint64_t session : sessions) {
    for (int i = 0; i < kNamesOfSession * kAddressesOfName; ++i, ++opened) {
      const std::string name = absl::StrCat("host", i / kAddressesOfName, ".bench.test");
      const auto address = policy::ParseAddress(absl::StrCat("198.18.", opened % 7, ".", i + 1));
      Done(gate.OpenAddress(session, name, *address, until), "open an address");
    }
  }
  const double took = Ms() - began;
  for (const uint64_t session : sessions) WaitForBackstop(backstop, session);
  std::printf("%d addresses of %zu names: %.1f us each, packets follow after %.1f s; %.1f MB more resident\n",
              opened, sessions.size() * kNamesOfSession, took * 1000 / opened, (Ms() - began) / 1000,
              Resident() - before);
}

// The same without agentmon: a set of addresses and ports for each session, of which one is filled anew.
void PlainSets(size_t sessions, int rules) {
  const auto fill = [&](size_t session, int policy) {
    std::string out = absl::StrCat("add element inet ", kTable, " s", session, " { ");
    for (int i = 0; i < rules; ++i) absl::StrAppend(&out, i == 0 ? "" : ", ", Address(policy, i), " . 443");
    return out + " }\n";
  };
  auto nft = Nft::Create();
  if (!nft.ok()) return (void)std::printf("nft alone: %s\n", std::string(nft.status().message()).c_str());
  const auto run = [&](const std::string& text) {
    const double began = Ms();
    Done((*nft)->Run(text), "nft alone");
    return Ms() - began;
  };
  std::string all = absl::StrCat("add table inet ", kTable, "\n");
  for (size_t s = 0; s < sessions; ++s) {
    absl::StrAppend(&all, "add set inet ", kTable, " s", s, " { type ipv4_addr . inet_service; }\n",
                    fill(s, static_cast<int>(s % kPolicies)));
  }
  std::printf("nft alone: %zu sets of %d elements in %.1f s\n", sessions, rules, run(all) / 1000);
  std::vector<double> ms;
  for (int i = 0; i < kChanges; ++i) {
    const size_t s = static_cast<size_t>(i) * 37 % sessions;
    ms.push_back(run(absl::StrCat("flush set inet ", kTable, " s", s, "\n", fill(s, kPolicies + i))));
  }
  Say("nft alone: one set filled anew", ms);
  run(absl::StrCat("delete table inet ", kTable, "\n"));
}

int Main(int argc, char** argv) {
  const size_t count = argc > 1 ? static_cast<size_t>(std::atoi(argv[1])) : 1000;
  const int rules = argc > 2 ? std::atoi(argv[2]) : 1000;
  // As in the daemon, before the sessions take descriptors.
  const NftRuleset::Options options{kTable, 2, std::nullopt, false};
  auto backstop =
      std::make_unique<NetworkBackstop>(NetworkBackstop::Options{options, *FindCgroup2Mount()}, g_clock);
  PollTaskRunner runner;
  TestCgroup base;
  std::vector<std::unique_ptr<TestCgroup>> cgroups;
  std::vector<uint64_t> sessions;
  for (size_t i = 0; i < count; ++i) {
    cgroups.push_back(std::make_unique<TestCgroup>(base->path()));
    sessions.push_back((*cgroups.back())->id());
  }
  auto ring = *BpfRing::Create(base->fd(), runner);
  auto probe = *NetworkProbe::Create(*ring, base->fd(), "bench", g_clock);
  Done(probe->enforceable(), "judge connects");
  {
    NetworkGate& gate = *probe->gate();
    gate.SetBackstop(backstop.get());
    backstop->Begin();
    const double before = Resident();
    std::vector<std::shared_ptr<const policy::Snapshot>> policies;
    for (int i = 0; i < kPolicies; ++i) policies.push_back(Rules(i, rules));
    const double compiled = Resident(), began = Ms();
    for (size_t i = 0; i < count; ++i)
      Done(gate.SetPolicy(sessions[i], policies[i % kPolicies]), "the policy of a session");
    const double written = Ms();
    for (const uint64_t session : sessions) WaitForBackstop(*backstop, session);
    std::printf(
        "%zu sessions, %d policies of %d rules: %.1f s, packets follow after %.1f s; "
        "resident %.1f MB before, policies %.1f MB, then %.1f MB\n",
        count, kPolicies, rules, (written - began) / 1000, (Ms() - began) / 1000, before, compiled - before,
        Resident());
    std::fflush(stdout);
    Done(backstop->status(), "nftables");
    Change(gate, *backstop, sessions, rules, kPolicies);
    OpenNames(gate, *backstop, sessions);
    Change(gate, *backstop, sessions, rules, kPolicies + kChanges);
    for (const uint64_t session : sessions) gate.RemoveSession(session);
    for (const uint64_t session : sessions) WaitForBackstop(*backstop, session);
    gate.SetBackstop(nullptr);
    backstop.reset();
  }
  cgroups.clear();
  PlainSets(count, rules);
  return 0;
}

}  // namespace
}  // namespace agentmon

int main(int argc, char** argv) { return agentmon::Main(argc, argv); }
