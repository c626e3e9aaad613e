#!/bin/sh
# A module of Lua in C that works on accel's tensors (module/mymod.c): it links one thing, by pkg-config or by CMake, and works in accel-run,
# in a program that embeds accel, and in a stock interpreter ($TEST_LUA), whose copy of the library it shares.
#   module.sh <cmake> <c compiler>        run by ctest with ACCEL_TEST_* set
set -eu
cmake=$1 cc=$2 build=$ACCEL_TEST_BUILD
here="$ACCEL_TEST_SRC/tests/install/module"
work="$ACCEL_TEST_TMP/work"
rm -rf "$work"
mkdir -p "$work/pkg"
flags="-Wall -Wextra -Wpedantic -Werror"
[ -z "$TEST_SANITIZE" ] || flags="$flags -fsanitize=$TEST_SANITIZE"
cat > "$work/use.lua" <<'END'
local accel = require "accel"
local mymod = require "mymod"
local x = accel.ones(2)
assert(mymod.twice(x):sum():item() == 4)
local ok, err = pcall(mymod.twice, 1)
assert(not ok and tostring(err):find("tensor", 1, true), err)
print "twice"
END

# uses <folder of mymod.so>
uses() {
  LUA_CPATH_5_4="$1/?.so;$build/lib/lua/5.4/?.so" LUA_PATH_5_4="$build/share/lua/5.4/?.lua;$build/share/lua/5.4/?/init.lua"
  export LUA_CPATH_5_4 LUA_PATH_5_4
  [ "$("$build/bin/accel-run" "$work/use.lua")" = twice ] || { echo "accel-run cannot use $1"; exit 1; }
  [ "$("$work/program" "$work/use.lua")" = twice ] || { echo "an embedding program cannot use $1"; exit 1; }
  if [ -n "$TEST_LUA" ]; then
    [ "$(LD_PRELOAD=$TEST_PRELOAD "$TEST_LUA" "$work/use.lua")" = twice ] || { echo "$TEST_LUA cannot use $1"; exit 1; }
  fi
  if readelf -d "$1/mymod.so" | grep NEEDED | grep -E "accel|lua"; then echo "$1 links a library of its own"; exit 1; fi
}

cat > "$work/program.c" <<'END'
#include <accel/accel.h>
#include <stdio.h>
int main(int argc, char **argv) {
  ac_host *h;
  ac_err e;
  if (argc < 2 || ac_host_open(NULL, &h, &e) != AC_OK) return 2;
  ac_status st = ac_host_run_file(h, argv[1], 0, NULL, &e);
  if (st != AC_OK) fprintf(stderr, "%s\n", e.msg);
  ac_host_close(h);
  return st != AC_OK;
}
END
lib="$build/lib"
"$cc" $flags "$work/program.c" -o "$work/program" -I "$ACCEL_TEST_SRC/host/include" -I "$build/gen" -L "$lib" -Wl,-rpath,"$lib" -laccel

if command -v pkg-config > /dev/null; then
  PKG_CONFIG_PATH="$build${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
  export PKG_CONFIG_PATH
  eval "\"$cc\" $flags -shared -fPIC \"$here/mymod.c\" -o \"$work/pkg/mymod.so\" $(pkg-config --cflags --libs accel-lua)"
  uses "$work/pkg"
  # programs that only embed accel need no Lua for pkg-config
  PKG_CONFIG_LIBDIR="$build" pkg-config --cflags --libs accel > "$work/flags" || { echo "pkg-config accel needs more than its own file"; exit 1; }
fi
"$cmake" -S "$here" -B "$work/cmake" -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS="$flags" -Daccel_DIR="$build" > "$work/log"
"$cmake" --build "$work/cmake" >> "$work/log"
uses "$work/cmake"
echo "the module works in every interpreter"
