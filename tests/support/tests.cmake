# How one file becomes one ctest entry. Used by tests/CMakeLists.txt and the folders below it.
#
# Every test gets ACCEL_TEST_SRC (the source tree), ACCEL_TEST_BUILD (this build) and ACCEL_TEST_TMP (a folder
# of its own, also the working directory; files of an earlier run may lie in it). Exit status 77 means
# skipped. Time limits are for what hangs: many times what a test takes on a machine that it has for itself.
#
# Tiers. Every test belongs to one: `every change` (what tests/run.sh runs), `slow` or `matrix`, which are labels. A line of its head
# comment says so where it is not the first, and whether sanitizers run it, too (label memory; C tests and tests/{host,bindings} always
# are):
#   tier: slow              before a release: minutes, or builds of a copy of the tree; with "parts: A B ..." all of it in the matrix, as below
#   tier: sampled           cases that differ only in size: one of n in the first tier, chosen by ACCEL_TEST_SEED, and
#                           all of them in NAME/full of the tier matrix (ACCEL_TEST_FULL=1); support/sample.lua, ac_test_sampled
#                           A line "parts: A B ..." beside it cuts that run into NAME/full/A, NAME/full/B, ... (ACCEL_TEST_PART=A)
#   tier: every change, memory; tier: sampled, memory; ...

# A stock interpreter does not bring the run-time library of a sanitizer: tests that load our module into one
# preload it.
set(ACCEL_TEST_PRELOAD "")
foreach(pair "address asan" "thread tsan" "undefined ubsan")
  string(REPLACE " " ";" pair "${pair}")
  list(GET pair 0 kind)
  list(GET pair 1 library)
  if(ACCEL_SANITIZE MATCHES "${kind}" AND NOT ACCEL_TEST_PRELOAD)
    execute_process(COMMAND "${CMAKE_C_COMPILER}" -print-file-name=lib${library}.so
      OUTPUT_VARIABLE ACCEL_TEST_PRELOAD OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
endforeach()

set(ACCEL_TEST_ENV
  "ACCEL_TEST_SRC=${PROJECT_SOURCE_DIR}"
  "ACCEL_TEST_BUILD=${PROJECT_BINARY_DIR}"
  "ACCEL_TEST_SANITIZE=${ACCEL_SANITIZE}"
  "ACCEL_LEAK_CHECK=1"
  "ACCEL_TEST_STRICT=1" # a model that reads a key which its schema does not declare raises
  "ACCEL_DEVICE=cpu"
  "ACCEL_TEST_PLUGINS=${PROJECT_BINARY_DIR}/tests/plugins"
  "ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1:strict_string_checks=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=second_deadlock_stack=1")

# "tests/host/base/test_json.c" -> "host/base/json", "tests/stdlib/nn_test.lua" -> "stdlib/nn"
function(ac_test_name file result)
  file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}/tests" "${file}")
  string(REGEX REPLACE "\\.(c|lua)$" "" name "${name}")
  string(REGEX REPLACE "_test$" "" name "${name}")
  string(REGEX REPLACE "(^|/)test_([^/]*)$" "\\1\\2" name "${name}")
  set(${result} "${name}" PARENT_SCOPE)
endfunction()

# ac_test_tier(<file> <labels> <sampled>): adds the labels that the file's head comment asks for to the list <labels>; <sampled>: whether it
# has a complete run beside its sample.
function(ac_test_tier file tier_labels tier_sampled)
  set(list ${${tier_labels}})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}") # a changed tier counts with the next build
  file(STRINGS "${file}" line REGEX "^(--| \\*|/\\*).* ?tier: " LIMIT_COUNT 1)
  set(${tier_sampled} OFF PARENT_SCOPE)
  if(line)
    string(REGEX REPLACE "^.*tier: ([a-z, ]*).*$" "\\1" words "${line}")
    string(REGEX REPLACE " *, *" ";" words "${words}")
    foreach(word IN LISTS words)
      string(STRIP "${word}" word)
      if(word STREQUAL "sampled")
        set(${tier_sampled} ON PARENT_SCOPE)
      elseif(word MATCHES "^(slow|memory)$")
        list(APPEND list ${word})
      elseif(NOT word STREQUAL "every change")
        message(FATAL_ERROR "${file}: \"${word}\" is not a tier: every change, slow or sampled, and memory")
      endif()
    endforeach()
  endif()
  set(${tier_labels} ${list} PARENT_SCOPE)
endfunction()

# ac_add_test(<name> TIMEOUT <s> COMMAND ... [ENV ...] [LABELS ...])     seconds that a machine of its own would be enough for;
# one that others use as well gets three times as many
function(ac_add_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "COMMAND;ENV;LABELS" ${ARGN})
  math(EXPR timeout "3 * ${arg_TIMEOUT}")
  set(tmp "${PROJECT_BINARY_DIR}/tests/tmp/${name}")
  file(MAKE_DIRECTORY "${tmp}")
  add_test(NAME "${name}" COMMAND ${arg_COMMAND} WORKING_DIRECTORY "${tmp}")
  set_tests_properties("${name}" PROPERTIES
    TIMEOUT "${timeout}"
    LABELS "${arg_LABELS}"
    SKIP_RETURN_CODE 77
    ENVIRONMENT "${ACCEL_TEST_ENV};ACCEL_JOB_SECRET=the-secret-of-all-tests;ACCEL_TEST_TMP=${tmp};ACCEL_COMPILE_CACHE=${tmp}/kernels;${arg_ENV}")
endfunction()

function(ac_c_test file)
  ac_test_name("${file}" name)
  string(MAKE_C_IDENTIFIER "test_${name}" target)
  add_executable(${target} "${file}")
  target_link_libraries(${target} PRIVATE ac_test_support accel_testing)
  # Exports let a plugin that the test loads find the ac_* functions.
  set_target_properties(${target} PROPERTIES ENABLE_EXPORTS ON
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/bin"
    BUILD_RPATH "${PROJECT_BINARY_DIR}/lib/accel")
  if(ACCEL_SANITIZE)
    # Their dlopen is called from the run-time library: only the older kind of run path serves that caller too.
    target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  endif()
  set(labels c memory)
  ac_test_tier("${file}" labels sampled)
  ac_add_test("${name}" TIMEOUT 300 LABELS ${labels} COMMAND ${target})
  if(sampled)
    ac_add_test("${name}/full" TIMEOUT 300 LABELS "matrix" COMMAND ${target} ENV ACCEL_TEST_FULL=1)
  endif()
endfunction()

function(ac_lua_test file)
  ac_test_name("${file}" name)
  set(labels lua)
  if(name MATCHES "^(host|bindings)/")
    list(APPEND labels memory)
  endif()
  ac_test_tier("${file}" labels sampled)
  ac_add_test("${name}" TIMEOUT 600 LABELS ${labels} COMMAND accel-run "${file}")
  file(STRINGS "${file}" parts REGEX "^-- parts: [a-z0-9_ ]+$" LIMIT_COUNT 1)
  string(REGEX REPLACE "^-- parts: *" "" parts "${parts}")
  string(REPLACE " " ";" parts "${parts}")
  foreach(part IN LISTS parts)
    ac_add_test("${name}/full/${part}" TIMEOUT 600 LABELS "matrix" COMMAND accel-run "${file}" ENV ACCEL_TEST_FULL=1 "ACCEL_TEST_PART=${part}")
  endforeach()
  if(sampled AND NOT parts)
    ac_add_test("${name}/full" TIMEOUT 600 LABELS "matrix" COMMAND accel-run "${file}" ENV ACCEL_TEST_FULL=1)
  endif()
endfunction()

# A shared library that takes the ac_* functions from whoever loads it, as third-party modules do.
function(ac_test_plugin file)
  get_filename_component(name "${file}" NAME_WE)
  add_library(${name} MODULE "${file}")
  target_link_libraries(${name} PRIVATE ac_flags)
  if(TARGET accel_gen)
    add_dependencies(${name} accel_gen)
  endif()
  set_target_properties(${name} PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/plugins")
endfunction()
