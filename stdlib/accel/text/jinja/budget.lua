--- What one rendering may still cost: steps, bytes of strings. Everything that a template can make grow passes here.
local limits = require "accel.text.jinja.limits"

local problem = limits.problem

local Budget = {}
Budget.__index = Budget

--- Counts n steps.
function Budget:work(n)
  local left = self.left - n - 1
  self.left = left
  if left < 0 then problem(self.line, "takes more than %d steps", limits.WORK) end
end

--- parts[1] .. sep .. parts[2] ...
---@param parts string[]
---@param sep string
---@param line? integer
---@return string
function Budget:joined(parts, sep, line)
  local n = #sep * math.max(0, #parts - 1)
  for _, s in ipairs(parts) do n = n + #s end
  if n > limits.STRING then problem(line or self.line, "a string of %d bytes, at most %d are made", n, limits.STRING) end
  self:work(n // 16)
  return table.concat(parts, sep)
end

--- Raises where a list would have more than n entries.
function Budget:items(n, line)
  if n > limits.ITEMS then problem(line or self.line, "a list of %d entries, at most %d are made", n, limits.ITEMS) end
  self:work(n)
end

return function() return setmetatable({ left = limits.WORK }, Budget) end
