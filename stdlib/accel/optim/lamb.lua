--- optim.Lamb: Adam's direction, scaled for each parameter by the ratio of its norm to the direction's.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"

--- For large batches (arXiv 1904.00962), as DeepSpeed's FusedLamb computes it: with the running means m of the gradient and v of its
--- square, u = m / (sqrt(v) + eps) + weight_decay * p, and p <- p - s * r * u, where s = lr * sqrt(1 - beta2^t) / (1 - beta1^t) and r =
--- |p| / |u|, kept in [min_coeff, max_coeff]. r = 1 if a norm is 0. Norms are over whole parameters, sharded or not.
--- example: local p = accel.ones(2) p.grad = p * 2 accel.optim.Lamb(p, { lr = 0.1 }):step() return p --> { 0.9684, 0.9684 }
---@class accel.optim.Lamb : accel.optim.Optimizer
local Lamb = Optimizer:extend("accel.optim.Lamb")

Lamb.defaults = {
  lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0, max_coeff = 10.0, min_coeff = 0.01, maximize = false,
}
Lamb.buffers = { "exp_avg", "exp_avg_sq" }
Lamb.elementwise = false

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-3: learning rate
---  betas number[] = { 0.9, 0.999 }: factors of the running means of the gradient and of its square
---  eps number = 1e-8: added to the denominator
---  weight_decay number = 0: how much of the parameter joins the direction
---  max_coeff number = 10.0: largest ratio of norms
---  min_coeff number = 0.01: least ratio of norms
---  maximize boolean = false: climb instead of descend
function Lamb:init(params, opts) Optimizer.init(self, params, opts) end

function Lamb:check_options(o)
  self:expect_not_negative(o, "lr", "eps", "weight_decay", "max_coeff", "min_coeff")
  self:expect_betas(o)
  self:expect(o.min_coeff <= o.max_coeff, "min_coeff must not be above max_coeff, got %g and %g", o.min_coeff, o.max_coeff)
end

--- Moves the running means. Returns the directions, one for each parameter of the step group. The size of the step is in
--- step_group.size.
local function directions(group, step_group, grads, lr)
  local beta1, beta2 = group.betas[1], group.betas[2]
  if group.maximize then
    local negated = {}
    for i, g in ipairs(grads) do negated[i] = -g end
    grads = negated
  end
  accel.foreach_lerp_(step_group.exp_avg, grads, 1 - beta1)
  local t = step_group.step:add_(1):to "f64"
  step_group.size = lr * (1 - (t * math.log(beta2)):exp()):sqrt() / (1 - (t * math.log(beta1)):exp())
  local list = {}
  for i, p in ipairs(step_group.params) do
    local v = step_group.exp_avg_sq[i]:mul_(beta2):add_(grads[i] * grads[i] * (1 - beta2))
    list[i] = step_group.exp_avg[i] / (v:sqrt() + group.eps)
    if group.weight_decay > 0 then list[i] = list[i] + p * group.weight_decay end
  end
  return list
end

local function norm(t) return t:to("f64"):pow(2):sum():sqrt() end

--- The ratio of the norms of a whole parameter and its direction, a number on the device.
local function ratio(group, p, u)
  local w, d = norm(p), norm(u)
  local sound = w:gt(0):logical_and(d:gt(0))
  return accel.where(sound, (w / d):clamp(group.min_coeff, group.max_coeff), accel.ones_like(w))
end

function Lamb:update(group, step_group, grads, lr) -- luacheck: ignore self
  for i, u in ipairs(directions(group, step_group, grads, lr)) do
    local p = step_group.params[i]
    p:sub_(u * (ratio(group, p, u) * step_group.size))
  end
end
Lamb.spends = Lamb.update

--- For shards of parameters, these and their directions are exchanged. States cover the shards.
---@param dtype string name of a dtype
function Lamb:part_dtypes(dtype) return { dtype, dtype } end -- luacheck: ignore self

--- The same as part_dtypes, for the shards.
---@param group table parameter group
---@param step_group table parameters of the group that take the step
---@param grads accel.Tensor[] gradients of the parameters
function Lamb:parts_of(group, step_group, grads) -- luacheck: ignore self
  return { step_group.params, directions(group, step_group, grads, group.lr) }
end

--- A step on the part of a parameter, from the whole one and its direction.
---@param group table parameter group
---@param step_group table parameters of the group that take the step
---@param i integer position, from 1
---@param wholes accel.Tensor[] whole tensors, in the order of part_dtypes
---@param cut fun(t: accel.Tensor): accel.Tensor takes the part of this rank
function Lamb:update_whole(group, step_group, i, wholes, _, cut) -- luacheck: ignore self
  local p, u = wholes[1], wholes[2]
  step_group.params[i]:sub_(cut(u) * (ratio(group, p, u) * step_group.size))
end

return Lamb
