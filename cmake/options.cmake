# Warnings, hardening and sanitizers, the same for every target.
option(AGENTMON_WERROR "Warnings are errors" ON)
set(AGENTMON_SANITIZE "" CACHE STRING "Sanitizers: 'address,undefined', 'thread' or empty")
option(AGENTMON_FUZZ "Build the libFuzzer targets (clang only)" OFF)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  # What ccache asks for where headers are precompiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()

# Ours only; generated protobuf code is compiled without them (see targets.cmake).
set(AGENTMON_WARNINGS -Wall -Wextra)
if(AGENTMON_WERROR)
  list(APPEND AGENTMON_WARNINGS -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
  # gcc 12 says these of its own std::string where its header was precompiled.
  list(APPEND AGENTMON_WARNINGS -Wno-array-bounds -Wno-restrict -Wno-stringop-overread -Wno-stringop-overflow)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  list(APPEND AGENTMON_WARNINGS -Wthread-safety)
endif()

set(CMAKE_POSITION_INDEPENDENT_CODE ON)
add_compile_options(-fstack-protector-strong -fstack-clash-protection -fcf-protection)
add_compile_definitions($<$<NOT:$<CONFIG:Debug>>:_GLIBCXX_ASSERTIONS>)
if(NOT AGENTMON_SANITIZE)
  add_compile_options($<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE>
                      $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=2>)
endif()
add_link_options(-pie -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--gc-sections)
add_compile_options(-ffunction-sections -fdata-sections)

if(AGENTMON_SANITIZE)
  add_compile_options(-fsanitize=${AGENTMON_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${AGENTMON_SANITIZE})
  if(AGENTMON_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)   # fences towards the kernel, which it does not see anyway
  endif()
endif()
