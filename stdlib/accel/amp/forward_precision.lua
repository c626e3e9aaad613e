--- A model's forward in the mixed precision of an Accelerator, results in f32: put on by prepare_model, taken off by
--- unwrap_model(model, false) and extract_model_from_parallel. This module owns the original forward.
local accel = require "accel"
local guard = require "accel.util.guard"
local walk = require "accel.util.walk"

local M = {}

local DTYPES <const> = { fp16 = "f16", bf16 = "bf16", fp8 = "bf16" }

-- Model -> { ours = the forward that computes in the precision, own = the model's earlier own field, or nil if it used
-- its class's }.
local wrapped = setmetatable({}, { __mode = "k" })

--- The dtype of matrix products and similar ops under a mixed precision. nil for "no".
---@param mixed_precision string
---@return string?
function M.dtype(mixed_precision) return DTYPES[mixed_precision] end

--- Makes forward compute in `dtype`. enabled = false in an AutocastKwargs keeps f32.
---@param model accel.nn.Module
---@param dtype string
--- A model that was prepared before, and forgotten by free_memory, has one wrapper, the last.
---@param enabled boolean
---@param scaling? accel.fp8.Scaling of layers that multiply in fp8
function M.wrap(model, dtype, enabled, scaling)
  M.unwrap(model)
  local own, forward, opts = rawget(model, "forward"), model.forward, { dtype = dtype, enabled = enabled }
  local to_fp32 = walk.widen
  local function in_precision(...)
    local _ <close> = accel.autocast(opts)
    if not scaling then return forward(...) end
    local layer = scaling.first_module
    scaling:enter(model.training, layer and layer.weight.device or "cpu")
    local _ <close> = guard(function() scaling:leave() end)
    return forward(...)
  end
  local function results(first, ...)
    if select("#", ...) == 0 then return to_fp32(first) end
    local all = table.pack(first, ...)
    for i = 1, all.n do all[i] = to_fp32(all[i]) end
    return table.unpack(all, 1, all.n)
  end
  local function ours(...) return results(in_precision(...)) end
  model.forward = ours
  wrapped[model] = { ours = ours, own = own }
end

--- Restores the model's own forward. Does nothing if it is in place, or if the script has set another since.
---@param model accel.nn.Module
function M.unwrap(model)
  local record = wrapped[model]
  wrapped[model] = nil
  if record and rawget(model, "forward") == record.ours then rawset(model, "forward", record.own) end
end

return M
