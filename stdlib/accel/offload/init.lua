--- accel.offload: where the bytes of a tensor or a model lie. Models get there by accel.accelerator.dispatch_model,
--- cpu_offload, disk_offload and load_checkpoint_and_dispatch; training by the plugins of the Accelerator.
local check = require "accel.util.check"
local core = require "accel.offload.core"
local raise = require "accel.util.raise"

local M = {}

--- "host" or "file" for a tensor whose home is host memory or a file; nil for an ordinary one.
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

--- Says that a model's tensors are in these tiers; for the functions that put them there.
---@param model accel.nn.Module
---@param tiers accel.offload.Tiers?
function M._set(model, tiers) of_model[model] = tiers end

--- The tiers of a model; nil where it has none.
---@param model accel.nn.Module
---@return accel.offload.Tiers?
function M._get(model) return of_model[model] end

--- What was moved for a model between its tiers: bytes, calls and seconds by tier, uses and waits by device, and `hidden`, the
--- share of the time of moving bytes that no use waited for. nil for a model without tiers.
---@param model accel.nn.Module
---@return table?
function M.stats(model)
  local Module = require "accel.nn.module"
  if not Module.is_module(model) then raise("accel.offload.stats: expected a module, got %s", check.shown(model)) end
  local tiers = of_model[model]
  return tiers and tiers:stats()
end

return M
