#!/bin/sh
# The scripts and the program of the README do what it says: the first learns xor, the second learns on two ranks what it learns on
# one, the program compiles, links and runs a script.
#   readme.sh <c compiler> [compiler flags]
set -eu
cc=$1
shift
# block <language> <n>: the n-th block of that language
block() {
  awk -v open="\`\`\`$1" -v want="$2" '$0 == open { n++; on = n == want; next } /^```/ { on = 0 } on' "$ACCEL_TEST_SRC/README.md"
}
run="$ACCEL_TEST_BUILD/bin/accel-run"

block lua 1 > xor.lua
out=$("$run" xor.lua)
echo "$out"
case $out in *"tensor([0, 1, 1, 0])"*) ;; *) echo "it did not learn xor"; exit 1 ;; esac

block lua 2 > ranks.lua
one=$("$run" ranks.lua)
two=$("$run" --num-processes 2 ranks.lua)
echo "$one | $two"
[ "$one" = "$two" ] || { echo "two ranks learn something else"; exit 1; }

block c 1 > host.c
"$cc" -Wall -Wextra -Werror "$@" host.c -o host -I "$ACCEL_TEST_SRC/host/include" -I "$ACCEL_TEST_BUILD/gen" \
  -L "$ACCEL_TEST_BUILD/lib" -laccel -Wl,-rpath,"$ACCEL_TEST_BUILD/lib"
[ "$(./host xor.lua)" = "$out" ] || { echo "the program and accel-run differ"; exit 1; }
echo "error 'on purpose'" > fail.lua
if ./host fail.lua 2> message; then echo "a failing script went unnoticed"; exit 1; fi
grep -q 'on purpose' message || { cat message; exit 1; }
echo "print 'before' os.exit(7)" > exit.lua
status=0
out=$(./host exit.lua xor.lua) || status=$?
[ "$status" = 7 ] && [ "$out" = before ] || { echo "os.exit(7) gave status $status and '$out'"; exit 1; }
