#!/bin/sh
# The rockspec: `luarocks make` builds a copy of the tree without the network, and a stock interpreter finds accel where it was put.
# Builds everything once, so it is slow; skipped where luarocks is missing.
#   luarocks.sh <lua>
set -eu
lua=$1
command -v luarocks > /dev/null || { echo "skipped: luarocks is not installed (Debian and Ubuntu: luarocks)"; exit 77; }
work="$ACCEL_TEST_TMP/work"
rm -rf "$work"
mkdir -p "$work/tree" "$work/home"
cd "$ACCEL_TEST_SRC"
for item in CMakeLists.txt README.md LICENSE host bindings lua stdlib examples *.rockspec; do cp -R "$item" "$work/tree/"; done
cd "$work/tree"
sed -i 's/"Release"/"Debug"/' ./*.rockspec # what is tried is the recipe: not optimised it is built in a third of the time
# ccache, where there is one, sees through the folder of the copy.
[ -n "${CCACHE_DIR:-}" ] || CCACHE_DIR=$(ccache -k cache_dir 2> /dev/null || echo "$work/ccache")
CCACHE_BASEDIR="$work" CCACHE_NOHASHDIR=1 HOME="$work/home" CMAKE_BUILD_PARALLEL_LEVEL=2 MAKEFLAGS=-j2
ACCEL_CUDA=OFF # minutes of nvcc that say nothing about rocks
export CCACHE_DIR CCACHE_BASEDIR CCACHE_NOHASHDIR HOME CMAKE_BUILD_PARALLEL_LEVEL MAKEFLAGS ACCEL_CUDA

# no server is asked: there is nothing to fetch
luarocks --lua-version 5.4 make --deps-mode none --tree "$work/rocks" --only-server "file://$work/none" --no-doc > "$work/make.log" 2>&1 || {
  tail -40 "$work/make.log"
  exit 1
}
luarocks --lua-version 5.4 list --tree "$work/rocks" --porcelain | grep -q '^accel' || { echo "the rock is not listed"; exit 1; }
eval "$(luarocks --lua-version 5.4 path --tree "$work/rocks" --no-bin)"
cd "$work"
"$lua" "$ACCEL_TEST_SRC/tests/install/stock.lua"
"$lua" -e 'local accel = require "accel"; assert(#package.searchpath("accel", package.path) > 0); print(accel._VERSION)'
luarocks --lua-version 5.4 remove --tree "$work/rocks" accel > "$work/remove.log" 2>&1 || { cat "$work/remove.log"; exit 1; }
left=$(find "$work/rocks" -name '*accel*' | grep -v -e '/manifest' -e '/lib/luarocks' | head -5)
[ -z "$left" ] || { echo "luarocks remove left: $left"; exit 1; }
rm -rf "$work"
echo "luarocks make, require, remove"
