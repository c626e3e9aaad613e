--- Configurations to text: YAML as Accelerate reads it (sorted keys, words that YAML 1.1 would take for something else in quotes), JSON by
--- the name of the file. Called by accel-run config and to-fsdp2.
local accel = require "accel"
local read = require "accel.config.read"
local scalar = require "accel.config.scalar"
local writer = require "accel.util.writer"
local yaml11 = require "accel.config.yaml11"

local M = {}

--- A plain value as YAML of any version reads it back.
---@return string
function M.scalar(value)
  if type(value) ~= "string" then
    if value == nil then return "null" end
    return type(value) == "boolean" and tostring(value) or scalar.python_number(value)
  end
  local kind = yaml11.pyyaml { kind = "scalar", text = value, style = "plain" }
  local plain = kind == "str" and value:find "^[%w_./][%w_./:@+*,|%%%-]*$" and not value:find ":$" and not value:find ", "
  if plain and tonumber(value) == nil then return value end
  if value:find "[%c]" then
    return '"' .. value:gsub('[%c"\\]', function(c) return ("\\x%02x"):format(c:byte()) end) .. '"'
  end
  return "'" .. value:gsub("'", "''") .. "'"
end

local function put(lines, key, value, indent)
  local pad = (" "):rep(indent)
  if type(value) ~= "table" then
    lines[#lines + 1] = ("%s%s: %s"):format(pad, key, M.scalar(value))
  elseif #value > 0 then
    lines[#lines + 1] = pad .. key .. ":"
    for _, item in ipairs(value) do lines[#lines + 1] = ("%s- %s"):format(pad, M.scalar(item)) end
  elseif next(value) ~= nil then
    lines[#lines + 1] = pad .. key .. ":"
    for k, v in accel.pairs(value) do put(lines, k, v, indent + 2) end
  end
end

--- Fields (accel.config.read.fields) as YAML. Empty sections and nil are left out.
---@param fields table<string, any>
---@return string
function M.yaml(fields)
  local lines = {}
  for key, value in accel.pairs(fields) do put(lines, key, value, 0) end
  return table.concat(lines, "\n") .. "\n"
end

local function without_empty(value)
  local out = {}
  for key, item in next, value do
    if type(item) ~= "table" or next(item) ~= nil then out[key] = item end
  end
  return out
end

--- Writes fields to a file: JSON if its name ends in .json, otherwise YAML. A text that would not be a valid configuration is refused,
--- and the file stays as it was.
---@param fields table<string, any>
---@param path string
---@return boolean? ok
---@return string? message
function M.file(fields, path)
  local plain = without_empty(fields)
  local text = path:find "%.json$" and accel.json.encode(plain, { pretty = true }) .. "\n" or M.yaml(plain)
  local back = (path:find "%.json$" and read.json or read.yaml)(text, path)
  if #back.problems > 0 then return nil, ("%s was not written: %s"):format(path, read.explain(back, back.problems[1])) end
  local dir, ok, why = path:match "^(.+)/[^/]*$", true, nil
  if dir then ok, why = accel.makedirs(dir) end
  if ok then ok, why = writer.file(path, text) end
  if not ok then return nil, why end
  return true
end

return M
