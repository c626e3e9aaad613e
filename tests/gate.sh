#!/bin/sh
# The gate before a release: runs the goals of reliability at their figures, as far as the hours allow, adds up what was done over all
# runs, and prints one table: goal, figure asked, figure reached, verdict. Existing tests and fuzzers are its workers.
#
#   sh tests/gate.sh --hours 2            spends about two hours on the goals that are not reached yet
#   sh tests/gate.sh --goals G1,G5        only these;  --list: workers with their commands
#   sh tests/gate.sh --table              the table of what was done so far, runs nothing
#
# Totals, seeds and results are in build/gate/results.json (--file FILE for another), logs of what failed beside it. What failed is run
# again with its seed at the start of the next gate. Exit status: 1 if something failed, 0 otherwise. gate/goals.lua has the goals.
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
. tests/support/packages.sh
build=$(pwd)/build/dev
case " $* " in
  *" --table "* | *" --list "*) [ -x "$build/bin/accel-run" ] || set -- build "$@" ;;
  *) set -- build "$@" ;;
esac
if [ "${1:-}" = build ]; then # what the workers need, and no other test
  shift
  tests=$(sed -n 's/.*bin = "\([a-z_/]*\)".*/test_\1/p' tests/gate/goals.lua | tr / _)
  [ -f build/dev/CMakeCache.txt ] || configure_preset dev ${CMAKE_ARGS:-}
  build_targets dev accel-run core.so accel_test_modules $tests
fi
ACCEL_TEST_SRC=$(pwd) ACCEL_TEST_BUILD=$build ACCEL_DEVICE=cpu ACCEL_LEAK_CHECK=1 ACCEL_TEST_STRICT=1
ACCEL_TEST_PLUGINS=$build/tests/plugins
export ACCEL_TEST_SRC ACCEL_TEST_BUILD ACCEL_DEVICE ACCEL_LEAK_CHECK ACCEL_TEST_STRICT ACCEL_TEST_PLUGINS
exec "$build/bin/accel-run" tests/gate/gate.lua "$@"
