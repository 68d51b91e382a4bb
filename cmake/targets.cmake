# agentmon_library(NAME SOURCES... DEPS...)  one per folder; every x_test.cc beside the sources
# becomes part of the unit test program NAME_test.
function(agentmon_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS;TEST_DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_compile_options(${name} PRIVATE ${AGENTMON_WARNINGS})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${A_DEPS})
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
  if(tests)
    agentmon_test(${name}_test LABEL unit SOURCES ${tests} DEPS ${name} ${A_TEST_DEPS})
  endif()
endfunction()

# agentmon_test(NAME LABEL unit|host SOURCES... DEPS...)  a Catch2 program known to ctest.
function(agentmon_test name)
  cmake_parse_arguments(A "" "LABEL" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_compile_options(${name} PRIVATE ${AGENTMON_WARNINGS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${A_DEPS} catch_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${A_LABEL} TIMEOUT 600)
endfunction()

# agentmon_program(NAME SOURCES... DEPS...)  a program in build/bin.
function(agentmon_program name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_compile_options(${name} PRIVATE ${AGENTMON_WARNINGS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${A_DEPS})
endfunction()
