--- When a row of a generation ends: an id, a string in the decoded text, the greatest length, a time limit, the caller's own
--- criteria. Used by models/generate.lua and the searches.
local accel = require "accel"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

---@class accel.models.Stopping
---@field ends table<integer, boolean>
local Stopping = class("accel.models.Stopping")

--- The ids that end a text, as a set and as a list, and the padding of a finished row.
---@param o table
---@return table<integer, boolean>, integer[], integer?
function Stopping.ends_of(o)
  local given = o.eos_token_id
  local list = type(given) == "table" and given or { given or nil }
  local ends = {}
  for _, id in ipairs(list) do ends[id] = true end
  return ends, list, o.pad_token_id or list[1]
end

--- o: ends, max_width, stop_strings and tokenizer, max_time, stopping_criteria (a function or a list of them).
---@param o table
function Stopping:init(o)
  self.ends, self.max_width, self.strings, self.tokenizer = o.ends, o.max_width, o.stop_strings, o.tokenizer
  self.deadline = o.max_time and accel.clock() + o.max_time
  self.criteria = type(o.stopping_criteria) == "table" and not getmetatable(o.stopping_criteria) and o.stopping_criteria
    or { o.stopping_criteria }
  if self.strings then
    if not self.tokenizer then raise "generate: stop_strings need the option tokenizer, which decodes the generated ids" end
    self.longest = 0
    for _, s in ipairs(self.strings) do self.longest = math.max(self.longest, #s) end
  end
end

--- Whether a stop string ends within the last id of row. It checks as many ids as the longest string has bytes, and a
--- few more, since a decoder may join preceding ids.
function Stopping:string_ends(row)
  local first = math.max(1, #row - self.longest - 8)
  local tail = table.move(row, first, #row, 1, {})
  local text = self.tokenizer:decode(tail, { skip_special_tokens = false })
  local before = self.tokenizer:decode(table.move(tail, 1, #tail - 1, 1, {}), { skip_special_tokens = false })
  for _, s in ipairs(self.strings) do
    local at = text:find(s, 1, true)
    while at do
      if at + #s - 1 > #before or before:sub(at, at + #s - 1) ~= s then return true end
      at = text:find(s, at + 1, true)
    end
  end
  return false
end

--- Whether a row ends with its last id. `row` is the text without padding, `width` its columns.
---@param row integer[]
---@param width integer
---@param scores? accel.Tensor
---@return boolean
function Stopping:row(row, width, scores)
  if self.ends[row[#row]] or width >= self.max_width then return true end
  if self.strings and self:string_ends(row) then return true end
  for _, criterion in ipairs(self.criteria) do
    if criterion(row, scores) then return true end
  end
  return false
end

--- Whether time is up, for every row.
function Stopping:late() return self.deadline ~= nil and accel.clock() >= self.deadline end

--- Whether rows need to be looked at as texts.
function Stopping:reads_rows() return self.strings ~= nil or #self.criteria > 0 end

return Stopping
