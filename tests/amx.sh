#!/bin/sh
# Everything a CPU with AMX is asked, in one call of less than eight minutes that builds nothing: the tests of matrix products and of whole
# models, then the ten speeds that matter, beside PyTorch where python3 has it, and one table of both.
#
#   sh tests/run.sh dev -N      on the machine or a twin of its system: makes build/dev, optimised, with tests and oneDNN
#   sh tests/amx.sh [BUILD]     the call; BUILD is build/dev unless given
#
# Without AMX it says so and ends with status 77 (ACCEL_AMX_TRY=1 tries the script all the same). Logs are in BUILD/amx. A failed test is a
# fault, and so is a build without tests.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/dev}
logs=$build/amx
die() { printf '%s\n' "$*" >&2; exit 1; }

grep -qw amx_bf16 /proc/cpuinfo 2> /dev/null || [ -n "${ACCEL_AMX_TRY:-}" ] || {
  echo "skipped: this CPU has no AMX for bf16 (amx_bf16 in /proc/cpuinfo)"
  exit 77
}
run=$build/bin/accel-run
[ -x "$run" ] || die "$run is not there; sh tests/run.sh dev -N makes it"
"$run" env | grep -q "^onednn *[0-9]" || die "$build has no oneDNN, which is what multiplies on AMX (libdnnl-dev); sh tests/run.sh dev -N"
deadline=$(($(date +%s) + 465))
left() { left=$((deadline - $1 - $(date +%s))); [ "$left" -gt 5 ] && echo "$left" || echo 5; }
rm -rf "$logs"
mkdir -p "$logs"

# Products against closed forms and PyTorch's results; a training run of each kind of model.
printf '\n== Tests (%s)\n' "$logs/tests.log"
tests='^(host/device/cpu/(gemm|gemm_few|gemm_split|onednn|onednn_int8|kernels/conv)|host/ops/matmul/(matmul|einsum|mlp)'
tests="$tests|host/ops/loss/linear_cross_entropy|host/ops/quant/(linear_int8|fp8|nonfinite)|reference/(golden|ops|ops_no_onednn))\$"
rc=0
timeout -k 5 "$(left 200)" ctest --test-dir "$build" --no-tests=error --output-on-failure -R "$tests" > "$logs/tests.log" 2>&1 || rc=$?

printf '\n== Speeds (%s)\n' "$logs/speeds.log"
timeout -k 5 "$(left 5)" "$run" bench gemm_bf16 attention_bf16 cross_entropy_bf16 gpt_small_bf16 gpt_124m_t256_bf16 resnet18_bf16 \
  generate_124m_int8 generate_124m_bf16 --rounds 3 --no-idle-gate > "$logs/speeds.log" 2>&1 || [ $? = 124 ] || rc=1

printf '\n== Table\n'
sed -n 's/^ *[0-9]*\/[0-9]* Test *#[0-9]*: //p' "$logs/tests.log"
cat "$logs/speeds.log"
[ "$rc" = 0 ] || { tail -30 "$logs/tests.log"; die "failed: status $rc; see $logs"; }
