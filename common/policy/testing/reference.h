// A slow, obvious evaluator: what a policy means, written as loops over the rules of the files.
#pragma once

#include "common/policy/evaluate.h"

namespace agentmon::policy {

struct ReferenceLayer {
  LayerKind kind;
  std::shared_ptr<const Document> document;
};

// Layers from the outside in, the built-in one included. Variables as in TestOptions().
struct ReferenceAnswer {
  Decision decision = Decision::kAllow, effective = Decision::kAllow;
  std::vector<Decision> layers;  // what each says; kNone = nothing
};
ReferenceAnswer ReferenceEvaluate(const std::vector<ReferenceLayer>& layers, const Subject& subject,
                                  const EvaluateOptions& options);

// Patterns of *, **, ? and plain characters only.
bool ReferenceGlob(absl::string_view pattern, absl::string_view text, char separator);

}  // namespace agentmon::policy
