add_executable(policy_bench ${CMAKE_SOURCE_DIR}/tests/bench/policy_bench.cc)
target_compile_options(policy_bench PRIVATE ${AGENTMON_WARNINGS})
target_link_libraries(policy_bench PRIVATE common_policy_testing)
set_target_properties(policy_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests EXCLUDE_FROM_ALL TRUE)
