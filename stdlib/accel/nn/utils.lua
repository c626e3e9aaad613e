--- nn.utils: gradient clipping, and what is loaded on first use from nn/utils/: parameters as a vector, weight
--- norm, sequences of different lengths.
local accel = require "accel"
local core = require "accel.optim.core"
local check = require "accel.util.check"
local class = require "accel.util.class"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- Handles of the gradients that are there, to be spent.
local function gradients(who, params)
  if tensors.is_tensor(params) then params = { params } end
  if type(params) ~= "table" then
    raise("%s: expected parameters or a list of them, got %s", who, check.shown(params))
  end
  if rawlen(params) == 0 and (class.of(params) or ordered.is(params)) then -- nothing would be clipped
    raise("%s: expected a list of parameters, net:parameters(), got %s", who, class.of(params) and "a module"
      or "parameters by name")
  end
  local found, all = core.gradients(params)
  if all then return found end
  local grads = {}
  for _, grad in ipairs(found) do
    if grad then grads[#grads + 1] = grad end
  end
  return grads
end

--- Scales all gradients together so that their norm is at most max_norm. Returns the norm before, a rank-0
--- tensor.
---@param params accel.Tensor[]|accel.Tensor
---@param max_norm number math.huge only measures
---@param opts? {norm_type: number?}
---@return accel.Tensor
function M.clip_grad_norm_(params, max_norm, opts)
  local grads = gradients("clip_grad_norm_", params)
  check.number("clip_grad_norm_", "max_norm", max_norm, 0)
  if #grads == 0 then return accel.zeros({}) end
  local norm = accel.clip_grad_norm_(grads, max_norm, opts)
  core.spend(grads)
  return norm
end

--- Limits every element of every gradient to -limit .. limit.
---@param params accel.Tensor[]|accel.Tensor
---@param limit number
function M.clip_grad_value_(params, limit)
  check.number("clip_grad_value_", "limit", limit, 0)
  local grads = gradients("clip_grad_value_", params)
  local _ <close> = accel.no_grad()
  if #grads > 0 then accel.clip_grad_value_(grads, limit) end
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

local rest = require "accel.util.lazy" ("accel.nn.utils", {
  parameters_to_vector = "parameter_vector", vector_to_parameters = "parameter_vector",
  weight_norm = "weight_norm", remove_weight_norm = "weight_norm", rnn = "rnn",
  parametrize = "parametrize", parametrizations = "parametrizations",
})

return setmetatable(M, getmetatable(rest))
