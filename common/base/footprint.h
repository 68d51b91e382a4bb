#pragma once

namespace agentmon {

// Gives memory that is not in use now back to the kernel: freed heap, and pages of program text and
// constants, which the kernel maps in by sixteen around each one that is touched. What is needed again comes
// from the page cache. For a process that goes idle for long; costs about a millisecond.
void GiveBackMemory();

}  // namespace agentmon
