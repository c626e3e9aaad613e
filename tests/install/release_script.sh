#!/bin/sh
# The release checklist keeps its promises: one line a step, a log that a failure names, steps that passed are not run again, and a
# changed tree forgets them. With steps of the test's own, in a repository of its own.
set -eu
command -v git > /dev/null || { echo "skipped: git is not installed"; exit 77; }
work="$ACCEL_TEST_TMP/work"
rm -rf "$work"
mkdir -p "$work/tree/tests"
cp "$ACCEL_TEST_SRC/tests/release.sh" "$work/tree/tests/"
cd "$work/tree"
git init -q .
git add . && git -c user.name=t -c user.email=t@example.org commit -qm all
fail() { echo "$*"; cat "$work/out"; exit 1; }
run() { # <status> [arguments]
  want=$1 status=0
  shift
  sh tests/release.sh --steps "$work/steps" --folder "$work/logs" "$@" > "$work/out" 2>&1 || status=$?
  [ "$status" = "$want" ] || fail "status $status instead of $want: $*"
}
cat > "$work/steps" << END
good  | passes            | echo x >> "$work/good-ran"
bad   | fails             | echo words of the fault; test -e "$work/mended"
other | has a pipe in it  | echo a | grep -q a && echo x >> "$work/other-ran"
END
run 0 --list
[ "$(grep -c ' open ' "$work/out")" = 3 ] || fail "the list does not have three open steps"
[ ! -e "$work/good-ran" ] || fail "--list runs steps"

run 1
[ "$(grep -c -e '^good  *passed' -e '^bad  *FAILED' -e '^other  *passed' "$work/out")" = 3 ] || fail "not one line for each step"
log=$(sed -n 's/^bad .*the log is //p' "$work/out")
grep -q "words of the fault" "$log" || fail "the failing step does not name its log"

touch "$work/mended"
run 0
grep -q '^good  *passed before' "$work/out" || fail "a step that passed was forgotten"
[ "$(wc -l < "$work/good-ran")" = 1 ] && [ "$(wc -l < "$work/other-ran")" = 1 ] || fail "a step that passed ran again"
run 0 good
[ "$(wc -l < "$work/good-ran")" = 2 ] || fail "a named step did not run"

echo '# changed' >> tests/release.sh
run 0
[ "$(wc -l < "$work/other-ran")" = 2 ] || fail "steps of another tree count"

echo 'skip | cannot run here | echo "skipped: no such machine"; exit 77' >> "$work/steps"
run 3
grep -q '^skip  *not run: no such machine' "$work/out" || fail "a skipped step gives no reason"
run 2 nosuch
run 2 --nosuch
# The real steps name files that exist.
sh "$ACCEL_TEST_SRC/tests/release.sh" --list --folder "$work/logs" | grep -o 'tests/[a-z/]*\.sh' | sort -u > "$work/scripts"
[ "$(wc -l < "$work/scripts")" -gt 4 ] || fail "the steps were not listed"
while read -r file; do [ -f "$ACCEL_TEST_SRC/$file" ] || fail "a step names $file, which does not exist"; done < "$work/scripts"
rm -rf "$work"
echo "checklist: lines, logs, states"
