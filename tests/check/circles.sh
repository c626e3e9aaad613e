#!/bin/sh
# The bindings' files need each other in no circle, and the check finds one that is planted.
#   circles.sh <lua> <cc> <nm> <object>...
set -eu
lua=$1 cc=$2 nm=$3
check=${0%/*}/circles.lua
shift 3
"$lua" "$check" "$nm" "$@"

work=$(mktemp -d "${TMPDIR:-/tmp}/accel_circles.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo 'int b(void); int a(void) { return b(); }' > "$work/a.c"
echo 'int c(void); int b(void) { return c(); }' > "$work/b.c"
echo 'int c(void) { return 1; }' > "$work/c.c"
echo 'extern int a(void); int (*const c_calls)(void) = a; int c(void) { return 1; }' > "$work/closed.c"
for file in a b c closed; do "$cc" -c -o "$work/$file.o" "$work/$file.c"; done
"$lua" "$check" "$nm" "$work/a.o" "$work/b.o" "$work/c.o" > "$work/out" || { cat "$work/out"; echo "FAILED: a chain passed for a circle"; exit 1; }
if "$lua" "$check" "$nm" "$work/a.o" "$work/b.o" "$work/closed.o" > "$work/out"; then echo "FAILED: a circle was not found"; exit 1; fi
grep -q "a circle of 3 files" "$work/out" || { cat "$work/out"; exit 1; }
echo "the planted circle was found"
