-- Order, choice and places on the CUDA device, bit for bit as on the CPU where the numeric cases do not reach: NaN, signed zeros and ties,
-- lines longer and shorter than what a block sorts, places named many times, masks with gaps, values that are out of range. Runs as
-- ops_suite.lua does.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"
local numbers = require "numbers"

local function same(name, make)
  local got = {}
  for _, device in ipairs { "cpu", "cuda" } do
    accel.manual_seed(7)
    got[device] = { make(function(t) return t:to(device) end) }
  end
  assert(#got.cpu == #got.cuda and #got.cpu > 0, name)
  for i, want in ipairs(got.cpu) do
    local t = got.cuda[i]:to "cpu"
    assert(t.dtype == want.dtype and numbers.same_shape(t.shape, want.shape), ("%s: result %d has another dtype or shape"):format(name, i))
    assert(t:contiguous():to_bytes() == want:contiguous():to_bytes(), ("%s: result %d is another"):format(name, i))
  end
end
local function raises(text, fn, ...)
  local ok, why = pcall(fn, ...)
  assert(not ok and tostring(why):find(text, 1, true), ("expected '%s', got %s"):format(text, tostring(why)))
end

-- n numbers of few values, with what compares oddly among them
local function odd(n, dtype)
  accel.manual_seed(11)
  local t = accel.randint(-5, 6, { n }, { dtype = "f64", device = "cpu" })
  if dtype:find "f" then
    local nan, inf = 0 / 0, math.huge
    for i, v in ipairs { nan, -0.0, inf, -inf, 0.0, nan, -nan } do t[(i * 37) % n + 1]:fill_(v) end
  elseif dtype == "u8" or dtype == "bool" then
    t = t:abs()
  end
  return t:to(dtype)
end

for _, dtype in ipairs { "f64", "f32", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "bool" } do
  for _, n in ipairs { 41, 128, 129, 3000 } do
    local x = odd(n, dtype)
    local name = dtype .. ", " .. n
    same("sort, " .. name, function(to) return to(x):sort() end)
    same("sort descending, " .. name, function(to) return to(x):sort { descending = true } end)
    same("topk, " .. name, function(to) return to(x):topk(17) end)
    same("topk smallest, " .. name, function(to) return to(x):topk { k = 9, largest = false } end)
    same("unique, " .. name, function(to) return to(x):unique() end)
    same("nonzero, " .. name, function(to) return to(x):nonzero() end)
    same("cummax, " .. name, function(to) return to(x):cummax(1) end)
    same("cummin, " .. name, function(to) return to(x):cummin(1) end)
    same("median, " .. name, function(to) return to(x):median(1) end)
    same("median of all, " .. name, function(to) return to(x:narrow(1, 1, 36)):median() end)
  end
end
same("lines of a matrix", function(to)
  local x = to(odd(3000, "f32"):reshape(6, 20, 25))
  local a, b = x:sort(2)
  local c, d = x:transpose(1, 3):sort { dim = 1, descending = true }
  return a, b, c, d, x:argsort(1), x:median(1)
end)
same("many short lines", function(to) return to(odd(3000, "f32"):reshape(1000, 3)):sort() end)
same("searches", function(to)
  local s = to(odd(300, "f32"):sort())
  local v = to(odd(70, "f32"))
  return accel.searchsorted(s, v), accel.searchsorted(s, v, { right = true }), v:bucketize(s), accel.searchsorted(s, 0.5)
end)
same("slices", function(to)
  local x = to(odd(600, "i32"):remainder(2):reshape(150, 4))
  local a, b, c = x:unique(1)
  local d, e, f = x:t():unique(2)
  return a, b, c, d, e, f
end)

-- places that are named many times
local n = 500
local ids = accel.randint(0, 7, { n }, { dtype = "i64", device = "cpu" })
local wide = accel.randint(-40, 40, { n }, { dtype = "i32", device = "cpu" })
local rows = accel.rand({ n, 3 }, { device = "cpu" })
same("scatter, long lines", function(to)
  local index = to(ids:reshape(2, 250))
  local src = to(rows:reshape(2, 750):narrow(2, 1, 250))
  return accel.zeros({ 2, 9 }, { device = index.device }):scatter(2, index, src)
end)
same("scatter and its gradient", function(to)
  local index, src = to(ids:reshape(100, 5)), to(rows:narrow(2, 1, 1):reshape(100, 5)):clone()
  src.requires_grad = true
  local y = accel.zeros({ 9, 5 }, { device = src.device }):scatter(1, index, src)
  return y:detach(), accel.grad({ (y * 2):sum() }, { src })[1]
end)
for _, dtype in ipairs { "f32", "f64", "bf16", "i64" } do
  same("scatter_add, long lines, " .. dtype, function(to)
    local src = to((rows * 10):reshape(3, n):to(dtype))
    return accel.ones({ 3, 9 }, { device = src.device, dtype = dtype }):scatter_add(2, to(ids:reshape(1, n)):expand(3, n):contiguous(), src)
  end)
  same("index_put, " .. dtype, function(to)
    local v = to((rows * 10):to(dtype))
    local x = accel.ones({ 40, 3 }, { device = v.device, dtype = dtype })
    return x:index_put({ to(wide) }, v), x:t():index_put({ to(wide) }, v:t(), { dims = 2 }), x:index_put({ to(wide) }, 5)
  end)
end
same("index_put in place, in a view", function(to)
  local x = to(accel.zeros({ 7, 40 }, { device = "cpu" }))
  x:t():index_put_({ to(wide) }, to(rows:narrow(2, 1, 1)))
  return x
end)
same("index_copy, the last stays", function(to)
  return to(accel.zeros({ 9, 3 }, { device = "cpu" })):index_copy(1, to(ids), to(rows))
end)
same("bincount", function(to)
  local x = to(wide:abs())
  return x:bincount(), x:bincount(to(rows):select(2, 2)), x:bincount { minlength = 90 }
end)
same("one_hot", function(to) return accel.one_hot(to(ids)), accel.one_hot(to(ids), 12) end)
same("repeats", function(to) return to(rows):repeat_interleave(to(ids), 1), to(rows):repeat_interleave(3, 2) end)

-- masks with gaps
same("masks", function(to)
  local x = to(rows:reshape(30, 50))
  local mask = x:t():gt(0.5)
  local taken = x:t():masked_select(mask)
  local y = x:clone()
  y:t():masked_scatter_(mask, taken * 2)
  return taken, y, x:masked_scatter(to(rows:reshape(30, 50):select(1, 1)):gt(0.5), to(rows)), x:gt(0.9):nonzero()
end)

-- randomness is the CPU's
accel.manual_seed(3)
local order = accel.randperm(1000, { device = "cpu" })
accel.manual_seed(3)
assert(accel.randperm(1000, { device = "cuda" }):to("cpu"):to_bytes() == order:to_bytes())
for _, replace in ipairs { true, false } do
  same("multinomial", function(to)
    local w = to(rows:reshape(5, 300))
    return w:multinomial(20, replace), w:t():multinomial(1), w:select(1, 1):multinomial(4, replace)
  end)
end
same("quantized", function(to)
  local x = to(rows):t()
  local q, s = x:quantize_blockwise { bits = 4, block_size = 32 }
  local p, t = x:quantize_blockwise { block_size = 1024 }
  return q, s, p, t, accel.dequantize_blockwise(q, s, { 3, n }, 4, 32), accel.dequantize_blockwise(p, t, { 3, n }, { block_size = 1024 })
end)

-- what is out of range is told at the next wait, once
do
  local one = accel.ones({ 4 }, { device = "cuda" })
  local bad = accel.tensor({ 1, 9 }, { dtype = "i64" }):to "cuda"
  for name, call in pairs {
    index = function() return one:index { bad } end,
    index_put = function() return one:index_put({ bad }, 2) end,
    scatter = function() return one:scatter(1, bad, 2) end,
    one_hot = function() return accel.one_hot(bad, 4) end,
    masked_scatter = function() return one:masked_scatter(one:gt(0), one:narrow(1, 1, 2)) end,
  } do
    local y = call()
    raises("out of range", accel.synchronize, "cuda")
    accel.synchronize "cuda"
    assert(y, name)
  end
  raises("out of range", accel.bincount, accel.tensor({ 1, -2 }, { dtype = "i64" }):to "cuda")
  local drawn = (one - 2):multinomial(1)
  raises("weights to draw by", accel.synchronize, "cuda")
  assert(drawn)
end
suite.finish()
