--- Text of configurations to values. typed() follows the type that the schema gives to a key, which is what configurations are read
--- by; pyyaml() follows PyYAML's rules (YAML 1.1), for those who want to know what the reference made of a text.
local M = {}

local TRUE <const> = { y = true, yes = true, t = true, ["true"] = true, on = true, ["1"] = true }
local FALSE <const> = { n = true, no = true, f = true, ["false"] = true, off = true, ["0"] = true }
local NULL <const> = { [""] = true, ["~"] = true, null = true, Null = true, NULL = true }

--- The truth of a word, as in variables of the environment; nil for other words.
---@return boolean?
function M.truth(text)
  local word = text:lower()
  if TRUE[word] then return true end
  if FALSE[word] then return false end
  return nil
end

--- A number as Python writes it: 1.0, 1e-05, inf.
---@param value number
---@return string
function M.python_number(value)
  if math.type(value) == "integer" then return ("%d"):format(value) end
  if value ~= value then return "nan" end
  if value == math.huge then return "inf" elseif value == -math.huge then return "-inf" end
  local text
  for digits = 1, 17 do
    text = ("%." .. digits .. "g"):format(value)
    if tonumber(text) == value then break end
  end
  local exponent = value == 0 and 0 or math.floor(math.log(math.abs(value), 10) + 1e-12)
  if text:find "e" and exponent > -5 and exponent < 16 then text = ("%.0f"):format(value) end
  if not text:find "[.en]" then text = text .. ".0" end
  return text
end

--- A plain value as Python's str() shows it.
---@return string
function M.python_text(value)
  if value == nil then return "None" end
  if value == true then return "True" elseif value == false then return "False" end
  if type(value) == "number" then return M.python_number(value) end
  return tostring(value)
end

--- Whether a node is YAML's null.
function M.is_null(node)
  if node.kind ~= "scalar" then return false end
  if node.tag == "null" then return true end
  return node.style == "plain" and node.value == nil and NULL[node.text] == true
end

local function integer(text)
  return text:find "^[-+]?%d+$" and math.tointeger(tonumber((text:gsub("^%+", "")))) or nil
end

local function number(text)
  if not text:find "^[-+]?[%d.]+[eE]?[-+]?%d*$" or not text:find "%d" then return nil end
  return tonumber((text:gsub("^%+", "")))
end

local readers = {}

function readers.int(text) return integer(text), "a whole number" end
function readers.float(text)
  local value = number(text)
  return value and value + 0.0, "a number"
end
function readers.bool(text) return M.truth(text), "true or false" end
readers.switch = readers.bool
function readers.text(text) return text end
readers.word = readers.text
function readers.int_or_word(text) return integer(text) or text end
function readers.auto_int(text) return text == "auto" and text or integer(text), "a whole number or auto" end
function readers.auto_float(text) return text == "auto" and text or number(text), "a number or auto" end
function readers.texts(text)
  local list = {}
  for word in text:gmatch "[^,]+" do list[#list + 1] = word end
  return list
end
function readers.bools(text)
  local list = {}
  for word in text:gmatch "[^,%s]+" do
    local value = M.truth(word)
    if value == nil then return nil, "a list of true and false" end
    list[#list + 1] = value
  end
  return #list > 0 and list or nil, "a list of true and false"
end

--- Whether a value of the right type is one of those that the key may have. Returns the value in the schema's spelling, or nil and
--- what is allowed.
---@param row accel.config.Key
---@param environment? string the compute environment
function M.allowed(row, value, environment)
  if type(value) == "number" and (row.least and value < row.least or row.most and value > row.most) then
    return nil, row.most and ("a number in %s .. %s"):format(row.least, row.most) or ("a number from %s on"):format(row.least)
  end
  local allowed = row.allowed_in and row.allowed_in[environment] or row.allowed
  if not allowed or type(value) == "table" then return value end
  local names = {}
  for i, word in ipairs(allowed) do
    if value == word then return value end
    if row.any_case and type(value) == "string" and value:lower() == word:lower() then return value end
    names[i] = tostring(word)
  end
  return nil, "one of " .. table.concat(names, ", ")
end

--- The value of a text by the key's type. Returns nil and what was expected where it is none.
---@param row accel.config.Key
---@param text string
---@return any value
---@return string? expected
function M.typed(row, text)
  local value, expected = (readers[row.type] or readers.text)(text)
  if value == nil then return nil, expected end
  return value
end

--- A node of a file by the key's type: value; nil for null; nil, expected.
function M.of_node(row, node)
  if M.is_null(node) then return nil end
  if row.type == "table" then return M.plain(node) end
  local lists = row.type == "texts" or row.type == "bools"
  if node.kind == "map" then return nil, lists and "a list" or "one value" end
  if node.kind == "list" then
    if not lists then return nil, "one value" end
    local list = {}
    for i, item in ipairs(node) do
      if item.kind ~= "scalar" then return nil, "a list of plain values" end
      list[i] = row.type == "texts" and item.text or M.truth(item.text)
      if list[i] == nil then return nil, "a list of true and false" end
    end
    return list
  end
  if row.type == "texts" then return { node.text } end
  return M.typed(row, node.text)
end

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

--- Groups of minutes behind the first number: each below 60.
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

--- A node as plain data by YAML's core schema (1.2), for what no key describes.
function M.plain(node)
  if node.value ~= nil then return node.value end
  if node.kind == "scalar" then
    if M.is_null(node) then return nil end
    if node.style ~= "plain" or node.tag == "str" then return node.text end
    local word = node.text:lower()
    if (word == "true" or word == "false") and one_case(node.text) then return word == "true" end
    return integer(node.text) or number(node.text) or node.text
  end
  local out = {}
  for i, item in ipairs(node) do
    if node.kind == "map" then out[item.key] = M.plain(item.value) else out[i] = M.plain(item) end
  end
  return out
end

return M
