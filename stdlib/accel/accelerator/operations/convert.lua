--- Nested tables of tensors: to a device, to float32. Part of accel.accelerator.operations. Prepared loaders move their
--- batches by send_to_device, and prepared models convert their results by convert_outputs_to_fp32.
local accel = require "accel"
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local walk = require "accel.util.walk"

local M = {}

local is_tensor = accel.is_tensor

local function move(x, device, skip)
  if is_tensor(x) then
    if tostring(x.device) == device then return x end
    return x:to { device = device }
  end
  if type(x) ~= "table" then return x end
  if not walk.is_container(x) then return x:to(device) end
  local out = walk.empty_like(x)
  for key, value in walk.entries(x) do
    walk.set(out, key, skip and skip[key] and value or move(value, device, skip))
  end
  return out
end

--- The tree with its tensors on a device, and with obj:to(device) for objects that have this method. Tensors already on
--- it are not copied. Entries under skip_keys and other leaves stay. non_blocking has no effect.
--- example: accel.accelerator.send_to_device({ x = accel.ones(2), s = "a" }, "cpu") --> { x = { 1, 1 }, s = "a" }
---@param data any
---@param device string
---@param opts? {non_blocking: boolean?, skip_keys: string|string[]|nil}
---@return any
function M.send_to_device(data, device, opts, ...)
  check.surplus("send_to_device", ...)
  if is_tensor(data) and opts == nil then return move(data, tostring(device)) end
  local o = options("send_to_device", opts, { non_blocking = false, skip_keys = options.none })
  if o.non_blocking then no_effect("accel.accelerator.send_to_device", o) end
  local skip
  if o.skip_keys ~= nil then
    skip = {}
    for _, key in ipairs(type(o.skip_keys) == "table" and o.skip_keys or { o.skip_keys }) do skip[key] = true end
  end
  return move(data, tostring(device), skip)
end

--- The tree with f16 and bf16 tensors converted to f32. Other leaves stay.
--- example: accel.accelerator.convert_to_fp32({ accel.ones(2, { dtype = "bf16" }) })[1].dtype --> "f32"
---@param data any
---@return any
function M.convert_to_fp32(data) return walk.widen(data) end

--- A function that calls model_forward and returns its results as convert_to_fp32 gives them.
--- example: local half = function(x) return x:to "f16" end
---   return accel.accelerator.convert_outputs_to_fp32(half)(accel.ones(1)).dtype --> "f32"
---@param model_forward function
---@return function
function M.convert_outputs_to_fp32(model_forward)
  check.callable("convert_outputs_to_fp32", "model_forward", model_forward)
  local function results(first, ...)
    if select("#", ...) == 0 then return walk.widen(first) end
    local rest = table.pack(...)
    for i = 1, rest.n do rest[i] = walk.widen(rest[i]) end
    return walk.widen(first), table.unpack(rest, 1, rest.n)
  end
  return function(...) return results(model_forward(...)) end
end

return M
