# Flags that every target shares, and the functions that declare libraries, tools and tests.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(GTest REQUIRED)
find_package(OpenSSL REQUIRED)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# The presets make warnings errors. Compilers that are newer than those that CI runs may have new warnings.
if((CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 15) OR
   (CMAKE_CXX_COMPILER_ID STREQUAL Clang AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 20))
  set(CMAKE_COMPILE_WARNING_AS_ERROR OFF)
endif()

add_library(farside_flags INTERFACE)
target_include_directories(farside_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_compile_options(farside_flags INTERFACE -Wall -Wextra -Wshadow -Werror=return-type -fno-omit-frame-pointer
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>)
target_link_libraries(farside_flags INTERFACE Threads::Threads)
if(FARSIDE_EXPENSIVE_CHECKS)
  target_compile_definitions(farside_flags INTERFACE FARSIDE_EXPENSIVE_CHECKS=1)
endif()
if(FARSIDE_SANITIZE)
  target_compile_options(farside_flags INTERFACE -fsanitize=${FARSIDE_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(farside_flags INTERFACE -fsanitize=${FARSIDE_SANITIZE})
  # gcc warns that the thread sanitizer does not model fences; what it then cannot see is no finding.
  target_compile_options(farside_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
endif()

# Level 1 of debug information: functions and lines, enough for backtraces. The debug build has all. Sanitizers need no
# more than -O1, which compiles in four fifths of the time. Without optimization, tests compile in half the time of -O1;
# under the thread sanitizer they would lose that again when they run.
set(level -O2)
set(test_level -O1)
if(FARSIDE_SANITIZE)
  set(level -O1)
endif()
if(FARSIDE_SANITIZE MATCHES address)
  set(test_level -O0)
endif()
set(CMAKE_C_FLAGS_RELWITHDEBINFO "${level} -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "${level} -g1 -DNDEBUG")

# farside_library(name SOURCES ... COLD ... DEPENDS ...): one folder of src/ is one static library. COLD: sources whose
# speed does not matter, since they parse options or print reports; the release build compiles them at -O1, in about two
# thirds of the time.
function(farside_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;COLD;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES} ${arg_COLD})
  set_source_files_properties(${arg_COLD} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:RelWithDebInfo>:-O1>)
  target_link_libraries(${name} PUBLIC farside_flags ${arg_DEPENDS})
endfunction()

# farside_tool(name library): the program farside-NAME of this folder's main.cc, which `farside NAME` executes. Files of
# tools/ and bench/ are included by their path in the source tree.
function(farside_tool name library)
  target_include_directories(${library} PUBLIC ${PROJECT_SOURCE_DIR})
  add_executable(farside_${name} main.cc)
  target_link_libraries(farside_${name} PRIVATE ${library})
  set_target_properties(farside_${name} PROPERTIES OUTPUT_NAME farside-${name}
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/libexec/farside)
  install(TARGETS farside_${name} RUNTIME DESTINATION libexec/farside)
  set_property(GLOBAL APPEND PROPERTY FARSIDE_TOOLS ${name})
endfunction()

include(GoogleTest)

# What each sanitizer can detect is described in docs/internals/testing.md.
set(test_environment
  "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp:die_after_fork=0:report_signal_unsafe=0:history_size=7:halt_on_error=1")

# The headers that most tests include are parsed only once: it saves a third of the time of a small source. (ccache stores
# such sources only with the CCACHE_SLOPPINESS of the Makefile.)
add_executable(test_headers ${PROJECT_SOURCE_DIR}/cmake/test_headers.cc)
target_compile_options(test_headers PRIVATE $<$<CONFIG:RelWithDebInfo>:${test_level}>)
target_link_libraries(test_headers PRIVATE farside_flags GTest::gtest_main)
target_precompile_headers(test_headers PRIVATE <gtest/gtest.h> <algorithm> <atomic> <cstring> <functional> <memory> <random>
  <string> <thread> <vector>)

# farside_test(name SOURCES ... DEPENDS ... [TIMEOUT s] [COST s] [LABELS l] [EACH]): a GoogleTest program, registered with ctest;
# without a label it is a unit test. Sanitized builds run what is labelled unit or stress, not what is labelled
# simulation (one thread, many steps) or source (checks of the sources). EACH: ctest runs the program's tests one by one,
# so that one that hangs is named. COST: of the longest ones under the thread sanitizer, which start first.
function(farside_test name)
  cmake_parse_arguments(arg "EACH" "TIMEOUT;COST;LABELS" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:${test_level}>)
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} GTest::gtest_main)
  target_precompile_headers(${name} REUSE_FROM test_headers)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 900)  # of a test that hangs; under a sanitizer, on a busy machine, some take 300
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(arg_EACH)
    gtest_discover_tests(${name} TEST_PREFIX ${name}: DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
      PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" ENVIRONMENT "${test_environment}")
    return()
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${arg_TIMEOUT} COST "${arg_COST}" LABELS "${arg_LABELS}" ENVIRONMENT "${test_environment}")
endfunction()
