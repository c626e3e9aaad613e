--- The common part of the optimizers with 8-bit states (adamw_8bit.lua and others): bitsandbytes' names, options and
--- states.
---
--- A parameter of min_8bit_size elements or more keeps each state as codes of 8 bits, `state1` and `state2`, with a largest magnitude for
--- each block of 256, `absmax1` and `absmax2`. Smaller ones keep f32. The names are bitsandbytes' own. One multi-tensor call steps all
--- parameters of a step group. See accel.blockwise_step_ for the rules.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"
local Paging = require "accel.optim.paging"
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"
local original = require "accel.util.checked".original

local BLOCK <const> = 256

---@class accel.optim.Blockwise : accel.optim.Optimizer
local Blockwise = Optimizer:extend("accel.optim.Blockwise")

Blockwise.buffers = { "state1", "absmax1", "state2", "absmax2", "state3", "absmax3" }
Blockwise.elementwise = false -- blocks are of whole parameters
Blockwise.bits = 8
Blockwise.states = 1
Blockwise.paged = false

--- Makes a class: name, its rule, its number of states, and defaults in addition to the common ones.
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
  local own
  local who = getmetatable(self).__name:match "[^.]*$"
  if self.paged then opts, own = Paging.options(who, opts) end
  Optimizer.init(self, params, opts)
  self._pages = own
  -- An unwritable folder raises now. The rest follows when states are made, since the parameters may move until then
  local first = self.param_groups[1].params[1]
  if own and own.folder and first and first.device ~= "meta" then self.paging = Paging(who, first.device, own) end
end

--- The pager of states for parameters of this device. nil: states stay there.
local function paging_on(self, device)
  local own = self._pages
  if not own then return nil end
  local who = getmetatable(self).__name:match "[^.]*$"
  if Paging.pages(who, device, own) then
    self.paging = self.paging or Paging(who, device, own)
    return self.paging
  end
end

function Blockwise:check_options(o)
  self:expect_not_negative(o, "lr", "weight_decay", "min_8bit_size")
  if self.bits ~= 8 and o.min_8bit_size ~= self.defaults.min_8bit_size then
    no_effect(getmetatable(self).__name, { min_8bit_size = o.min_8bit_size })
  end
  if o.eps then self:expect_not_negative(o, "eps") end
  for _, beta in ipairs(o.betas or {}) do
    self:expect(type(beta) == "number" and beta >= 0 and beta < 1, "betas must lie in [0, 1), got %s", tostring(beta))
  end
end

function Blockwise:make_state(p, group)
  local coded = self.bits == 8 and p:numel() >= group.min_8bit_size
  local n = p:numel()
  local paging = paging_on(self, p.device)
  local made = {}
  for i = 1, self.states do
    local dtype = coded and "u8" or "f32"
    made["state" .. i] = paging and paging:zeros(p.shape, dtype, p.device)
      or accel.zeros(p.shape, { dtype = dtype, device = p.device })
    made["absmax" .. i] = accel.zeros(coded and (n + BLOCK - 1) // BLOCK or 0, { device = p.device })
  end
  return made
end

--- The rule's numbers, from the group's options.
function Blockwise:numbers_of(group, step_group) -- luacheck: ignore step_group
  local betas = group.betas or {}
  return { beta1 = betas[1] or 0, beta2 = betas[2] or 0, beta3 = betas[3] or 0, alpha = group.alpha or 0, eps = group.eps or 0 }
end

function Blockwise:update(group, step_group, grads, lr)
  local o = self:numbers_of(group, step_group)
  o.rule, o.weight_decay = self.rule, group.weight_decay
  local step = group.stochastic_rounding and accel.blockwise_step_stochastic_ or accel.blockwise_step_
  local function run(part, some, number)
    for i = 2, self.states do
      o["state" .. i], o["absmax" .. i] = part["state" .. i], part["absmax" .. i]
    end
    step(part.params, some, part.state1, part.absmax1, lr, number, o)
  end
  if not self.paging then return run(step_group, grads, step_group.step) end
  self.paging:each(step_group, grads, self.states, BLOCK, function(part, some, number, drawn)
    o.first = group.stochastic_rounding and drawn or nil
    run(part, some, number)
  end)
end

-- As Optimizer's, with states that are not paged: those are fetched for many parameters at once.
function Blockwise:_steps_singly()
  return original(self.step) == original(Blockwise.step) and not self._pages and not self._sharding
end

Blockwise.spends = Blockwise.update

--- Optimizer's step. Its states are one pass of the pager, so that a step group's states are fetched during the previous one.
---@param closure? fun(): any
function Blockwise:step(closure, ...)
  check.object(self, "o", "step")
  if self.paging then self.paging:pass() end
  return Optimizer.step(self, closure, ...)
end

--- Restores a state_dict, as every optimizer does. Paged states take a copy even with assign.
---@param dict table
---@param opts? {assign: boolean?}
function Blockwise:load_state_dict(dict, opts, ...)
  if self._pages and type(opts) == "table" and opts.assign then
    for _, group in ipairs(self.param_groups) do
      for _, p in ipairs(group.params) do
        if opts and paging_on(self, p.device) then opts = nil end
      end
    end
  end
  Optimizer.load_state_dict(self, dict, opts, ...)
end

return Blockwise
