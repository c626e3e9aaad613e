-- Gradients of prod and cumprod beside zeros, infinities and NaN: the product of the other elements, as IEEE 754 has it, which are PyTorch's
-- values of prod with a dim. (PyTorch's prod without a dim gives 0 beside two zeros, its cumprod 0 behind a zero.)
--   accel-run tests/numerics/prod_special_test.lua
local accel = require "accel"
local inf, nan = math.huge, 0 / 0

local function same(a, b) return a == b or a ~= a and b ~= b end
--- The product of all elements but one. An infinity's own factor is found by a division, as PyTorch does it, where there is no zero.
local function beside(list, skip)
  local p, zeros = 1.0, 0
  for i, v in ipairs(list) do
    if v == 0 then zeros = zeros + 1 end
    if i ~= skip then p = p * v end
  end
  local own = list[skip]
  if zeros == 0 and own - own ~= 0 then return nan end
  return p
end
local function check(list, dtype)
  for _, dim in ipairs { false, 2 } do
    local x = accel.tensor({ list }, { dtype = dtype, requires_grad = true })
    local y = dim and x:prod(dim):sum() or x:prod()
    y:backward()
    for i, got in ipairs(x.grad:reshape(-1):tolist()) do
      local want = beside(list, i)
      assert(same(got, want), ("%s, %s: gradient %d is %g, not %g"):format(table.concat(list, " "), dtype, i, got, want))
    end
  end
end
local VALUES <const> = { 0.0, 2.0, inf, -inf, nan, -0.5 }
for _, dtype in ipairs { "f64", "f32" } do
  for _, a in ipairs(VALUES) do
    for _, b in ipairs(VALUES) do
      check({ a, b }, dtype)
      for _, c in ipairs(VALUES) do check({ a, b, c }, dtype) end
    end
  end
  -- more zeros than f32 can count one by one, over several threads, with and without an infinity
  local n = (1 << 24) + 3
  if dtype == "f32" then
    for _, special in ipairs { 1.0, inf } do
      local x = accel.zeros(n, { dtype = dtype })
      x:narrow(1, 5, 1):fill_(special)
      x:requires_grad_(true)
      x:prod():backward()
      local first, odd = x.grad[1]:item(), x.grad[5]:item()
      assert(odd == 0 and (special == inf and first ~= first or special == 1 and first == 0), ("%g %g %g"):format(special, first, odd))
    end
  end
end

local function cumprod(list)
  local x = accel.tensor(list, { dtype = "f64", requires_grad = true })
  x:cumprod(1):sum():backward()
  return x.grad:tolist()
end
local got = cumprod { 0.0, inf, 2.0 } -- 1 + inf + 2 inf; 0 (1 + 2); 0 inf
assert(got[1] == inf and got[2] == 0 and got[3] ~= got[3])
got = cumprod { 0.0, 2.0, 3.0 }
assert(got[1] == 9 and got[2] == 0 and got[3] == 0)
