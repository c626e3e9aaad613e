#!/bin/sh
# The scripts and the program of the README and of the guides do what these say: the first learns xor, those of ranks learn on two
# ranks what they learn on one, the program compiles, links and runs a script. What each guide's Lua prints: guides.lua.
#   readme.sh <c compiler> [compiler flags]
set -eu
cc=$1
shift
# block <file> <language> <n>: the n-th block of that language; 0: all of them
block() {
  awk -v open="\`\`\`$2" -v want="$3" '$0 == open { n++; on = want == 0 || n == want; next } /^```/ { on = 0 } on' \
    "$ACCEL_TEST_SRC/$1"
}
run="$ACCEL_TEST_BUILD/bin/accel-run"
guides=lua/help/guides
[ "$(wc -l < "$ACCEL_TEST_SRC/README.md")" -le 220 ] || { echo "the README has more than 220 lines: that is for guides"; exit 1; }

block README.md lua 1 > xor.lua
out=$("$run" xor.lua)
echo "$out"
case $out in *"tensor([0, 1, 1, 0])"*) ;; *) echo "it did not learn xor"; exit 1 ;; esac

block README.md lua 2 > ranks.lua
for n in 1 2; do
  said=$("$run" --num-processes $n ranks.lua)
  [ "$said" = "$n ranks, loss 0.0000" ] || { echo "README's script on $n ranks says '$said'"; exit 1; }
done

for guide in ranks accelerator; do
  block "$guides/$guide.md" lua 0 > "$guide.lua"
  one=$("$run" "$guide.lua")
  two=$("$run" --num-processes 2 "$guide.lua")
  echo "$guide: $one | $two"
  [ "$one" = "$two" ] || { echo "two ranks learn something else"; exit 1; }
done

block README.md c 1 > main.c
"$cc" -Wall -Wextra -Werror "$@" main.c -o main -I "$ACCEL_TEST_SRC/host/include" -I "$ACCEL_TEST_BUILD/gen" \
  -L "$ACCEL_TEST_BUILD/lib" -laccel -Wl,-rpath,"$ACCEL_TEST_BUILD/lib"
[ "$(./main xor.lua)" = "$out" ] || { echo "README's program and accel-run differ"; exit 1; }

block "$guides/embedding.md" c 1 > host.c
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
