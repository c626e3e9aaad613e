--- Sums of f64 without rounding: the metrics' way to give the same bits whatever the order of the data and however it
--- was cut into batches and ranks. Used by the metrics. value() rounds once, to the nearest f64.
---
--- A sum is an integer of any length in units of 2^base, held in bins of 32 bits. The unit is small enough for the
--- product of any two f64. A bin takes 2^28 additions before its carries have to be passed on.
---
--- Numbers that are added one by one cost about half a microsecond. Tensors are taken apart with tensor operations:
--- each pass cuts from all elements at once those upper bits whose sum fits one f64, until nothing is left.
local class = require "accel.util.class"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local pack, unpack = string.pack, string.unpack
local MASK, FRACTION, HIDDEN = 0xffffffff, (1 << 52) - 1, 1 << 52
local BASE = -2148 -- the smallest f64 is 2^-1074
local LOW = (1 << 27) - 1
local PENDING = 1 << 28
local FEW = 24 -- from here on a tensor's operations take less time than a loop over its list

--- example: local s = accel.metrics.ExactSum() s:add(1e16) s:add(1) s:add(-1e16) return s:value() --> 1.0
---@class accel.metrics.ExactSum
local ExactSum = class("accel.metrics.ExactSum")

function ExactSum:init()
  self.base, self.bins, self.pending = BASE, {}, 0
  self.nans, self.above, self.below = 0, 0, 0 -- how many were NaN, inf and -inf
end

-- Adds v * 2^at units, |v| < 2^55.
local function put(bins, v, at)
  local k, s = at >> 5, at & 31
  if v < 0 then
    v = -v
    bins[k] = (bins[k] or 0) - ((v << s) & MASK)
    bins[k + 1] = (bins[k + 1] or 0) - ((v >> (32 - s)) & MASK)
    local high = v >> (64 - s)
    if high ~= 0 then bins[k + 2] = (bins[k + 2] or 0) - high end
    return
  end
  bins[k] = (bins[k] or 0) + ((v << s) & MASK)
  bins[k + 1] = (bins[k + 1] or 0) + ((v >> (32 - s)) & MASK)
  local high = v >> (64 - s)
  if high ~= 0 then bins[k + 2] = (bins[k + 2] or 0) + high end
end

-- A finite f64 as integer * 2^(at - 1074). nil for others.
local function take_apart(x)
  local bits = unpack("<i8", pack("<d", x))
  local exponent, v = bits >> 52 & 0x7ff, bits & FRACTION
  if exponent == 0x7ff then return nil end
  if exponent > 0 then
    v = v | HIDDEN
    exponent = exponent - 1
  end
  return bits < 0 and -v or v, exponent
end

-- The digits of |sum| in base 2^32, without zeros at either end, with their sign and the first one's place.
local function digits_of(self)
  local bins, low, high = self.bins, math.maxinteger, math.mininteger
  for k in next, bins do low, high = math.min(low, k), math.max(high, k) end
  local list, sign, carry = {}, 1, 0
  for _ = 1, 2 do
    carry = 0
    for k = low, high do
      local v = (bins[k] or 0) * sign + carry
      list[k - low + 1], carry = v & MASK, v // (1 << 32)
    end
    if carry >= 0 then break end
    sign = -1
  end
  while carry > 0 do
    list[#list + 1], carry = carry & MASK, carry >> 32
  end
  while list[#list] == 0 do list[#list] = nil end
  if #list == 0 then return list, 1, 0 end
  local zeros = 0
  while list[zeros + 1] == 0 do zeros = zeros + 1 end
  if zeros > 0 then list = table.move(list, zeros + 1, #list, 1, {}) end
  return list, sign, low + zeros
end

-- Passes the carries on before a bin can run over.
local function count(self, n)
  self.pending = self.pending + n
  if self.pending < PENDING then return end
  local list, sign, at = digits_of(self)
  local bins = {}
  for i, digit in ipairs(list) do bins[at + i - 1] = sign * digit end
  self.bins, self.pending = bins, 1
end

local function add_special(self, x)
  if x ~= x then
    self.nans = self.nans + 1
  elseif x > 0 then
    self.above = self.above + 1
  else
    self.below = self.below + 1
  end
end

--- Adds a number. Integers are added exactly as well.
---@param x number
function ExactSum:add(x)
  if math.type(x) == "integer" then
    put(self.bins, x >> 32 & MASK, 32 - BASE) -- as two's complement: the upper half below carries the sign
    put(self.bins, x & MASK, -BASE)
    if x < 0 then put(self.bins, -1, 64 - BASE) end
  else
    local v, at = take_apart(x)
    if not v then return add_special(self, x) end
    put(self.bins, v, at + 1074)
  end
  count(self, 2)
end

--- Adds the exact product of two numbers, taken as f64.
---@param x number
---@param y number
function ExactSum:add_product(x, y)
  local v, i = take_apart(x)
  local w, k = take_apart(y)
  if not v or not w then return add_special(self, x * y) end
  if v == 0 or w == 0 then return end
  if v < 0 then v, w = -v, -w end
  local bins, at, sign = self.bins, i + k, 1
  if w < 0 then w, sign = -w, -1 end
  local v0, v1, w0, w1 = v & LOW, v >> 27, w & LOW, w >> 27
  put(bins, sign * v0 * w0, at)
  put(bins, sign * (v0 * w1 + v1 * w0), at + 27)
  put(bins, sign * v1 * w1, at + 54)
  count(self, 3)
end

-- ---- tensors ----

local exact_in_i64 = { i32 = true, i16 = true, i8 = true, u8 = true, bool = true }
local exact_products = { f32 = true, f16 = true, bf16 = true, i16 = true, i8 = true, u8 = true, bool = true }

local function each(self, x)
  for _, v in ipairs(x:tolist()) do self:add(v + 0.0) end
end

-- The least power of two above every magnitude up to x, as its exponent.
local function exponent_of(x)
  local scale = x < 2.0 ^ -1000 and 100 or 0 -- the smallest have fewer bits
  return (unpack("<i8", pack("<d", x * 2.0 ^ scale)) >> 52 & 0x7ff) - 1022 - scale
end

-- Adds a one-dimensional f64 tensor. With s = 2^k at least n times the largest magnitude, the parts (s + x) - s are
-- multiples of 2^-53 s whose sum stays within s: adding them rounds nowhere, nor does taking them off.
local function add_f64(self, x)
  local n = x:numel()
  local most = n > FEW and x:abs():max():item() or 0.0
  if n <= FEW or not (most < 2.0 ^ 900) then return each(self, x) end
  local room = exponent_of(n + 2.0)
  while most > 0 do
    local s = 2.0 ^ (exponent_of(most) + room)
    local upper = (x + s) - s
    self:add(upper:sum():item())
    x = x - upper
    most = x:abs():max():item()
  end
end

--- Adds all elements of a tensor. i64 count as f64.
---@param x accel.Tensor
function ExactSum:add_tensor(x)
  if x:numel() == 0 then return end
  x = x:detach():reshape(-1)
  if exact_in_i64[x.dtype] then return self:add(x:sum():item()) end
  add_f64(self, x:to "f64")
end

-- Whether the product of each pair and its rounding error are f64 of full length.
local function in_range(x)
  local size = x:abs()
  local small = size:gt(0):logical_and(size:lt(2.0 ^ -400))
  return size:max():item() < 2.0 ^ 400 and not small:any():item()
end

-- x as the sum of two numbers of 26 bits.
local function split(x)
  local c = x * 134217729.0
  local upper = c - (c - x)
  return upper, x - upper
end

--- Adds the products of the elements of two tensors of one shape.
---@param x accel.Tensor
---@param y accel.Tensor
function ExactSum:add_products(x, y)
  if x:numel() ~= y:numel() then
    raise("ExactSum: shapes differ, %s and %s", tensors.shape_string(x), tensors.shape_string(y))
  end
  if x:numel() == 0 then return end
  local plain = exact_products[x.dtype] and exact_products[y.dtype]
  x, y = x:detach():reshape(-1):to "f64", y:detach():reshape(-1):to "f64"
  if x:numel() > FEW and plain then return add_f64(self, x * y) end
  if x:numel() <= FEW or not (in_range(x) and in_range(y)) then
    local a, b = x:tolist(), y:tolist()
    for i = 1, #a do self:add_product(a[i], b[i]) end
    return
  end
  local product = x * y
  local x1, x0 = split(x)
  local y1, y0 = split(y)
  add_f64(self, product)
  add_f64(self, ((x1 * y1 - product) + x1 * y0 + x0 * y1) + x0 * y0)
end

-- ---- sums with each other ----

--- Adds sign times another sum.
---@param other accel.metrics.ExactSum
---@param sign? integer 1 or -1
function ExactSum:merge(other, sign, ...)
  check.surplus("ExactSum:merge", ...)
  if self.base ~= other.base then raise "ExactSum: a sum and a product of sums have no common unit" end
  sign = sign or 1
  local list, s, at = digits_of(other)
  for i, digit in ipairs(list) do
    local k = at + i - 1
    self.bins[k] = (self.bins[k] or 0) + sign * s * digit
  end
  self.nans = self.nans + other.nans
  local above, below = other.above, other.below
  if sign < 0 then above, below = below, above end
  self.above, self.below = self.above + above, self.below + below
  count(self, 1)
  return self
end

--- The exact product of two sums of finite numbers, as a sum that can be merged with other such products.
---@param other accel.metrics.ExactSum
---@return accel.metrics.ExactSum
function ExactSum:times(other)
  local product = ExactSum()
  product.base = self.base + other.base
  local a, sa, at = digits_of(self)
  local b, sb, bt = digits_of(other)
  local sign = sa * sb
  for i, x in ipairs(a) do
    for k, y in ipairs(b) do
      local place = 32 * (at + bt + i + k - 2)
      put(product.bins, sign * x * (y & 0xffff), place)
      put(product.bins, sign * x * (y >> 16), place + 16)
    end
  end
  count(product, 2 * math.max(#a, #b))
  if not (self:finite() and other:finite()) then product.nans = 1 end
  return product
end

--- Whether all that was added was finite.
function ExactSum:finite() return self.nans == 0 and self.above == 0 and self.below == 0 end

-- Rounded to 53 bits, or to fewer if these would be below 2^lowest: integer, exponent.
local function round(self, lowest)
  local list, sign, first = digits_of(self)
  if #list == 0 then return 0, 0 end
  local top, length = list[#list], 0
  while top > 0 do top, length = top >> 1, length + 1 end
  local at = math.max(32 * (first + #list - 1) + length - 53, (lowest or math.mininteger // 2) - self.base)
  local v, half, rest = 0, false, false
  for i, digit in ipairs(list) do
    local shift = at - 32 * (first + i - 1) -- of this digit's bits, so many lie below the last one
    if shift <= 0 then
      v = v | digit << -shift
    else
      v = v | digit >> shift
      local below = shift > 32 and digit or digit & ((1 << shift) - 1)
      local bit = shift <= 32 and 1 << (shift - 1) or 0
      half = half or below & bit ~= 0
      rest = rest or below & ~bit ~= 0
    end
  end
  if half and (rest or v & 1 == 1) then v = v + 1 end
  return sign * v, at + self.base
end

--- The sum, correctly rounded. inf if it is too large.
---@return number
function ExactSum:value()
  if self.nans > 0 or self.above > 0 and self.below > 0 then return 0 / 0 end
  if self.above > 0 then return math.huge end
  if self.below > 0 then return -math.huge end
  local v, exponent = round(self, -1074)
  return v * 2.0 ^ exponent
end

--- The sum as x * 2^e, of any size: x with 53 bits, and e.
---@return number x, integer e
function ExactSum:parts()
  if not self:finite() then return self:value(), 0 end
  local v, exponent = round(self)
  return v + 0.0, exponent
end

--- The sum as plain data. Equal sums give equal data.
---@return table
function ExactSum:state_dict()
  local list, sign, at = digits_of(self)
  return { digits = list, sign = sign, at = at, nans = self.nans, above = self.above, below = self.below }
end

local function whole(v, low, high) return math.type(v) == "integer" and v >= low and v <= high end

local function check_state(state)
  local ok = type(state) == "table" and type(state.digits) == "table" and #state.digits < 1000
    and (state.sign == 1 or state.sign == -1) and whole(state.at, -1000, 1000)
  for _, key in ipairs { "nans", "above", "below" } do ok = ok and whole(state[key], 0, math.maxinteger) end
  for _, digit in ipairs(ok and state.digits or {}) do ok = ok and whole(digit, 0, MASK) end
  if not ok then
    raise("ExactSum: expected the table that state_dict returned, got %s", check.shown(state))
  end
end

--- Adds the state_dict of another sum.
---@param state table
function ExactSum:add_state(state)
  check_state(state)
  for i, digit in ipairs(state.digits) do
    local k = state.at + i - 1
    self.bins[k] = (self.bins[k] or 0) + state.sign * digit
  end
  self.nans, self.above, self.below = self.nans + state.nans, self.above + state.above, self.below + state.below
  count(self, 1)
end

--- Replaces the sum by a state_dict.
---@param state table
function ExactSum:load_state_dict(state)
  check_state(state)
  self:init()
  self:add_state(state)
end

function ExactSum:__tostring() return ("ExactSum(%.17g)"):format(self:value()) end

return ExactSum
