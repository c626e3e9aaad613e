#!/bin/sh
# clang-format over all C, C++ and CUDA of the product, with the settings of .clang-format; it finds what is planted. Other versions than
# Debian 12's 14 break lines in other places, so the test is skipped where that one is missing.
#   sh tests/check/format.sh --fix    formats the files in place
set -eu
formatter=
for name in clang-format-14 clang-format; do
  case $("$name" --version 2> /dev/null) in *"version 14."*) formatter=$name && break ;; esac
done
[ -n "$formatter" ] || { echo "skipped: clang-format 14 is not installed (Debian 12: clang-format)"; exit 77; }
cd "${ACCEL_TEST_SRC:-$(dirname "$0")/../..}"
files=$(find host bindings -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | grep -v /unicode_data.c)
if [ "${1:-}" = --fix ]; then exec "$formatter" -i $files; fi
"$formatter" --dry-run --Werror $files

if printf 'int  planted;\n' | "$formatter" --dry-run --Werror --assume-filename=host/planted.c 2> /dev/null; then
  echo "the planted fault was not found"
  exit 1
fi
