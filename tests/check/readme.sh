#!/bin/sh
# The script and the program of the README do what it says: the first runs and learns xor, the second compiles, links
# and runs a script.
#   readme.sh <c compiler> [compiler flags]
set -eu
cc=$1
shift
block() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$ACCEL_TEST_SRC/README.md" | sed '/^```/d'; }
run="$ACCEL_TEST_BUILD/bin/accel-run"

block lua > xor.lua
out=$("$run" xor.lua)
echo "$out"
case $out in *"tensor([0, 1, 1, 0])"*) ;; *) echo "it did not learn xor"; exit 1 ;; esac

block c > host.c
"$cc" -Wall -Wextra -Werror "$@" host.c -o host -I "$ACCEL_TEST_SRC/host/include" -I "$ACCEL_TEST_BUILD/gen" \
  -L "$ACCEL_TEST_BUILD/lib" -laccel -Wl,-rpath,"$ACCEL_TEST_BUILD/lib"
[ "$(./host xor.lua)" = "$out" ] || { echo "the program and accel-run differ"; exit 1; }
echo "error 'on purpose'" > fail.lua
if ./host fail.lua 2> message; then echo "a failing script went unnoticed"; exit 1; fi
grep -q 'on purpose' message || { cat message; exit 1; }
