#!/bin/sh
# The order of layers of stdlib/accel holds, and the check finds every kind of violation when it is planted in a small tree.
#   lua_order.sh <lua> <source tree>
set -eu
lua=$1 src=$2
check="$src/tests/check/lua_order.lua"

"$lua" "$check" "$src"

work=$(mktemp -d "${TMPDIR:-/tmp}/accel_lua_order.XXXXXX")
trap 'rm -rf "$work"' EXIT
failed=0

# plant <name> <file> <line> <expected part of the message, or "ok">
plant() {
  rm -rf "$work/tree"
  a="$work/tree/stdlib/accel"
  mkdir -p "$a/util" "$a/nn" "$a/optim" "$a/track" "$a/profiler" "$a/accelerator" "$a/extras"
  rmdir "$a/extras"
  echo 'local submodules = { nn = true, optim = true } local names = { Accelerator = true }' > "$a/init.lua"
  echo 'local home = { Accelerator = "accelerator", save = "accelerator", gather = "accel.optim.sgd" }' > "$a/accelerator/init.lua"
  for file in util/init util/lazy nn/init nn/module optim/init optim/sgd track/init profiler/init accelerator/accelerator launch; do
    echo 'return {}' > "$a/$file.lua"
  done
  case $2 in */*) mkdir -p "$a/${2%/*}" ;; esac
  printf '%s\n' "$3" >> "$a/$2"
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

plant "to the left" optim/adam.lua 'local Module = require "accel.nn.module"' ok
plant "own folder" nn/linear.lua 'local Module = require("accel.nn.module")' ok
plant "at load time" nn/linear.lua 'local sgd = require "accel.optim.sgd"' "nn must not use optim"
plant "inside a function" nn/linear.lua "local function f() return require('accel.optim.sgd') end" "nn must not use optim"
plant "package.loaded" nn/linear.lua 'local sgd = package.loaded["accel.optim.sgd"]' "nn must not use optim"
plant "through a helper" nn/linear.lua 'return require "accel.util.lazy" ("accel.nn", { SGD = "accel.optim.sgd" })' "nn must not use optim"
plant "long string" nn/linear.lua 'local sgd = require [[accel.optim.sgd]]' "nn must not use optim"
plant "put together" nn/linear.lua 'local sgd = require("accel.optim." .. name)' "nn must not use optim"
plant "of any name" nn/linear.lua 'local sgd = require("accel." .. name)' "must not be put together"
plant "field of the root" nn/linear.lua 'local accel = require "accel" local SGD = accel.optim.SGD' "nn must not use optim"
plant "field by a string" nn/linear.lua 'local accel = require "accel" local SGD = accel["optim"]' "nn must not use optim"
plant "field of a require" nn/linear.lua 'local SGD = require "accel".optim.SGD' "nn must not use optim"
plant "name of the accelerator" nn/linear.lua 'local a = accel.Accelerator()' "nn must not use accelerator"
plant "name of the native module" nn/linear.lua 'accel.save(t, path)' ok
plant "root file" nn/linear.lua 'accel.launch("x")' "nn must not use launch"
plant "same layer" track/run.lua 'require "accel.profiler"' "track and profiler share a layer"
plant "comment" nn/linear.lua '-- used by require "accel.optim.sgd"' ok
plant "long comment" nn/linear.lua '--[[ require "accel.optim.sgd" ]]' ok
plant "folder without a place" extras/x.lua 'return 1' "no place in the order"
plant "root file without a place" extra.lua 'return 1' "no place in the order"
plant "re-export" accelerator/init.lua 'return { x = "accel.optim.sgd" }' ok
[ $failed -eq 0 ] && echo "the planted violations were found"
exit $failed
