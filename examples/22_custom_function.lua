--- A function with a custom gradient, checked numerically, and a NaN traced to its line.
---
---   accel-run examples/22_custom_function.lua
---
--- Weights that take one of a few values have no useful gradient: rounding is flat. The straight-through estimator
--- rounds in the forward and, in backward, acts as if it had not. A small network learns with weights of 15 values
--- each. gradcheck then checks for another function whether its backward agrees with its values, and anomaly mode finds
--- the line that makes a NaN.
local accel = require "accel"
local nn, optim, autograd = accel.nn, accel.optim, accel.autograd

accel.util.cli {
  name = "22_custom_function.lua", summary = "Learns with rounded weights; checks gradients; finds a NaN.",
}

-- A gradient of one's own ------------------------------------------------------------------------

--- w in steps of w's largest absolute value / 7. Beyond the range nothing would move: no gradient there.
local Round = autograd.Function {
  name = "Round",
  forward = function(ctx, w)
    local step = w:abs():max():item() / 7
    ctx:save_for_backward(w)
    ctx.limit = 7 * step
    return (w / step):round() * step
  end,
  backward = function(ctx, d)
    local w = ctx:saved_tensors()
    return d * w:abs():le(ctx.limit)
  end,
}

local Rounded = nn.Module:extend "Rounded"
function Rounded:init(n_in, n_out) self.linear = nn.Linear(n_in, n_out) end
function Rounded:forward(x) return nn.functional.linear(x, Round(self.linear.weight), self.linear.bias) end

accel.manual_seed(1)
local x = accel.rand(256, 2) * 2 - 1
local y = (x:select(2, 1) * x:select(2, 2)):gt(0):to "f32" -- one if both have the same sign
local model = nn.Sequential(Rounded(2, 32), nn.Tanh(), Rounded(32, 1))
local optimizer = optim.Adam(model:parameters(), { lr = 0.02 })
for _ = 1, 200 do
  local loss = nn.functional.binary_cross_entropy_with_logits(model(x):squeeze(2), y)
  loss:backward()
  optimizer:step()
  optimizer:zero_grad()
end
local right = accel.no_grad(function() return model(x):squeeze(2):gt(0):to("f32"):eq(y):to("f32"):mean():item() end)
local values = {}
for _, v in ipairs(Round(model[1].linear.weight):detach():reshape(-1):tolist()) do values[("%.5f"):format(v)] = true end
local n = 0
for _ in pairs(values) do n = n + 1 end
print(("points classified correctly: %s 95 %%; values of the first weights: %s 15"):format(
  right >= 0.95 and "at least" or "less than", n <= 15 and "at most" or "more than"))

-- Is a backward right? ---------------------------------------------------------------------------

local function softplus(wrong)
  return autograd.Function {
    name = "Softplus",
    forward = function(ctx, t)
      ctx:save_for_backward(t)
      return t:exp():log1p()
    end,
    backward = function(ctx, d)
      local e = ctx:saved_tensors():exp()
      return wrong and d * e or d * e / (1 + e)
    end,
  }
end
local t = accel.tensor({ -1.0, 0.5 }, { dtype = "f64", requires_grad = true })
print("right backward:", autograd.gradcheck(softplus(false), t))
print("wrong backward:", autograd.gradcheck(softplus(true), t, { raise_exception = false }))

-- The origin of a NaN ---------------------------------------------------------------------------

local ok, message = pcall(autograd.detect_anomaly, function()
  local zero = accel.zeros(1, { requires_grad = true })
  local length = (zero * zero):sum():sqrt() -- at 0 its derivative is infinite, times 0
  length:backward()
end)
print("anomaly:", ok, tostring(message):match "backward of.*")
