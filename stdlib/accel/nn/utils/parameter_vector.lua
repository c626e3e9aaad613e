--- All parameters as one vector and back.
local accel = require "accel"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local function list_of(who, params)
  if tensors.is_tensor(params) then params = { params } end
  if type(params) ~= "table" then raise("%s: expected a list of parameters, got %s", who, check.shown(params)) end
  return params
end

--- The elements of all parameters in a row, in their order. Gradients flow through it.
--- example: accel.nn.utils.parameters_to_vector { accel.ones(2), accel.zeros(1, 1) } --> { 1, 1, 0 }
---@param params accel.Tensor[]
---@return accel.Tensor
function M.parameters_to_vector(params)
  local parts = {}
  for i, p in ipairs(list_of("parameters_to_vector", params)) do parts[i] = p:reshape(-1) end
  if #parts == 0 then raise "parameters_to_vector: the list has no parameters" end
  return accel.cat(parts, 1)
end

--- Copies consecutive pieces of vector into the parameters.
--- example: local p = accel.zeros(2) accel.nn.utils.vector_to_parameters(accel.ones(2), { p }) return p --> { 1, 1 }
---@param vector accel.Tensor
---@param params accel.Tensor[]
function M.vector_to_parameters(vector, params)
  params = list_of("vector_to_parameters", params)
  if not tensors.is_tensor(vector) or vector.ndim ~= 1 then
    raise("vector_to_parameters: expected a tensor of rank 1, got %s",
      tensors.is_tensor(vector) and "shape " .. tensors.shape_string(vector) or check.shown(vector))
  end
  local total, at = 0, 1
  for _, p in ipairs(params) do total = total + p:numel() end
  if total ~= vector:numel() then
    raise("vector_to_parameters: %d elements do not fit parameters of %d", vector:numel(), total)
  end
  local _ <close> = accel.no_grad()
  for _, p in ipairs(params) do
    p:copy_(vector:narrow(1, at, p:numel()):view(p.shape))
    at = at + p:numel()
  end
end

return M
