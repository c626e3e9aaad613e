--- nn.Parameter(t, requires_grad): marks a tensor as a parameter, so that assigning it to a field of a
--- module registers it. The result is a leaf that shares t's bytes.
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- The device of new parameters. nil: they stay on their tensor's device (accel.accelerator.init_on_device).
---@type string?
M.device = nil

--- Rises when a module converts or moves a parameter.
M.conversions = 0

local marked = setmetatable({}, { __mode = "k" })

--- Whether x was made by nn.Parameter.
---@param x any
function M.is(x) return marked[x] or false end

---@param t accel.Tensor
---@param requires_grad? boolean default true
---@return accel.Tensor
local function make(_, t, requires_grad)
  if not tensors.is_tensor(t) then raise("nn.Parameter: expected a tensor, got %s", type(t)) end
  local p = t:detach()
  if M.device and p.device ~= M.device then p = p:to(M.device) end
  if requires_grad ~= false then p:requires_grad_(true) end
  marked[p] = true
  return p
end

return setmetatable(M, { __call = make })
