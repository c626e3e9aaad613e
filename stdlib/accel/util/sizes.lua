--- Sizes in bytes: read from text such as "5GB", printed for people. Accelerate's names are accel.accelerator.convert_bytes
--- and convert_file_size_to_int.
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local M = {}

--- Bytes for people, in steps of 1024.
--- example: accel.accelerator.convert_bytes(433249280) --> "413.18 MB"
---@param size number
---@return string
function M.convert_bytes(size)
  check.number("convert_bytes", "size", size, 0)
  local units, i = { "bytes", "KB", "MB", "GB", "TB", "PB" }, 1
  while size >= 1024 and i < #units do size, i = size / 1024, i + 1 end
  if math.type(size) == "integer" then return ("%d %s"):format(size, units[i]) end
  local text = ("%.2f"):format(size):gsub("(%.%d)0$", "%1")
  return ("%s %s"):format(text, units[i])
end

local POWERS <const> = { K = 1, M = 2, G = 3, T = 4, P = 5 }

--- What parse takes, for messages.
M.EXPECTED = "a number of bytes or a size such as 512M, 8GiB or 5GB (M and MiB are 2^20 bytes, MB is 10^6)"

--- Bytes of a size. This is the only grammar of sizes in Lua: a number of bytes, or text with a number and a unit in either case:
--- K M G T P and KiB MiB GiB TiB PiB are powers of 2^10, KB MB GB TB PB are powers of 10^3, B and no unit are bytes. Digits may
--- have underscores and an exponent. nil for anything else.
---@param size any
---@return integer?
function M.parse(size)
  local bytes = math.type(size) and size or nil
  if type(size) == "string" then
    local digits, letter, rest = size:match "^%s*([%d.][%d._eE+-]*)%s*([KMGTPkmgtp]?)([Ii]?[Bb]?)%s*$"
    local number = digits and tonumber((digits:gsub("(%d)_(%d)", "%1%2")))
    if not number or rest:lower() == "i" or (letter == "" and #rest == 2) then return nil end
    bytes = letter == "" and number or number * (#rest == 1 and 1000 or 1024) ^ POWERS[letter:upper()]
  end
  if not bytes or bytes ~= bytes or bytes < 0 or bytes > 2 ^ 62 then return nil end
  return math.floor(bytes)
end

--- Bytes of an option that is a size; raises unless it is one.
---@param who string
---@param name string
---@param size any
---@return integer
function M.check(who, name, size)
  local bytes = M.parse(size)
  if not bytes then raise("%s: %s must be %s, got %s", who, name, M.EXPECTED, check.shown(size)) end
  return bytes
end

--- Bytes for people, with the unit that is at most the number: "1.5 GiB", "512 B".
---@param bytes number
---@return string
function M.text(bytes)
  local units, i = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" }, 1
  while math.abs(bytes) >= 1024 and i < #units do bytes, i = bytes / 1024, i + 1 end
  return (i == 1 and "%d %s" or "%.2f %s"):format(i == 1 and math.floor(bytes) or bytes, units[i])
end

--- Accelerate's rule for max_memory: bytes of a number, or of text such as "5GB" (10^9) and "2GiB" (2^30). A small b at the end of KB, MB, GB
--- means bits there: "8Gb" and "8gb" are 10^9 bytes.
--- example: accel.accelerator.convert_file_size_to_int "1.5GB" --> 1500000000
---@param size integer|string
---@return integer
function M.convert_file_size_to_int(size)
  local who = "convert_file_size_to_int"
  if type(size) ~= "string" then return check.count(who, "size", size) end
  local bytes = M.parse(size)
  if not bytes then raise("%s: invalid size '%s'; expected %s", who, size, M.EXPECTED) end
  return size:find "[kmgtpKMGTP]b%s*$" and bytes // 8 or bytes
end

return M
