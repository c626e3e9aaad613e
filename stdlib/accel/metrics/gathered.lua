--- Marks values that already cover all ranks: gather_for_metrics records its results here, so that a metric counts them
--- once, not once per rank.
local accel = require "accel.core"

local M = {}

local noted = setmetatable({}, { __mode = "k" })

--- Notes a value of all ranks: a tensor, a list, or these nested in tables.
---@param value any
---@return any value
function M.mark(value)
  if accel.is_tensor(value) then
    noted[value] = true
  elseif type(value) == "table" and not noted[value] then
    noted[value] = true
    for _, item in next, value do
      if type(item) ~= "number" then M.mark(item) end
    end
  end
  return value
end

--- Whether gather_for_metrics returned this value.
function M.is(value) return value ~= nil and noted[value] == true end

return M
