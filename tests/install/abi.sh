#!/bin/sh
# The ABI of the embedding library is the one that programs were built with: the soname, the symbols of the stable headers (abi/symbols.txt),
# and a program with frozen declarations of 0.1 (abi/frozen_0_1.c) that runs with the library of today.
#   abi.sh <libaccel.so> <c compiler> <folder of the Lua library>        run by ctest with ACCEL_TEST_* set
#   abi.sh --list <source tree>                                          prints the symbols that belong into abi/symbols.txt
set -eu
# Headers whose functions are stable: lua/help/guides/embedding.md lists them as well.
stable="base version host lua tensor op"
names() {
  for header in $stable; do
    tr '\n' ' ' < "$1/host/include/accel/$header.h" | sed 's|/\*[^*]*\*\(\*\|[^*/][^*]*\*\)*/||g' | grep -oE 'AC_API [^;]*;' |
      grep -oE '\b(ac|luaopen)_[a-z0-9_]+\(' | tr -d '(' | sort -u
  done | sort -u
}
if [ "$1" = --list ]; then names "$2"; exit 0; fi
library=$1 cc=$2 lua=$3 failed=0
here="$ACCEL_TEST_SRC/tests/install/abi"
work="$ACCEL_TEST_TMP/work"
rm -rf "$work"
mkdir -p "$work"
say() { failed=1; echo "$1"; }

names "$ACCEL_TEST_SRC" > "$work/declared"
nm -D --defined-only "$library" | awk '{ print $3 }' | sort -u > "$work/exported"
sed '/^#/d' "$here/symbols.txt" | sort -u > "$work/promised"
[ "$(wc -l < "$work/declared")" -gt 100 ] || say "only $(wc -l < "$work/declared") declarations were found"
missing=$(comm -23 "$work/promised" "$work/exported" | tr '\n' ' ')
[ -z "$missing" ] || say "removed symbols, which programs call: $missing(a new soname is needed: accel-run help guide embedding)"
unlisted=$(comm -13 "$work/promised" "$work/declared" | tr '\n' ' ')
[ -z "$unlisted" ] || say "new functions of stable headers; add them to tests/install/abi/symbols.txt: $unlisted"

want=$(sed -n 's/^# soname: //p' "$here/symbols.txt")
have=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[ "$have" = "$want" ] || say "the soname is $have, and symbols.txt lists $want"

flags=
[ -z "${TEST_SANITIZE:-}" ] || flags="-fsanitize=$TEST_SANITIZE"
dir=$(dirname "$library")
"$cc" -std=c11 -Wall -Wextra $flags "$here/frozen_0_1.c" -o "$work/frozen" -L "$dir" -Wl,-rpath,"$dir" -laccel
[ "$("$work/frozen" "$lua")" = frozen ] || say "the program of 0.1 fails"
[ $failed -eq 0 ] && echo "$(wc -l < "$work/promised") symbols, soname $have: as programs know them"
exit $failed
