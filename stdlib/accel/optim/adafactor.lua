--- optim.Adafactor: adaptive rates with factored second moments.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"

--- Adam's second moment kept as one mean per row and one per column, updates limited to a size of d, rates
--- relative to the size of the parameter. eps = { eps1, eps2 }: eps1 limits second moments from below
--- (false: the machine epsilon of the parameter's dtype), eps2 the size of a parameter.
--- example: local p = accel.ones(1) p.grad = p * 2 accel.optim.Adafactor(p, {lr = 0.1}):step() return p --> { 0.9 }
---@class accel.optim.Adafactor : accel.optim.Optimizer
local Adafactor = Optimizer:extend("accel.optim.Adafactor")

Adafactor.defaults = {
  lr = 1e-2, beta2_decay = -0.8, eps = { false, 1e-3 }, d = 1.0, weight_decay = 0, maximize = false,
  scale_parameter = true,
}
Adafactor.buffers = { "row_var", "col_var", "variance" }
Adafactor.elementwise = false
Adafactor.whole_states = true -- as large as a matrix's rows and columns

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-2: learning rate, relative to the size of the parameter
---  beta2_decay number = -0.8: the factor of the second moment is 1 - steps ^ beta2_decay
---  eps table = { false, 1e-3 }: least second moment (false: the epsilon of the dtype), least size of a parameter
---  d number = 1.0: largest size (root mean square) of an update
---  weight_decay number = 0: share of the parameter that each step takes off, times lr
---  maximize boolean = false: climb instead of descend
---  scale_parameter boolean = true: the step is relative to the size of the parameter, and at most 1 / sqrt(steps). false: it is lr, as in
---    Transformers' Adafactor with relative_step = False, which its Trainer uses
function Adafactor:init(params, opts) Optimizer.init(self, params, opts) end

function Adafactor:check_options(o)
  self:expect_not_negative(o, "lr", "weight_decay")
  self:expect(o.beta2_decay <= 0, "beta2_decay must not be positive, got %s", tostring(o.beta2_decay))
  self:expect(o.d >= 1, "d must be at least 1, got %s", tostring(o.d))
  o.eps[1] = o.eps[1] or false
  local eps1, eps2 = o.eps[1], o.eps[2]
  self:expect((not eps1 or (type(eps1) == "number" and eps1 >= 0)) and type(eps2) == "number" and eps2 >= 0,
    "eps must be a number or false and a number, not below zero, got %s and %s", tostring(eps1), tostring(eps2))
end

--- A state like p with the extent `back` places before the end set to 1.
local function narrow_zeros(p, back)
  local shape = p.shape
  shape[#shape - back] = 1
  return accel.zeros(shape, { dtype = p.dtype, device = p.device })
end

function Adafactor:make_state(p) -- luacheck: ignore self
  if #p.shape < 2 then return { variance = accel.zeros_like(p) } end
  return { row_var = narrow_zeros(p, 0), col_var = narrow_zeros(p, 1) }
end

local function options_of(group)
  return {
    beta2_decay = group.beta2_decay, eps1 = group.eps[1] or nil, eps2 = group.eps[2], d = group.d,
    weight_decay = group.weight_decay, maximize = group.maximize, scale_parameter = group.scale_parameter,
  }
end

function Adafactor:update(group, step_group, grads, lr) -- luacheck: ignore self
  accel.adafactor_step_(step_group.params, grads, step_group.row_var, step_group.col_var, step_group.variance, lr, step_group.step,
    options_of(group))
end

--- For shards of parameters, these and their gradients are exchanged. States cover the whole.
---@param dtype string name of a dtype
function Adafactor:part_dtypes(dtype) return { dtype, dtype } end -- luacheck: ignore self

--- The same as part_dtypes, for the shards.
---@param step_group table parameters of the group that take the step
---@param grads accel.Tensor[] gradients of the parameters
function Adafactor:parts_of(_, step_group, grads) return { step_group.params, grads } end -- luacheck: ignore self

--- A step on the part of a parameter, from the whole one and its gradient.
---@param group table parameter group
---@param step_group table parameters of the group that take the step
---@param i integer position, from 1
---@param wholes accel.Tensor[] whole tensors, in the order of part_dtypes
---@param lr number learning rate
---@param cut fun(t: accel.Tensor): accel.Tensor takes the part of this rank
function Adafactor:update_whole(group, step_group, i, wholes, lr, cut)
  local own, p = step_group.params[i], wholes[1]
  local state, step = self.state[own], step_group.step:clone() -- every parameter of the group takes the same step
  accel.adafactor_step_({ p }, { wholes[2] }, { state.row_var }, { state.col_var }, { state.variance }, lr, step, options_of(group))
  local new = cut(p)
  if new:data_ptr() ~= own:data_ptr() then own:copy_(new) end
  step_group.after = step
end

--- Counts the step.
---@param step_group table parameters of the group that take the step
function Adafactor:end_whole(step_group) -- luacheck: ignore self
  step_group.step:copy_(step_group.after)
  step_group.after = nil
end
Adafactor.spends = Adafactor.update

return Adafactor
