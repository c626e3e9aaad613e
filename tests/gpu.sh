#!/bin/sh
# Everything a GPU machine is asked, in one call of a few minutes: builds what it needs, runs the tests labelled gpu and a small table of
# speeds. Such a machine may have nvcc, CMake and a C compiler, and neither Lua nor a package manager.
#
#   sh tests/gpu.sh pack     where Lua is installed: puts its headers and library into build/gpu-kit, to be carried along
#   sh tests/gpu.sh          on the GPU machine: takes Lua from there unless it has its own; build/gpu is the build folder
#   sh tests/gpu.sh test     only the tests, of what is built;   sh tests/gpu.sh bench: only the speeds
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
  say "carry $kit along: $(du -sk "$kit" | cut -f1) KiB of Lua 5.4 (headers and shared library), nothing else"
}

build() {
  say "Building build/gpu"
  set -- -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=ON -DACCEL_CUDA=ON -DACCEL_ONEDNN=OFF -DACCEL_MPI=OFF
  # one chip's machine code is all this machine runs
  chip=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -1 | tr -d '.')
  [ -z "$chip" ] || set -- "$@" "-DCMAKE_CUDA_ARCHITECTURES=$chip-real"
  if ! pkg-config --exists lua5.4 2> /dev/null && [ -f "$kit/lib/liblua5.4.so.0" ]; then
    set -- "$@" "-DLUA_INCLUDE_DIR=$PWD/$kit/include" "-DLUA_LIBRARY=$PWD/$kit/lib/liblua5.4.so.0" "-DLUA_MATH_LIBRARY=m"
  fi
  cmake -S . -B build/gpu "$@" > build/gpu-configure.log 2>&1 || { tail -20 build/gpu-configure.log; die "configuring failed"; }
  grep "^-- accel" build/gpu-configure.log
  cmake --build build/gpu --parallel "$(nproc)" --target accel-run accel_cuda > build/gpu-build.log 2>&1 ||
    { tail -30 build/gpu-build.log; die "the build failed"; }
}

run=build/gpu/bin/accel-run
export ACCEL_DEVICE=cpu # the suites name their devices
tests() {
  say "Tests on the device"
  "$run" env | grep "^cuda"
  failed=0
  printf '%-28s %-8s %8s\n' suite result seconds
  for suite in tests/cuda/*_suite.lua; do
    start=$(date +%s)
    log=build/gpu/$(basename "$suite" .lua).log
    rc=0
    ACCEL_TEST_BUILD=build/gpu "$run" "$suite" > "$log" 2>&1 || rc=$?
    case $rc in
      0) result=passed ;;
      77) result=skipped ;;
      *) result=FAILED failed=1 ;;
    esac
    printf '%-28s %-8s %8s\n' "$(basename "$suite" _suite.lua)" "$result" $(($(date +%s) - start))
    [ $rc -eq 0 ] || head -20 "$log"
  done
  # results that PyTorch computed, where they were carried along
  for reference in ../shared/reference shared/reference; do
    [ -d "$reference" ] || continue
    for what in ops golden; do
      start=$(date +%s)
      result=passed
      ACCEL_DEVICE=cuda "$run" tests/reference/$what.lua "$reference" > build/gpu/reference-$what.log 2>&1 || result=FAILED failed=1
      printf '%-28s %-8s %8s  %s\n' "reference/$what" "$result" $(($(date +%s) - start)) "$(tail -1 build/gpu/reference-$what.log)"
    done
    break
  done
  if command -v compute-sanitizer > /dev/null; then
    for op in add sum layer_norm embedding matmul adamw_step_ flash_attention cross_entropy conv2d sort index_put; do
      ACCEL_TEST_BUILD=build/gpu compute-sanitizer --error-exitcode 9 "$run" tests/cuda/ops_suite.lua $op > build/gpu/sanitizer.log 2>&1 ||
        { say "compute-sanitizer: $op"; tail -15 build/gpu/sanitizer.log; failed=1; }
    done
  fi
  return $failed
}

bench() {
  say "Speeds"
  "$run" tests/cuda/speeds.lua
}

case ${1:-all} in
  pack) pack ;;
  test) tests ;;
  bench) bench ;;
  all)
    mkdir -p build
    build
    rc=0
    tests || rc=1
    bench || rc=1
    exit $rc
    ;;
  *) die "usage: sh tests/gpu.sh [pack|test|bench]" ;;
esac
