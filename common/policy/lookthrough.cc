#include "common/policy/lookthrough.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace agentmon::policy {
namespace {

constexpr int kDeepest = 5;
constexpr size_t kMostCommands = 64;

struct Wrapper {
  absl::string_view name;
  absl::string_view letters;                         // short options that take an argument
  absl::Span<const absl::string_view> long_options;  // long ones that take it in the next word
  int operands = 0;                                  // words between the options and the command
};

constexpr absl::string_view kNiceLong[] = {"--adjustment"};
constexpr absl::string_view kTimeLong[] = {"--format", "--output"};
constexpr absl::string_view kTimeoutLong[] = {"--kill-after", "--signal"};
constexpr absl::string_view kStdbufLong[] = {"--input", "--output", "--error"};
constexpr absl::string_view kChrootLong[] = {"--userspec", "--groups"};
constexpr absl::string_view kEnvLong[] = {"--unset", "--chdir", "--split-string", "--argv0"};
constexpr absl::string_view kSudoLong[] = {"--user",       "--group",           "--host",      "--prompt",
                                           "--close-from", "--chdir",           "--role",      "--type",
                                           "--chroot",     "--command-timeout", "--other-user"};
constexpr absl::string_view kXargsLong[] = {"--arg-file",  "--delimiter", "--max-args",         "--max-procs",
                                            "--max-chars", "--max-lines", "--process-slot-var", "--replace"};
constexpr absl::string_view kLoaderLong[] = {
    "--library-path",         "--preload",          "--audit", "--argv0", "--inhibit-rpath",
    "--glibc-hwcaps-prepend", "--glibc-hwcaps-mask"};
constexpr absl::string_view kTraceLong[] = {"--output", "--trace",        "--attach", "--user",
                                            "--env",    "--string-limit", "--expr"};
constexpr absl::string_view kIoniceLong[] = {"--class", "--classdata", "--pid"};
constexpr absl::string_view kFlockLong[] = {"--timeout", "--conflict-exit-code", "--wait"};
constexpr absl::string_view kSetprivLong[] = {"--reuid",      "--regid",         "--groups",
                                              "--securebits", "--bounding-set",  "--ambient-caps",
                                              "--inh-caps",   "--selinux-label", "--apparmor-profile"};

constexpr Wrapper kWrappers[] = {{"env", "uCSa", kEnvLong, 0},
                                 {"nice", "n", kNiceLong, 0},
                                 {"nohup", "", {}, 0},
                                 {"sudo", "ughpCcDrRtTU", kSudoLong, 0},
                                 {"doas", "uCL", {}, 0},
                                 {"time", "fo", kTimeLong, 0},
                                 {"xargs", "adEILnPs", kXargsLong, 0},
                                 {"strace", "aeEIoOpPsSuUXb", kTraceLong, 0},
                                 {"ltrace", "aADeFlnopsuwx", kTraceLong, 0},
                                 {"timeout", "ks", kTimeoutLong, 1},
                                 {"stdbuf", "ioe", kStdbufLong, 0},
                                 {"setsid", "", {}, 0},
                                 {"chroot", "", kChrootLong, 1},
                                 {"ionice", "cnpPu", kIoniceLong, 0},
                                 {"taskset", "", {}, 1},
                                 {"chrt", "TPD", {}, 1},
                                 {"setpriv", "", kSetprivLong, 0},
                                 {"flock", "wE", kFlockLong, 1},
                                 {"exec", "a", {}, 0},
                                 {"command", "", {}, 0},
                                 {"builtin", "", {}, 0},
                                 {"unshare", "SG", {}, 0},
                                 {"nsenter", "t", {}, 0},
                                 {"catchsegv", "", {}, 0},
                                 {"unbuffer", "", {}, 0}};

constexpr absl::string_view kShells[] = {"sh", "bash", "dash", "ash", "mksh", "ksh", "zsh"};
constexpr absl::string_view kSpecial[] = {"busybox", "toybox", "coreutils", "find",    "git",
                                          "ld.so",   "eval",   "su",        "runuser", "watch"};

using Argv = absl::Span<const absl::string_view>;

class Looker {
 public:
  Looker(const TransparentSet& transparent, std::vector<DerivedCommand>& out)
      : transparent_(transparent), out_(out) {}

  void Look(absl::string_view name, Argv argv, absl::string_view via, int depth) {
    if (argv.empty() || depth >= kDeepest || out_.size() >= kMostCommands) return;
    via_ = std::string(via);
    depth_ = depth;
    if (IsLoader(name) && transparent_.Contains("ld.so")) return Wrapped(name, argv, "", kLoaderLong, 0);
    if (!transparent_.Contains(name)) return;
    if (std::find(std::begin(kShells), std::end(kShells), name) != std::end(kShells))
      return Shell(name, argv);
    if (name == "busybox" || name == "toybox" || name == "coreutils") return MultiCall(name, argv);
    if (name == "find") return Find(argv);
    if (name == "git") return Git(argv);
    if (name == "env") return Env(argv);
    if (name == "eval") return Script(absl::StrJoin(argv.subspan(1), " "), "eval");
    if (name == "watch") return Watch(argv);
    if (name == "su" || name == "runuser") return Su(name, argv);
    if (name == "command" && argv.size() > 1 && (argv[1] == "-v" || argv[1] == "-V")) return;
    for (const Wrapper& w : kWrappers) {
      if (w.name == name) return Wrapped(name, argv, w.letters, w.long_options, w.operands);
    }
    Wrapped(name, argv, "", {}, 0);
  }

  // The name in argv[0] is what a program with several faces goes by.
  void ArgZero(absl::string_view program, Argv argv) {
    if (argv.empty()) return;
    const absl::string_view name = ProgramName(absl::StripPrefix(argv[0], "-"));
    if (name.empty() || name == program) return;
    std::vector<absl::string_view> words(argv.begin(), argv.end());
    words[0] = name;
    Found(words, "argv[0]");
  }

 private:
  static bool IsLoader(absl::string_view name) {
    return absl::StartsWith(name, "ld-linux") || absl::StartsWith(name, "ld-musl") || name == "ld.so";
  }

  void Found(Argv words, absl::string_view how) {
    if (words.empty() || words[0].empty() || out_.size() >= kMostCommands) return;
    const std::string via = via_.empty() ? std::string(how) : absl::StrCat(via_, " > ", how);
    const int depth = depth_;
    const std::string saved = via_;
    out_.push_back({Words(words.begin(), words.end()), via});
    // `words` may be views of a vector that is gone later; look at the copy.
    const Words copy = out_.back().argv;
    const std::vector<absl::string_view> views(copy.begin(), copy.end());
    Look(ProgramName(absl::StripPrefix(views[0], "-")), views, via, depth + 1);
    via_ = saved;
    depth_ = depth;
  }

  void Script(absl::string_view script, absl::string_view how) {
    for (const Words& words : SplitScript(script)) {
      Found(std::vector<absl::string_view>(words.begin(), words.end()), how);
    }
  }

  static bool TakesNext(absl::string_view option, absl::string_view letters, Argv long_options) {
    if (absl::StartsWith(option, "--")) {
      return std::find(long_options.begin(), long_options.end(), option) != long_options.end();
    }
    for (size_t k = 1; k < option.size(); ++k) {
      if (absl::StrContains(letters, option[k])) return k + 1 == option.size();
    }
    return false;
  }

  // The index of the first word that is neither an option nor the argument of one.
  static size_t SkipOptions(Argv argv, absl::string_view letters, Argv long_options) {
    size_t i = 1;
    while (i < argv.size() && argv[i].size() > 1 && argv[i][0] == '-') {
      if (argv[i] == "--") return i + 1;
      i += TakesNext(argv[i], letters, long_options) ? 2 : 1;
    }
    return std::min(i, argv.size());
  }

  static bool IsAssignment(absl::string_view word) {
    const size_t equals = word.find('=');
    return equals != absl::string_view::npos && equals > 0 && word[0] != '-' && word[0] != '/';
  }

  void Wrapped(absl::string_view name, Argv argv, absl::string_view letters, Argv long_options,
               int operands) {
    size_t i = SkipOptions(argv, letters, long_options);
    if (name == "sudo" || name == "doas") {
      while (i < argv.size() && IsAssignment(argv[i])) ++i;
    }
    i += operands;
    if (i >= argv.size()) return;
    if (name == "flock" && argv[i] == "-c" && i + 1 < argv.size()) return Script(argv[i + 1], "flock -c");
    Found(argv.subspan(i), name);
  }

  void Env(Argv argv) {
    std::vector<absl::string_view> words(argv.begin(), argv.end());
    Words split;  // owns what -S gives
    size_t i = 1;
    while (i < words.size()) {
      const absl::string_view w = words[i];
      absl::string_view text;
      size_t used = 1;
      if (w == "--") {
        ++i;
        break;
      }
      const bool cluster = w.size() > 1 && w[0] == '-' && w[1] != '-';
      const size_t s = cluster ? w.find('S') : absl::string_view::npos;
      if (s != absl::string_view::npos &&
          w.substr(1, s - 1).find_first_of("uCa") == absl::string_view::npos) {
        text = w.substr(s + 1);
        if (text.empty() && i + 1 < words.size()) text = words[i + 1], used = 2;
      } else if (absl::StartsWith(w, "--split-string")) {
        text = absl::StripPrefix(w, "--split-string");
        if (!absl::ConsumePrefix(&text, "=") && i + 1 < words.size()) text = words[i + 1], used = 2;
      } else if (w.empty() || (w[0] != '-' && !IsAssignment(w))) {
        break;
      } else {
        i += w[0] == '-' && TakesNext(w, "uCa", kEnvLong) ? 2 : 1;
        continue;
      }
      if (!split.empty()) return;  // -S inside -S
      for (const Words& command : SplitScript(absl::StrCat(": ", text))) {
        if (command.size() > 1) split.assign(command.begin() + 1, command.end());
        break;
      }
      if (split.empty()) split.push_back("");
      std::vector<absl::string_view> next(split.begin(), split.end());
      next.insert(next.end(), words.begin() + std::min(i + used, words.size()), words.end());
      next.insert(next.begin(), "env");
      words = std::move(next);
      i = 1;
    }
    if (i < words.size()) Found(absl::MakeSpan(words).subspan(i), "env");
  }

  void Shell(absl::string_view name, Argv argv) {
    bool command = false;
    size_t i = 1;
    for (; i < argv.size() && argv[i].size() > 1 && (argv[i][0] == '-' || argv[i][0] == '+'); ++i) {
      const absl::string_view w = argv[i];
      if (w == "--") {
        ++i;
        break;
      }
      if (absl::StartsWith(w, "--")) {
        if (w == "--rcfile" || w == "--init-file") ++i;
        continue;
      }
      for (const char c : w.substr(1)) {
        if (c == 'c' && w[0] == '-') command = true;
        if (c == 'o' || c == 'O') ++i;  // an option's name follows
      }
    }
    if (command && i < argv.size()) Script(argv[i], absl::StrCat(name, " -c"));
  }

  void MultiCall(absl::string_view name, Argv argv) {
    if (ProgramName(argv[0]) != name) return;  // its face is argv[0]: see ArgZero
    size_t i = 1;
    if (i < argv.size() && absl::StartsWith(argv[i], "--coreutils-prog")) {
      absl::string_view face = argv[i];
      const size_t equals = face.find('=');
      if (equals == absl::string_view::npos) return;
      std::vector<absl::string_view> words(argv.begin() + i, argv.end());
      words[0] = ProgramName(face.substr(equals + 1));
      return Found(words, name);
    }
    while (i < argv.size() && absl::StartsWith(argv[i], "-")) ++i;
    if (i < argv.size()) Found(argv.subspan(i), name);
  }

  void Find(Argv argv) {
    for (size_t i = 1; i < argv.size(); ++i) {
      if (argv[i] != "-exec" && argv[i] != "-execdir" && argv[i] != "-ok" && argv[i] != "-okdir") continue;
      const size_t from = i + 1;
      while (i + 1 < argv.size() && argv[i + 1] != ";" && !(argv[i + 1] == "+" && argv[i] == "{}")) ++i;
      if (i + 1 > from) Found(argv.subspan(from, i + 1 - from), "find -exec");
    }
  }

  // git -C dir -c k=v push ... is git push ...; an alias that starts with ! is a script.
  void Git(Argv argv) {
    size_t i = 1;
    while (i < argv.size() && absl::StartsWith(argv[i], "-")) {
      const bool takes = argv[i] == "-C" || argv[i] == "-c" || argv[i] == "--git-dir" ||
                         argv[i] == "--work-tree" || argv[i] == "--namespace" ||
                         argv[i] == "--super-prefix" || argv[i] == "--config-env";
      if (argv[i] == "-c" && i + 1 < argv.size() && absl::StartsWith(argv[i + 1], "alias.")) {
        const size_t bang = argv[i + 1].find("=!");
        if (bang != absl::string_view::npos) Script(argv[i + 1].substr(bang + 2), "git alias");
      }
      i += takes ? 2 : 1;
    }
    if (i == 1 || i >= argv.size()) return;
    std::vector<absl::string_view> words = {"git"};
    words.insert(words.end(), argv.begin() + i, argv.end());
    Found(words, "git options");
  }

  void Watch(Argv argv) {
    const size_t i = SkipOptions(argv, "nq", {});
    if (i < argv.size()) Script(absl::StrJoin(argv.subspan(i), " "), "watch");
  }

  void Su(absl::string_view name, Argv argv) {
    for (size_t i = 1; i < argv.size(); ++i) {
      if ((argv[i] == "-c" || argv[i] == "--command") && i + 1 < argv.size())
        Script(argv[i + 1], absl::StrCat(name, " -c"));
      absl::string_view value = argv[i];
      if (absl::ConsumePrefix(&value, "--command=")) Script(value, absl::StrCat(name, " -c"));
    }
  }

  const TransparentSet& transparent_;
  std::vector<DerivedCommand>& out_;
  std::string via_;
  int depth_ = 0;
};

}  // namespace

TransparentSet::TransparentSet() {
  for (const Wrapper& w : kWrappers) Add(w.name);
  for (const absl::string_view name : kShells) Add(name);
  for (const absl::string_view name : kSpecial) Add(name);
}

absl::string_view ProgramName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash != absl::string_view::npos) path.remove_prefix(slash + 1);
  return absl::StripSuffix(path, ".real");
}

std::vector<DerivedCommand> LookThrough(absl::string_view program, absl::Span<const absl::string_view> argv,
                                        const TransparentSet& transparent) {
  std::vector<DerivedCommand> out;
  Looker looker(transparent, out);
  looker.Look(program, argv, "", 0);
  looker.ArgZero(program, argv);
  return out;
}

}  // namespace agentmon::policy
