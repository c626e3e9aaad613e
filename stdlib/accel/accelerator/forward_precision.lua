--- A model's forward in the mixed precision of an Accelerator, results in f32: put on by prepare_model, taken off by
--- unwrap_model(model, false) and extract_model_from_parallel. Owner of what the forward was before.
local accel = require "accel"

local M = {}

local DTYPES <const> = { fp16 = "f16", bf16 = "bf16" }

-- Model -> the forward that was its own field, or false where it has its class's.
local wrapped = setmetatable({}, { __mode = "k" })

--- The dtype of matrix products and their like under a mixed precision; nil for "no".
---@param mixed_precision string
---@return string?
function M.dtype(mixed_precision) return DTYPES[mixed_precision] end

--- Makes forward compute in `dtype`; enabled = false: in f32 all the same, as an AutocastKwargs may say.
---@param model accel.nn.Module
---@param dtype string
---@param enabled boolean
function M.wrap(model, dtype, enabled)
  local own, forward, opts = rawget(model, "forward"), model.forward, { dtype = dtype, enabled = enabled }
  local to_fp32 = require "accel.accelerator.operations".convert_to_fp32
  local function in_precision(...)
    local _ <close> = accel.autocast(opts)
    return forward(...)
  end
  local function results(first, ...)
    if select("#", ...) == 0 then return to_fp32(first) end
    local all = table.pack(first, ...)
    for i = 1, all.n do all[i] = to_fp32(all[i]) end
    return table.unpack(all, 1, all.n)
  end
  model.forward = function(...) return results(in_precision(...)) end
  wrapped[model] = own or false
end

--- Gives the model its own forward back; nothing where it has it.
---@param model accel.nn.Module
function M.unwrap(model)
  if wrapped[model] == nil then return end
  rawset(model, "forward", wrapped[model] or nil)
  wrapped[model] = nil
end

return M
