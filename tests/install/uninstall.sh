#!/bin/sh
# An installation puts each kind of file where the system looks for it, and its removal leaves what was there before, and no more.
#   uninstall.sh <cmake> <library folder>        run by ctest with ACCEL_TEST_* set
set -eu
cmake=$1 lib=$2
work="$ACCEL_TEST_TMP/work"
rm -rf "$work"
mkdir -p "$work"
record="$work/installed.txt"
fail() { echo "$*"; exit 1; }
# With a record of the test's own: the build folder's may have installations of its user.
put() { "$cmake" "-DCMAKE_INSTALL_PREFIX=$1" "-DACCEL_RECORD=$record" ${2:-} -P "$ACCEL_TEST_BUILD/cmake_install.cmake" > "$work/log" ||
  { tail -5 "$work/log"; fail "cannot install into $1"; }; }
take() { "$cmake" -DACCEL_STEP=uninstall "-DACCEL_RECORD=$record" -P "$ACCEL_TEST_SRC/host/cmake/uninstall.cmake"; }
list() { (cd "$1" && find . | LC_ALL=C sort); }

# A prefix that others use: a file of theirs in a folder of ours, an empty folder, a link.
prefix="$work/a prefix, $(printf '\303\274')"
mkdir -p "$prefix/share/man/man1" "$prefix/share/doc/accel" "$prefix/bin"
touch "$prefix/share/doc/accel/notes-of-a-user" "$prefix/bin/other"
ln -s nowhere "$prefix/lib64-of-others"
list "$prefix" > "$work/before"
put "$prefix"

while read -r file; do
  [ -s "$prefix/$file" ] || fail "not installed: $file"
done << END
bin/accel-run
$lib/libaccel.so
$lib/lua/5.4/accel/core.so
$lib/pkgconfig/accel.pc
include/accel/accel.h
share/lua/5.4/accel/nn/init.lua
share/accel/meta/ops.lua
share/accel/bench/README.md
share/bash-completion/completions/accel-run
share/zsh/site-functions/_accel-run
share/fish/vendor_completions.d/accel-run.fish
share/man/man1/accel-run.1
share/doc/accel/LICENSE
share/doc/accel/README.md
share/doc/accel/CHANGELOG.md
share/doc/accel/reference/guides/start.md
share/doc/accel/reference/html/index.html
share/doc/accel/examples/train_gpt.lua
share/doc/accel/examples/embed/fit.c
share/doc/accel/examples/kubernetes/mpijob.yaml
share/doc/accel/examples/deepspeed/zero3.json
END
empty=$(find "$prefix/share" "$prefix/include" -type d -empty ! -path "*/man/*")
[ -z "$empty" ] || fail "empty folders were installed: $empty"

# Twice into one place, and one component below DESTDIR, all in one record.
put "$prefix"
DESTDIR="$work/root" put /opt/accel -DCMAKE_INSTALL_COMPONENT=runtime
[ -x "$work/root/opt/accel/bin/accel-run" ] || fail "DESTDIR was not followed"
grep -q "^file $work/root/opt/accel/bin/accel-run$" "$record" || fail "the record does not have files below DESTDIR"
take
list "$prefix" > "$work/after"
diff "$work/before" "$work/after" || fail "< was there before the installation, > is there after its removal"
[ ! -e "$work/root" ] || fail "left below DESTDIR: $(list "$work/root" | head -3)"
[ ! -e "$record" ] || fail "the record was left"

# Nothing to remove is an error with a reason.
if take > "$work/log" 2>&1; then fail "removed without a record"; fi
grep -q "this build folder installed nothing" "$work/log" || fail "no reason: $(cat "$work/log")"
rm -rf "$work"
echo "installed, removed, and nothing is left"
