#!/bin/sh
# The programs of examples/embed: they compile without a warning, link, train, and say what they should; against the build
# folder, or against an installation by CMake and by pkg-config.
#   embed.sh build <cmake>                  $ACCEL_TEST_BUILD; run by ctest
#   embed.sh installed <prefix> <libdir> <cmake>     run by install.sh
set -eu
how=$1
here="$ACCEL_TEST_SRC/examples/embed"
work="$ACCEL_TEST_TMP/embed"
rm -rf "$work"
mkdir -p "$work"
sanitize=
[ -z "$TEST_SANITIZE" ] || sanitize="-fsanitize=$TEST_SANITIZE"
flags="-Wall -Wextra -Wpedantic -Wshadow -Werror $sanitize"

# check <program> <cost it falls below>
check() {
  out=$("$1" "$here/fit.lua")
  for line in "the loss called back 300 times" "handed over: the same memory" "left: 0"; do
    case $out in
      *"$line"*) ;;
      *) printf '%s did not say "%s":\n%s\n' "$1" "$line" "$out"; exit 1 ;;
    esac
  done
  echo "$out" | awk -v most="$2" '/^cost after/ { good = $NF < most } END { exit !good }' || {
    printf '%s did not learn:\n%s\n' "$1" "$out"
    exit 1
  }
  if "$1" "$work/nowhere.lua" > "$work/out" 2> "$work/err"; then echo "$1: a missing script went unnoticed"; exit 1; fi
  grep -q "not_found: .*nowhere.lua" "$work/err" || { cat "$work/err"; exit 1; }
}

# check_frames <program>: it drives the script to its end, and leaves it in the middle
check_frames() {
  out=$("$1" "$here/frames.lua")
  case $out in
    *"script: trained"*", 3000 optimizer steps, loss 0.0"*) ;;
    *) printf '%s did not drive the script to its end:\n%s\n' "$1" "$out"; exit 1 ;;
  esac
  case $("$1" "$here/frames.lua" --stop 1) in
    "1 frames, "*", stopped") ;;
    *) echo "$1 did not stop"; exit 1 ;;
  esac
}

# check_glib <program>: the script gets the idle time, and the program's timer ticks between its steps
check_glib() {
  out=$("$1" "$here/frames.lua")
  case $out in
    *"script: trained"*", 3000 optimizer steps, loss 0.0"*) ;;
    *) printf '%s did not drive the script to its end:\n%s\n' "$1" "$out"; exit 1 ;;
  esac
  echo "$out" | awk '/ticks,/ { good = $1 > 0 && $3 > 0 } END { exit !good }' || { printf '%s did not tick:\n%s\n' "$1" "$out"; exit 1; }
  case $("$1" "$here/frames.lua" --stop 2) in
    "2 ticks, "*", stopped") ;;
    *) echo "$1 did not stop"; exit 1 ;;
  esac
}

if [ "$how" = build ]; then
  lib="$ACCEL_TEST_BUILD/lib" cmake=$2
  set -- -I "$ACCEL_TEST_SRC/host/include" -I "$ACCEL_TEST_BUILD/gen" -L "$lib" -Wl,-rpath,"$lib"
  "$TEST_CC" -std=c11 $flags "$here/fit.c" -o "$work/fit_c" "$@" -laccel -lm
  check "$work/fit_c" 0.02
  "$TEST_CC" -std=c11 $flags "$here/frames.c" -o "$work/frames" "$@" -laccel
  check_frames "$work/frames"
  if pkg-config --exists glib-2.0 2> /dev/null; then # its headers are as GLib's authors like them
    glib=$(pkg-config --cflags glib-2.0 | sed 's/-I/-isystem/g')
    # shellcheck disable=SC2046,SC2086
    "$TEST_CC" -std=c11 $flags $glib "$here/glib.c" -o "$work/glib" "$@" -laccel $(pkg-config --libs glib-2.0)
    check_glib "$work/glib"
  else
    echo "without glib.c: the package libglib2.0-dev is not here"
  fi
  if [ -n "$TEST_CXX" ]; then
    "$TEST_CXX" -std=c++17 $flags "$here/fit.cpp" -o "$work/fit_cpp" "$@" -laccel
    check "$work/fit_cpp" 0.1
  fi
  # by pkg-config, from the build folder as it lies: no run path is given, none is needed
  if command -v pkg-config > /dev/null; then
    eval "\"$TEST_CC\" $flags \"$here/fit.c\" -o \"$work/by_pkgconfig\" $(PKG_CONFIG_PATH=$ACCEL_TEST_BUILD pkg-config --cflags --libs accel) -lm"
    check "$work/by_pkgconfig" 0.02
  fi
  # by CMake, from the build folder as it lies
  "$cmake" -S "$here" -B "$work/build" -DCMAKE_C_COMPILER="$TEST_CC" ${TEST_CXX:+-DCMAKE_CXX_COMPILER="$TEST_CXX"} \
    -DCMAKE_C_FLAGS="$sanitize" -DCMAKE_CXX_FLAGS="$sanitize" -Daccel_DIR="$ACCEL_TEST_BUILD" > "$work/log"
  "$cmake" --build "$work/build" --target fit_c >> "$work/log"
  check "$work/build/fit_c" 0.02
else
  prefix=$2 lib=$2/$3 cmake=$4
  "$cmake" -S "$here" -B "$work/build" -DCMAKE_C_COMPILER="$TEST_CC" ${TEST_CXX:+-DCMAKE_CXX_COMPILER="$TEST_CXX"} \
    -DCMAKE_C_FLAGS="$sanitize" -DCMAKE_CXX_FLAGS="$sanitize" -DCMAKE_PREFIX_PATH="$prefix" > "$work/log"
  "$cmake" --build "$work/build" >> "$work/log"
  check "$work/build/fit_c" 0.02
  [ ! -e "$work/build/fit_cpp" ] || check "$work/build/fit_cpp" 0.1
  [ ! -e "$work/build/glib" ] || check_glib "$work/build/glib"
  if command -v pkg-config > /dev/null; then
    PKG_CONFIG_PATH="$lib/pkgconfig" LD_LIBRARY_PATH="$lib"
    export PKG_CONFIG_PATH LD_LIBRARY_PATH
    # pkg-config escapes blanks for a shell
    eval "\"$TEST_CC\" $flags \"$here/fit.c\" -o \"$work/by_pkgconfig\" $(pkg-config --cflags --libs accel) -lm"
    check "$work/by_pkgconfig" 0.02
  fi
fi
echo "the embedding programs do what they say ($how)"
