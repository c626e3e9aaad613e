#!/bin/sh
# The include order of this tree holds, and the check finds every kind of violation when it is planted in a
# small tree.
#   include_order.sh <lua> <source tree>
set -eu
lua=$1 src=$2
check="$src/tests/check/include_order.lua"

"$lua" "$check" "$src"

work=$(mktemp -d "${TMPDIR:-/tmp}/accel_order.XXXXXX")
trap 'rm -rf "$work"' EXIT
failed=0

# plant <name> <file> <include line> <expected part of the message, or "ok">
plant() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/host/include/accel" "$work/tree/host/base" "$work/tree/host/tensor" \
    "$work/tree/host/ops/map" "$work/tree/host/app" "$work/tree/host/extras" "$work/tree/bindings/core" "$work/tree/bindings/tensor"
  echo '#include <stddef.h>' > "$work/tree/host/include/accel/base.h"
  echo '#include "accel/base.h"' > "$work/tree/host/include/accel/tensor.h"
  echo '#include "accel/tensor.h"' > "$work/tree/host/tensor/tensor_impl.h"
  echo '#include "tensor/tensor_impl.h"' > "$work/tree/host/ops/map/exp.c"
  echo '#include "bindings/core/box.h"' > "$work/tree/bindings/tensor/lac_tensor.c"
  echo '#include <lua.h>' > "$work/tree/bindings/core/box.h"
  printf '%s\n' "$3" >> "$work/tree/$2"
  if out=$("$lua" "$check" "$work/tree" 2>&1); then status=ok; else status=refused; fi
  case "$status $4" in
    "ok ok") ;;
    "refused ok" | "ok "*) failed=1; printf 'FAILED %s: %s\n%s\n' "$1" "$status" "$out" ;;
    *)
      case $out in
        *"$4"*) ;;
        *) failed=1; printf 'FAILED %s: message lacks "%s":\n%s\n' "$1" "$4" "$out" ;;
      esac
      ;;
  esac
}

plant "clean tree" host/base/err.c '#include "accel/base.h"' ok
plant "own folder" host/tensor/view.c '#include "tensor_impl.h"' ok
plant "private to the right" host/base/err.c '#include "tensor/tensor_impl.h"' "base may not include tensor"
plant "public to the right" host/base/err.c '  #  include "accel/tensor.h"' "base may not include tensor"
plant "angle brackets" host/base/err.c '#include <accel/tensor.h>' "base may not include tensor"
plant "generated to the right" host/tensor/view.c '#include "accel/ops.h"' "tensor may not include ops"
plant "public header to the right" host/include/accel/base.h \
  '#include "accel/tensor.h"' "base may not include tensor"
plant "public includes private" host/include/accel/tensor.h \
  '#include "tensor/tensor_impl.h"' "includes the private"
plant "Lua in the core" host/tensor/view.c '#include <lua.h>' "knows nothing of Lua"
plant "app includes private" host/app/main.c '#include "tensor/tensor_impl.h"' "public headers only"
plant "app includes public" host/app/main.c '#include "accel/tensor.h"' ok
plant "host includes bindings" host/ops/op.c '#include "bindings/core/box.h"' "ops may not include bindings"
plant "climbing" host/ops/map/log.c '#include "../../tensor/tensor_impl.h"' "climbs"
plant "unknown folder" host/extras/x.c '#include <stddef.h>' "no stage"
plant "missing header" host/ops/map/log.c '#include "nowhere.h"' "not found"
[ $failed -eq 0 ] && echo "the planted violations were found"
exit $failed
