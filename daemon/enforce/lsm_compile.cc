#include "daemon/enforce/lsm_compile.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bpf/lsm_judge.h"
#include "bpf/lsm_numbers.h"
#include "common/base/status.h"
#include "common/policy/evaluate.h"
#include "common/policy/kernel_view.h"
#include "daemon/enforce/lsm_names.h"

namespace agentmon {
namespace {

using policy::Decision;
using policy::KernelPath;
using Match = KernelPath::Match;

// What the programs call these by numbers of their own.
constexpr bool Same(uint32_t a, uint32_t b) { return a == b; }
static_assert(Same(OP_OPEN, policy::kOpen) && Same(OP_READ, policy::kRead) && Same(OP_WRITE, policy::kWrite));
static_assert(Same(OP_CREATE, policy::kCreate) && Same(OP_MKDIR, policy::kMkdir) &&
              Same(OP_CHMOD, policy::kChmod));
static_assert(Same(OP_CHOWN, policy::kChown) && Same(OP_RENAME, policy::kRename) &&
              Same(OP_DELETE, policy::kDelete));
static_assert(Same(OP_RMDIR, policy::kRmdir) && Same(OP_LINK, policy::kLink) &&
              Same(OP_SYMLINK, policy::kSymlink));
static_assert(Same(OP_MKNOD, policy::kMknod) &&
              ((OP_BELOW | OP_UNIX_CONNECT | OP_UNIX_SENDTO | OP_EXEC | OP_EXEC_OTHER | OP_MAP) &
               policy::kAllFileOps) == 0);
static_assert(AM_LSM_STOPS_READS == 1 && AM_LSM_STOPS_WRITES == 2 && AM_LSM_STOPS_SOCKETS == 4 &&
              AM_LSM_STOPS == 1 && AM_LSM_STOPS_IMPLIED == 2 && AM_LSM_UNSURE == 4);

constexpr uint32_t kDeletes = policy::kDelete | policy::kRmdir;
constexpr uint32_t kExecs = OP_EXEC | OP_EXEC_OTHER;
// Where only root puts programs, on every host.
constexpr const char* kSystemPrograms[] = {"/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/"};
constexpr size_t kRoots = 63;  // and "everywhere"

bool StopsByDefault(Decision decision) {
  return policy::Strictness(decision) >= policy::Strictness(Decision::kAsk);
}

// Nobody can be asked, and nothing can be redirected or kept: as EffectiveDecision has it.
uint8_t FlagsOf(Decision decision) {
  switch (decision) {
    case Decision::kAsk:
    case Decision::kAbsorb:
    case Decision::kDeny:
      return AM_LSM_STOPS | AM_LSM_STOPS_IMPLIED;
    case Decision::kRedirect:
      return AM_LSM_STOPS;
    default:
      return 0;
  }
}

class LsmCompiler {
 public:
  LsmCompiler(const policy::Snapshot& snapshot, const LsmKey& key) : snapshot_(snapshot), key_(key) {}

  absl::StatusOr<LsmPolicy> Run(absl::string_view spare) {
    out_.head.read_operations = policy::kReadOps;
    out_.head.socket_operations = OP_UNIX_CONNECT | OP_UNIX_SENDTO;
    out_.head.exec_operations = kExecs | OP_MAP;
    const policy::KernelView view = policy::MakeKernelView(snapshot_);
    for (size_t i = 0; i < view.layers.size(); ++i) {
      if (i > 0 && policy::UnderPosture(Decision::kDeny, view.layers[i].posture) != Decision::kDeny) continue;
      if (out_.head.layers == AM_LSM_LAYERS)
        return absl::ResourceExhaustedError(
            absl::StrCat("more than ", AM_LSM_LAYERS, " layers that stop anything"));
      RETURN_IF_ERROR(Layer(view.layers[i], i, i == 0 ? spare : ""));
    }
    // What rules on files take up, they have first.
    for (uint32_t l = 0; l < out_.head.layers; ++l) Programs(view.layers[out_.head.layer[l]].programs, l);
    for (const auto& [length, suffix] : lengths_) {
      uint8_t* list = suffix ? out_.head.suffix : out_.head.prefix;
      *std::find(list, list + AM_LSM_LENGTHS, 0) = length;
    }
    ASSIGN_OR_RETURN(out_.names, MakeLsmNames(sockets_));
    Signals();
    if (out_.nodes.size() > AM_LSM_NODES_MAX / 4)
      return absl::ResourceExhaustedError("too many paths and names");
    std::sort(out_.roots.begin(), out_.roots.end());
    out_.roots.erase(std::unique(out_.roots.begin(), out_.roots.end()), out_.roots.end());
    return std::move(out_);
  }

 private:
  absl::Status Layer(const policy::KernelLayer& layer, size_t number, absl::string_view spare) {
    const uint32_t l = out_.head.layers++;
    out_.head.layer[l] = static_cast<uint32_t>(number);
    const auto stops = [&](policy::DefaultFor what) {
      return StopsByDefault(layer.defaults[static_cast<size_t>(what)]);
    };
    out_.head.defaults[l] = (stops(policy::DefaultFor::kFileRead) ? AM_LSM_STOPS_READS : 0) |
                            (stops(policy::DefaultFor::kFileWrite) ? AM_LSM_STOPS_WRITES : 0) |
                            (stops(policy::DefaultFor::kUnixSocket) ? AM_LSM_STOPS_SOCKETS : 0);
    layer_ = static_cast<uint8_t>(l);
    if (!spare.empty()) {
      KernelPath file{Match::kUserSpace, "", std::string(spare), 0, policy::kAllFileOps};
      RETURN_IF_ERROR(Add(file, 0));
    }
    // One rank is the spare file's.
    for (const KernelPath& path : layer.files) {
      RETURN_IF_ERROR(Add(path, path.rank + 1));
    }
    Sockets(snapshot_.layers()[number]);
    return Above(number);
  }

  // What stops a program whatever it was asked for by and with which arguments, up to where that cannot be
  // told: what is left out here, user space decides.
  void Programs(const std::vector<KernelPath>& programs, uint32_t layer) {
    layer_ = static_cast<uint8_t>(layer);
    uint32_t known = kExecs | OP_MAP;
    for (const KernelPath& program : programs) {
      am_lsm_match match{};
      match.rank = program.rank + 1;
      match.layer = layer_;
      match.flags = FlagsOf(program.decision);
      const bool every = program.match == Match::kTree && program.text.empty();
      if (match.flags != 0) {
        if (program.conditional || program.match == Match::kUserSpace) continue;
        match.operations = every ? known & ~OP_MAP : known;
        PutStopped(program, match);
        if (every) return;
        continue;
      }
      // It may be about the name that was asked for, which leads to another program; about a path, too.
      match.operations = known;
      if (!Put(program, match).ok() || program.match == Match::kUserSpace || every) return;
      if (program.match != Match::kName || !program.root.empty()) return;
      known = OP_EXEC;
    }
  }

  // Of one that finds no room user space is asked.
  void PutStopped(const KernelPath& program, const am_lsm_match& match) {
    if (program.match != Match::kName || !program.root.empty() || program.any_directory)
      return Put(program, match).IgnoreError();
    for (const char* directory : kSystemPrograms) {
      const std::string path = absl::StrCat(directory, program.text);
      PutNode(AM_LSM_NODE, LsmPathHash(LsmSegments(key_, path)), match).IgnoreError();
    }
  }

  void Sockets(const policy::CompiledLayer& layer) {
    for (const policy::PathIndex::Pattern& pattern : layer.unix_sockets.patterns()) {
      am_lsm_match match{};
      match.rank = pattern.rule + 1;
      match.layer = layer_;
      match.flags = FlagsOf(layer.rule(pattern.rule).decision);
      if ((pattern.operations & policy::kUnixConnect) != 0) match.operations |= OP_UNIX_CONNECT;
      if ((pattern.operations & policy::kUnixSendto) != 0) match.operations |= OP_UNIX_SENDTO;
      if (match.operations != 0) sockets_.push_back({&pattern.glob, match});
    }
  }

  void Signals() {
    for (uint32_t who = 0; who < AM_LSM_TARGETS; ++who) {
      for (int number = 1; number <= 64; ++number) {
        const policy::Subject subject = policy::SignalSubject(number, LsmSignalTarget(who));
        if (policy::Evaluate(snapshot_, subject, {}).Stops()) out_.head.signals[who] |= 1ull << (number - 1);
      }
    }
  }

  absl::Status Add(const KernelPath& path, uint32_t rank) {
    am_lsm_match match{};
    match.rank = rank;
    match.layer = layer_;
    match.flags = FlagsOf(path.decision);
    match.operations = path.operations;
    if (path.decision == Decision::kSoftDelete) {
      match.operations = path.operations & kDeletes;
      match.flags = AM_LSM_STOPS;
      if (match.operations != 0) RETURN_IF_ERROR(Put(path, match));
      match.operations = path.operations & ~kDeletes;
      match.flags = 0;
    }
    return match.operations == 0 ? absl::OkStatus() : Put(path, match);
  }

  absl::Status Put(const KernelPath& path, am_lsm_match match) {
    switch (path.match) {
      case Match::kTree:
        match.flags |= AM_LSM_TREE;
        [[fallthrough]];
      case Match::kExact:
        if (!path.text.empty()) out_.roots.push_back(path.text);
        return PutNode(AM_LSM_NODE, LsmPathHash(LsmSegments(key_, path.text)), match);
      case Match::kName:
        return PutNamed(AM_LSM_NAME, path, match);
      case Match::kSegment:
        return PutNamed(AM_LSM_SEGMENT, path, match);
      case Match::kSuffix:
        return PutNamed(AM_LSM_SUFFIX, path, match);
      case Match::kPrefix:
        return PutNamed(AM_LSM_PREFIX, path, match);
      case Match::kUserSpace:
        match.flags |= AM_LSM_UNSURE | AM_LSM_TREE;
        return PutNode(AM_LSM_NODE, LsmPathHash(LsmSegments(key_, path.root)), match);
    }
    return absl::InternalError("a pattern of no kind");
  }

  absl::Status PutNamed(am_lsm_kind kind, const KernelPath& path, am_lsm_match match) {
    if (!path.root.empty()) {
      ASSIGN_OR_RETURN(match.root, RootNumber(path.root));
    }
    if (kind == AM_LSM_SUFFIX || kind == AM_LSM_PREFIX) {
      const std::pair<uint8_t, bool> length{static_cast<uint8_t>(path.text.size()), kind == AM_LSM_SUFFIX};
      const size_t known = std::count_if(lengths_.begin(), lengths_.end(),
                                         [&](const auto& other) { return other.second == length.second; });
      const bool fits = !path.text.empty() && path.text.size() <= AM_LSM_AFFIX &&
                        (lengths_.count(length) != 0 || known < AM_LSM_LENGTHS);
      if (!fits) return absl::ResourceExhaustedError(absl::StrCat("too many lengths of *", path.text));
      lengths_.insert(length);
    }
    return PutNode(kind, LsmHash(key_, path.text), match);
  }

  absl::StatusOr<uint8_t> RootNumber(const std::string& root) {
    const auto [it, is_new] = roots_.emplace(root, static_cast<uint8_t>(roots_.size() + 1));
    if (it->second > kRoots)
      return absl::ResourceExhaustedError(absl::StrCat("names below more than ", kRoots, " directories"));
    if (is_new) out_.nodes[{AM_LSM_NODE, LsmPathHash(LsmSegments(key_, root))}].root = it->second;
    return it->second;
  }

  // Of an operation that an earlier rule of this place has, a later one gets nothing: most files repeat
  // themselves.
  absl::Status PutNode(am_lsm_kind kind, uint64_t hash, am_lsm_match match) {
    am_lsm_node& node = out_.nodes[{kind, hash}];
    for (uint32_t i = 0; i < node.count; ++i) {
      const am_lsm_match& other = node.match[i];
      const bool everywhere = (other.flags & AM_LSM_TREE) != 0 || (match.flags & AM_LSM_TREE) == 0;
      const bool first = other.rank < match.rank || (other.flags & AM_LSM_UNSURE) == 0;
      if (other.layer == match.layer && (other.root == match.root || other.root == 0) && everywhere && first)
        match.operations &= ~other.operations;
    }
    if (match.operations == 0) return absl::OkStatus();
    for (uint32_t i = 0; i < node.count; ++i) {
      am_lsm_match& other = node.match[i];
      if (other.layer != match.layer || other.root != match.root || other.rank != match.rank ||
          other.flags != match.flags)
        continue;
      other.operations |= match.operations;
      return absl::OkStatus();
    }
    if (node.count == AM_LSM_MATCHES)
      return absl::ResourceExhaustedError(
          absl::StrCat("more than ", AM_LSM_MATCHES, " rules about one name"));
    node.match[node.count++] = match;
    return absl::OkStatus();
  }

  // A directory that moves takes along what is protected below it.
  absl::Status Above(size_t number) {
    const policy::CompiledLayer& layer = snapshot_.layers()[number];
    std::set<std::string> done;
    for (const std::string& root : layer.roots) {
      policy::FirstRules first(policy::kWrite);
      layer.files.Find(policy::PathKeys(root), first);
      const uint32_t rule = first.Of(policy::kWrite);
      if (rule == policy::FirstRules::kNone || !StopsByDefault(layer.rule(rule).decision)) continue;
      for (size_t slash = root.rfind('/'); slash != std::string::npos && slash > 0;
           slash = root.rfind('/', slash - 1)) {
        const std::string above = root.substr(0, slash);
        if (!done.insert(above).second) break;
        am_lsm_match match{};
        match.rank = rule + 1;
        match.layer = layer_;
        match.flags = AM_LSM_STOPS_IMPLIED;
        match.operations = OP_BELOW;
        RETURN_IF_ERROR(PutNode(AM_LSM_NODE, LsmPathHash(LsmSegments(key_, above)), match));
      }
    }
    return absl::OkStatus();
  }

  const policy::Snapshot& snapshot_;
  const LsmKey& key_;
  LsmPolicy out_;
  uint8_t layer_ = 0;
  std::vector<LsmNamePattern> sockets_;
  std::map<std::string, uint8_t> roots_;
  std::set<std::pair<uint8_t, bool>> lengths_;  // and whether of an end
};

}  // namespace

uint64_t LsmHash(const LsmKey& key, absl::string_view text) {
  am_sip sip;
  am_sip_start(&sip, key[0], key[1]);
  const size_t length = text.size();
  uint64_t word = 0;
  for (; text.size() >= sizeof(word); text.remove_prefix(sizeof(word))) {
    std::memcpy(&word, text.data(), sizeof(word));
    am_sip_word(&sip, word);
  }
  word = 0;
  std::memcpy(&word, text.data(), text.size());
  return am_sip_end(&sip, word, length);
}

std::vector<uint64_t> LsmSegments(const LsmKey& key, absl::string_view path) {
  std::vector<uint64_t> segments;
  for (const absl::string_view name : absl::StrSplit(path, '/', absl::SkipEmpty()))
    segments.push_back(LsmHash(key, name));
  return segments;
}

uint64_t LsmPathHash(const std::vector<uint64_t>& segments) {
  uint64_t hash = AM_LSM_ROOT_HASH;
  for (const uint64_t segment : segments) hash = am_lsm_mix(hash, segment);
  return hash;
}

uint32_t LsmSignalTarget(uint32_t relations) {
  return policy::kTargetExternal | ((relations & AM_LSM_SYSTEM) != 0 ? policy::kTargetSystem : 0u) |
         ((relations & AM_LSM_SAME_USER) != 0 ? policy::kTargetUser : 0u) |
         ((relations & AM_LSM_PARENT) != 0 ? policy::kTargetParent : 0u);
}

absl::StatusOr<LsmPolicy> CompileLsm(const policy::Snapshot& snapshot, const LsmKey& key,
                                     absl::string_view spare) {
  return LsmCompiler(snapshot, key).Run(spare);
}

}  // namespace agentmon
