#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/output/color.h"
#include "client/output/event_text.h"
#include "client/output/event_writer.h"
#include "client/output/text.h"
#include "client/output/times.h"

namespace agentmon {
namespace {

constexpr int kSessionColumns = 14;
constexpr int kPidColumns = 7;
constexpr int kWideProcessColumns = 15;
constexpr int kNarrowProcessColumns = 10;
constexpr int kWide = 110;  // a terminal with room
constexpr int kKindColumns = 12;

Color KindColor(const v1::Event& event) {
  if (event.judgement().decision() == v1::DENY) return Color::kRed;
  switch (event.kind()) {
    case v1::EXEC:
    case v1::FORK:
    case v1::EXIT:
      return Color::kCyan;
    case v1::OPEN:
      return Color::kNone;
    case v1::DELETE:
    case v1::RMDIR:
      return Color::kRed;
    case v1::SESSION:
    case v1::LOSS:
    case v1::USAGE:
      return Color::kBlue;
    case v1::LIMIT:
      return Color::kRed;
    default:
      return event.kind() < v1::CONNECT ? Color::kYellow : Color::kMagenta;
  }
}

// Fixed columns, so that rows can be written as they come. On a terminal the date stands on a row of its own
// when it changes and rows are cut to the terminal's width; elsewhere every row is whole.
class TableWriter : public EventWriter {
 public:
  TableWriter(const EventWriterOptions& options, Output& output)
      : options_(options), output_(output), terminal_(output.is_terminal()), paint_(options.color) {}

  void OnEvent(const v1::Event& event) override {
    WriteHeaderOnce();
    std::string row = TimeCell(event.wall_ns());
    if (options_.show_session) absl::StrAppend(&row, Cell(Printable(event.session()), kSessionColumns), "  ");
    // The daemon's own events name the session's first process, which did nothing here.
    const bool nobody = event.process().pid() == 0 || event.source() == v1::DAEMON;
    const std::string pid = nobody ? "-" : absl::StrCat(event.process().pid());
    absl::StrAppend(&row, PadLeft(pid, kPidColumns), "  ", Cell(ProcessName(event), process_columns_), "  ");
    const std::string kind = PadRight(KindText(event), kKindColumns);
    const WhatText what = What(event);
    const int left = output_width_ - DisplayWidth(row) - kKindColumns - 2;
    output_.Line(absl::StrCat(row, paint_(KindColor(event), kind), "  ",
                              terminal_ ? what.Fit(std::max(left, 10)) : what.Whole()));
  }

  void OnGap(uint64_t missed) override {
    output_.Line(absl::StrCat("-- ", missed, " events are missing here: this terminal was too slow --"));
  }

 private:
  std::string Cell(const std::string& text, int columns) const {
    return PadRight(terminal_ ? CutToWidth(text, columns) : text, columns);
  }

  std::string TimeCell(int64_t wall_ns) {
    const std::string date = LocalDate(wall_ns, options_.zone);
    const std::string time = LocalTimeOfDay(wall_ns, options_.zone);
    if (!terminal_) return absl::StrCat(date, " ", time, "  ");
    if (date != date_) output_.Line(paint_(Color::kDim, date));
    date_ = date;
    return absl::StrCat(time, "  ");
  }

  void WriteHeaderOnce() {
    if (output_width_ != 0) return;
    output_width_ = output_.columns();
    process_columns_ = terminal_ && output_width_ < kWide ? kNarrowProcessColumns : kWideProcessColumns;
    std::string row = PadRight("TIME", terminal_ ? 14 : 25);
    if (options_.show_session) absl::StrAppend(&row, PadRight("SESSION", kSessionColumns), "  ");
    absl::StrAppend(&row, PadLeft("PID", kPidColumns), "  ", PadRight("PROCESS", process_columns_), "  ",
                    PadRight("KIND", kKindColumns), "  WHAT");
    output_.Line(paint_(Color::kDim, row));
  }

  const EventWriterOptions options_;
  Output& output_;
  const bool terminal_;
  const Paint paint_;
  int output_width_ = 0;  // 0 until the header is written
  int process_columns_ = kWideProcessColumns;
  std::string date_;
};

}  // namespace

std::unique_ptr<EventWriter> MakeTableWriter(const EventWriterOptions& options, Output& output) {
  return std::make_unique<TableWriter>(options, output);
}

}  // namespace agentmon
