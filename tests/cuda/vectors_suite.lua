-- Ops on the CUDA device against the CPU where they go in vectors of 16 bytes: rope, swiglu, sums of columns. Other shapes: ops_suite.
local accel = require "accel"

local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"

local n = 0

-- make(device): results and gradients.
local function compare(name, dtype, make)
  accel.manual_seed(2)
  local want = make(function(t) return t:to(dtype):detach() end)
  accel.manual_seed(2)
  local got = make(function(t) return t:to(dtype):to("cuda"):detach() end)
  n = n + 1
  for i, w in ipairs(want) do suite.expect(("%s, %s: value %d"):format(name, dtype, i), got[i], w) end
end

for _, dtype in ipairs { "f32", "bf16", "f16", "f64" } do
  for name, o in pairs { plain = {}, offset = { offset = 3 }, interleaved = { interleaved = true },
    llama3 = { scaling = "llama3", scaling_factor = 4, original_max_position = 32 } } do
    compare("rope, " .. name, dtype, function(place)
      local x = place(accel.randn(2, 5, 3, 32)):transpose(2, 3):detach() -- as projections leave it
      local p = accel.randint(0, 50, { 2, 5 }):to(x.device)
      x.requires_grad = true
      local y, z = x:rope(o), x:rope { positions = p }
      return { y, z, accel.grad({ (y * y * 0.5 + z * y):sum() }, { x })[1] }
    end)
  end
  compare("swiglu", dtype, function(place)
    local x, y = place(accel.randn(4, 24)), place(accel.randn(4, 24))
    x.requires_grad, y.requires_grad = true, true
    local g = accel.grad({ x:swiglu(y):sum() }, { x, y })
    return { g[1], g[2] }
  end)
end
for _, dtype in ipairs { "f32", "bf16", "f16", "f64" } do
  compare("sums of columns", dtype, function(place)
    local x = place(accel.rand(300, 96) * 0.1)
    return { x:sum(1), x:mean(1), x:narrow(2, 9, 64):sum(1), x:view(10, 30, 96):sum { 1, 2 }, x:view(10, 30, 96):mean(2), x:narrow(1, 2, 9):sum(1) }
  end)
end
suite.finish(n)
