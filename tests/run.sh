#!/bin/sh
# Installs what the tests need (Debian, Ubuntu; as root or through sudo), builds with tests and runs them.
#
#   sh tests/run.sh                    the tests of every change
#   sh tests/run.sh all                every tier (slow and matrix, too), then what touches memory under ASan and UBSan: before a release
#   sh tests/run.sh one FILE...        builds what these files of the tree need and runs the tests that mirror them: seconds;
#                                      of examples what is about them
#   sh tests/run.sh PRESET [ctest arguments]     PRESET: dev, debug, asan, ubsan, tsan (sanitizers run what touches memory)
#   sh tests/run.sh dev -R stdlib/               only some of them;  -L slow: a tier;  -N: only names
#
# CMAKE_ARGS="-DACCEL_WERROR=ON" adds to the configure step. ACCEL_TEST_SEED=N repeats the sample of an earlier run.
set -eu
cd "$(dirname "$0")/.."
. tests/support/packages.sh
. tests/support/mirror.sh

what=${1:-changed}
[ $# -eq 0 ] || shift
preset=dev
case $what in
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  changed | all) ;;
  one)
    [ $# -gt 0 ] || die "which files? sh tests/run.sh one host/base/params.c"
    ;;
  dev | debug | asan | ubsan | tsan) preset=$what ;;
  release) die "the release preset is built without tests; take dev" ;;
  -*) # arguments of ctest alone
    set -- "$what" "$@"
    what=dev
    ;;
  *) die "\"$what\" is neither all, one nor a preset (dev, debug, asan, ubsan, tsan); --help says more" ;;
esac
[ $# -eq 0 ] || [ "$what" != all ] || die "\"all\" takes no arguments"

REQUIRED="$REQUIRED lua5.4 libdnnl-dev libcmocka-dev"
need_packages "$REQUIRED" "ninja-build ccache lua-check luarocks libopenmpi-dev openmpi-bin $LIBRARIES"

# One seed for all tests of this run, so that the ranks of a job take the same sample.
: "${ACCEL_TEST_SEED:=$(date +%s)}"
export ACCEL_TEST_SEED

run_ctest() { # <preset> [ctest arguments]
  tested=$1
  shift
  say "Testing build/$tested (ACCEL_TEST_SEED=$ACCEL_TEST_SEED takes the same samples)"
  rm -f "build/$tested/Testing/Temporary/LastTestsFailed.log"
  ctest --test-dir "build/$tested" -j 2 --output-on-failure "$@" || again "$tested"
}

# Failed tests run once more, one at a time: a loaded machine can break a deadline. One that passes then is named, so that its cause is looked
# for, and the run succeeds if all do.
again() { # <preset>
  failed=$(sed 's/^[0-9]*:/  /' "build/$1/Testing/Temporary/LastTestsFailed.log" 2> /dev/null) && [ -n "$failed" ] || return 8
  say "Failed, and tried once more alone:"
  printf '%s\n' "$failed"
  ctest --test-dir "build/$1" --rerun-failed --output-on-failure
}

# What these arguments of ctest select, and no more: builds it and runs it.
build_and_test() { # <preset> <ctest arguments>
  configure_preset "$1" ${CMAKE_ARGS:-}
  build_targets "$1" $(targets_of "$@")
  run_ctest "$@"
}

case $what in
  one) run_mirrors "$@" ;;
  all)
    status=0
    build_preset dev ${CMAKE_ARGS:-}
    run_ctest dev || status=$?
    CMAKE_ARGS="${CMAKE_ARGS:-} -DACCEL_CUDA=OFF"
    build_and_test asan -L memory || status=$?
    exit "$status"
    ;;
  asan | ubsan | tsan)
    [ $# -gt 0 ] || set -- -L memory -LE "slow|matrix"
    build_and_test "$preset" "$@"
    ;;
  *)
    build_preset "$preset" ${CMAKE_ARGS:-}
    [ $# -gt 0 ] || set -- -LE "slow|matrix"
    run_ctest "$preset" "$@"
    ;;
esac
