// Writes a stream of events in one format, each as it comes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "agentmon/v1/event.pb.h"
#include "client/output/output.h"

namespace agentmon {

class EventWriter {
 public:
  virtual ~EventWriter() = default;
  virtual void OnEvent(const v1::Event& event) = 0;
  // The stream missed that many events because we were slow.
  virtual void OnGap(uint64_t missed) = 0;
  // After the last event. Writers that show only a whole (tree) write here.
  virtual void Finish() {}
};

struct EventWriterOptions {
  std::string format = "table";  // table, json, csv, tree
  bool show_session = false;     // a column for it: several sessions are asked for
  bool color = false;
  absl::TimeZone zone = absl::LocalTimeZone();
};

// The output must outlive the writer.
std::unique_ptr<EventWriter> MakeEventWriter(const EventWriterOptions& options, Output& output);

std::unique_ptr<EventWriter> MakeTableWriter(const EventWriterOptions& options, Output& output);
std::unique_ptr<EventWriter> MakeCsvWriter(Output& output);
std::unique_ptr<EventWriter> MakeTreeWriter(const EventWriterOptions& options, Output& output);

}  // namespace agentmon
