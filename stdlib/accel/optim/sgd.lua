--- optim.SGD: stochastic gradient descent.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"
local core = require "accel.optim.core"
local no_effect = require "accel.util.no_effect"
local original = require "accel.util.checked".original

--- p <- p - lr * d, with weight decay g + wd * p, momentum b <- momentum * b + (1 - dampening) * g (the
--- first step sets b = g), and Nesterov d = g + momentum * b.
--- example: local p = accel.ones(1) p.grad = p * 2 accel.optim.SGD(p, {lr = 0.1}):step() return p --> { 0.8 }
---@class accel.optim.SGD : accel.optim.Optimizer
local SGD = Optimizer:extend("accel.optim.SGD")

SGD.defaults = {
  lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0, nesterov = false, maximize = false,
}
SGD.buffers = { "momentum_buffer" }
SGD.counts = false

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-3: learning rate
---  momentum number = 0: factor of the running mean of the gradients. 0: none
---  dampening number = 0: how much less of a gradient joins the momentum
---  weight_decay number = 0: how much of the parameter joins its gradient (L2)
---  nesterov boolean = false: Nesterov's momentum
---  maximize boolean = false: climb instead of descend
function SGD:init(params, opts) Optimizer.init(self, params, opts) end

function SGD:check_options(o)
  self:expect_not_negative(o, "lr", "momentum", "weight_decay")
  self:expect(not o.nesterov or (o.momentum > 0 and o.dampening == 0),
    "nesterov needs a momentum and no dampening")
  if o.dampening ~= 0 and o.momentum == 0 then no_effect.once("SGD", "dampening", "without momentum; set momentum") end
end

function SGD:make_state(p, group) -- luacheck: ignore self
  return group.momentum ~= 0 and { momentum_buffer = accel.zeros_like(p) } or {}
end

function SGD:update(group, step_group, grads, lr)
  local first = step_group.fresh
  if group.momentum ~= 0 and self:complete(step_group, "momentum_buffer") then first = true end
  accel.sgd_step_(step_group.params, grads, group.momentum ~= 0 and step_group.momentum_buffer or {}, lr, {
    momentum = group.momentum, dampening = group.dampening, weight_decay = group.weight_decay,
    nesterov = group.nesterov, maximize = group.maximize, first = first,
    inv_scale = self.inv_scale, found_inf = self.found_inf,
  })
end

-- A first step with momentum that is left out would have to be the first again, which is not known here. It is the
-- first of those that get a gradient now, and of those that have had no momentum so far.
function SGD:fuses()
  for _, group in ipairs(self.param_groups) do
    if group.momentum ~= 0 then
      local private = self._private[group]
      if core.count(private.pending) > 0 then return false end
      for _, step_group in ipairs(private.step_groups) do
        if step_group.fresh or #step_group.momentum_buffer < #step_group.params then return false end
      end
    end
  end
  return original(self.update) == original(SGD.update)
end
SGD.spends = SGD.update

return SGD
