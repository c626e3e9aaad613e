--- Upper and lower case of strings: ASCII, Latin, Greek and Cyrillic letters. Others are unchanged.
local M = {}

local upper_of, lower_of = {}, {}

local function pair(up, low)
  local u, l = utf8.char(up), utf8.char(low)
  upper_of[l], lower_of[u] = u, l
end

for _, range in ipairs {
  { 0xC0, 0xD6, 32 }, { 0xD8, 0xDE, 32 }, { 0x391, 0x3A1, 32 }, { 0x3A3, 0x3A9, 32 }, { 0x410, 0x42F, 32 }, { 0x400, 0x40F, 80 },
} do
  for code = range[1], range[2] do pair(code, code + range[3]) end
end
for _, range in ipairs {
  { 0x100, 0x12E }, { 0x132, 0x136 }, { 0x139, 0x147 }, { 0x14A, 0x176 }, { 0x179, 0x17D }, { 0x460, 0x480 },
  { 0x48A, 0x4BE }, { 0x4D0, 0x52E }, { 0x1E00, 0x1E94 }, { 0x1EA0, 0x1EFE },
} do
  for code = range[1], range[2], 2 do pair(code, code + 1) end
end
pair(0x178, 0xFF)
upper_of["\u{df}"] = "SS"
upper_of["\u{3c2}"] = "\u{3a3}"

local function mapped(s, map, ascii)
  s = ascii(s)
  if s:find "[\128-\255]" then s = s:gsub("[\194-\244][\128-\191]+", map) end
  return s
end

---@param s string
---@return string
function M.upper(s) return mapped(s, upper_of, string.upper) end

---@param s string
---@return string
function M.lower(s) return mapped(s, lower_of, string.lower) end

--- The first character in upper case, the others in lower.
---@param s string
---@return string
function M.capitalize(s)
  local first = s:match("^" .. utf8.charpattern) or ""
  return M.upper(first) .. M.lower(s:sub(#first + 1))
end

return M
