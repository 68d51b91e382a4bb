# Headers that many sources read are parsed once for each kind of target, which is some half of a clean build:
# docs/decisions/0004-precompiled-headers.md. -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON shows what a source forgot to include.
set(common_headers <algorithm> <chrono> <cstdint> <cstring> <deque> <functional> <map> <memory> <optional> <set>
  <string> <thread> <utility> <vector>
  absl/container/flat_hash_map.h absl/status/statusor.h absl/strings/match.h absl/strings/str_cat.h
  absl/strings/str_join.h absl/strings/str_split.h absl/synchronization/mutex.h absl/time/clock.h)
set(message_headers agentmon/v1/event.pb.h agentmon/v1/policy.pb.h agentmon/v1/sessions.pb.h)

# precompiled_headers(NAME KIND... HEADERS...)  for targets with target_precompile_headers(... REUSE_FROM NAME).
file(WRITE ${CMAKE_BINARY_DIR}/precompiled/empty.cc "")
file(WRITE ${CMAKE_BINARY_DIR}/precompiled/main.cc "int main() {}\n")
function(precompiled_headers name)
  list(TRANSFORM ARGN REPLACE "^([^<].*)$" "<\\1>" OUTPUT_VARIABLE headers)
  target_compile_options(${name} PRIVATE ${AGENTMON_WARNINGS})
  target_precompile_headers(${name} PRIVATE ${headers})
endfunction()

add_library(headers_common STATIC ${CMAKE_BINARY_DIR}/precompiled/empty.cc)
precompiled_headers(headers_common ${common_headers})

add_library(headers_messages STATIC ${CMAKE_BINARY_DIR}/precompiled/empty.cc)
target_link_libraries(headers_messages PRIVATE proto_messages)
precompiled_headers(headers_messages ${common_headers} ${message_headers})

# A program: it is compiled with -fPIE, which the headers have to have in common with their users.
add_executable(headers_test ${CMAKE_BINARY_DIR}/precompiled/main.cc)
target_link_libraries(headers_test PRIVATE proto_messages)
precompiled_headers(headers_test ${common_headers} ${message_headers} catch2/catch.hpp)
set_target_properties(headers_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/precompiled)
