#!/bin/sh
# What the two libraries show and need: only public names are exported, the Lua module does not link Lua (its
# interpreter brings the symbols), and the embedding library does.
#   symbols.sh <libaccel.so> <core.so>
set -eu
failed=0
say() { failed=1; echo "$1"; }

for library in "$1" "$2"; do
  odd=$(nm -D --defined-only "$library" | awk '{ print $3 }' |
    grep -v -E '^(ac_[a-z]|luaopen_accel|_init$|_fini$|__(asan|ubsan|tsan|odr_asan|start|stop)_)' || true)
  [ -z "$odd" ] || say "$library exports what is not public: $(echo "$odd" | head -20 | tr '\n' ' ')"
  nm -D --defined-only "$library" | grep -q ' luaopen_accel' || say "$library lacks luaopen_accel"
done
if readelf -d "$2" | grep NEEDED | grep -q lua; then say "$2 links Lua"; fi
readelf -d "$1" | grep NEEDED | grep -q lua || say "$1 does not link Lua"
[ $failed -eq 0 ] && echo "exports and needs are as they should be"
exit $failed
