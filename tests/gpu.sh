#!/bin/sh
# Everything a GPU machine is asked: the tests labelled gpu, then a table of speeds, PyTorch's beside them where it has that. Such a machine
# may have nvcc, CMake and a C compiler, and neither Lua nor a package manager.
#
#   sh tests/gpu.sh pack              where Lua is installed: puts its headers and library into build/gpu-kit, to be carried along
#   sh tests/gpu.sh pack build        also builds accel into it (needs nvcc and no GPU; CHIP=90 is its chip), about 15 minutes on two cores
#   sh tests/gpu.sh carried [PART...] on the GPU machine, with such a kit: builds nothing, tests, then the ten speeds that matter, and one
#                                     table of both, in less than eight minutes
#   sh tests/gpu.sh                   on the GPU machine: builds build/gpu (with the kit's Lua unless it has its own), tests, all speeds
#   sh tests/gpu.sh build             only that; then, in other calls on the same machine, which keep the folder:
#   sh tests/gpu.sh test [PART...]    only the tests, or those parts of them: test fp8 graph nccl_pairs
#   sh tests/gpu.sh bench             only the speeds
#
# Logs are in build/gpu/parts. With two GPUs or more the parts nccl and nccl_pairs also send between them. With one, ranks share it through
# the host's memory. Without a GPU it says so and ends with status 77.
set -eu
cd "$(dirname "$0")/.."
kit=build/gpu-kit
say() { printf '\n== %s\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

pack() {
  command -v pkg-config > /dev/null || die "pack: needs pkg-config and liblua5.4-dev"
  mkdir -p "$kit/include" "$kit/lib"
  include=$(pkg-config --variable=includedir lua5.4)
  [ -f "$include/lua.h" ] || include=$include/lua5.4
  cp "$include"/lua.h "$include"/luaconf.h "$include"/lualib.h "$include"/lauxlib.h "$kit/include/"
  library=$(pkg-config --variable=libdir lua5.4)/liblua5.4.so
  [ -f "$library" ] || die "pack: no shared Lua library ($library)"
  cp -L "$library" "$kit/lib/liblua5.4.so.0" # under the name that programs look for
  library=$(pkg-config --variable=libdir lua5.4)/liblua5.4-filesystem.so.0
  [ -f "$library" ] || die "pack: no LuaFileSystem ($library); install lua-filesystem"
  cp -L "$library" "$kit/lib/lfs.so"
  if [ "${1:-}" = build ]; then
    cmake -S . -B build/gpu-packed -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DACCEL_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=${CHIP:-90}-real" \
      -DACCEL_ONEDNN=OFF -DACCEL_MPI=OFF > build/gpu-configure.log 2>&1 || { tail -20 build/gpu-configure.log; die "configuring failed"; }
    cmake --build build/gpu-packed --parallel "$(nproc)" > build/gpu-build.log 2>&1 || { tail -30 build/gpu-build.log; die "the build failed"; }
    rm -rf "$kit/accel"
    cmake --install build/gpu-packed --strip --prefix "$PWD/$kit/accel" > /dev/null
    "$kit/accel/bin/accel-run" -e 'print(accel.ones(2):sum():item())' > /dev/null || die "pack: what was built does not run from $kit"
  fi
  say "carry $kit along: $(du -sk "$kit" | cut -f1) KiB"
}

# 77 where there is no GPU: told apart from what fails.
present() {
  [ -z "${ACCEL_CUDA_MODULE:-}" ] || return 0 # the emulated device of tests/cuda: to try this script
  if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/nvidia0 ] && ! nvidia-smi -L > /dev/null 2>&1; then
    say "skipped: no NVIDIA GPU here (neither /dev/nvidia0 nor one that nvidia-smi lists); nothing was built or tested"
    exit 77
  fi
}

build() {
  mkdir -p build
  say "Building build/gpu"
  set -- -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=ON -DACCEL_CUDA=AUTO -DACCEL_ONEDNN=OFF -DACCEL_MPI=OFF
  if ! pkg-config --exists lua5.4 2> /dev/null && [ -f "$kit/lib/liblua5.4.so.0" ]; then
    set -- "$@" "-DLUA_INCLUDE_DIR=$PWD/$kit/include" "-DLUA_LIBRARY=$PWD/$kit/lib/liblua5.4.so.0" "-DLUA_MATH_LIBRARY=m" \
      "-DACCEL_LFS_LIBRARY=$PWD/$kit/lib/lfs.so"
  fi
  cmake -S . -B build/gpu "$@" > build/gpu-configure.log 2>&1 || { tail -20 build/gpu-configure.log; die "configuring failed"; }
  grep "^-- accel" build/gpu-configure.log
  grep -q "^-- accel.* CUDA yes" build/gpu-configure.log || die "there is nothing to test"
  timeout -k 5 "$(seconds 500 60)" cmake --build build/gpu --parallel "$(nproc)" --target accel-run accel_cuda > build/gpu-build.log 2>&1 ||
    { tail -30 build/gpu-build.log; die "the build failed"; }
}

run=build/gpu/bin/accel-run
wanted= # parts; none: all
export ACCEL_DEVICE=cpu ACCEL_TEST_BUILD=build/gpu # the suites name their devices
deadline=$(($(date +%s) + 585))                    # of everything
most=240                                           # seconds that a part may take
# Seconds that a part may take: at most $1, and $2 are kept for what comes after it.
seconds() {
  left=$((deadline - $2 - $(date +%s)))
  [ "$left" -gt 5 ] || left=5
  [ "$left" -lt "$1" ] && echo "$left" || echo "$1"
}

# part NAME COMMAND...: beside the others, in two threads; build/gpu/parts/NAME.log is what it prints, NAME.row its line. A suite that
# skips has failed here.
part() {
  name=$1
  shift
  case " $wanted " in
    "  " | *" $name "*) ;;
    *) return 0 ;;
  esac
  (
    start=$(date +%s)
    rc=0
    mkdir -p "build/gpu/parts/$name.tmp"
    ACCEL_TEST_TMP="$PWD/build/gpu/parts/$name.tmp" ACCEL_NUM_THREADS=2 ACCEL_LEAK_CHECK=1 \
      timeout -k 5 "$(seconds "$most" 45)" "$@" > "build/gpu/parts/$name.log" 2>&1 || rc=$?
    case $rc in
      0) result=passed ;;
      77) result="FAILED (skipped)" ;;
      124 | 137) result="FAILED (no end)" ;;
      *) result="FAILED ($rc)" ;;
    esac
    printf '%-40s %-16s %4d s  %s\n' "$name" "$result" $(($(date +%s) - start)) "$(tail -1 "build/gpu/parts/$name.log")" \
      > "build/gpu/parts/$name.row"
  ) &
}

tests() {
  say "Tests on the device"
  [ -x "$run" ] || die "test: $run is not there; sh tests/gpu.sh build makes it"
  "$run" env | grep "^cuda" || die "accel-run env says nothing of cuda"
  rm -rf build/gpu/parts
  mkdir -p build/gpu/parts
  for suite in tests/cuda/*_suite.lua; do part "$(basename "$suite" _suite.lua)" "$run" "$suite"; done
  for what in ops golden; do part "reference_$what" "$run" tests/cuda/reference.lua $what; done
  part nccl_pairs "$run" tests/cuda/nccl_pairs.lua gpu
  if [ "$(nvidia-smi -L 2> /dev/null | grep -c '^GPU')" -ge 2 ]; then part nccl "$run" tests/cuda/nccl_calls.lua gpu; fi
  if command -v compute-sanitizer > /dev/null; then
    for op in add sum layer_norm embedding matmul adamw_step_ scaled_dot_product_attention cross_entropy conv2d sort index_put fp8_cast \
      scaled_mm; do
      part "sanitizer_$op" compute-sanitizer --error-exitcode 9 "$run" tests/cuda/ops_suite.lua $op
    done
    part sanitizer_attention_suite compute-sanitizer --error-exitcode 9 "$run" tests/cuda/attention_suite.lua
  fi
  wait
  ls build/gpu/parts/*.row > /dev/null 2>&1 || die "test: no part of these names: $wanted"
  cat build/gpu/parts/*.row
  failed=$(grep -l FAILED build/gpu/parts/*.row || true)
  for row in $failed; do
    say "${row%.row}.log"
    tail -20 "${row%.row}.log"
  done
  [ -z "$failed" ]
}

bench() {
  say "Speeds"
  timeout -k 5 "$(seconds 120 30)" "$run" tests/cuda/speeds.lua
  # beside PyTorch where python3 has it; what the time does not suffice for is left out, rows are printed as they come
  timeout -k 5 "$(seconds 400 0)" "$run" bench cuda --rounds 1 --no-idle-gate || [ $? = 124 ]
}

# The programs of the kit, where they run; a C library older than the one they were built with is the usual reason why they do not.
carried() {
  [ -x "$kit/accel/bin/accel-run" ] || die "carried: $kit/accel is not there; sh tests/gpu.sh pack build makes it"
  run=$kit/accel/bin/accel-run
  export ACCEL_TEST_BUILD="$kit/accel" LD_LIBRARY_PATH="$PWD/$kit/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" LUA_CPATH="$PWD/$kit/lib/?.so;;"
  deadline=$(($(date +%s) + 465)) most=200
  "$run" --version || die "carried: the programs of the kit do not run here; sh tests/gpu.sh builds its own"
}

# The ten speeds that matter: a training step, attention, the loss, the optimizer. The tests leave them about four minutes.
speeds() {
  say "Speeds"
  rm -f build/gpu/speeds.log
  timeout -k 5 "$(seconds 400 5)" "$run" bench cuda_gpt_124m_t1024_bf16 cuda_attention_bf16 cuda_cross_entropy_bf16 cuda_adamw \
    --rounds 1 --no-idle-gate > build/gpu/speeds.log 2>&1 || [ $? = 124 ] || { tail -5 build/gpu/speeds.log; return 1; }
}

table() {
  say "Table"
  cat build/gpu/parts/*.row
  [ ! -f build/gpu/speeds.log ] || cat build/gpu/speeds.log
}

verb=${1:-all}
[ $# -eq 0 ] || shift
case $verb in carried | build | test | bench | all) present ;; esac
case $verb in
  pack) pack "$@" ;;
  build) build ;;
  test)
    wanted="$*"
    tests
    ;;
  bench) bench ;;
  carried)
    wanted="$*"
    carried
    rc=0
    tests || rc=1
    speeds || rc=1
    table
    exit $rc
    ;;
  all)
    build
    rc=0
    tests || rc=1
    bench || rc=1
    exit $rc
    ;;
  *) die "usage: sh tests/gpu.sh [pack [build]|carried|build|test [PART...]|bench]" ;;
esac
