--- nn.utils: gradient clipping.
local accel = require "accel"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local function gradients(who, params)
  if tensors.is_tensor(params) then params = { params } end
  if type(params) ~= "table" then
    raise("%s: expected parameters or a list of them, got %s", who, check.shown(params))
  end
  local grads = {}
  for _, p in ipairs(params) do
    local grad = p.grad
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
  if opts then return accel.clip_grad_norm_(grads, max_norm, opts) end
  return accel.clip_grad_norm_(grads, max_norm)
end

--- Limits every element of every gradient to -limit .. limit.
---@param params accel.Tensor[]|accel.Tensor
---@param limit number
function M.clip_grad_value_(params, limit)
  check.number("clip_grad_value_", "limit", limit, 0)
  local _ <close> = accel.no_grad()
  for _, grad in ipairs(gradients("clip_grad_value_", params)) do grad:clamp_(-limit, limit) end
end

return M
