--- Ops with bounds where they meet NaN, integers, tensors as bounds and the bound itself: values and gradients of PyTorch.
local accel = require "accel"
local nan, inf = 0 / 0, math.huge

local function same(what, got, want)
  local list = got:reshape(-1):tolist()
  assert(#list == #want, ("%s: %d elements, wanted %d"):format(what, #list, #want))
  for i, v in ipairs(want) do
    local g = list[i]
    assert(g == v or (g ~= g and v ~= v), ("%s: element %d is %s, wanted %s"):format(what, i, tostring(g), tostring(v)))
  end
end
local function grad(what, fn, values, want)
  local x = accel.tensor(values, { dtype = "f64", requires_grad = true })
  fn(x):sum():backward()
  same("gradient of " .. what, x.grad, want)
end
local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("%s, wanted %s"):format(tostring(err), pattern))
end

-- clamp: NaN in x or in a bound, a bound that is met, bounds that cross, tensors
local x = accel.tensor { nan, -2.0, 0.5, 3.0 }
same("clamp", x:clamp(-1, 1), { nan, -1, 0.5, 1 })
same("clamp by NaN", x:clamp { min = nan }, { nan, nan, nan, nan })
same("clamp by NaN", x:clamp { max = accel.tensor { 0, nan, 0, nan } }, { nan, nan, 0, nan })
same("crossed", x:clamp(accel.tensor(1.0), accel.tensor(-1.0)), { nan, -1, -1, -1 })
grad("clamp", function(t) return t:clamp(-1, 1) end, { -2, -1, 0, 1, 2, nan }, { 0, 0, 1, 0, 0, 0 })
grad("clamp from above", function(t) return t:clamp { max = 1 } end, { -inf, 0, inf }, { 1, 1, 0 })
local lo = accel.tensor({ -1, 0, 1 }, { dtype = "f64", requires_grad = true })
local hi = accel.tensor({ 1, 0, -1 }, { dtype = "f64", requires_grad = true })
local t = accel.tensor({ { -2, -2, 0 }, { 2, 0, 0 } }, { dtype = "f64", requires_grad = true })
local y = t:clamp(lo, hi)
same("clamp by tensors", y, { -1, 0, -1, 1, 0, -1 })
y:sum():backward()
same("gradient of x", t.grad, { 0, 0, 0, 0, 1, 0 })
same("gradient of min", lo.grad, { 1, 1, 0 })
same("gradient of max", hi.grad, { 1, 0, 2 })
-- x that meets a bound shares with it
lo.grad, hi.grad = nil, nil
t = accel.tensor({ -1, 0, -1 }, { dtype = "f64", requires_grad = true })
t:clamp(lo, hi):sum():backward()
same("gradient of x at a bound", t.grad, { 0.5, 1, 0 })
same("gradient of min at x", lo.grad, { 0.5, 0, 0 })
same("gradient of max at x", hi.grad, { 0, 0, 1 })
assert(accel.tensor({ 1, 5 }):clamp { min = accel.tensor { 2.5, 1.0 } }.dtype == "f32")
same("clip", accel.clip(accel.tensor { 6.0 }, { max = accel.tensor { 3.0 } }), { 3 })
fails("min or max", accel.clamp, x)
fails("written in place", function() return accel.ones(2):clamp_ { min = accel.ones(2, 2) } end)

-- threshold, hardtanh, relu6: NaN stays, integers stay integers
same("threshold", accel.threshold(accel.tensor { nan, 1.0, 1.5 }, 1, 7), { nan, 7, 1.5 })
grad("threshold", function(v) return v:threshold(1, 7) end, { nan, 0, 1, 2 }, { 1, 0, 0, 1 })
grad("hardtanh", function(v) return v:hardtanh() end, { nan, -1, 0, 1, 2 }, { 0, 0, 1, 0, 0 })
grad("hardshrink", function(v) return v:hardshrink() end, { nan, -1, 0.5, 1 }, { 0, 1, 0, 1 })
grad("softshrink", function(v) return v:softshrink() end, { nan, -1, 0.5, 1 }, { 0, 1, 0, 1 })
for _, dtype in ipairs { "i64", "i32", "i16", "i8" } do
  local v = accel.tensor({ -3, 0, 9 }, { dtype = dtype })
  for name, want in pairs { hardtanh = { -1, 0, 1 }, relu6 = { 0, 0, 6 } } do
    local r = accel[name](v)
    assert(r.dtype == dtype, name .. " of " .. dtype .. " gives " .. r.dtype)
    same(name, r, want)
  end
  assert(accel.threshold(v, 1, 7).dtype == dtype)
  same("threshold", accel.threshold(v, 1, 7), { 7, 7, 9 })
end
same("relu6 of u8", accel.relu6(accel.tensor({ 3, 9 }, { dtype = "u8" })), { 3, 6 })
fails("u8 does not have", accel.hardtanh, accel.tensor({ 3 }, { dtype = "u8" }))
fails("not defined for bool", accel.hardtanh, accel.tensor { true })

-- masked_fill with a tensor of rank 0
local value = accel.tensor(3.0, { requires_grad = true })
local base = accel.zeros(2, 2, { requires_grad = true })
local filled = base:masked_fill(accel.tensor { true, false }, value)
same("masked_fill", filled, { 3, 0, 3, 0 })
filled:sum():backward()
same("gradient of the value", value.grad, { 2 })
same("gradient of the rest", base.grad, { 0, 1, 0, 1 })
assert(accel.zeros(2, { dtype = "bf16" }):masked_fill(accel.tensor { true, false }, accel.tensor(2.5)).dtype == "bf16")
same("in place", accel.tensor({ 2 ^ 53 + 1 | 0, 1 }):masked_fill_(accel.tensor { false, true }, accel.tensor(7)), { 2 ^ 53 + 1 | 0, 7 })
fails("rank 0", accel.masked_fill, base, accel.tensor { true, false }, accel.ones(1))
fails("cast it first", accel.masked_fill, accel.tensor { 1, 2 }, accel.tensor { true, false }, accel.tensor(2.5))

-- operators of masks and of bits
local a, b = accel.tensor { true, true, false, false }, accel.tensor { true, false, true, false }
same("&", a & b, { true, false, false, false })
same("|", a | b, { true, true, true, false })
same("~", a ~ b, { false, true, true, false })
same("not", ~a, { false, false, true, true })
same("with numbers", accel.tensor { 6, 12 } & 10, { 2, 8 })
same("numbers before", 1 | accel.tensor { 6, 12 }, { 7, 13 })
same("with truth values", true & b, { true, false, true, false })
fails("bitwise", function() return accel.ones(2) & 1 end)

do -- gradients of clamp with tensors as bounds, of all of -1, 0, 1, NaN as x, min and max: PyTorch's ("h": a half)
  local at, list = { -1.0, 0.0, 1.0, 0 / 0 }, { {}, {}, {} }
  for i = 0, 63 do
    for k, step in ipairs { 16, 4, 1 } do list[k][i + 1] = at[i // step % 4 + 1] end
  end
  local function check(names, want)
    local x = accel.tensor(list[1], { dtype = "f64", requires_grad = true })
    local bounds = { min = accel.tensor(list[2], { dtype = "f64", requires_grad = true }),
      max = accel.tensor(list[3], { dtype = "f64", requires_grad = true }) }
    local given, leaves = {}, { x }
    for name in names:gmatch "%w+" do given[name], leaves[#leaves + 1] = bounds[name], bounds[name] end
    x:clamp(given):sum():backward()
    for k, leaf in ipairs(leaves) do
      local got = {}
      for i, v in ipairs(leaf.grad:tolist()) do got[i] = v == 0.5 and "h" or ("%d"):format(v // 1) end
      assert(table.concat(got) == want[k], ("clamp by %s: gradient %d is\n%s instead of\n%s"):format(names, k, table.concat(got), want[k]))
    end
  end
  check("min max", { "1hh10000000011110h1101h10000011100h100h1001100111111111111111111",
    "0hh0011000100000000000h00010000000000000000000000000000000000000",
    "00001000110000001h0010001100000011h011h0110000000000100011000000" })
  check("min", { "hhhh0000000011111111hhhh0000111111111111hhhh11111111111111111111",
    "hhhh1111111111110000hhhh1111111100000000hhhh11111111111111111111" })
  check("max", { "h111h111h111h1110h110h110h110h1100h100h100h100h11111111111111111",
    "h001h001h001h0011h011h011h011h0111h111h111h111h11111111111111111" })
end
