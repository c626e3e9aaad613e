--- Parameters of 16 bits that train in mixed precision become f32 before they are divided over ranks: an update that is smaller than
--- their rounding is lost otherwise. Accelerate holds them so under FSDP, DeepSpeed and Megatron-LM hold f32 masters. Called by
--- accelerator/prepare.lua, and by whoever makes frozen parameters learn later.
local accel = require "accel"
local divided = require "accel.nn.divided"
local core = require "accel.shard.core"

local M = {}

local HALF <const> = { f16 = true, bf16 = true }

--- Whether a parameter trains in 16 bits.
---@param p accel.Tensor
---@return boolean
function M.low(p) return p.requires_grad and HALF[p.dtype] ~= nil and not p.quant_state end

--- Whether any parameter of a model does.
---@param model accel.nn.Module
---@return boolean
function M.any(model)
  for _, p in ipairs(model:parameters()) do
    if M.low(p) then return true end
  end
  return false
end

--- A parameter becomes f32 under its identity: optimizers, ties and hooks stay. Its gradient follows.
---@param p accel.Tensor
function M.cast(p)
  local _ <close> = accel.no_grad()
  local zero, grad = divided.creation, p.grad
  p.grad = nil
  if not (zero and zero.cast(p, "f32")) then
    local wide <close> = accel.unscoped(function() return p:detach():to("f32"):contiguous() end)
    core.bind(p, wide, 0)
  end
  if grad then p.grad = accel.unscoped(grad.to, grad, "f32") end
end

--- Casts all parameters of a model that train in 16 bits.
---@param model accel.nn.Module
---@return string[] names in the order of the model
function M.model(model)
  local names = {}
  for name, p in pairs(model:named_parameters()) do
    if M.low(p) then
      M.cast(p)
      names[#names + 1] = name
    end
  end
  return names
end

--- Parameters of a sharded model whose parts have 16 bits.
---@param engine accel.shard.Engine|accel.dist.Reducer
---@return string[] names
function M.rounded(engine)
  local names = {}
  for _, unit in ipairs(engine.units or {}) do
    if unit.learns and HALF[unit.master] then table.move(unit.names, 1, #unit.names, #names + 1, names) end
  end
  return names
end

return M
