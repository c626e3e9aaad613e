--- accel.offload: the memory tier of a tensor or a model. Models move to tiers by accel.accelerator.dispatch_model,
--- cpu_offload, disk_offload and load_checkpoint_and_dispatch, and training by the Accelerator's plugins.
local check = require "accel.util.check"
local core = require "accel.offload.core"
local raise = require "accel.util.raise"

local M = {}

--- "host" or "file" for a tensor whose home is host memory or a file. nil for an ordinary one.
--- example: local m = accel.accelerator.cpu_offload(accel.nn.Linear(2, 1)) return accel.offload.tier(m.weight) --> "host"
---@param t accel.Tensor
---@return "host"|"file"|nil
function M.tier(t)
  local tier = core.tier(t)
  return tier
end

--- Whether a tensor's bytes are in its device's memory now.
--- example: accel.offload.is_resident(accel.ones(2)) --> true
---@param t accel.Tensor
---@return boolean
function M.is_resident(t)
  local tier, resident = core.tier(t)
  return tier == nil or resident
end

--- See stdlib/accel/offload/activations.lua.
function M.activations(...) return require "accel.offload.activations"(...) end

local of_model = setmetatable({}, { __mode = "k" })

--- Records that a model's tensors are in these tiers, for the functions that put them there.
---@param model accel.nn.Module
---@param tiers accel.offload.Tiers?
function M._set(model, tiers) of_model[model] = tiers end

--- The tiers of a model, or nil.
---@param model accel.nn.Module
---@return accel.offload.Tiers?
function M._get(model) return of_model[model] end

--- Transfers between the tiers of a model: bytes, calls and seconds by tier, uses and waits by device, and `hidden`, the share
--- of transfer time overlapped with compute. nil for a model without tiers.
---@param model accel.nn.Module
---@return table?
function M.stats(model)
  local Module = require "accel.nn.module"
  if not Module.is_module(model) then raise("accel.offload.stats: expected a module, got %s", check.shown(model)) end
  local tiers = of_model[model]
  return tiers and tiers:stats()
end

return M
