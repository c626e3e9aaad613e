--- What the optimizers with 8-bit states share (adamw_8bit.lua and others): bitsandbytes' names, options and states.
---
--- A parameter of min_8bit_size elements or more keeps each state as codes of 8 bits, `state1` and `state2`, with a largest magnitude for
--- each block of 256, `absmax1` and `absmax2`; smaller ones keep f32. The names are those of bitsandbytes' own state dicts. One
--- multi-tensor call steps all parameters of a step group; see accel.blockwise_step_ for the rules.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"

local BLOCK <const> = 256

---@class accel.optim.Blockwise : accel.optim.Optimizer
local Blockwise = Optimizer:extend("accel.optim.Blockwise")

Blockwise.buffers = { "state1", "absmax1", "state2", "absmax2", "state3", "absmax3" }
Blockwise.elementwise = false -- blocks are of whole parameters
Blockwise.bits = 8
Blockwise.states = 1
Blockwise.paged = false

--- Makes a class: name, its rule, its number of states, and defaults beside those that all have.
---@return table
function Blockwise:declare(name, rule, states, defaults)
  local class = self:extend("accel.optim." .. name)
  class.rule, class.states = rule, states
  class.defaults = { min_8bit_size = 4096, stochastic_rounding = false }
  for key, value in next, defaults do class.defaults[key] = value end
  return class
end

--- A class of the same rule with other bits, or paged.
function Blockwise:variant(name, more)
  local class = self:extend("accel.optim." .. name)
  for key, value in next, more do class[key] = value end
  return class
end

function Blockwise:init(params, opts)
  Optimizer.init(self, params, opts)
  if self.paged then
    local device = self.param_groups[1].params[1].device
    if device == "cpu" or device == "meta" then
      warn(("%s: states on %s are not paged; they stay there"):format(getmetatable(self).__name:match "[^.]*$", device))
    end
  end
end

function Blockwise:check_options(o)
  self:expect_not_negative(o, "lr", "weight_decay", "min_8bit_size")
  if o.eps then self:expect_not_negative(o, "eps") end
  for _, beta in ipairs(o.betas or {}) do
    self:expect(type(beta) == "number" and beta >= 0 and beta < 1, "betas must lie in [0, 1), got %s", tostring(beta))
  end
end

function Blockwise:make_state(p, group)
  local coded = self.bits == 8 and p:numel() >= group.min_8bit_size
  local n = p:numel()
  local made = {}
  for i = 1, self.states do
    made["state" .. i] = accel.zeros(p.shape, { dtype = coded and "u8" or "f32", device = p.device })
    made["absmax" .. i] = accel.zeros(coded and (n + BLOCK - 1) // BLOCK or 0, { device = p.device })
  end
  return made
end

--- The rule's numbers, from the group's options.
function Blockwise:numbers_of(group)
  local betas = group.betas or {}
  return { beta1 = betas[1] or 0, beta2 = betas[2] or 0, beta3 = betas[3] or 0, alpha = group.alpha or 0, eps = group.eps or 0 }
end

function Blockwise:update(group, step_group, grads, lr)
  local o = self:numbers_of(group, step_group)
  o.rule, o.weight_decay = self.rule, group.weight_decay
  for i = 2, self.states do
    o["state" .. i], o["absmax" .. i] = step_group["state" .. i], step_group["absmax" .. i]
  end
  local step = group.stochastic_rounding and accel.blockwise_step_stochastic_ or accel.blockwise_step_
  step(step_group.params, grads, step_group.state1, step_group.absmax1, lr, step_group.step, o)
end

return Blockwise
