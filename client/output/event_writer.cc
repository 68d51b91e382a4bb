#include "client/output/event_writer.h"

#include <nlohmann/json.hpp>

#include "client/output/event_json.h"

namespace agentmon {
namespace {

class JsonWriter : public EventWriter {
 public:
  explicit JsonWriter(Output& output) : output_(output) {}
  void OnEvent(const v1::Event& event) override { output_.Line(DumpJson(EventToJson(event))); }
  void OnGap(uint64_t missed) override {
    nlohmann::ordered_json gap;
    gap["kind"] = "stream_gap";
    gap["missed"] = missed;
    output_.Line(DumpJson(gap));
  }

 private:
  Output& output_;
};

}  // namespace

std::unique_ptr<EventWriter> MakeEventWriter(const EventWriterOptions& options, Output& output) {
  if (options.format == "json") return std::make_unique<JsonWriter>(output);
  if (options.format == "csv") return MakeCsvWriter(output);
  if (options.format == "tree") return MakeTreeWriter(options, output);
  return MakeTableWriter(options, output);
}

}  // namespace agentmon
