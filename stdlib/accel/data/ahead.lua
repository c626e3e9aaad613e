--- accel.data.ahead: batches of the host on their way to a device before they are asked for. Their tensors go through page-locked memory on
--- a separate stream, so that the copies of a batch overlap with the step on the one before it.
local accel = require "accel"
local core = require "accel.data.core"

--- The state for copies to one device. nil if the device has no streams.
---@class accel.data.Ahead
---@field private copies table
local Ahead = {}
Ahead.__index = Ahead

--- Host tensors in plain tables, at any depth, are replaced by their copies. All other values are unchanged.
local function begin(self, x)
  if accel.is_tensor(x) then
    if tostring(x.device) ~= "cpu" or x.requires_grad then return x end
    local ok, copy = pcall(self.copies.begin, self.copies, x:contiguous())
    if not ok and copy.code ~= "out_of_memory" then error(copy, 0) end
    return ok and copy or x -- without room for two batches it is copied when it is handed out
  end
  if type(x) ~= "table" or getmetatable(x) ~= nil then return x end
  local moved = {}
  for key, value in next, x do moved[key] = begin(self, value) end
  return moved
end

--- Begins to copy a batch. The result may be used after the next join.
---@param batch any
---@return any
function Ahead:begin(batch) return begin(self, batch) end

--- Work queued after this call sees the copied values.
function Ahead:join() self.copies:join() end

--- Ends the copies and joins those in progress.
function Ahead:close() self.copies:close() end
Ahead.__close = Ahead.close

---@param device string
---@return accel.data.Ahead?
return function(device)
  local copies = core.copies(device)
  return copies and setmetatable({ copies = copies }, Ahead)
end
