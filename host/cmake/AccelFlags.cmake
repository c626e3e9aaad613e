# Compiler flags, ccache and sanitizers. Numbers must not depend on the build, so contraction and
# value-changing optimisations are off everywhere; -fno-math-errno and -fno-trapping-math change no result.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Variables of this folder, not of the cache: a project around this one keeps its own.
set(CMAKE_C_FLAGS_RELEASE "-O2")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1")
# What kernels are compiled with. A sanitizer checks what is written, not how fast it is: at -O1 a build takes half the time.
set(ACCEL_KERNEL_FLAGS "$<$<NOT:$<CONFIG:Debug>>:-O3>")
if(ACCEL_SANITIZE AND NOT ACCEL_SANITIZE MATCHES "fuzzer")
  set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g1")
  add_compile_options(-Wno-format-truncation) # what can be truncated is known where functions are inlined
  set(ACCEL_KERNEL_FLAGS "")
endif()
# GCC before 13.3 puts vectors of 64 bytes at places of 32 where AddressSanitizer moves a frame to the heap to see uses after return
# (its bug 110027), and the program ends with SIGSEGV.
set(ACCEL_VECTOR_FLAGS "")
if(ACCEL_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set(ACCEL_VECTOR_FLAGS "--param=asan-use-after-return=0")
endif()
set(CMAKE_C_FLAGS_DEBUG "-O0 -g")

# The layout of an installation.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)

if(NOT CMAKE_C_COMPILER_LAUNCHER)
  find_program(ACCEL_CCACHE ccache)
  mark_as_advanced(ACCEL_CCACHE)
  if(ACCEL_CCACHE) # one that cannot write its folder, say, would fail every file
    file(WRITE "${PROJECT_BINARY_DIR}/CMakeFiles/accel_ccache/probe.c" "int main(void) { return 0; }\n")
    execute_process(COMMAND "${ACCEL_CCACHE}" "${CMAKE_C_COMPILER}" -c probe.c -o probe.o
      WORKING_DIRECTORY "${PROJECT_BINARY_DIR}/CMakeFiles/accel_ccache"
      OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE status)
    if(status EQUAL 0)
      set(CMAKE_C_COMPILER_LAUNCHER "${ACCEL_CCACHE}")
    else()
      string(REGEX MATCH "[^\n]*" text "${text}")
      message(STATUS "${ACCEL_CCACHE} does not compile (${text}): building without it")
      set(ACCEL_CCACHE "")
    endif()
  endif()
endif()

find_package(Threads REQUIRED)

# char is signed everywhere, as on x86-64.
set(signed_char -fsigned-char)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|i.86)$")
  set(signed_char "")
endif()

# Usage requirements of every file of ours.
add_library(ac_flags INTERFACE)
target_compile_definitions(ac_flags INTERFACE _GNU_SOURCE)
target_compile_options(ac_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wno-unused-parameter -Wno-override-init
  -ffp-contract=off -fno-math-errno -fno-trapping-math
  -fno-semantic-interposition -fno-plt
  ${signed_char}
  $<$<BOOL:${ACCEL_WERROR}>:-Werror>)
target_include_directories(ac_flags INTERFACE
  "${PROJECT_SOURCE_DIR}/host" "${PROJECT_SOURCE_DIR}/host/include" "${PROJECT_BINARY_DIR}/gen")
target_link_libraries(ac_flags INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)

if(ACCEL_SANITIZE)
  add_compile_options(-fsanitize=${ACCEL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${ACCEL_SANITIZE})
  if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    # As gcc: casts of floats that no integer of the type can hold give what the CPU gives (and PyTorch), and NULL + 0, the place of
    # no elements, is NULL (C2y says so).
    add_compile_options(-fno-sanitize=float-cast-overflow,pointer-overflow)
  endif()
endif()
