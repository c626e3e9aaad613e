#!/bin/sh
# Cross compiles for 64-bit Arm with warnings as errors, and runs tests of kernels, formats, gradients and ranks by qemu-user, on CPUs
# without dot products, with those of int8, and with those of int8 and bf16. A GPT trains to the same losses with the kernels of NEON and
# with those of the baseline, which take more instructions.
#   aarch64.sh <cmake> <generator> <c compiler of this machine>      run by ctest with ACCEL_TEST_* set
# ACCEL_AARCH64_BUILD names a build folder to use and keep.
set -eu
cmake=$1 generator=$2 cc=$3
skip() { echo "skipped: $*"; exit 77; }
fail() { echo "FAIL $*"; exit 1; }
command -v aarch64-linux-gnu-gcc > /dev/null || skip "no cross compiler (Debian and Ubuntu: gcc-aarch64-linux-gnu)"
command -v qemu-aarch64 > /dev/null || skip "no qemu-aarch64 (Debian and Ubuntu: qemu-user)"
[ -e /usr/lib/aarch64-linux-gnu/liblua5.4.so ] || skip "no Lua of arm64 (dpkg --add-architecture arm64; apt-get install liblua5.4-dev:arm64)"
[ -e /usr/lib/aarch64-linux-gnu/liblua5.4-filesystem.so.0 ] || skip "no LuaFileSystem of arm64 (Debian and Ubuntu: lua-filesystem:arm64)"

src=$ACCEL_TEST_SRC
build=${ACCEL_AARCH64_BUILD:-$ACCEL_TEST_TMP/build}
work=$ACCEL_TEST_TMP/work
rm -rf "$work"
mkdir -p "$work"
cd "$work"
unset LD_PRELOAD
export ACCEL_TEST_BUILD="$build" ACCEL_TEST_TMP="$work"

"$cmake" -S "$src" -B "$build" -G "$generator" --toolchain "$src/host/cmake/aarch64.cmake" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DACCEL_WERROR=ON -DACCEL_CUDA=OFF -DACCEL_ONEDNN=OFF -DACCEL_MPI=OFF > configure.log 2>&1 || { cat configure.log; exit 1; }
c_tests="host_base_crc32 host_base_crc32c host_base_vmath host_base_biased host_base_philox host_device_device
  host_device_cpu_gemm host_device_cpu_gemm_few host_ops_quant_dot_int8 host_device_cpu_kernels_flash host_device_cpu_kernels_conv host_tensor_convert
  host_autograd_engine host_comm_segment"
targets=accel-run
if "$cmake" -LA -N "$build" | grep -q '^ACCEL_CMOCKA_LIBRARY:.*/'; then
  for t in $c_tests; do targets="$targets test_$t"; done
else
  echo "cmocka of arm64 is missing (libcmocka-dev:arm64): no C tests"
  c_tests=
fi
# shellcheck disable=SC2086
"$cmake" --build "$build" --target $targets > build.log 2>&1 || { grep -E 'error|FAILED|undefined' build.log || tail -20 build.log; exit 1; }
echo "cross compiled"

# on CPU COMMAND...: by the emulator
on() {
  cpu=$1
  shift
  qemu-aarch64 -cpu "$cpu" "$@"
}
run() { # run CPU TITLE COMMAND...: must end well
  title="$2 on $1"
  cpu=$1
  shift 2
  on "$cpu" "$@" > "$work/log" 2>&1 || { tail -30 "$work/log"; fail "$title"; }
  echo "ok   $title"
}
accel="$build/bin/accel-run"
lua() { # lua CPU TITLE ARGUMENTS...
  run "$1" "$2" "$accel" $3 ${4:+"$4"} ${5:+"$5"} ${6:+"$6"}
}

# Which kernels a CPU gets.
has() { # has CPU WORDS: kernels, then extensions
  got=$(on "$1" "$accel" -e 'local f = accel.features() print(f.isa .. " " .. table.concat(f.cpu, " "))')
  for word in $2; do
    case " $got " in *" $word "*) ;; *) fail "$1 has \"$got\", without $word" ;; esac
  done
  echo "ok   $1: $got"
}
plain=cortex-a57 dot=neoverse-n1 all=max
has $plain "neon"
has $dot "neon dotprod"
has $all "neon dotprod i8mm bf16"
on $all "$accel" env | grep -q 'kernels for neon' || fail "accel-run env does not name the instruction set"
if ACCEL_CPU_ISA=avx2 on $all "$accel" -e 'accel.ones(1)' > log 2>&1; then fail "ACCEL_CPU_ISA=avx2 is taken on Arm"; fi
grep -q 'auto|base|neon' log || { cat log; fail "ACCEL_CPU_ISA=avx2: no word of the values there are"; }

# Every path of products on each, the rest once.
for cpu in $plain $dot $all; do
  for t in $c_tests; do
    case $cpu$t in
      $all* | *gemm_few | *flash | *dot_int8) run $cpu "$t" "$build/tests/bin/test_$t" ;;
    esac
  done
  lua $cpu "PyTorch's results of ops" "$src/tests/reference/ops.lua" "$src/tests/reference/ops"
  lua $cpu "PyTorch's results of quantised weights" "$src/tests/reference/quant.lua" "$src/tests/reference/quant"
done
lua $all "PyTorch's results of other ops" "$src/tests/reference/opinfo.lua" "$src/tests/reference/opinfo/golden"
lua $all "casts" "$src/tests/host/ops/map/cast_test.lua"
for model in gpt2 llama; do
  lua $all "ten steps of $model as PyTorch's" "$src/tests/reference/golden.lua" "$src/tests/reference/golden" --only $model
done

# Two ranks of one machine, which meet as a launcher's would.
for rank in 0 1; do
  RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29$$ on $all "$accel" \
    "$src/examples/05_ranks.lua" --steps 20 > "$work/rank$rank" 2>&1 &
  eval "pid$rank=$!"
done
# shellcheck disable=SC2154
{ wait "$pid0" && wait "$pid1"; } || { cat "$work/rank0" "$work/rank1"; fail "two ranks"; }
on $all "$accel" "$src/examples/05_ranks.lua" --steps 20 > "$work/alone" 2>&1
loss() { sed -n 's/^loss after .*: //p' "$1"; }
two=$(loss "$work/rank0") one=$(loss "$work/alone")
[ -n "$one" ] && [ "$two" = "$one" ] || fail "two ranks train to $two, one to $one"
echo "ok   two ranks train as one does"
# Over shared memory accel-run starts them itself, which needs a kernel that starts programs of Arm (binfmt_misc).
if "$accel" --version > /dev/null 2>&1; then
  "$accel" --num-processes 2 "$src/examples/05_ranks.lua" --steps 20 > "$work/shm" 2>&1 || { cat "$work/shm"; fail "two ranks over shm"; }
  grep -q '2 ranks over shm' "$work/shm" && [ "$(loss "$work/shm")" = "$one" ] || { cat "$work/shm"; fail "two ranks over shm"; }
  echo "ok   two ranks over shm train as one does"
else
  echo "skipped: two ranks over shm (this kernel does not start programs of Arm)"
fi

# A GPT's losses and instructions: NEON beside the baseline.
"$cc" -shared -fPIC -O2 "$src/tests/support/qemu_insns.c" -o "$work/insns.so"
gpt() { # gpt ISA CPU DTYPE STEPS: losses in a file, instructions on the standard output
  ACCEL_CPU_ISA=$1 ACCEL_NUM_THREADS=1 on "$2" -plugin "$work/insns.so" "$accel" "$src/tests/host/cmake/aarch64_gpt.lua" "$4" "$3" \
    > "$work/$1.$2.$3" 2> "$work/counted" || { cat "$work/counted"; return 1; }
  sed -n 's/^instructions //p' "$work/counted"
}
step() { # the second step's and the third's
  few=$(gpt "$1" "$2" "$3" 1) more=$(gpt "$1" "$2" "$3" 3)
  echo $(((more - few) / 2))
}
compare() { # compare CPU DTYPE BOUND LEAST: losses within the bound (relative), instructions of base at least LEAST times as many
  base=$(step base "$1" "$2") neon=$(step neon "$1" "$2")
  paste "$work/base.$1.$2" "$work/neon.$1.$2" | awk -v bound="$3" '{ n++; d = ($2 - $4) / $2; if (d < 0) d = -d; if (d > bound) bad = 1 }
    END { exit n != 3 || bad }' || { paste "$work/base.$1.$2" "$work/neon.$1.$2"; fail "losses of $2 on $1 differ"; }
  awk -v base="$base" -v neon="$neon" -v least="$4" -v what="a step of GPT in $2 on $1" 'BEGIN {
    printf "ok   %s: %.0f million instructions with NEON, %.0f with base, ratio %.2f\n", what, neon / 1e6, base / 1e6, base / neon
    exit base < least * neon }' || fail "a step of $2 on $1 takes $neon instructions with NEON, $base with base"
}
compare $plain f32 1e-5 1.2
compare $all bf16 2e-3 1.2
echo "64-bit Arm: all passed"
