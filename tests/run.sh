#!/bin/sh
# Installs what the tests need (Debian, Ubuntu; as root or through sudo), builds with tests and runs them all.
#
#   sh tests/run.sh [preset] [ctest arguments]     preset: dev (default), debug, asan, ubsan, tsan
#   sh tests/run.sh dev -R stdlib/                 only some of them
#   CMAKE_ARGS="-DACCEL_WERROR=ON" sh tests/run.sh
set -eu
cd "$(dirname "$0")/.."
. tests/support/packages.sh

preset=dev
case ${1:-} in
  dev | debug | asan | ubsan | tsan)
    preset=$1
    shift
    ;;
  release) die "the release preset is built without tests; take dev" ;;
esac

REQUIRED="$REQUIRED lua5.4 libdnnl-dev libcmocka-dev"
need_packages "$REQUIRED" "ninja-build ccache lua-check luarocks libopenmpi-dev openmpi-bin"
build_preset "$preset" ${CMAKE_ARGS:-}

say "Testing build/$preset"
exec ctest --test-dir "build/$preset" -j 2 --output-on-failure "$@"
