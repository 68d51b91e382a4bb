#include "common/policy/shell_words.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace agentmon::policy {
namespace {

constexpr absl::string_view kReserved[] = {"if",    "then", "elif", "else", "fi",   "do",   "done",  "while",
                                           "until", "!",    "{",    "}",    "esac", "time", "coproc"};

bool IsAssignment(absl::string_view word) {
  const size_t equals = word.find('=');
  if (equals == absl::string_view::npos || equals == 0 || absl::ascii_isdigit(word[0])) return false;
  absl::string_view name = word.substr(0, equals);
  if (absl::EndsWith(name, "+")) name.remove_suffix(1);
  return std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

class Splitter {
 public:
  Splitter(std::vector<Words>& out, const ScriptLimits& limits, int depth)
      : out_(out), limits_(limits), depth_(depth) {}

  void Run(absl::string_view script) {
    s_ = script.substr(0, limits_.bytes);
    while (i_ < s_.size() && out_.size() < limits_.commands) Step();
    EndCommand();
  }

 private:
  void Step() {
    const char c = s_[i_];
    switch (c) {
      case ' ':
      case '\t':
      case '\r':
        EndWord();
        ++i_;
        return;
      case '\n':
        EndCommand();
        ++i_;
        SkipHereDocuments();
        return;
      case ';':
      case '&':
      case '|':
      case '(':
      case ')':
        EndCommand();
        ++i_;
        return;
      case '<':
      case '>':
        return Redirection();
      case '#':
        if (in_word_) return Char(c);
        i_ = std::min(s_.find('\n', i_), s_.size());
        return;
      case '\'':
        return SingleQuoted();
      case '"':
        return DoubleQuoted();
      case '\\':
        ++i_;
        if (i_ < s_.size() && s_[i_] == '\n')
          ++i_;
        else if (i_ < s_.size())
          Char(s_[i_]);
        return;
      case '$':
      case '`':
        return Expansion();
      default:
        return Char(c);
    }
  }

  void Char(char c) {
    in_word_ = true;
    word_.push_back(c);
    ++i_;
  }

  void SingleQuoted() {
    in_word_ = quoted_ = true;
    const size_t end = std::min(s_.find('\'', i_ + 1), s_.size());
    word_.append(s_.data() + i_ + 1, end - i_ - 1);
    i_ = std::min(end + 1, s_.size());
  }

  void DoubleQuoted() {
    in_word_ = quoted_ = true;
    for (++i_; i_ < s_.size() && s_[i_] != '"';) {
      if (s_[i_] == '\\' && i_ + 1 < s_.size()) {
        if (!absl::StrContains("$`\"\\\n", s_[i_ + 1])) word_.push_back('\\');
        if (s_[i_ + 1] != '\n') word_.push_back(s_[i_ + 1]);
        i_ += 2;
      } else if (s_[i_] == '$' || s_[i_] == '`') {
        Expansion();
      } else {
        word_.push_back(s_[i_++]);
      }
    }
    ++i_;
  }

  // $(...) and `...` hold commands of their own; $'...' is a quoted word; $name stays as it is.
  void Expansion() {
    if (s_[i_] == '`') {
      const size_t end = std::min(s_.find('`', i_ + 1), s_.size());
      Inner(s_.substr(i_ + 1, end - i_ - 1));
      return Keep(end + 1);
    }
    if (i_ + 1 < s_.size() && s_[i_ + 1] == '(') {
      const size_t end = Closing(i_ + 1);
      if (!absl::StartsWith(s_.substr(i_), "$((")) Inner(s_.substr(i_ + 2, end - i_ - 2));
      return Keep(end + 1);
    }
    if (i_ + 1 < s_.size() && s_[i_ + 1] == '\'') {
      ++i_;
      return SingleQuoted();
    }
    if (i_ + 1 < s_.size() && s_[i_ + 1] == '{') return Keep(std::min(s_.find('}', i_), s_.size()) + 1);
    Char('$');
  }

  void Keep(size_t end) {
    end = std::min(end, s_.size());
    in_word_ = true;
    word_.append(s_.data() + i_, end - i_);
    i_ = end;
  }

  // The position of the ) that closes the ( at open, or the end.
  size_t Closing(size_t open) const {
    int level = 0;
    for (size_t k = open; k < s_.size(); ++k) {
      if (s_[k] == '\\')
        ++k;
      else if (s_[k] == '\'')
        k = std::min(s_.find('\'', k + 1), s_.size() - 1);
      else if (s_[k] == '(')
        ++level;
      else if (s_[k] == ')' && --level == 0)
        return k;
    }
    return s_.size();
  }

  void Inner(absl::string_view script) {
    if (depth_ < limits_.depth) Splitter(out_, limits_, depth_ + 1).Run(script);
  }

  void Redirection() {
    const bool number = in_word_ && !quoted_ && std::all_of(word_.begin(), word_.end(), absl::ascii_isdigit);
    if (number) {
      word_.clear();
      in_word_ = false;
    }
    EndWord();
    const char first = s_[i_++];
    if (i_ < s_.size() && s_[i_] == '(') {  // <(...) runs a command
      const size_t end = Closing(i_);
      Inner(s_.substr(i_ + 1, end - i_ - 1));
      i_ = std::min(end + 1, s_.size());
      return;
    }
    const bool here =
        first == '<' && absl::StartsWith(s_.substr(i_), "<") && !absl::StartsWith(s_.substr(i_), "<<");
    while (i_ < s_.size() && absl::StrContains("<>&|", s_[i_])) ++i_;
    if (here && i_ < s_.size() && s_[i_] == '-') ++i_;
    skip_word_ = true;
    here_word_ = here;
  }

  void EndWord() {
    if (!in_word_) return;
    if (skip_word_) {
      if (here_word_) here_documents_.push_back(word_);
    } else if (!(words_.empty() && !quoted_ && (IsAssignment(word_) || Reserved()))) {
      words_.push_back(word_);
    }
    skip_word_ = here_word_ = in_word_ = quoted_ = false;
    word_.clear();
  }

  bool Reserved() const {
    return std::find(std::begin(kReserved), std::end(kReserved), word_) != std::end(kReserved);
  }

  void EndCommand() {
    EndWord();
    skip_word_ = false;
    if (!words_.empty() && out_.size() < limits_.commands) out_.push_back(std::move(words_));
    words_.clear();
  }

  void SkipHereDocuments() {
    for (const std::string& end : here_documents_) {
      while (i_ < s_.size()) {
        const size_t line_end = std::min(s_.find('\n', i_), s_.size());
        absl::string_view line = s_.substr(i_, line_end - i_);
        while (absl::StartsWith(line, "\t")) line.remove_prefix(1);
        i_ = std::min(line_end + 1, s_.size());
        if (line == end) break;
      }
    }
    here_documents_.clear();
  }

  std::vector<Words>& out_;
  const ScriptLimits& limits_;
  const int depth_;
  absl::string_view s_;
  size_t i_ = 0;
  Words words_;
  std::string word_;
  bool in_word_ = false, quoted_ = false, skip_word_ = false, here_word_ = false;
  std::vector<std::string> here_documents_;
};

}  // namespace

std::vector<Words> SplitScript(absl::string_view script, const ScriptLimits& limits) {
  std::vector<Words> out;
  Splitter(out, limits, 0).Run(script);
  return out;
}

}  // namespace agentmon::policy
