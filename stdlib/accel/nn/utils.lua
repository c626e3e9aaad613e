--- nn.utils: gradient clipping, and functions loaded on first use from nn/utils/: parameters as a vector, weight norm,
--- sequences of different lengths.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local divided = require "accel.nn.divided"
local core = require "accel.optim.core"
local check = require "accel.util.check"
local class = require "accel.util.class"
local deferred = require "accel.nn.deferred"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local clip_arguments = arguments("clip_grad_norm_", { "norm_type", 2.0 }, { "error_if_nonfinite", false }, { "optimizer" })

local total_arguments = arguments("get_total_norm", { "norm_type", 2.0 }, { "error_if_nonfinite", false })

M._clip_arguments = clip_arguments -- accelerator:clip_grad_norm_, which may clip in another way

--- Handles of the present gradients, to be spent. Deferred earlier clippings are applied first.
local function gradients(who, params)
  if tensors.is_tensor(params) then params = { params } end
  if type(params) ~= "table" then
    raise("%s: expected parameters or a list of them, got %s", who, check.shown(params))
  end
  if rawlen(params) == 0 and (class.of(params) or ordered.is(params)) then -- nothing would be clipped
    raise("%s: expected a list of parameters, net:parameters(), got %s", who, class.of(params) and "a module"
      or "parameters by name")
  end
  local owners = divided.owners
  if owners then params = owners.pieces(params) end
  deferred.among(params)
  local found, all = core.gradients(params)
  if all then return found end
  local grads = {}
  for _, grad in ipairs(found) do
    if grad then grads[#grads + 1] = grad end
  end
  if #grads == 0 and next(deferred.consumed) then
    for _, p in ipairs(params) do
      if deferred.consumed[p] then
        raise('%s: the Accelerator\'s memory = "low" has stepped and dropped each gradient in backward; set memory = "reduced"', who)
      end
    end
  end
  return grads
end

--- Whether the optimizer can do the clipping while it steps: its parameters are those whose norm is taken.
local function steps_clipped(optimizer, params)
  local real = type(optimizer) == "table" and rawget(optimizer, "param_groups") and optimizer or nil
  if not real or not real.fuses then
    raise("clip_grad_norm_: optimizer must be one of accel.optim, got %s", check.shown(optimizer))
  end
  local n, own = #params, {}
  for _, group in ipairs(real.param_groups) do
    n = n - #group.params
    for _, p in ipairs(group.params) do own[p] = true end
  end
  for i = 1, #params do
    if n ~= 0 or not own[params[i]] then
      raise "clip_grad_norm_: with optimizer, params are the parameters of that optimizer, all of them"
    end
  end
  return real:fuses()
end

--- Scales all gradients together so that their norm is at most max_norm. Returns the norm before, a rank-0 tensor. With
--- an optimizer whose parameters these are the gradients stay as they are and its next step counts them times the
--- factor: one pass over memory less. (One that cannot scales them at once.) The factor is for these gradients alone:
--- gradients in their place have none, and a backward that would add to them raises. Gradients replaced by them have
--- none, and a backward that would add to them raises. Reading p.grad before the step returns the unclipped value.
--- Clipping again, by norm or by value, sees the clipped one.
--- example: local p = accel.ones(1) p.grad = p * 4 local o = accel.optim.SGD(p, { lr = 1 })
---   accel.nn.utils.clip_grad_norm_({ p }, 0.5, { optimizer = o }) o:step() return p, p.grad --> { 0.5 }, { 4 }
---@param params accel.Tensor[]|accel.Tensor
---@param max_norm number math.huge only measures
---@param ... any norm_type = 2, error_if_nonfinite = false, optimizer, by position or in one table
---@return accel.Tensor
function M.clip_grad_norm_(params, max_norm, ...)
  local o = clip_arguments(...)
  local optimizer, opts = o.optimizer, { norm_type = o.norm_type, error_if_nonfinite = o.error_if_nonfinite }
  local owners = divided.owners
  if owners and type(params) == "table" and select(2, owners.pieces(params)) then -- of sharded models: over all ranks
    check.number("clip_grad_norm_", "max_norm", max_norm, 0)
    return owners.clip_grad_norm(params, max_norm, opts)
  end
  local grads = gradients("clip_grad_norm_", params)
  check.number("clip_grad_norm_", "max_norm", max_norm, 0)
  local later = optimizer and steps_clipped(optimizer, tensors.is_tensor(params) and { params } or params)
    and max_norm < math.huge
  if #grads == 0 then return accel.zeros({}) end
  local norm = accel.clip_grad_norm_(grads, later and math.huge or max_norm, opts)
  core.spend(grads)
  if later then
    local _ <close> = accel.no_grad()
    deferred.put(optimizer, accel.unscoped(function() return (max_norm / (norm:to "f64" + 1e-6)):clamp(nil, 1) end))
  end
  return norm
end

--- Limits every element of every gradient to -limit .. limit.
---@param params accel.Tensor[]|accel.Tensor
---@param limit number
function M.clip_grad_value_(params, limit, ...)
  check.surplus("clip_grad_value_", ...)
  check.number("clip_grad_value_", "limit", limit, 0)
  local grads = gradients("clip_grad_value_", params)
  local _ <close> = accel.no_grad()
  if #grads > 0 then
    deferred.each(grads, function(some) accel.clip_grad_value_(some, limit) end)
  end
  core.spend(grads)
end

--- Takes a prefix off every name of a state_dict that has it, in place: for files that a wrapper wrote.
--- example: local s = {["a.w"] = 1} accel.nn.utils.consume_prefix_in_state_dict_if_present(s, "a.") return s.w --> 1
---@param state table<string, any>
---@param prefix string
function M.consume_prefix_in_state_dict_if_present(state, prefix)
  local names = {}
  for name in next, state do
    if type(name) == "string" and name:sub(1, #prefix) == prefix then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local value = state[name]
    rawset(state, name, nil)
    state[name:sub(#prefix + 1)] = value
  end
end

--- The norm of all tensors together, a rank-0 tensor: of gradients, as clip_grad_norm_ measures them.
--- example: accel.nn.utils.get_total_norm { accel.tensor { 3.0 }, accel.tensor { 4.0 } } --> 5
---@param list accel.Tensor[]|accel.Tensor
---@param ... any norm_type = 2, error_if_nonfinite = false, by position or in one table
---@return accel.Tensor
function M.get_total_norm(list, ...)
  local o = total_arguments(...)
  if tensors.is_tensor(list) then list = { list } end
  if #list == 0 then return accel.zeros({}) end
  return accel.clip_grad_norm_(list, math.huge, { norm_type = o.norm_type, error_if_nonfinite = o.error_if_nonfinite })
end

--- Scales all gradients by max_norm / total_norm, if that is below 1: the second half of clip_grad_norm_.
---@param params accel.Tensor[]|accel.Tensor
---@param max_norm number
---@param total_norm accel.Tensor
function M.clip_grads_with_norm_(params, max_norm, total_norm, ...)
  check.surplus("clip_grads_with_norm_", ...)
  check.number("clip_grads_with_norm_", "max_norm", max_norm, 0)
  local grads = gradients("clip_grads_with_norm_", params)
  local _ <close> = accel.no_grad()
  local factor = (max_norm / (total_norm + 1e-6)):clamp(nil, 1)
  for _, g in ipairs(grads) do g:mul_(factor:to(g.dtype)) end
  core.spend(grads)
end

local rest = require "accel.util.lazy" ("accel.nn.utils", {
  parameters_to_vector = "parameter_vector", vector_to_parameters = "parameter_vector",
  weight_norm = "weight_norm", remove_weight_norm = "weight_norm", rnn = "rnn",
  parametrize = "parametrize", parametrizations = "parametrizations", prune = "prune",
  spectral_norm = "spectral_norm", remove_spectral_norm = "spectral_norm",
  fuse_conv_bn_eval = "fuse", fuse_conv_bn_weights = "fuse", fuse_linear_bn_eval = "fuse", skip_init = "fuse",
})

return setmetatable(M, getmetatable(rest))
