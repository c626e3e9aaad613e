--- nn.Buffer(t, persistent): marks a tensor as a buffer, so that assigning it to a field of a module registers it, as
--- register_buffer does. The result shares t's bytes and does not learn. persistent = false keeps it out of state_dict.
--- example: local N = accel.nn.Module:extend "N" function N:init() self.mean = accel.nn.Buffer(accel.zeros(2)) end
---   return N():state_dict().mean --> { 0, 0 }
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local kinds = setmetatable({}, { __mode = "k" })

--- "buffer" or "temporary" of a tensor that nn.Buffer made, nil of others.
---@param x any
---@return string?
function M.kind(x) return kinds[x] end

---@param t accel.Tensor
---@param persistent? boolean|{persistent: boolean?} default true
---@return accel.Tensor
local function make(_, t, persistent)
  if not tensors.is_tensor(t) then raise("nn.Buffer: expected a tensor, got %s", type(t)) end
  if type(persistent) == "table" then persistent = options("nn.Buffer", persistent, { persistent = true }).persistent end
  local b = t:detach()
  kinds[b] = persistent == false and "temporary" or "buffer"
  return b
end

return setmetatable(M, { __call = make })
