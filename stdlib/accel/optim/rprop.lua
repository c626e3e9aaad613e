--- optim.Rprop: resilient propagation.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"

--- A step size per element, times etas[2] while its gradient keeps its sign and times etas[1] when it changes, within
--- step_sizes. For gradients of the whole data. The learning rate is the first step size.
--- example: local p = accel.ones(1) p.grad = p * 2 accel.optim.Rprop(p, {lr = 0.1}):step() return p --> { 0.9 }
---@class accel.optim.Rprop : accel.optim.Optimizer
local Rprop = Optimizer:extend("accel.optim.Rprop")

Rprop.defaults = { lr = 1e-2, etas = { 0.5, 1.2 }, step_sizes = { 1e-6, 50 }, maximize = false }
Rprop.buffers = { "prev", "step_size" }

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-2: first step size of each element
---  etas number[] = { 0.5, 1.2 }: factors when the sign turns and when it stays
---  step_sizes number[] = { 1e-6, 50 }: smallest and largest step
---  maximize boolean = false: climb instead of descend
function Rprop:init(params, opts) Optimizer.init(self, params, opts) end

function Rprop:check_options(o)
  self:expect_not_negative(o, "lr")
  for _, name in ipairs { "etas", "step_sizes" } do
    local a, b = o[name][1], o[name][2]
    self:expect(#o[name] == 2 and type(a) == "number" and type(b) == "number", "%s must be two numbers", name)
  end
  self:expect(o.etas[1] > 0 and o.etas[1] < 1 and o.etas[2] > 1, "needs 0 < etas[1] < 1 < etas[2], got %s and %s",
    tostring(o.etas[1]), tostring(o.etas[2]))
end

function Rprop:make_state(p, group) -- luacheck: ignore self
  return { prev = accel.zeros_like(p), step_size = accel.full_like(p, group.lr) }
end

function Rprop:update(group, step_group, grads) -- luacheck: ignore self
  accel.rprop_step_(step_group.params, grads, step_group.prev, step_group.step_size, step_group.step, {
    etaminus = group.etas[1], etaplus = group.etas[2], step_size_min = group.step_sizes[1],
    step_size_max = group.step_sizes[2], maximize = group.maximize,
  })
end
Rprop.spends = Rprop.update

return Rprop
