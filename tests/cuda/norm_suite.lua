-- layer_norm and rms_norm on the CUDA device against the CPU, at the widths where other kernels take over, in every dtype, and with a
-- residual against an addition and the norm, bit by bit. Other shapes and layouts: ops_suite.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local add_norms = require "add_norms"
local suite = require "cuda_suite"

local SHAPES = {
  { 5, 8 }, { 7, 64 }, { 3, 4, 256 }, { 300, 16 }, { 9, 512 }, { 9, 768 }, { 9, 1000 }, { 5, 1024 }, { 5, 1032 }, { 3, 2048 }, { 3, 2056 },
  { 3, 2049 }, { 6, 257 },
}

local function outcome(shape, dtype, device, rms, plain, eps)
  accel.manual_seed(#shape + shape[1] + shape[#shape])
  local n = shape[#shape]
  local function floats(...) return (accel.randn({ ... }) * 2 + 0.3):to(dtype):to(device) end
  local leaves = { floats(table.unpack(shape)) }
  if not plain then
    leaves[2] = floats(n)
    if not rms then leaves[3] = floats(n) end
  end
  local g = floats(table.unpack(shape))
  for _, t in ipairs(leaves) do t.requires_grad = true end
  local y
  if rms then y = accel.rms_norm(leaves[1], { n }, leaves[2], eps)
  else y = accel.layer_norm(leaves[1], { n }, leaves[2], leaves[3], eps) end
  local out = { y:detach():to("cpu") }
  for _, t in ipairs(accel.grad({ y }, leaves, { grad_outputs = { g } })) do out[#out + 1] = t:detach():to("cpu") end
  return out
end

local n = 0
local function compare(shape, dtype, rms, plain, eps)
  local want, got = outcome(shape, dtype, "cpu", rms, plain, eps), outcome(shape, dtype, "cuda", rms, plain, eps)
  n = n + 1
  for j = 1, #want do
    suite.expect(("%s of (%s), %s: %s"):format(rms and "rms_norm" or "layer_norm", table.concat(shape, ", "), dtype,
      j == 1 and "the result" or "gradient " .. j - 1), got[j], want[j])
  end
end
for _, shape in ipairs(SHAPES) do
  for _, dtype in ipairs { "f32", "bf16", "f16", "f64" } do
    for _, rms in ipairs { false, true } do
      for _, plain in ipairs { false, true } do compare(shape, dtype, rms, plain) end
    end
  end
  collectgarbage()
end
-- threads without a row, whose deviation is 0, take no part in sums over rows
for _, rms in ipairs { false, true } do compare({ 5, 24 }, "f32", rms, false, 0) end

local function try(f, ...)
  local ok, why = pcall(f, ...)
  n = n + 1
  if ok then return end
  suite.failed = suite.failed + 1
  print("FAIL with a residual: " .. tostring(why))
end
for _, shape in ipairs { { 5, 8 }, { 3, 3, 64 }, { 3, 257 }, { 2, suite.emulated and 520 or 9000 } } do
  try(add_norms.dtype_mixes, shape, "cuda")
end
for _, dtype in ipairs { "f32", "bf16" } do
  for _, shape in ipairs { { 4, 3, 40 }, { 5, 37 } } do try(add_norms.layouts, shape, dtype, "cuda") end
end
suite.finish(n)
