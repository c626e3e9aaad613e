#!/bin/sh
# The Lua module in a stock interpreter ($TEST_LUA), from a prefix: an installation or a build folder.
#   stock.sh <prefix> <its library folder>
set -eu
LUA_PATH_5_4="$1/share/lua/5.4/?.lua;$1/share/lua/5.4/?/init.lua"
LUA_CPATH_5_4="$1/$2/lua/5.4/?.so"
export LUA_PATH_5_4 LUA_CPATH_5_4
# A sanitized module needs its run-time library in the process from the start; the interpreter frees what it can.
[ -z "$TEST_PRELOAD" ] || export LD_PRELOAD="$TEST_PRELOAD"
exec "$TEST_LUA" "$(dirname "$0")/stock.lua"
