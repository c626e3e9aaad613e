#!/bin/sh
# Proves that `bench --against` can be trusted on this machine: two copies of one build differ in none of ten repetitions, and a copy whose
# start is slowed down by 5 % is found. For a quiet machine, about 5 minutes. Exit status: 0 if both hold.
#   sh tests/bench/noise.sh [BUILD]      BUILD: a folder with bin/accel-run [build/dev]
#   REPEATS=10 ROUNDS=8 NAMES="start launch comm_2" SLOWER=5 sh tests/bench/noise.sh
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build/dev}
repeats=${REPEATS:-10} rounds=${ROUNDS:-8} names=${NAMES:-start launch comm_2} slower=${SLOWER:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# A copy that shares nothing with the build but the contents, so that neither has the warmer cache.
copy() {
  mkdir -p "$1"
  cp -rL "$build/bin" "$build/lib" "$build/share" "$1/"
}
copy "$work/same"
copy "$work/slow"

# What the bench start measures, in microseconds, the middle of 21.
printf 'local accel = require "accel"
local t = {}
for i = 1, 21 do
  local began = accel.clock()
  os.execute(arg[1])
  t[i] = accel.clock() - began
end
table.sort(t)
print(("%%.0f"):format(t[11] * 1e6))\n' > "$work/time.lua"
start=$("$build/bin/accel-run" "$work/time.lua" "'$build/bin/accel-run' '$build/share/accel/bench/sides/first_step.lua' > /dev/null")
extra=$((start * slower / 100))
{
  printf 'do local until_ = require("accel.core").clock() + %d e-6 ' "$extra" | sed 's/ e-6/e-6/'
  printf 'while require("accel.core").clock() < until_ do end end\n'
  cat "$work/slow/share/lua/5.4/accel/init.lua"
} > "$work/init.lua"
mv "$work/init.lua" "$work/slow/share/lua/5.4/accel/init.lua"

against() { # name of the copy, pattern of the line of totals, benches
  program=$work/$1/bin/accel-run pattern=$2
  shift 2
  "$program" bench "$@" --peers none --rounds "$rounds" --against "$build/bin/accel-run" > "$work/out" 2>&1 || true
  grep '^[0-9]* slower, [0-9]* faster' "$work/out"
  grep -q "$pattern" "$work/out"
}
different=0 i=0
while [ "$i" -lt "$repeats" ]; do
  i=$((i + 1))
  # shellcheck disable=SC2086
  if against same '^0 slower, 0 faster' $names; then
    echo "repetition $i of $repeats: no difference"
  else
    different=$((different + 1))
    echo "repetition $i of $repeats: a difference between equal builds:"
    cat "$work/out"
  fi
done
found=yes
against slow '^[1-9][0-9]* slower' start || found=no
[ "$found" = yes ] || cat "$work/out"
echo "equal builds: $different of $repeats repetitions differ; a start of $start us slowed down by $extra us: found: $found"
[ "$different" -eq 0 ] && [ "$found" = yes ]
