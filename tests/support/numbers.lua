-- Numbers for tests of ops: values that are the same in every run and come from no op, tensors of them in
-- many memory layouts, and comparison on the scale of the reference.
local accel = require "accel"

local M = {}

M.EPS = { f64 = 2.0 ^ -52, f32 = 2.0 ^ -23, bf16 = 2.0 ^ -7, f16 = 2.0 ^ -10 }
M.FLOATS = { "f64", "f32", "bf16", "f16" }
M.INTS = { "i64", "i32", "i16", "i8", "u8", "bool" }

-- Uniform numbers in [0, 1): xorshift64*.
function M.uniform(seed)
  local s = seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D
  return function()
    s = s ~ (s >> 12)
    s = s ~ (s << 25)
    s = s ~ (s >> 27)
    return ((s * 0x2545F4914F6CDD1D) >> 11) * 2.0 ^ -53
  end
end

function M.numel(shape)
  local n = 1
  for _, e in ipairs(shape) do n = n * e end
  return n
end

-- n distinct numbers in (lo, hi) in random order, none near a multiple of 1/2, where functions like to have
-- kinks.
function M.distinct(n, lo, hi, seed)
  local u, v = M.uniform(seed), {}
  for i = 1, n do
    local x = lo + (hi - lo) * (i - 1 + 0.2 + 0.6 * u()) / n
    local off = (x + 0.25) % 0.5 - 0.25
    if math.abs(off) < 0.03 then x = x - off + (off < 0 and -0.03 or 0.03) * (1 + 0.2 * u()) end
    v[i] = x
  end
  for i = n, 2, -1 do
    local j = 1 + math.floor(u() * i)
    v[i], v[j] = v[j], v[i]
  end
  return v
end

-- A contiguous tensor of a flat row-major list.
function M.tensor(flat, shape, dtype, device)
  if device == "meta" then return accel.empty(shape, { dtype = dtype, device = "meta" }) end
  if #flat == 0 then return accel.zeros(shape, { dtype = dtype }) end
  local t = accel.tensor(flat, { dtype = math.type(flat[1]) == "integer" and "i64" or "f64" })
  t = #shape == 0 and t:select(1, 1):clone() or t:view(shape)
  return t.dtype == dtype and t or t:to(dtype)
end

-- The elements in row-major order as numbers (booleans as 0 and 1).
function M.flat(t)
  t = t:detach()
  if t:numel() == 0 then return {} end
  local v = t:reshape(-1):tolist()
  if t.dtype == "bool" then
    for i, b in ipairs(v) do v[i] = b and 1 or 0 end
  end
  return v
end

function M.same_shape(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

-- Largest difference divided by the largest finite magnitude of want (at least `floor`); infinities and NaN
-- must agree: else inf and why.
function M.distance(got, want, floor)
  local worst, scale = 0.0, floor or 0.0
  if #got ~= #want then return math.huge, ("%d elements instead of %d"):format(#got, #want) end
  for i = 1, #want do -- a hundred million times in a run of the tests: no calls
    local x, y = got[i], want[i]
    if y - y == 0 then
      local e = x - y
      if e < 0 then e = -e end
      if e > worst then worst = e
      elseif e ~= e then return math.huge, ("element %d is %s instead of %s"):format(i, x, y) end
      if y > scale then scale = y elseif -y > scale then scale = -y end
    elseif not (x == y or (x ~= x and y ~= y)) then
      return math.huge, ("element %d is %s instead of %s"):format(i, x, y)
    end
  end
  return scale > 0 and worst / scale or worst
end

-- ---- the same values, lying differently ----
local function reversed(t)
  local dims = {}
  for d = #t.shape, 1, -1 do dims[#dims + 1] = d end
  return t:permute(dims)
end

local function noise(t) -- what must not be read: large, or set
  return accel.full(t.shape, t.dtype == "bool" and true or 113, { dtype = t.dtype, device = t.device })
end

M.layouts = {
  transposed = function(t) -- strides in the other order
    if #t.shape < 2 then return nil end
    return reversed(reversed(t):contiguous())
  end,
  step = function(t) -- every other element of its memory, starting with the second
    return accel.stack({ noise(t), t }, -1):select(-1, 2)
  end,
  piece = function(t) -- a window inside a larger tensor, in every dim
    if #t.shape == 0 then return nil end
    for d = 1, #t.shape do
      local edge = noise(t):narrow(d, 1, math.min(1, t.shape[d]))
      t = accel.cat({ edge, t, edge }, d):narrow(d, 1 + edge.shape[d], t.shape[d])
    end
    return t
  end,
  repeated = function(t) -- one row for all: other values, expanded without memory
    if #t.shape == 0 or t.shape[1] < 2 then return nil end
    return t:narrow(1, 1, 1):expand(t.shape)
  end,
  repeated_last = function(t)
    if #t.shape == 0 or t.shape[#t.shape] < 2 then return nil end
    return t:narrow(-1, 1, 1):expand(t.shape)
  end,
}
M.layout_names = { "transposed", "step", "piece", "repeated", "repeated_last" }

return M
