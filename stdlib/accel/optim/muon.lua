--- optim.Muon: orthogonalised momentum for matrices.
local accel = require "accel"
local check = require "accel.util.check"
local Optimizer = require "accel.optim.optimizer"
local tensors = require "accel.util.tensors"

--- Momentum whose singular values are all moved towards one by a Newton-Schulz iteration (in bf16, as in PyTorch), with
--- decoupled weight decay. For the weight matrices of hidden layers. Give embeddings, heads, biases and gains to a
--- separate AdamW. adjust_lr_fn scales the rate by a matrix's rows and columns: "original" by sqrt(max(1, rows /
--- columns)), "match_rms_adamw" by 0.2 sqrt(max(rows, columns)), so that you can use AdamW's rates,
--- "spectral_unclamped" by sqrt(rows / columns).
--- example: accel.optim.Muon({accel.ones(2, 2)}).param_groups[1].momentum --> 0.95
---@class accel.optim.Muon : accel.optim.Optimizer
local Muon = Optimizer:extend("accel.optim.Muon")

Muon.defaults = {
  lr = 1e-3, weight_decay = 0.1, momentum = 0.95, nesterov = true, ns_coefficients = { 3.4445, -4.775, 2.0315 },
  eps = 1e-7, ns_steps = 5, adjust_lr_fn = "original",
}
Muon.buffers = { "momentum_buffer" }
Muon.counts = false
Muon.elementwise = false

local scales = {
  original = function(rows, columns) return math.sqrt(math.max(1, rows / columns)) end,
  match_rms_adamw = function(rows, columns) return 0.2 * math.sqrt(math.max(rows, columns)) end,
  spectral_unclamped = function(rows, columns) return math.sqrt(rows / columns) end,
}

---@param params accel.ParamList matrices
---@param opts? table
---  lr number = 1e-3: learning rate
---  weight_decay number = 0.1: share of the parameter that each step takes off, times lr
---  momentum number = 0.95: factor of the running mean of the gradients. 0: none
---  nesterov boolean = true: Nesterov's momentum
---  ns_coefficients number[] = { 3.4445, -4.775, 2.0315 }: of the Newton-Schulz polynomial
---  eps number = 1e-7: least norm of a matrix
---  ns_steps integer = 5: iterations
---  adjust_lr_fn string = "original": or "match_rms_adamw", "spectral_unclamped"
function Muon:init(params, opts) Optimizer.init(self, params, opts) end

function Muon:check_options(o)
  self:expect_not_negative(o, "lr", "momentum", "weight_decay", "eps")
  self:expect(#o.ns_coefficients == 3, "ns_coefficients must be three numbers, got %d", #o.ns_coefficients)
  check.positive("Muon", "ns_steps", o.ns_steps)
  check.word("Muon", "adjust_lr_fn", o.adjust_lr_fn, { "original", "match_rms_adamw", "spectral_unclamped" })
end

function Muon:add_param_group(group)
  Optimizer.add_param_group(self, group)
  local new = self.param_groups[#self.param_groups]
  for i, p in ipairs(self._sharding and self._sharding.whole[new] or new.params) do
    if #p.shape ~= 2 then
      self.param_groups[#self.param_groups] = nil
      self:expect(false, "parameter %d has shape %s; Muon trains matrices: give the others to AdamW", i,
        tensors.shape_string(p))
    end
  end
end

--- Moves the momentum, and returns the directions before they are made orthogonal.
local function directions_of(group, step_group, grads)
  local momentum = group.momentum
  accel.foreach_lerp_(step_group.momentum_buffer, grads, 1 - momentum)
  if not group.nesterov then return step_group.momentum_buffer end
  local directions = {} -- the gradient, moved towards the momentum by as much again
  for i, g in ipairs(grads) do directions[i] = g:clone() end
  accel.foreach_lerp_(directions, step_group.momentum_buffer, momentum)
  return directions
end

local function iteration(group) return { coefficients = group.ns_coefficients, steps = group.ns_steps, eps = group.eps } end

function Muon:update(group, step_group, grads, lr) -- luacheck: ignore self
  local scale, options = scales[group.adjust_lr_fn], iteration(group)
  local updates, factors = {}, {}
  for i, direction in ipairs(directions_of(group, step_group, grads)) do
    local p = step_group.params[i]
    updates[i] = direction:newton_schulz(options)
    factors[i] = scale(p.shape[1], p.shape[2])
  end
  accel.muon_step_(step_group.params, updates, factors, lr, { weight_decay = group.weight_decay })
end

--- On parts of sharded matrices, directions are exchanged in bf16, which the iteration rounds them to first.
function Muon:part_dtypes() return { "bf16" } end -- luacheck: ignore self

--- The directions of the shards. Moves their momentum.
---@param group table parameter group
---@param step_group table parameters of the group that take the step
---@param grads accel.Tensor[] gradients of the parameters
function Muon:parts_of(group, step_group, grads) -- luacheck: ignore self
  local parts = {}
  for i, direction in ipairs(directions_of(group, step_group, grads)) do parts[i] = direction:to "bf16" end
  return { parts }
end

--- A step on the part of a matrix, from the direction of the whole one.
---@param group table parameter group
---@param step_group table parameters of the group that take the step
---@param i integer position, from 1
---@param wholes accel.Tensor[] whole tensors, in the order of part_dtypes
---@param lr number learning rate
---@param cut fun(t: accel.Tensor): accel.Tensor takes the part of this rank
function Muon:update_whole(group, step_group, i, wholes, lr, cut) -- luacheck: ignore self
  local direction = wholes[1]
  local update = cut(direction:newton_schulz(iteration(group)))
  local factor = scales[group.adjust_lr_fn](direction.shape[1], direction.shape[2])
  accel.muon_step_({ step_group.params[i] }, { update }, { factor }, lr, { weight_decay = group.weight_decay })
end
Muon.spends = Muon.update

return Muon
