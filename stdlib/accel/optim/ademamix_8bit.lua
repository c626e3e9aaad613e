--- optim.AdEMAMix8bit (Pagliardini and others, "The AdEMAMix Optimizer: Better, Faster, Older") with states of 8 bits, and
--- AdEMAMix32bit.
local Blockwise = require "accel.optim.blockwise"

--- Adam with a second, slower mean of the gradient, which counts alpha times. The three states take 8 bits an element. weight_decay shrinks
--- parameters by lr * weight_decay. Over t_alpha and t_beta3 steps alpha and the slow factor grow to their values.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.AdEMAMix8bit(p, { lr = 0.1, weight_decay = 0 }):step()
---   return p:mean():item() --> 0.89995
---@class accel.optim.AdEMAMix8bit : accel.optim.Blockwise
local AdEMAMix8bit = Blockwise:declare("AdEMAMix8bit", "ademamix", 3, {
  lr = 1e-3, betas = { 0.9, 0.999, 0.9999 }, alpha = 5, t_alpha = 0, t_beta3 = 0, eps = 1e-8, weight_decay = 0.01,
})

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-3: learning rate
---  betas number[] = { 0.9, 0.999, 0.9999 }: factors of the means of the gradient, of its square, and of the slow mean
---  alpha number = 5: weight of the slow mean
---  t_alpha integer = 0: steps over which alpha grows (0: it is there at once)
---  t_beta3 integer = 0: steps over which the slow factor grows (0: it is there at once)
---  eps number = 1e-8: added to the denominator
---  weight_decay number = 0.01: share of the parameter that each step takes off, times lr
---  min_8bit_size integer = 4096: parameters with fewer elements keep states of f32
---  stochastic_rounding boolean = false: parameters of bf16 are rounded to a neighbour at random, without bias
function AdEMAMix8bit:init(params, opts) Blockwise.init(self, params, opts) end

function AdEMAMix8bit:check_options(o)
  Blockwise.check_options(self, o)
  self:expect(#o.betas == 3, "betas must be three numbers, got %d", #o.betas)
  self:expect_not_negative(o, "alpha", "t_alpha", "t_beta3")
end

--- The slow factor at a step: its half-life grows evenly from the fast one's.
local function slow_factor(fast, slow, share)
  local a, b = math.log(fast), math.log(slow)
  return math.min(math.exp(a * b / ((1 - share) * b + share * a)), slow)
end

--- The factors and alpha of the step that comes.
---@param group table parameter group
---@param step_group table parameters of the group that take the step
function AdEMAMix8bit:numbers_of(group, step_group)
  local o = Blockwise.numbers_of(self, group)
  if group.t_alpha > 0 or group.t_beta3 > 0 then
    local step = step_group.step:item() + 1
    if group.t_alpha > 0 then o.alpha = math.min(step * group.alpha / group.t_alpha, group.alpha) end
    if group.t_beta3 > 0 then o.beta3 = slow_factor(o.beta1, o.beta3, math.min(step / group.t_beta3, 1)) end
  end
  return o
end

--- AdEMAMix8bit with states of f32, whatever the dtype of the parameters.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.AdEMAMix32bit(p, { lr = 0.1, weight_decay = 0 }):step()
---   return p:mean():item() --> 0.89995
---@class accel.optim.AdEMAMix32bit : accel.optim.AdEMAMix8bit
local AdEMAMix32bit = AdEMAMix8bit:variant("AdEMAMix32bit", { bits = 32 })

--- AdEMAMix8bit whose states are stored outside the device between steps: in host memory, or in a file of page_folder. A step fetches them,
--- page_budget bytes at a time, with the same numbers. On the CPU, paging needs a folder. Without one a warning reports that nothing is
--- paged.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.PagedAdEMAMix8bit(p, { lr = 0.1, weight_decay = 0 }):step()
---   return p:mean():item() --> 0.89995
---@class accel.optim.PagedAdEMAMix8bit : accel.optim.AdEMAMix8bit
local PagedAdEMAMix8bit = AdEMAMix8bit:variant("PagedAdEMAMix8bit", { paged = true })

--- AdEMAMix32bit with paged states, as PagedAdEMAMix8bit's.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.PagedAdEMAMix32bit(p, { lr = 0.1, weight_decay = 0 }):step()
---   return p:mean():item() --> 0.89995
---@class accel.optim.PagedAdEMAMix32bit : accel.optim.AdEMAMix8bit
local PagedAdEMAMix32bit = AdEMAMix8bit:variant("PagedAdEMAMix32bit", { bits = 32, paged = true })

--- PagedAdEMAMix32bit under the name that it has without bits.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.PagedAdEMAMix(p, { lr = 0.1, weight_decay = 0 }):step()
---   return p:mean():item() --> 0.89995
---@class accel.optim.PagedAdEMAMix : accel.optim.AdEMAMix8bit
local PagedAdEMAMix = AdEMAMix8bit:variant("PagedAdEMAMix", { bits = 32, paged = true })

return {
  AdEMAMix8bit = AdEMAMix8bit, AdEMAMix32bit = AdEMAMix32bit, PagedAdEMAMix8bit = PagedAdEMAMix8bit,
  PagedAdEMAMix32bit = PagedAdEMAMix32bit, PagedAdEMAMix = PagedAdEMAMix,
}
