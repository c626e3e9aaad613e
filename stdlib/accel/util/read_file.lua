--- The text of a file that comes from anywhere: a regular file of at most so many bytes.
local open_read = require("accel.file.core").open_read

local ENOENT <const> = 2

---@param path string
---@param most integer bytes
---@return string? text
---@return string? message
---@return string? code
return function(path, most)
  local file, message, errno = open_read(path)
  if not file then return nil, message, errno == ENOENT and "not_found" or "io" end
  local text, why = file:read(most + 1)
  file:close()
  if why then return nil, ("%s: %s"):format(path, why), "io" end
  if text and #text > most then return nil, ("%s: more than %d bytes"):format(path, most), "format" end
  return text or ""
end
