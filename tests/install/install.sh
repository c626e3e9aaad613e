#!/bin/sh
# Installs the build into a fresh prefix and uses it as others would. Run by ctest with ACCEL_TEST_* set.
#   install.sh <cmake> <c compiler>
set -eu
cmake=$1 cc=$2
here="$ACCEL_TEST_SRC/tests/install"
work="$ACCEL_TEST_TMP/work"
rm -rf "$work"
mkdir -p "$work/project"
flags=
[ -z "$TEST_SANITIZE" ] || flags="-fsanitize=$TEST_SANITIZE"
prefix="$work/first place" lib=$TEST_LIBDIR
step() { echo "-- $*"; }

step "install into a folder with a blank in its name"
"$cmake" --install "$ACCEL_TEST_BUILD" --prefix "$prefix" > "$work/install.log"
for file in bin/accel-run "$lib/libaccel.so" "$lib/lua/5.4/accel/core.so" include/accel/accel.h \
  include/accel/ops.h "$lib/pkgconfig/accel.pc" "$lib/cmake/accel/accelConfig.cmake" \
  share/lua/5.4/accel/nn/init.lua share/doc/accel/LICENSE; do
  [ -e "$prefix/$file" ] || { echo "not installed: $file"; exit 1; }
done
# Nothing that was installed may lead back to the source or build tree.
if grep -r -l -I -F -e "$ACCEL_TEST_BUILD" "$prefix"; then
  echo "the files above name the build folder"
  exit 1
fi
if readelf -d "$prefix/bin/accel-run" "$prefix/$lib/libaccel.so" | grep PATH | grep "$ACCEL_TEST_BUILD"; then
  echo "a library path leads into the build folder"
  exit 1
fi

# use <prefix>: everything that finds the installation by itself
use() {
  step "pkg-config"
  if command -v pkg-config > /dev/null; then
    export PKG_CONFIG_PATH="$1/$lib/pkgconfig"
    # pkg-config escapes the blank for a shell
    eval "\"$cc\" $flags \"$here/consumer.c\" -o \"$work/by_pkgconfig\" $(pkg-config --cflags --libs accel)"
    LD_LIBRARY_PATH="$1/$lib" "$work/by_pkgconfig"
  fi
  step "CMake"
  cp "$here/consumer.c" "$work/project/"
  cat > "$work/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(consumer C)
find_package(accel 0.1 REQUIRED)
add_executable(consumer consumer.c)
target_link_libraries(consumer PRIVATE accel::accel)
END
  rm -rf "$work/project/build"
  "$cmake" -S "$work/project" -B "$work/project/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS="$flags" \
    -DCMAKE_PREFIX_PATH="$1" > "$work/project.log"
  "$cmake" --build "$work/project/build" >> "$work/project.log"
  "$work/project/build/consumer"
  step "the embedding examples"
  TEST_CC="$cc" sh "$here/embed.sh" installed "$1" "$lib" "$cmake"
  step "accel-run"
  "$1/bin/accel-run" --version
  echo "print(require('accel.nn').Linear(2, 2)(require('accel').ones(1, 2)).shape[2])" > "$work/script.lua"
  [ "$("$1/bin/accel-run" "$work/script.lua")" = 2 ]
  step "help, guides and their site"
  "$1/bin/accel-run" help guide accelerator | grep -q "Python's forms in Lua"
  "$1/bin/accel-run" help nn.Linear | grep -q "in_features"
  [ -f "$1/share/doc/accel/reference/html/guides/accelerator.html" ] && [ -f "$1/share/doc/accel/reference/html/search-index.js" ]
  if [ -n "$TEST_LUA" ]; then
    step "stock interpreter"
    sh "$here/stock.sh" "$1" "$lib"
  fi
}

use "$prefix"
step "move it"
mv "$prefix" "$work/second"
use "$work/second"
echo "installed, used, moved, used again"
