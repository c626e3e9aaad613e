--- The remaining budget of one rendering. The one unit is the step: about 100 ns of one core and at most 16 bytes of memory, so that a
--- bound on steps bounds both. Everything that a template can make grow or walk through passes here, and is charged before it happens.
local limits = require "accel.text.jinja.limits"

local problem = limits.problem

---@class accel.text.jinja.Budget
---@field left integer steps
---@field string integer bytes that one string, and the output, may have
---@field line integer? of the template, for messages
local Budget = {}
Budget.__index = Budget

local function spent(self)
  problem(self.line, "takes more work than a template may: %d ms and %d MiB for every %d KiB that it reads or writes; if you trust the template, "
    .. "raise the bound: limit = 10 allows ten times as much", limits.STEPS // 10000, limits.STEPS * 16 + (1 << 19) >> 20, limits.SHARE >> 10)
end

--- Charges n steps, and one for the call.
function Budget:work(n)
  local left = self.left - n - 1
  self.left = left
  if left < 0 then spent(self) end
end

--- Output was written, or input given: both allow for more.
---@param bytes integer
function Budget:earn(bytes) self.left = self.left + bytes * self.per_share // limits.SHARE end

--- Charges a string of n bytes that is about to be made.
function Budget:bytes(n, line)
  if n > self.string then problem(line or self.line, "a string of %d bytes, at most %d are made", n, self.string) end
  self:work(n // 16)
end

--- parts[1] .. sep .. parts[2] ...
---@param parts string[]
---@param sep string
---@param line? integer
---@return string
function Budget:joined(parts, sep, line)
  local n = #sep * math.max(0, #parts - 1)
  for _, s in ipairs(parts) do n = n + #s end
  self:bytes(n, line)
  return table.concat(parts, sep)
end

--- Charges a search for x in s, which compares x at every place in the worst case.
function Budget:search(s, x) self:work((math.max(0, #s - #x) + 16) * (1 + #x // 64) // 16) end

--- Raises if a list would have more than n entries.
function Budget:items(n, line)
  if n > limits.ITEMS then problem(line or self.line, "a list of %d entries, at most %d are made", n, limits.ITEMS) end
  self:work(n)
end

--- input: bytes of the input. limit: the multiple of the usual steps and bytes.
---@param input integer
---@param limit? number
---@return accel.text.jinja.Budget
return function(input, limit)
  limit = limit or 1
  local self = setmetatable({ left = math.floor(limits.STEPS * limit), per_share = math.floor(limits.STEPS * limit),
    string = math.floor((limits.STRING + 4 * input) * limit) }, Budget)
  self:earn(input)
  return self
end
