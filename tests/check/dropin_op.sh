#!/bin/sh
# One file dropped into host/ops is a new op: function, method, argument checks, C function, stub and reference page
# follow from its signature, and no other file is edited. So does the op of CONTRIBUTING.md, with the test that stands there.
# One folder dropped there is a new device: opened by name, with its kernels and flags. Builds a copy of the tree with all of
# them, without optimisation.
#   dropin_op.sh <cmake> <generator>
set -eu
cmake=$1 generator=$2
work="$ACCEL_TEST_TMP/work"
rm -rf "$work"
mkdir -p "$work/tree/tests"
for item in CMakeLists.txt README.md LICENSE host bindings lua stdlib examples; do
  cp -R "$ACCEL_TEST_SRC/$item" "$work/tree/"
done
cp "$ACCEL_TEST_SRC/tests/host/ops/dropin/softcap.c" "$work/tree/host/ops/map/softcap.c"
cp -R "$ACCEL_TEST_SRC/tests/host/ops/dropin/tiny" "$work/tree/host/ops/tiny"
# block <language>: the first block of that language in CONTRIBUTING.md
block() {
  awk -v open="\`\`\`$1" '$0 == open { n++; on = n == 1; next } /^```/ { on = 0 } on' "$ACCEL_TEST_SRC/CONTRIBUTING.md"
}
block c > "$work/tree/host/ops/map/squareplus.c"
block lua > "$work/squareplus_test.lua"

# ccache, where there is one, sees through the folder of the copy.
CCACHE_BASEDIR="$work" CCACHE_NOHASHDIR=1
export CCACHE_BASEDIR CCACHE_NOHASHDIR
"$cmake" -S "$work/tree" -B "$work/build" -G "$generator" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-g0 \
  -DBUILD_TESTING=OFF > "$work/configure.log"
"$cmake" --build "$work/build" --parallel 2 --target accel-run > "$work/build.log" 2>&1 || {
  tail -50 "$work/build.log"
  exit 1
}

cat > "$work/try.lua" <<'END'
local accel = require "accel"
local x = accel.tensor({ { -3, 0.5 }, { 2, 40 } }, { dtype = "f64", requires_grad = true })
local function near(a, b) return math.abs(a - b) <= 1e-12 * math.max(1, math.abs(b)) end
local function tanh(v) return (math.exp(2 * v) - 1) / (math.exp(2 * v) + 1) end

-- function with a named argument, method with the default, strided input
local y, z = accel.softcap(x, { cap = 1.5 }), x:softcap()
local turned = x:transpose(1, 2):softcap { cap = 1.5 }:tolist()
y:sum():backward()
local values, defaults, slopes = y:tolist(), z:tolist(), x.grad:tolist()
for i, row in ipairs(x:tolist()) do
  for j, v in ipairs(row) do
    local t = tanh(v / 1.5)
    assert(near(values[i][j], 1.5 * t) and near(turned[j][i], 1.5 * t))
    assert(near(defaults[i][j], 30 * tanh(v / 30)))
    assert(near(slopes[i][j], 1 - t * t))
  end
end
-- the argument checks name the op and the parameter
for _, call in ipairs {
  function() x:softcap { capp = 1 } end,
  function() x:softcap "high" end,
  function() accel.softcap(3) end,
  function() accel.ones(2, { dtype = "i64" }):softcap() end,
} do
  local ok, message = pcall(call)
  assert(not ok and tostring(message):find("softcap", 1, true), tostring(message))
end
print "softcap works"
END
"$work/build/bin/accel-run" "$work/try.lua"
env -u ACCEL_DEVICE LUA_PATH="$ACCEL_TEST_SRC/tests/support/?.lua;;" \
  "$work/build/bin/accel-run" "$work/tree/host/ops/tiny/try.lua" "$work/build/bin/accel-run"
"$work/build/bin/accel-run" "$work/squareplus_test.lua"
ACCEL_TEST_BUILD="$work/build" "$work/build/bin/accel-run" "$ACCEL_TEST_SRC/tests/numerics/ops_gradients_test.lua" squareplus

gen="$work/build/gen"
for file in accel/ops.h ops.md ops.json lua/meta/ops.lua; do
  grep -q softcap "$gen/$file" || { echo "gen/$file does not name the op"; exit 1; }
done
printf '#include "accel/ops.h"\nint main(void) { return ac_softcap == 0; }\n' > "$work/use.c"
cc -std=c11 -fsyntax-only -Werror -Wno-address -I "$work/tree/host/include" -I "$gen" "$work/use.c"

# A second build finds nothing to do.
"$cmake" --build "$work/build" --target accel-run > "$work/again.log" 2>&1
if grep -E -i 'building|linking' "$work/again.log"; then
  echo "an unchanged tree was built again"
  exit 1
fi
# A file that is taken away takes its op along.
rm "$work/tree/host/ops/map/softcap.c"
"$cmake" --build "$work/build" --target accel_gen > "$work/removed.log" 2>&1
if grep -q softcap "$gen/accel/ops.h"; then
  echo "the op of a removed file is still in the table"
  exit 1
fi
rm -rf "$work/build" "$work/tree"
echo "one file, one op; one folder, one device"
