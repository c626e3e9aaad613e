#!/bin/sh
# The device of examples/opencl built as a project of its own, against a build folder as it lies: with public headers alone, without a
# warning; accel-run loads it and names it, and runs on it where there is an OpenCL device.
#   opencl.sh <cmake> <cc>
set -eu
cmake=$1 cc=$2
here="$ACCEL_TEST_SRC/examples/opencl"
work="$ACCEL_TEST_TMP/opencl"
rm -rf "$work"
mkdir -p "$work"

# every header that it names is its own, OpenCL's, the C library's, or one of include/accel
grep -h '^#include "' "$here"/*.[ch] | sed 's/#include "\(.*\)".*/\1/' | sort -u > "$work/headers"
while read -r header; do
  case $header in
    accel/*) [ -f "$ACCEL_TEST_SRC/host/include/$header" ] || { echo "$header is no public header"; exit 1; } ;;
    kernels.h) ;;
    *) [ -f "$here/$header" ] || { echo "$header is none of its own headers"; exit 1; } ;;
  esac
done < "$work/headers"
# and no file of accel names the device
cd "$ACCEL_TEST_SRC"
if grep -rlw -i opencl host bindings stdlib --include='*.[ch]' --include='*.lua' --include='*.cu'; then
  echo "a file of accel names the device"
  exit 1
fi

"$cmake" -S "$here" -B "$work/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS=-Werror -DCMAKE_BUILD_TYPE=Debug \
  -Daccel_DIR="$ACCEL_TEST_BUILD" > "$work/log"
"$cmake" --build "$work/build" >> "$work/log" 2>&1 || { tail -30 "$work/log"; exit 1; }

ACCEL_DEVICE_MODULES="$work/build/accel_opencl.so" POCL_CACHE_DIR="$ACCEL_TEST_BUILD/tests/tmp/opencl-kernels"
export ACCEL_DEVICE_MODULES POCL_CACHE_DIR
unset ACCEL_DEVICE
mkdir -p "$POCL_CACHE_DIR"
run="$ACCEL_TEST_BUILD/bin/accel-run"
state=$("$run" env | grep '^opencl ') || { echo "accel-run env does not name the device"; exit 1; }
case $state in
  *opencl:0*)
    out=$("$run" --device opencl -e 'local accel = require "accel" print(accel.ones(3):sum():item() .. accel.get_default_device())')
    [ "$out" = "3.0opencl:0" ] || { echo "$out"; exit 1; } ;;
  *) echo "no device to run on: $state" ;;
esac
echo "a device from outside"
