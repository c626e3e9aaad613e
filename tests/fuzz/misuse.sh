#!/bin/sh
# Runs the misuse generator where it can harm nothing: in a folder of its own, as nobody where this is root, with limits of memory,
# file size and time. A crash prints the call that was under way.
#   misuse.sh <accel-run> <folder> <seconds> [options of misuse.lua]
# ACCEL_TEST_SRC and ACCEL_TEST_BUILD as in every test; ACCEL_TEST_SANITIZE: not empty in sanitizer builds.
set -eu
run=$1 work=$2 seconds=$3
shift 3
rm -rf "$work"
mkdir -p "$work"
cd "$work"
as=
if [ "$(id -u)" = 0 ]; then
  command -v setpriv > /dev/null || { echo "skipped: this is root and setpriv is missing"; exit 77; }
  setpriv --reuid=65534 --clear-groups test -r "$ACCEL_TEST_SRC/tests/fuzz/misuse.lua" || {
    echo "skipped: nobody cannot read $ACCEL_TEST_SRC"
    exit 77
  }
  chmod 777 .
  as="setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs"
fi
if [ -z "${ACCEL_TEST_SANITIZE:-}" ]; then
  ulimit -v 6000000 || true
else # whose shadow needs the address space
  ASAN_OPTIONS="${ASAN_OPTIONS:-}:allocator_may_return_null=1:soft_rss_limit_mb=4000"
  export ASAN_OPTIONS
fi
ulimit -f 65536 || true
ulimit -c 0 || true
ACCEL_TIMEOUT=2 HOME="$work" TMPDIR="$work" ACCEL_LEAK_CHECK=1
export ACCEL_TIMEOUT HOME TMPDIR ACCEL_LEAK_CHECK
status=0
$as timeout -k 5 "$((${seconds%.*} * 8 + 150))" "$run" --num-threads 1 --memory-limit 64M \
  "$ACCEL_TEST_SRC/tests/fuzz/misuse.lua" --seconds "$seconds" "$@" < /dev/null > out.txt 2> err.txt || status=$?
grep -a '^BROKEN' out.txt | head -20 || true
tail -n 1 out.txt
[ $status = 0 ] && exit 0
[ $status != 124 ] && [ $status != 137 ] || echo "it did not end:"
echo "exit status $status; the call under way: $(cat misuse.call)"
tail -n 30 err.txt
exit 1
