#include "common/policy/yaml_tree.h"

#include <yaml.h>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace agentmon::policy {
namespace {

Position At(const yaml_mark_t& mark) {
  return {static_cast<uint32_t>(mark.line + 1), static_cast<uint32_t>(mark.column + 1)};
}

}  // namespace

bool YamlNode::IsNull() const {
  if (kind != Kind::kScalar || quoted) return false;
  return scalar.empty() || scalar == "~" || scalar == "null" || scalar == "Null" || scalar == "NULL";
}

// Turns libyaml's events into nodes. One use.
class YamlBuilder {
 public:
  YamlBuilder(YamlTree& tree, absl::string_view file, Diagnostics& out, const YamlLimits& limits)
      : tree_(tree), file_(file), out_(out), limits_(limits) {}

  void Run(absl::string_view text) {
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) return Error({}, "", "out of memory");
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, reinterpret_cast<const unsigned char*>(text.data()), text.size());
    bool more = true;
    while (more) {
      yaml_event_t event;
      if (!yaml_parser_parse(&parser, &event)) {
        SyntaxError(parser);
        break;
      }
      more = event.type != YAML_STREAM_END_EVENT && OnEvent(event);
      yaml_event_delete(&event);
    }
    for (Open& open : open_) open.node->incomplete = true;
    while (!open_.empty()) Close();
    yaml_parser_delete(&parser);
  }

 private:
  struct Open {
    YamlNode* node;
    const YamlNode* key = nullptr;  // of a map: the key that waits for its value
    std::string anchor;
    absl::flat_hash_set<absl::string_view> keys;
    std::vector<const YamlNode*> merges;
  };

  void Error(Position at, absl::string_view text, absl::string_view message,
             absl::string_view suggestion = "") {
    out_.push_back(
        {Severity::kError, file_, at, std::string(text), std::string(message), std::string(suggestion)});
  }

  void SyntaxError(const yaml_parser_t& parser) {
    std::string message = parser.problem ? parser.problem : "not valid YAML";
    if (parser.context) absl::StrAppend(&message, " ", parser.context);
    Position at = At(parser.problem_mark);
    if (parser.error == YAML_READER_ERROR) {
      message = absl::StrCat("not UTF-8 text: ", message, " at byte ", parser.problem_offset);
      at = At(parser.mark);
    }
    Error(at, "", message, absl::StrContains(message, "'\\t'") ? "indent with spaces" : "");
  }

  bool OnEvent(const yaml_event_t& event) {
    const Position at = At(event.start_mark);
    switch (event.type) {
      case YAML_DOCUMENT_START_EVENT:
        if (tree_.root_ != nullptr || documents_++ > 0) {
          Error(at, "---", "a policy file holds one document", "put the second one into a file of its own");
          return false;
        }
        return true;
      case YAML_SCALAR_EVENT:
        return OnScalar(event, at);
      case YAML_SEQUENCE_START_EVENT:
        return Push(YamlNode::Kind::kList, at, event.data.sequence_start.anchor);
      case YAML_MAPPING_START_EVENT:
        return Push(YamlNode::Kind::kMap, at, event.data.mapping_start.anchor);
      case YAML_SEQUENCE_END_EVENT:
      case YAML_MAPPING_END_EVENT:
        return Close();
      case YAML_ALIAS_EVENT:
        return OnAlias(event, at);
      default:
        return true;
    }
  }

  YamlNode* Make(YamlNode::Kind kind, Position at) {
    if (tree_.nodes_.size() >= limits_.nodes) {
      Error(at, "", absl::StrCat("more than ", limits_.nodes, " values"));
      return nullptr;
    }
    YamlNode& node = tree_.nodes_.emplace_back();
    node.kind = kind;
    node.at = at;
    return &node;
  }

  bool OnScalar(const yaml_event_t& event, Position at) {
    YamlNode* node = Make(YamlNode::Kind::kScalar, at);
    if (node == nullptr) return false;
    const auto& scalar = event.data.scalar;
    node->scalar.assign(reinterpret_cast<const char*>(scalar.value), scalar.length);
    node->quoted = scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if (scalar.anchor) anchors_[reinterpret_cast<const char*>(scalar.anchor)] = node;
    return Add(node);
  }

  bool Push(YamlNode::Kind kind, Position at, const yaml_char_t* anchor) {
    if (open_.size() >= limits_.depth) {
      Error(at, "", absl::StrCat("nested deeper than ", limits_.depth, " levels"));
      return false;
    }
    YamlNode* node = Make(kind, at);
    if (node == nullptr) return false;
    Open open;
    open.node = node;
    if (anchor) {
      open.anchor = reinterpret_cast<const char*>(anchor);
      anchors_[open.anchor] = nullptr;  // unfinished: an alias to it would be a cycle
    }
    open_.push_back(std::move(open));
    return true;
  }

  bool Close() {
    Open open = std::move(open_.back());
    open_.pop_back();
    if (open.key != nullptr) open.node->incomplete = true;
    for (const YamlNode* merge : open.merges) Merge(open, merge);
    if (!open.anchor.empty()) anchors_[open.anchor] = open.node;
    return Add(open.node);
  }

  bool OnAlias(const yaml_event_t& event, Position at) {
    const std::string name = reinterpret_cast<const char*>(event.data.alias.anchor);
    const auto found = anchors_.find(name);
    if (found == anchors_.end() || found->second == nullptr) {
      Error(at, absl::StrCat("*", name),
            found == anchors_.end() ? "no anchor of this name comes before this alias"
                                    : "an alias to what contains it");
      return false;
    }
    return Spend(found->second->weight, at) && Add(found->second);
  }

  bool Spend(size_t weight, Position at) {
    alias_nodes_ += weight;
    if (alias_nodes_ <= limits_.alias_nodes) return true;
    Error(at, "", absl::StrCat("aliases expand to more than ", limits_.alias_nodes, " values"));
    return false;
  }

  bool Add(const YamlNode* node) {
    if (open_.empty()) {
      tree_.root_ = node;
      return true;
    }
    Open& parent = open_.back();
    parent.node->weight += node->weight;
    if (parent.node->kind == YamlNode::Kind::kList) {
      parent.node->items.push_back(node);
    } else if (parent.key == nullptr) {
      return AddKey(parent, node);
    } else {
      AddValue(parent, node);
    }
    return true;
  }

  bool AddKey(Open& parent, const YamlNode* node) {
    if (node->kind != YamlNode::Kind::kScalar) {
      Error(node->at, "", "a key must be a word, not a list or a map");
      return false;
    }
    parent.key = node;
    return true;
  }

  void AddValue(Open& parent, const YamlNode* value) {
    const YamlNode* key = std::exchange(parent.key, nullptr);
    if (key->scalar == "<<" && !key->quoted) {
      parent.merges.push_back(value);
      return;
    }
    if (!parent.keys.insert(key->scalar).second) {
      Error(key->at, key->scalar, "the key is there twice", "remove one of them");
      return;
    }
    parent.node->entries.emplace_back(key, value);
  }

  // `<<: *anchor`: entries of other maps that this one does not have itself.
  void Merge(Open& into, const YamlNode* from) {
    if (from->kind == YamlNode::Kind::kList) {
      for (const YamlNode* item : from->items) {
        if (item->kind == YamlNode::Kind::kMap) Merge(into, item);
      }
      return;
    }
    if (from->kind != YamlNode::Kind::kMap)
      return Error(from->at, from->scalar, "<< takes a map or a list of maps");
    for (const auto& [key, value] : from->entries) {
      if (into.keys.insert(key->scalar).second) into.node->entries.emplace_back(key, value);
    }
  }

  YamlTree& tree_;
  const std::string file_;
  Diagnostics& out_;
  const YamlLimits& limits_;
  std::vector<Open> open_;
  absl::flat_hash_map<std::string, const YamlNode*> anchors_;
  size_t alias_nodes_ = 0;
  int documents_ = 0;
};

YamlTree YamlTree::Parse(absl::string_view text, absl::string_view file, Diagnostics& out,
                         const YamlLimits& limits) {
  YamlTree tree;
  const auto refuse = [&](absl::string_view message) {
    out.push_back({Severity::kError, std::string(file), {1, 1}, "", std::string(message), ""});
  };
  if (text.size() > limits.bytes) {
    refuse(absl::StrCat("larger than ", limits.bytes >> 20, " MiB"));
    return tree;
  }
  if (absl::StartsWith(text, "\xff\xfe") || absl::StartsWith(text, "\xfe\xff")) {
    refuse("UTF-16 text; save the file as UTF-8");
    return tree;
  }
  if (absl::StartsWith(text, "\xef\xbb\xbf")) text.remove_prefix(3);
  YamlBuilder(tree, file, out, limits).Run(text);
  return tree;
}

}  // namespace agentmon::policy
