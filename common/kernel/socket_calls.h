// The system calls that name a socket, and where the name is. One table for both sides: the shim builds the
// filter from it, the daemon reads the requests with it.
#pragma once

#include <cstdint>

namespace agentmon {

enum class SocketAct : uint8_t { kConnect, kSendTo, kSendMessage, kSendMessages };

// Positions of arguments, 0 to 5.
struct SocketCall {
  const char* name;  // as libseccomp knows it
  SocketAct act;
  int8_t address;  // of the name, of a message's head, or of an array of these
  int8_t length;   // of the name, or how many heads; -1 = it is in the head
};

// socketcall(2) is not among them: what it asks is in memory. Calls without a question are refused where a
// question is needed.
inline constexpr SocketCall kSocketCalls[] = {
    {"connect", SocketAct::kConnect, 1, 2},
    {"sendto", SocketAct::kSendTo, 4, 5},
    {"sendmsg", SocketAct::kSendMessage, 1, -1},
    {"sendmmsg", SocketAct::kSendMessages, 1, 2},
};

}  // namespace agentmon
