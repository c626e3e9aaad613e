--- Scalars without a schema. pyyaml() follows PyYAML's rules (YAML 1.1), to find the reference's reading of a text. plain() follows
--- YAML's core schema, for tables that no key describes.
local scalar = require "accel.config.scalar"

local M = {}

local NULL <const> = { [""] = true, ["~"] = true, null = true, Null = true, NULL = true }

local function digits(text, base)
  local sign, rest = text:match "^([-+]?)(.*)$"
  rest = rest:gsub("_", "")
  local value = tonumber(rest, base)
  if base == 10 and not math.tointeger(tonumber(rest) or 0.5) then return nil, (sign == "-" and "-" or "") .. rest end
  if not value then return nil, text end
  return sign == "-" and -value or value
end

local function sexagesimal(text)
  local sign, rest = text:match "^([-+]?)(.*)$"
  local value = 0
  for part in rest:gmatch "[^:]+" do value = value * 60 + tonumber((part:gsub("_", ""))) end
  return sign == "-" and -value or value
end

--- Groups of minutes after the first number: each below 60.
local function is_sexagesimal(text, fraction)
  local first, rest = text:match "^[-+]?(%d[%d_]*)(:.*)$"
  if not first then return false end
  if fraction then
    local whole, tail = rest:match "^(.*)%.([%d_]*)$"
    if not whole or not tail then return false end
    rest = whole
  elseif not first:find "^[1-9]" then
    return false
  end
  local n = 0
  for part in rest:gmatch ":([^:]*)" do
    if not part:find "^[0-5]?%d$" then return false end
    n = n + 1
  end
  return n > 0
end

local CORE <const> = { ["true"] = true, ["false"] = false, yes = true, no = false, on = true, off = false }

local function one_case(text) return text == text:lower() or text == text:upper() or text == text:sub(1, 1):upper() .. text:sub(2):lower() end

local function plain_1_1(text)
  if NULL[text] then return "NoneType", nil end
  local word = CORE[text:lower()]
  if word ~= nil and one_case(text) then return "bool", word end
  local base = text:find "^[-+]?0b[01_]+$" and 2 or text:find "^[-+]?0x[%x_]+$" and 16 or text:find "^[-+]?0[0-7_]+$" and 8
  if base == 2 or base == 16 then
    return "int", digits(text:gsub("^([-+]?)0[bx]", "%1"), base)
  elseif base == 8 then
    return "int", digits(text, 8)
  end
  if text:find "^[-+]?[1-9][%d_]*$" or text:find "^[-+]?0$" then return "int", digits(text, 10) end
  if is_sexagesimal(text) then return "int", sexagesimal(text) end
  if text:find "^[-+]?%d[%d_]*%.[%d_]*$" or text:find "^[-+]?%d[%d_]*%.[%d_]*[eE][-+]%d+$" or text:find "^%.%d[%d_]*$"
    or text:find "^%.%d[%d_]*[eE][-+]%d+$" then
    local sign, rest = text:match "^([-+]?)(.*)$"
    local value = tonumber((rest:gsub("_", ""))) + 0.0
    return "float", sign == "-" and -value or value
  end
  if is_sexagesimal(text, true) then return "float", sexagesimal(text) + 0.0 end
  local sign, special = text:match "^([-+]?)%.(%a+)$"
  if special == "inf" or special == "Inf" or special == "INF" then return "float", sign == "-" and -math.huge or math.huge end
  if sign == "" and (special == "nan" or special == "NaN" or special == "NAN") then return "float", 0 / 0 end
  if text:find "^%d%d%d%d%-%d%d%-%d%d$" then return "date", text end
  if text:find "^%d%d%d%d%-%d%d?%-%d%d?[Tt ]%s*%d%d?:%d%d:%d%d" then return "datetime", text end
  if text == "=" or text == "<<" then return "error", "a key word of YAML 1.1 that has no value" end
  return "str", text
end

--- Type and value of a scalar by YAML 1.1, as PyYAML's safe_load has them: "NoneType", "bool", "int", "float", "str", "date",
--- "datetime", or "error" and why. An integer that 64 bits do not hold comes as nil, with its digits third.
---@return string type
---@return any value
---@return string? digits
function M.pyyaml(node)
  local tag = node.tag
  if tag == "str" or (not tag and node.style ~= "plain") then return "str", node.text end
  if not tag then return plain_1_1(node.text) end
  local kind, value, text = plain_1_1(node.text)
  if tag == "float" and kind == "int" then return "float", value + 0.0 end
  return kind, value, text
end

--- A node as plain data by YAML's core schema (1.2), for content that no key describes.
function M.plain(node)
  if node.value ~= nil then return node.value end
  if node.kind == "scalar" then
    if scalar.is_null(node) then return nil end
    if node.style ~= "plain" or node.tag == "str" then return node.text end
    local word = node.text:lower()
    if (word == "true" or word == "false") and one_case(node.text) then return word == "true" end
    return scalar.integer(node.text) or scalar.number(node.text) or node.text
  end
  local out = {}
  for i, item in ipairs(node) do
    if node.kind == "map" then out[item.key] = M.plain(item.value) else out[i] = M.plain(item) end
  end
  return out
end

return M
