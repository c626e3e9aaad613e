-- Every op in every dtype against its own f64 result on the rounded inputs: f32, bf16 and f16 within a few
-- roundings, gradients included; integers and bool exactly (modulo their width), or refused by an error of
-- dtype that names the op.
-- tier: sampled, memory (of the cases of an op and a dtype)
--   accel-run tests/numerics/ops_dtypes_test.lua [OP]
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local numbers = require "numbers"
local cases = require "op_cases"

-- Roundings. 16-bit results are computed in f32 and rounded once, to nearest; gradients are chains of a few
-- ops.
local OUT = { f64 = 4, f32 = 4, bf16 = 0.51, f16 = 0.51 }
local GRAD = { f32 = 8, bf16 = 2, f16 = 2 }
local BITS = { i64 = 64, i32 = 32, i16 = 16, i8 = 8, u8 = 8 }

local function is_float(dtype) return numbers.EPS[dtype] ~= nil end

local function within(e, bar, why, dtype, what)
  if e <= bar then return end
  error(("%s: %s: error %.3g, bar %.3g%s"):format(dtype, what, e, bar, why and " (" .. why .. ")" or ""), 0)
end

local function leaves(case, t)
  local list = {}
  for i, s in ipairs(case.inputs) do
    if cases.wants_grad(s) then
      t[i].requires_grad = true
      list[#list + 1] = t[i]
    end
  end
  return list
end

-- Results, and gradients with cotangents rounded to the dtype.
local function evaluate(case, f, t, round)
  local list = case.grad ~= false and leaves(case, t) or {}
  local results, outs, cots = cases.run(case, f, t), {}, {}
  for j, r in ipairs(results) do
    if r.requires_grad then
      outs[#outs + 1] = r
      accel.manual_seed(600 + j)
      cots[#cots + 1] = (accel.rand(r.shape, { dtype = "f64" }) * 2 - 1):to(round):to(r.dtype)
    end
  end
  local g = #outs > 0 and accel.grad(outs, list, { grad_outputs = cots, allow_unused = true }) or {}
  return results, g, #list
end

local function floats(case, f, dtype)
  local t = cases.build(case, dtype)
  local wide = {}
  for i, x in ipairs(t) do wide[i] = is_float(x.dtype) and x:to("f64"):clone() or x:clone() end
  local got, g, n = evaluate(case, f, t, dtype)
  local want, w = evaluate(case, f, wide, dtype)
  local eps = numbers.EPS[dtype]
  for j, r in ipairs(want) do
    local x = got[j]
    assert(numbers.same_shape(x.shape, r.shape), ("%s: result %d has another shape"):format(dtype, j))
    local e, why = numbers.distance(numbers.flat(x), numbers.flat(r), case.floor)
    local bar = 0
    if is_float(x.dtype) then
      local once = x.dtype == "bf16" or x.dtype == "f16"
      bar = OUT[x.dtype] * numbers.EPS[x.dtype] * (once and (case.roundings or 1) or case.loss or 1)
    end
    if case.random and e > bar then bar = math.huge end -- other numbers are drawn for another width
    within(e, bar, why, dtype, "result " .. j)
    if r.dtype == "f64" and x.dtype ~= "f64" and not case.wide_result then
      assert(x.dtype == dtype, ("%s: result %d is %s"):format(dtype, j, x.dtype))
    end
  end
  for i = 1, n do
    assert((g[i] == nil) == (w[i] == nil), ("%s: gradient %d comes in one dtype only"):format(dtype, i))
    if g[i] and not case.random then
      assert(g[i].dtype == dtype, ("%s: gradient %d is %s"):format(dtype, i, g[i].dtype))
      local e, why = numbers.distance(numbers.flat(g[i]), numbers.flat(w[i]), case.floor or 1e-3)
      local bar = GRAD[dtype] * (case.loss or 1) * eps
      within(e, bar, why, dtype, "gradient " .. i)
    end
  end
end

-- The integer that is stored for x in so many bits.
local function wrap(x, dtype)
  if dtype == "bool" then return x ~= 0 and 1 or 0 end
  local bits = BITS[dtype]
  x = math.tointeger(x < 0 and math.ceil(x) or math.floor(x)) or 0
  if bits == 64 then return x end
  local m = x & ((1 << bits) - 1)
  return dtype ~= "u8" and m >= 1 << (bits - 1) and m - (1 << bits) or m
end

local function integers(info, case, f, dtype)
  local t = cases.build(case, dtype)
  local wide = {}
  for i, x in ipairs(t) do wide[i] = cases.is_real(case.inputs[i]) and x:to("f64") or x end
  local ok, got = pcall(cases.run, case, f, t)
  if not ok then
    assert(type(got) == "table" and got.code == "dtype" or got.code == "invalid_argument", tostring(got))
    assert(tostring(got):find(info.name, 1, true), "does not name the op: " .. tostring(got))
    return
  end
  if case.random then return end
  local want = cases.run(case, f, wide)
  for j, r in ipairs(want) do
    local x = got[j]
    local a, b = numbers.flat(x), numbers.flat(r)
    assert(numbers.same_shape(x.shape, r.shape), ("%s: result %d has another shape"):format(dtype, j))
    if is_float(x.dtype) then
      local e, why = numbers.distance(a, b, case.floor)
      local bar = OUT[x.dtype] * (case.loss or 1) * numbers.EPS[x.dtype]
      within(e, bar, why, dtype, "result " .. j)
    else
      for i = 1, #b do
        local v = wrap(b[i], x.dtype)
        assert(a[i] == v, ("%s: result %d: element %d is %s instead of %s"):format(dtype, j, i, a[i], v))
      end
    end
  end
end

local taken = cases.one_of(4)
local failed = cases.each(function(info, case, f)
  local list = case.big and { "f32", "bf16" } or { "f32", "bf16", "f16" }
  for _, dtype in ipairs(list) do
    if taken(info.name .. " " .. dtype) then floats(case, f, dtype) end
  end
  if case.ints ~= false and not case.big and not case.number then
    for _, dtype in ipairs(numbers.INTS) do
      if taken(info.name .. " " .. dtype) then integers(info, case, f, dtype) end
    end
  end
end, function() return true end)
cases.finish(failed)
