// Which events the system journal gets, and as which fields: docs/operations.md.
#pragma once

#include <sys/types.h>

#include <optional>

#include "daemon/event/event.h"
#include "daemon/journal/journal_socket.h"

namespace agentmon {

// Denials, limits that were hit, and changes of a session that warn.
bool BelongsInJournal(const Event& event);
// `owner` is the user of the event's session, where that is known.
JournalFields JournalEntryOf(const Event& event, std::optional<uid_t> owner);

}  // namespace agentmon
