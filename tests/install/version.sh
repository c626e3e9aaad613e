#!/bin/sh
# The version is written in host/include/accel/version.h. What else names it must agree: the changelog's latest release, with its date,
# the soname in the list of symbols, and the rockspec.
#   sh tests/install/version.sh [source tree]
set -eu
cd "${1:-$(dirname "$0")/../..}"
failed=0
say() { failed=1; echo "$*"; }
part() { sed -n "s/^#define AC_VERSION_$1 \([0-9]*\)$/\1/p" host/include/accel/version.h; }
version=$(part MAJOR).$(part MINOR).$(part PATCH)
echo "$version" | grep -qx '[0-9]*\.[0-9]*\.[0-9]*' || say "host/include/accel/version.h: the version is \"$version\""

heading=$(grep -m 1 '^## \[[0-9]' CHANGELOG.md || true)
printf '%s\n' "$heading" | grep -qE "^## \[$version\] - 20[0-9]{2}-[01][0-9]-[0-3][0-9]$" ||
  say "CHANGELOG.md: the latest release is \"$heading\"; expected \"## [$version] - YYYY-MM-DD\""

soname=$(part MAJOR)
[ "$soname" != 0 ] || soname=0.$(part MINOR)
grep -q "^# soname: libaccel.so.$soname$" tests/install/abi/symbols.txt ||
  say "tests/install/abi/symbols.txt: the soname is not libaccel.so.$soname, that of version $version"

for rockspec in *.rockspec; do
  of_name=$(expr "$rockspec" : 'accel-\(.*\)\.rockspec')
  of_text=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$rockspec")
  [ "$of_name" = "$of_text" ] || say "$rockspec: its version is \"$of_text\""
  case $of_text in scm-* | "$version"-*) ;; *) say "$rockspec: version \"$of_text\"; expected $version-1 or scm-1" ;; esac
done
[ $failed -eq 0 ] && echo "version $version, soname libaccel.so.$soname"
exit $failed
