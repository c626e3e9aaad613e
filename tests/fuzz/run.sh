#!/bin/sh
# Every fuzz target and the misuse generator for a while each, under AddressSanitizer and UndefinedBehaviorSanitizer: with clang's
# libFuzzer where clang has it (preset fuzz), else with the plain driver (preset asan).
#   sh tests/fuzz/run.sh SECONDS [WHAT ...]     WHAT: json codec safetensors sig ops ... misuse [all]
#   MISUSE_CALLS=10000 sh tests/fuzz/run.sh 14400 misuse     so many calls of every function, if they fit into the time
# New inputs that reach new code are kept in build/<preset>/fuzz/<what>, crashes in build/<preset>/fuzz.
set -eu
cd "$(dirname "$0")/../.."
source=$(pwd)
seconds=${1:?"usage: sh tests/fuzz/run.sh SECONDS [WHAT ...]"}
shift
preset=asan
entry='int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return p == 0 && n > 0; }'
if command -v clang > /dev/null && echo "$entry" | clang -x c -fsanitize=fuzzer -o /dev/null - 2> /dev/null; then
  preset=fuzz
fi
build=${FUZZ_BUILD:-$source/build/$preset}
all=$(cd tests/fuzz && for file in fuzz_*.c; do name=${file#fuzz_}; echo "${name%.c}"; done)
[ $# -gt 0 ] || set -- $all misuse
targets=accel-run
for what in "$@"; do [ "$what" = misuse ] || targets="$targets fuzz_$what"; done
if [ ! -f "$build/CMakeCache.txt" ]; then
  cmake --preset "$preset" -B "$build" > /dev/null
fi
cmake --build "$build" --parallel "$(nproc)" --target $targets

ACCEL_TEST_SRC=$source ACCEL_TEST_BUILD=$build ACCEL_TEST_SANITIZE=address,undefined
ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1:strict_string_checks=1
UBSAN_OPTIONS=print_stacktrace=1
export ACCEL_TEST_SRC ACCEL_TEST_BUILD ACCEL_TEST_SANITIZE ASAN_OPTIONS UBSAN_OPTIONS
mkdir -p "$build/fuzz"
cd "$build/fuzz"
failed=
for what in "$@"; do
  echo "== $what: $seconds s"
  mkdir -p "$what"
  if [ "$what" = misuse ]; then
    sh "$source/tests/fuzz/misuse.sh" "$build/bin/accel-run" "$build/fuzz/misuse" "$seconds" --calls "${MISUSE_CALLS:-1000}" \
      --seed "${FUZZ_SEED:-$(date +%s)}" || failed="$failed misuse"
  elif [ "$preset" = fuzz ]; then
    "$build/tests/bin/fuzz_$what" -max_total_time="$seconds" -max_len=4096 -print_final_stats=1 -verbosity=0 "$what" \
      "$source/tests/fuzz/corpus/$what" 2> "$what.log" || failed="$failed $what"
    grep -E 'number_of_executed_units|ERROR|SUMMARY|Test unit written' "$what.log" || true
  else
    "$build/tests/bin/fuzz_$what" -seconds="$seconds" -runs=1000000000000 -seed="${FUZZ_SEED:-$(date +%s)}" \
      "$source/tests/fuzz/corpus/$what" || failed="$failed $what"
  fi
done
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
echo "no crash, no leak"
