#!/bin/sh
# The packages that cpack makes (host/cmake/AccelPackages.cmake), checked and used.
#   sh tests/install/packages.sh make <build folder>
#       .deb, .rpm (if rpmbuild is installed) and .tar.gz: their names, dependencies and files; lintian (if installed); the archive, unpacked
#       in two places, runs accel-run and is a module of a stock interpreter
#   sh tests/install/packages.sh use <build folder> [--folder DIR] [--cache DIR] [--mirror URL] [--keep]
#       installs the .deb in a bare Debian of this machine's release: accel-run, a C program, stock Lua, manual page, completion. Then
#       removes them and compares the machine with the one before. As root; 77: not possible here, for the reason printed
# Run by ctest with ACCEL_TEST_* set, by hand for a build folder of the preset "package".
set -eu
here=$(cd "$(dirname "$0")" && pwd)
what=${1:-} build=$(realpath "${2:-.}")
[ -f "$build/CPackConfig.cmake" ] || { sed -n '/^#   sh tests/s/^# \{0,1\}//p' "$0"; exit 2; }
shift 2
. "$here/machine.sh"
work="${ACCEL_TEST_TMP:-$build/tests/packages}/$what"
rm -rf "$work"
mkdir -p "$work"
step() { echo "-- $*"; }
fail() { echo "$*"; exit 1; }
pack() { # <kind>...
  for kind in "$@"; do
    (cd "$build" && cpack --config CPackConfig.cmake -B "$work" -G "$kind") > "$work/$kind.log" 2>&1 ||
      { tail -20 "$work/$kind.log"; fail "cpack -G $kind"; }
    ! grep -A3 "CMake Warning" "$work/$kind.log" || fail "cpack -G $kind warns"
    rm -rf "$work/_CPack_Packages"
  done
}
version=$(sed -n 's/^set(CPACK_PACKAGE_VERSION "\(.*\)")/\1/p' "$build/CPackConfig.cmake")
[ -x "$(command -v dpkg-shlibdeps)" ] || skip "this is no Debian: dpkg-shlibdeps (dpkg-dev) is missing"
soname=$(readelf -d "$build/lib/libaccel.so" | sed -n 's/.*SONAME.*\[libaccel\.so\.\(.*\)\]/\1/p')

field() { dpkg-deb -f "$1" "$2"; }

make() {
  step "cpack"
  pack DEB TGZ
  ! command -v rpmbuild > /dev/null || pack RPM
  for name in accel "libaccel$soname" accel-common lua-accel libaccel-dev accel-doc; do
    set -- "$work/${name}_$version"-1_*.deb
    [ -f "$1" ] || fail "no package of the name $name and version $version-1: $(ls "$work")"
  done
  deb=$1

  step "each file is in one package"
  mkdir "$work/first place"
  tar -xzf "$work"/accel-"$version"-*.tar.gz -C "$work/first place" --strip-components=1
  (cd "$work/first place" && find . ! -type d | sed 's|^\./||' | LC_ALL=C sort) > "$work/files"
  for deb in "$work"/*.deb; do dpkg-deb --fsys-tarfile "$deb" | tar -t | sed -n 's|^\./usr/\(.*[^/]\)$|\1|p'; done |
    LC_ALL=C sort > "$work/packaged"
  [ -z "$(uniq -d "$work/packaged")" ] || fail "in two packages: $(uniq -d "$work/packaged" | head -3)"
  # Folders of archives end with "/". What Debian adds or changes: AccelPackages.cmake.
  grep -v -e '^share/doc/[a-z0-9.-]*/\(copyright\|changelog\.Debian\.gz\)$' -e '^share/lintian/' "$work/packaged" |
    sed 's|^\(share/man/.*\)\.gz$|\1|; s|zsh/vendor-completions|zsh/site-functions|' |
    { cat; echo share/doc/accel/LICENSE; } | LC_ALL=C sort > "$work/ours"
  diff "$work/files" "$work/ours" || fail "< is in the archive, > in the .deb"
  if command -v rpmbuild > /dev/null; then
    for rpm in "$work"/*.rpm; do rpm -qp --qf '[%{FILEMODES:perms} %{FILENAMES}\n]' "$rpm"; done |
      sed -n '/^d/d; /build-id/d; s|^[^ ]* /usr/||p' | LC_ALL=C sort > "$work/of-rpm"
    rpm -qp --recommends "$work"/accel-libs-*.rpm | grep -q '^libyaml-0\.so\.2' || fail "accel-libs recommends no libyaml"
    rpm -qp --requires "$work"/accel-"$version"-*.rpm | grep -q "^accel-common = $version-1" || fail "accel does not require accel-common"
    diff "$work/files" "$work/of-rpm" || fail "< is in the archive, > in the .rpm"
  fi

  step "dependencies"
  library=$work/libaccel${soname}_$version-1_$(dpkg --print-architecture).deb
  field "$work/accel_"*.deb Depends | grep -q "libaccel$soname (= $version-1)" || fail "accel does not depend on its library"
  field "$library" Depends | grep -q lua-filesystem || fail "the library does not depend on LuaFileSystem, which it loads by dlopen"
  # The other way round: who owns the libraries of the list, on this machine?
  recommends=$(field "$library" Recommends | tr ',|' '\n\n' | sed 's/^ *//; s/ .*//')
  sed -n 's/^\([a-z0-9]*\) *|[^|]*|[^|]*| *\([^|]*[^| ]\) *|.*/\1 \2/p' "$here/../../host/base/libraries.txt" > "$work/rows"
  [ "$(wc -l < "$work/rows")" -gt 10 ] || fail "the list of libraries was not read"
  while read -r name files; do
    owner=
    for file in $files; do
      path=$(ldconfig -p | awk -v f="$file" '$1 == f { print $NF; exit }')
      [ -z "$path" ] || owner=$(dpkg -S "$(realpath "$path")" 2> /dev/null | sed 's/:.*//')
      [ -z "$owner" ] || break
    done
    [ -n "$owner" ] || continue # not installed here
    names=$(dpkg-query -W -f '${Package} ${Provides}\n' "$owner" | tr ',' ' ')
    found=
    for candidate in $names; do
      printf '%s\n' "$recommends" | grep -q -x -F "$candidate" && found=yes
    done
    [ -n "$found" ] || fail "the library does not recommend $owner ($name)"
  done < "$work/rows"
  field "$library" Depends | grep -q -e openmpi -e mpich && fail "the library depends on MPI"

  if command -v lintian > /dev/null; then
    step "lintian"
    # A build folder outside of the preset has no folders of Debian's architectures.
    suppress=
    grep -q "^CMAKE_INSTALL_LIBDIR:[A-Z]*=lib/" "$build/CMakeCache.txt" || suppress="--suppress-tags pkg-config-unavailable-for-cross-compilation"
    lintian --allow-root --fail-on error,warning $suppress "$work"/*.deb > "$work/lintian" 2>&1 || { cat "$work/lintian"; fail "lintian"; }
  fi

  step "the archive, where it was unpacked, and moved"
  echo 'local nn = require "accel.nn"; print(nn.Linear(2, 3)(require "accel".ones(1, 2)).shape[2])' > "$work/script.lua"
  run_archive "$work/first place"
  mv "$work/first place" "$work/second"
  run_archive "$work/second"
  echo "made and checked: $(cd "$work" && echo *.deb *.rpm *.tar.gz)"
}

run_archive() { # <prefix>
  [ "$("$1/bin/accel-run" "$work/script.lua")" = 3 ] || fail "accel-run does not run in $1"
  "$1/bin/accel-run" help nn.Linear | grep -q in_features || fail "accel-run in $1 has no help"
  if command -v lua5.4 > /dev/null; then
    core=$(cd "$1" && find lib* -path '*lua/5.4/accel/core.so')
    TEST_PRELOAD="" TEST_LUA=lua5.4 sh "$here/stock.sh" "$1" "${core%/lua/5.4/accel/core.so}" || fail "the Lua module does not run in $1"
  fi
}

use() {
  folder=$work cache=${ACCEL_TEST_TMP:+$ACCEL_TEST_TMP/cache} mirror='' keep=''
  while [ $# -gt 0 ]; do
    case $1 in
      --keep) keep=yes ;;
      --folder) folder=$(realpath -m "$2"); shift ;;
      --cache) cache=$(realpath -m "$2"); shift ;;
      --mirror) mirror=$2; shift ;;
      *) fail "unexpected argument '$1'" ;;
    esac
    shift
  done
  # Packages are for the release that they were made on.
  release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  case $release in bookworm | trixie) ;; *) skip "this machine is not Debian 12 or 13" ;; esac
  need_machines "$release"
  step "cpack"
  pack DEB
  step "bare Debian ($release)"
  make_machine "$release" || fail "debootstrap"
  trap 'status=$?; [ -n "$keep" ] || rm -rf "$folder/$release"; exit $status' EXIT
  trap 'exit 130' INT TERM HUP
  root=$folder/$release
  mkdir "$root/accel" "$root/accel/debs"
  cp "$work/"*.deb "$root/accel/debs/"
  rm "$root/accel/debs/accel-mpi"* "$root/accel/debs/accel-opencl"* 2> /dev/null || true
  cp "$here/consumer.c" "$here/stock.lua" "$here/packages_inside.sh" "$root/accel/"
  inside "$release" sh packages_inside.sh || fail "see above; the steps are in tests/install/packages_inside.sh"
}

case $what in
  make) make ;;
  use) use "$@" ;;
  *) fail "make or use, not '$what'" ;;
esac
