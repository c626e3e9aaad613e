--- A JSON object in a file from any source. nil, message, code if it cannot be read or is not an object. A switch of the folder's files
--- that a killed process began is completed first (accel.util.writer), since such files name others of their folder.
local accel = require "accel"
local read_file = require "accel.util.read_file"
local writer = require "accel.util.writer"

local MOST <const> = 64 * 1024 * 1024

---@param path string
---@param opts? {nulls: boolean?, ordered: boolean?} of accel.json.decode
---@return table?, string?, string?
return function(path, opts)
  local text, ok, value
  local whole, message, code = writer.recover(path:match "^(.+)/[^/]*$" or path:match "^/" or ".")
  if whole then text, message, code = read_file(path, MOST) end
  if not text then return nil, message, code end
  ok, value = pcall(accel.json.decode, text, opts)
  if not ok then -- without the script's line, which is not to blame
    return nil, ("%s: %s"):format(path, tostring(value):match "JSON: .*" or tostring(value)), "format"
  end
  if not text:find "^%s*{" then return nil, path .. ": not a JSON object", "format" end
  return value
end

