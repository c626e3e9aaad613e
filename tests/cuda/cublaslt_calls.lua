-- Which products go to cuBLASLt on the twin with its stand-in, as what, told by the stand-in's log (CUDA_TWIN_CUBLASLT_LOG): m x n x k,
-- types of the operands and of the result, how it computes, batch, epilogue. That results are right is the op suite's business too.
--   accel-run cublaslt_calls.lua on | tf32 | refused | late | f8
local accel = require "accel"
local mode = arg[1]
local log = os.getenv "CUDA_TWIN_CUBLASLT_LOG"
os.remove(log)

local function lines()
  local list, f = {}, io.open(log)
  if f then
    for line in f:lines() do list[#list + 1] = line end
    f:close()
  end
  os.remove(log)
  return table.concat(list, "; ")
end

-- What f of the tensors leaves in the log; its result is the CPU's.
local function expect(want, f, ...)
  local inputs, there = { ... }, {}
  for i, t in ipairs(inputs) do there[i] = t:to "cuda" end
  lines()
  local got = f(table.unpack(there))
  local said = lines()
  assert(said == ((mode == "refused" or mode == "late") and "" or want), ("expected '%s', got '%s'"):format(want, said))
  local ours = f(table.unpack(inputs)):to "f64"
  local bar = (ours:abs():max():item() + 1) * (got.dtype == "f32" and 1e-5 or got.dtype == "f64" and 1e-14 or 1e-2)
  local off = (got:to("cpu"):to "f64" - ours):abs():max():item()
  assert(off <= bar, ("%s: off by %g, allowed %g"):format(want, off, bar))
end

accel.manual_seed(4)
local _beside = accel.empty({ 240 }, { device = "cuda" }) -- so that the workspace is not a slab's first cell
local function random(dtype, ...) return accel.randn(...):to(dtype) end
local compute = mode == "tf32" and 77 or 68
for _, case in ipairs { { "f32", 0, compute }, { "f64", 1, 70 }, { "f16", 2, 68 }, { "bf16", 14, 68 } } do
  local dtype, type, how = table.unpack(case)
  local function line(shape, batch, epilogue)
    return ("%s type=%d result=%d compute=%d batch=%d epilogue=%d"):format(shape, type, type, how, batch, epilogue)
  end
  local a, b, bias = random(dtype, 3, 5), random(dtype, 5, 7), random(dtype, 7)
  -- plain, and both operands transposed where they lie
  expect(line("3 x 7 x 5", 1, 1), accel.matmul, a, b)
  expect(line("3 x 7 x 5", 1, 1), function(x, y) return x:t():matmul(y:t()) end, random(dtype, 5, 3), random(dtype, 7, 5))
  -- rows that lie apart, columns that do not start at an aligned place
  expect(line("3 x 7 x 5", 1, 1), function(x, y) return x:narrow(2, 2, 5):matmul(y) end, random(dtype, 3, 9), b)
  expect(line("2 x 7 x 5", 1, 1), function(x, y) return x:narrow(1, 2, 2):matmul(y) end, a, b)
  -- a vector on either side, a sum of nothing else
  expect(line("1 x 7 x 5", 1, 1), accel.matmul, random(dtype, 5), b)
  expect(line("3 x 1 x 5", 1, 1), accel.matmul, a, random(dtype, 5))
  -- leading dims: rows of one product where the other is shared, else a batch; two dims of batch, one of them in calls
  expect(line("12 x 7 x 5", 1, 1), accel.matmul, random(dtype, 4, 3, 5), b)
  expect(line("3 x 7 x 5", 4, 1), accel.matmul, random(dtype, 4, 3, 5), random(dtype, 4, 5, 7))
  expect(line("3 x 7 x 5", 4, 1), accel.matmul, a, random(dtype, 4, 5, 7))
  local one = line("3 x 7 x 5", 4, 1)
  expect(one .. "; " .. one, accel.matmul, random(dtype, 2, 4, 3, 5), random(dtype, 2, 4, 5, 7))
  -- every other column is not a matrix of the library's
  expect("", function(x, y) return x:reshape(3, 5, 2):select(3, 1):matmul(y) end, random(dtype, 3, 10), b)
  -- biases go along, but for f64, of which the library adds none
  expect(type == 1 and "" or line("3 x 7 x 5", 1, 4), function(x, w, v) return accel.linear(x, w:t(), v) end, a, b, bias)
  expect(type == 1 and "" or line("3 x 7 x 5", 1, 4), function(x, w, v) return accel.linear(x, w:t(), v:narrow(1, 2, 7)) end, a, b, random(dtype, 8))
  -- more products than a kernel may number
  if type == 0 then
    expect(line("1 x 1 x 2", 32768, 1) .. "; " .. line("1 x 1 x 2", 32768, 1) .. "; " .. line("1 x 1 x 2", 4464, 1), accel.matmul,
      random(dtype, 70000, 1, 2), random(dtype, 70000, 2, 1))
  end
end
-- the feed-forward part: bias, gelu and its argument in the first product, the slope and the first bias' gradient in the second's
if mode == "on" then
  for _, dtype in ipairs { "f32", "bf16" } do
    local function leaf(...)
      local t = random(dtype, ...)
      t.requires_grad = true
      return t
    end
    local cpu = { leaf(3, 5), leaf(8, 5), leaf(6, 8), leaf(8), leaf(6) }
    local there = {}
    for i, t in ipairs(cpu) do
      there[i] = t:detach():to "cuda"
      there[i].requires_grad = true
    end
    local dy = random(dtype, 3, 6)
    local function run(t, device, activation)
      local y = accel.mlp(t[1], t[2], t[3], t[4], t[5], { activation = activation })
      return { y:detach(), table.unpack(accel.grad(y, t, { grad_outputs = dy:to(device) })) }
    end
    for activation, epilogues in accel.pairs { gelu_tanh = "164 4 208 1 1 1", relu = "6 4 1 1 1 1", silu = "4 4 1 1 1 1" } do
      lines()
      local got = run(there, "cuda", activation)
      local said = {}
      for e in lines():gmatch "epilogue=(%d+)" do said[#said + 1] = e end
      said = table.concat(said, " ")
      assert(said == epilogues, ("%s: epilogues %s, expected %s"):format(activation, said, epilogues))
      for i, want in ipairs(run(cpu, "cpu", activation)) do
        want = want:to "f64"
        local off = (got[i]:to("cpu"):to "f64" - want):abs():max():item()
        assert(off <= (1 + want:abs():max():item()) * (dtype == "f32" and 2e-6 or 2e-2), ("%s, %s, %d: off by %g"):format(activation, dtype, i, off))
      end
    end
  end
end

-- parts of a sum are not rounded to the result's dtype
do
  local x = accel.tensor({ { 256.0, 1, -256, 1 } }, { dtype = "bf16", device = "cuda" })
  assert(x:matmul(accel.ones(4, 1, { dtype = "bf16", device = "cuda" })):item() == 2)
  lines()
end
-- integers are ours
expect("", accel.matmul, accel.ones(3, 5, { dtype = "i64" }), accel.ones(5, 7, { dtype = "i64" }))

-- 8 bits: dims of 16 with the inner one contiguous on both sides; else a copy first. A bias of the result's 16 bits goes along. Chips that
-- cannot get bf16.
do
  local x, sx = accel.fp8_cast(accel.randn(32, 48))
  local w, sw = accel.fp8_cast(accel.randn(16, 48))
  local dy, sdy = accel.fp8_cast(accel.randn(32, 16), nil, nil, "e5m2")
  local b16, b32 = accel.randn(16):to "bf16", accel.randn(16)
  local function eight(shape, type, result, epilogue)
    if mode == "f8" then return ("%s type=14 result=0 compute=68 batch=1 epilogue=1"):format(shape) end
    return ("%s type=%d result=%d compute=68 batch=1 epilogue=%d"):format(shape, type, result, epilogue)
  end
  local function mm(dtype) return function(a, b, sa, sb, bias) return accel.scaled_mm(a, b:t(), sa, sb, bias, dtype) end end
  expect(eight("32 x 16 x 48", 28, 14, 1), mm "bf16", x, w, sx, sw)
  expect(eight("32 x 16 x 48", 28, 0, 1), mm "f32", x, w, sx, sw)
  expect(eight("32 x 16 x 48", 28, 14, 4), mm "bf16", x, w, sx, sw, b16)
  expect(eight("32 x 16 x 48", 28, 0, 1), mm "bf16", x, w, sx, sw, b32) -- added behind the product
  expect(eight("32 x 16 x 48", 28, 0, 1), mm "f32", x, w, sx, sw, b32)
  -- gradients: of the input, of the weight
  expect(eight("32 x 48 x 16", 28, 14, 1), function(...) return accel.scaled_mm(...) end, dy, w, sdy, sw)
  expect(eight("16 x 48 x 32", 28, 0, 1), function(a, b, sa, sb) return accel.scaled_mm(a:t(), b, sa, sb, nil, "f32") end, dy, x, sdy, sx)
  -- not its kind: bf16
  expect("32 x 32 x 16 type=14 result=0 compute=68 batch=1 epilogue=1", mm "f32", dy, dy, sdy, sdy)
  local odd = accel.fp8_cast(accel.randn(7, 48))
  expect("32 x 7 x 48 type=14 result=0 compute=68 batch=1 epilogue=1", mm "f32", x, odd, sx, sx)
end
