--- The faults of a configuration: those found while reading, and values without effect in this setup. Called by accel-run
--- config validate and before files are written.
local conditions = require "accel.config.conditions"
local read = require "accel.config.read"
local schema = require "accel.config.schema"

local M = {}

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for i = 1, math.max(#a, #b) do
    if a[i] ~= b[i] then return false end
  end
  return true
end

--- Keys whose values say something although their condition does not hold, as problems.
---@param file accel.config.File
---@return accel.config.Problem[]
function M.without_effect(file)
  local out, values = {}, {}
  for _, row in ipairs(schema.list) do
    values[row.key] = file.values[row.key]
    if values[row.key] == nil then values[row.key] = row.default end
  end
  for _, row in ipairs(schema.list) do
    local key, when = row.key, row.when
    local holds = not when or conditions.holds[when](values)
    -- a section that is given means its condition is wanted, whatever its values
    local said = file.given[key] and file.values[key] ~= nil and (not same(file.values[key], schema.file_default(row)))
    if said and not holds then
      out[#out + 1] = { kind = "effect", key = key, line = file.lines[key],
        message = ("%s has no effect here: it is for %s"):format(key, conditions.words[when]) }
    end
  end
  return out
end

--- Every fault of a file, one line each with file and line. An empty list means that it is valid.
---@param file accel.config.File
---@return string[]
function M.lines(file)
  local all = table.move(file.problems, 1, #file.problems, 1, {})
  if #all == 0 then all = M.without_effect(file) end
  table.sort(all, function(a, b) return (a.line or 0) < (b.line or 0) end)
  local out = {}
  for i, p in ipairs(all) do out[i] = read.explain(file, p) end
  return out
end

return M
