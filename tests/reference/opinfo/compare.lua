-- Bars of opinfo.lua: whether a result of accel is PyTorch's. Every function returns nil, or what differs.
--
-- In f64 a result is PyTorch's up to the rounding of sums in another order. In f32, bf16 and f16 it is also right where it is as near
-- to the result without rounding (PyTorch's in f64) as four times PyTorch's own error in that dtype, or 32 units in the last place of
-- the largest element, or of 1 where everything cancels. Integers, truth values, infinities and NaN are equal.
local accel = require "accel"

local M = { none = setmetatable({}, { __tostring = function() return "nil" end }) }

local EPS = { f64 = 2.3e-16, f32 = 1.2e-7, bf16 = 7.8125e-3, f16 = 9.765625e-4, c64 = 1.2e-7, c128 = 2.3e-16 }
local FLOATS = EPS

local function text(shape) return "(" .. table.concat(table.pack(table.unpack(shape)), ", ") .. ")" end

local function same_shape(got, want)
  local a, b = got.shape, want.shape
  if #a ~= #b then return ("shape %s instead of %s"):format(text(a), text(b)) end
  for i = 1, #b do
    if a[i] ~= b[i] then return ("shape %s instead of %s"):format(text(a), text(b)) end
  end
end

local function values(t)
  t = t:detach()
  return (t:is_complex() and t:view_as_real() or t):to("f64"):reshape(-1):tolist()
end

local function finite(v) return v == v and v ~= math.huge and v ~= -math.huge end
local function equal(a, b) return a == b or (a ~= a and b ~= b) end

--- Elements of floats. exact: the result without rounding, or nil. loose: factor on the bar.
local function elements(got, want, exact, dtype, loose)
  local eps = EPS[dtype] or EPS.f32
  local a, b = values(got), values(want)
  local x = exact and values(exact) or b
  local scale, own = 0.0, 0.0
  for i = 1, #b do
    if finite(x[i]) then
      scale = math.max(scale, math.abs(x[i]))
      if finite(b[i]) then own = math.max(own, math.abs(b[i] - x[i])) end
    end
  end
  local double = dtype == "f64" or dtype == "c128"
  local bar = math.max(4 * own, (double and 4e5 or 32) * eps * scale, (double and 4e3 or 4) * eps) * (loose or 1)
  for i = 1, #b do
    local v = a[i]
    if not (equal(v, b[i]) or equal(v, x[i])) then
      local near = finite(v) and finite(x[i]) and math.abs(v - x[i]) <= bar
      near = near or finite(v) and finite(b[i]) and math.abs(v - b[i]) <= bar
      if not near then
        return ("element %d is %.9g instead of %.9g (exact %.9g, bar %.2g)"):format(i, v, b[i], x[i], bar)
      end
    end
  end
end

local function number_of(want)
  if type(want) ~= "table" then return want end
  if want.float then
    return want.float == "nan" and 0 / 0 or want.float == "inf" and math.huge or want.float == "-inf" and -math.huge or tonumber(want.float)
  end
  return math.tointeger(want.int) or tonumber(want.int)
end

--- got: what accel gave; want, exact: entries of the file.
function M.value(got, want, data, exact, dtype, random, loose)
  if type(want) == "table" and want.none then
    return got ~= M.none and "a result instead of nil" or nil
  end
  if not (type(want) == "table" and want.tensor) then -- a plain number
    local n = number_of(want)
    if accel.is_tensor(got) then got = got:item() end
    if got == n or (type(got) == "number" and type(n) == "number" and equal(got + 0.0, n + 0.0)) then return nil end
    return ("%s instead of %s"):format(tostring(got), tostring(n))
  end
  local t = data[want.tensor]
  if not accel.is_tensor(got) then
    if t.ndim == 0 and type(got) ~= "table" then
      got = accel.tensor(got, { dtype = t.dtype })
    else
      return ("%s instead of a tensor"):format(tostring(got))
    end
  end
  local why = same_shape(got, t)
  if why then return why end
  if got.dtype ~= t.dtype then return ("dtype %s instead of %s"):format(got.dtype, t.dtype) end
  if random then return nil end
  if FLOATS[t.dtype] then
    return elements(got, t, exact and exact.tensor and data[exact.tensor], t.dtype, loose)
  end
  local a, b = got:reshape(-1):tolist(), t:reshape(-1):tolist()
  for i = 1, #b do
    if a[i] ~= b[i] then return ("element %d is %s instead of %s"):format(i, tostring(a[i]), tostring(b[i])) end
  end
end

--- A gradient; nil and PyTorch's None are zeros.
function M.gradient(got, want, exact, dtype, input, loose)
  if not want and not got then return nil end
  want = want or accel.zeros_like(input:detach())
  got = got or accel.zeros_like(input:detach())
  local why = same_shape(got, want)
  if why then return why end
  if got.dtype ~= want.dtype then return ("dtype %s instead of %s"):format(got.dtype, want.dtype) end
  return elements(got, want, exact, dtype, loose)
end

return M
