#!/bin/sh
# luacheck over every Lua file, with the settings of .luacheckrc; it finds what is planted. Skipped where luacheck is missing.
set -eu
command -v luacheck > /dev/null || { echo "skipped: luacheck is not installed (Debian and Ubuntu: lua-check)"; exit 77; }
cd "$ACCEL_TEST_SRC"
luacheck --no-color --codes --quiet stdlib lua examples tests

found=$(printf 'local unused = 1\nreturn undeclared_thing\n' | luacheck --no-color --codes --filename stdlib/planted.lua -) && {
  echo "the planted faults were not found"
  exit 1
}
for code in W211 W113; do case $found in *$code*) ;; *) echo "$found"; exit 1 ;; esac; done
