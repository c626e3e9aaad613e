#!/bin/sh
# accel within another CMake project, by FetchContent and by add_subdirectory: it changes nothing of the parent (compiler flags, build type,
# output folders, tests, install rules), and its library can be linked. A cross build compiles its generators for this machine, or takes
# those that ACCEL_OPGEN names.
#   subproject.sh <cmake> <c compiler>         run by ctest with ACCEL_TEST_* set
set -eu
cmake=$1 cc=$2
work="$ACCEL_TEST_TMP/work"
rm -rf "$work"
mkdir -p "$work"
say() { echo "$1"; exit 1; }

# parent <folder> <line that brings accel in>
parent() {
  mkdir -p "$work/$1"
  cat > "$work/$1/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(superproject C)
set(CMAKE_BUILD_TYPE Release)
include(CTest)
add_test(NAME of_the_parent COMMAND true)
function(state result)
  set(text "")
  foreach(v CMAKE_C_FLAGS CMAKE_C_FLAGS_RELEASE CMAKE_C_FLAGS_DEBUG CMAKE_C_FLAGS_RELWITHDEBINFO CMAKE_C_STANDARD CMAKE_C_EXTENSIONS
            CMAKE_POSITION_INDEPENDENT_CODE CMAKE_BUILD_TYPE BUILD_TESTING CMAKE_RUNTIME_OUTPUT_DIRECTORY CMAKE_LIBRARY_OUTPUT_DIRECTORY
            CMAKE_ARCHIVE_OUTPUT_DIRECTORY CMAKE_C_COMPILER_LAUNCHER CMAKE_MODULE_PATH CMAKE_INSTALL_PREFIX CMAKE_BUILD_RPATH_USE_ORIGIN)
    string(APPEND text "\${v}=\${\${v}} cached \$CACHE{\${v}};")
  endforeach()
  foreach(p COMPILE_OPTIONS COMPILE_DEFINITIONS INCLUDE_DIRECTORIES LINK_OPTIONS)
    get_property(value DIRECTORY PROPERTY \${p})
    string(APPEND text "\${p}=\${value};")
  endforeach()
  set(\${result} "\${text}" PARENT_SCOPE)
endfunction()
state(before)
$2
state(after)
if(NOT before STREQUAL after)
  message(FATAL_ERROR "accel changed its parent:\n\${before}\n\${after}")
endif()
file(WRITE "\${CMAKE_BINARY_DIR}/main.c" "int main(void) { return 0; }\n")
add_executable(app "\${CMAKE_BINARY_DIR}/main.c")
target_link_libraries(app PRIVATE accel::accel)
add_library(mylib STATIC "\${CMAKE_BINARY_DIR}/main.c")
install(TARGETS app)
END
  "$cmake" -S "$work/$1" -B "$work/$1/build" -DCMAKE_C_COMPILER="$cc" -DACCEL_CUDA=OFF > "$work/$1.log" 2>&1 || { cat "$work/$1.log"; exit 1; }
  tests=$(cd "$work/$1/build" && ctest -N | sed -n 's/^Total Tests: //p')
  [ "$tests" = 1 ] || say "$1: the parent has $tests tests, expected its own"
  files=$(find "$work/$1/build" -name cmake_install.cmake -exec grep -l 'file(INSTALL' {} +)
  [ "$files" = "$work/$1/build/cmake_install.cmake" ] || say "$1: install rules besides the parent's: $files"
}

parent fetch "include(FetchContent)
FetchContent_Declare(accel SOURCE_DIR \"$ACCEL_TEST_SRC\")
FetchContent_MakeAvailable(accel)"
parent subdirectory "add_subdirectory(\"$ACCEL_TEST_SRC\" accel)"

# A toolchain that CMake takes for another machine.
cat > "$work/toolchain.cmake" <<END
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER "$cc")
END
cross() {
  name=$1
  shift
  "$cmake" -S "$ACCEL_TEST_SRC" -B "$work/$name" -DCMAKE_TOOLCHAIN_FILE="$work/toolchain.cmake" -DBUILD_TESTING=OFF -DACCEL_CUDA=OFF "$@" \
    > "$work/$name.log" 2>&1 || { cat "$work/$name.log"; exit 1; }
}
cross cross -DACCEL_BUILD_CC="$cc"
"$cmake" --build "$work/cross" --target accel_gen accel_lua_embed >> "$work/cross.log" 2>&1 || { tail -20 "$work/cross.log"; exit 1; }
for file in ops_table.c accel/ops.h lua_embed.c; do
  cmp "$work/cross/gen/$file" "$ACCEL_TEST_BUILD/gen/$file" || say "a cross build generates another $file"
done
cross given -DACCEL_OPGEN="$ACCEL_TEST_BUILD/tools/accel-opgen"
"$cmake" --build "$work/given" --target accel_gen accel_lua_embed >> "$work/given.log" 2>&1 || { tail -20 "$work/given.log"; exit 1; }
cmp "$work/given/gen/accel/ops.h" "$ACCEL_TEST_BUILD/gen/accel/ops.h"
[ ! -e "$work/given/tools" ] || say "generators were compiled although ACCEL_OPGEN names them"
echo "the parent keeps what is its own, and a cross build its generators"
