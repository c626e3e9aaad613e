--- A JSON object in a file that comes from anywhere; nil, message, code where it cannot be read or is none.
local accel = require "accel"

local MOST <const> = 64 * 1024 * 1024

local function read(path)
  local file, message = io.open(path, "rb")
  if not file then return nil, message, "not_found" end
  local text, why = file:read(MOST + 1)
  file:close()
  if not text then return nil, ("%s: %s"):format(path, why or "is empty"), "format" end
  if #text > MOST then return nil, path .. ": more than 64 MiB of JSON", "format" end
  return text
end

---@param path string
---@return table?, string?, string?
return function(path)
  local text, message, code = read(path)
  if not text then return nil, message, code end
  local ok, value = pcall(accel.json.decode, text)
  if not ok then -- without the script's line, which is not to blame
    return nil, ("%s: %s"):format(path, tostring(value):match "JSON: .*" or tostring(value)), "format"
  end
  if not text:find "^%s*{" then return nil, path .. ": not a JSON object", "format" end
  return value
end

