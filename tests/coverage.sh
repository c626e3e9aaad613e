#!/bin/sh
# How much of the C sources the tests reach: lines and branches by folder, by gcov. Builds build/coverage (preset coverage: not optimised,
# so that a line is a line), runs tests and prints a table; needs gcov of the compiler.
#
#   sh tests/coverage.sh                   the tests of every change
#   sh tests/coverage.sh -R 'host/ckpt'    these arguments of ctest; counts of an earlier run are dropped
#   sh tests/coverage.sh --report          the table of the last run, and build/coverage/files.txt by file
#
# "goal folders" are those that goal G22 names: parsers, checkpoints, launcher, collectives. Processes that are killed write no counts.
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
. tests/support/packages.sh
. tests/support/mirror.sh
build=build/coverage
goal='^(host/(ckpt|launch|comm|file|text)|host/base/json.*)$'

# report: the table from the counts below $build
report() {
  gcov=gcov
  command -v gcov > /dev/null || die "there is no gcov (Debian and Ubuntu: gcc)"
  root=$(pwd)
  # One note file per object; gcov prints for each source of it "File ...", "Lines executed:N% of M", "Branches executed", "Taken at
  # least once:N% of M". Headers come with every object that includes them, so only the object's own source counts.
  find "$build/host" "$build/bindings" -name '*.gcno' | sort | while read -r note; do
    printf 'OBJECT %s\n' "$note"
    $gcov -b -n "$note" 2> /dev/null || true
  done | awk -v root="$root/" -v goal="$goal" -v files="$build/files.txt" '
    function of(text, n) { n = text; sub(/.*of /, "", n); return n + 0 }
    function share(text, n) { n = text; sub(/.*:/, "", n); sub(/%.*/, "", n); return n / 100 }
    function percent(a, b) { return b > 0 ? sprintf("%5.1f %%", 100 * a / b) : "      -" }
    /^OBJECT / { object = $2; sub(/.*\//, "", object); sub(/\.gcno$/, "", object); next }
    /^File / {
      file = $0; sub(/^File ./, "", file); sub(/.$/, "", file); sub("^" root, "", file)
      while (sub(/[^\/]+\/\.\.\//, "", file)) {}
      base = file; sub(/.*\//, "", base)
      own = file ~ /^(host|bindings)\// && index(object, base) == 1
      if (own && file in seen) own = 0
      if (own) { seen[file] = 1; names[++n] = file }
      next
    }
    own && /^Lines executed/ { lines[file] = of($0); hit[file] = share($0) * of($0) }
    own && /^Taken at least once/ { branches[file] = of($0); taken[file] = share($0) * of($0) }
    END {
      for (i = 1; i <= n; i++) {
        file = names[i]; folder = file; sub(/\/[^\/]*$/, "", folder)
        if (match(folder, /^host\/[a-z]+\//)) folder = substr(folder, 1, RLENGTH - 1)
        l[folder] += lines[file]; h[folder] += hit[file]; b[folder] += branches[file]; t[folder] += taken[file]
        L += lines[file]; H += hit[file]; B += branches[file]; T += taken[file]
        stem = file; sub(/\.[a-z]+$/, "", stem)
        if (folder ~ goal || stem ~ goal) { gl += lines[file]; gh += hit[file]; gb += branches[file]; gt += taken[file] }
        printf "%-44s lines %s of %5d  branches %s of %5d\n", file, percent(hit[file], lines[file]), lines[file],
          percent(taken[file], branches[file]), branches[file] > files
      }
      if (n == 0) { print "no counts below the build folder; run it without --report"; exit 1 }
      printf "%-22s %9s %9s %9s %9s\n", "folder", "lines", "reached", "branches", "taken"
      for (folder in l)
        printf "%-22s %9d %9s %9d %9s\n", folder, l[folder], percent(h[folder], l[folder]), b[folder],
          percent(t[folder], b[folder]) | "sort"
      close("sort")
      printf "%-22s %9d %9s %9d %9s\n", "all", L, percent(H, L), B, percent(T, B)
      if (gl > 0) printf "goal folders: lines %.1f %%, branches %.1f %%\n", 100 * gh / gl, 100 * gt / gb
    }'
}

if [ "${1:-}" != --report ]; then
  [ $# -gt 0 ] || set -- -LE "slow|matrix"
  configure_preset coverage ${CMAKE_ARGS:-}
  build_targets coverage $(targets_of coverage "$@")
  find "$build" -name '*.gcda' -delete
  say "Testing build/coverage"
  ctest --test-dir "$build" -j 2 --output-on-failure "$@" || say "some tests failed; what they reached counts"
fi
report
