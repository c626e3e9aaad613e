--- Converts texts of configurations to values, by the schema's type of a key, and values to text in Python's form.
local M = {}

local TRUE <const> = { y = true, yes = true, t = true, ["true"] = true, on = true, ["1"] = true }
local FALSE <const> = { n = true, no = true, f = true, ["false"] = true, off = true, ["0"] = true }
local NULL <const> = { [""] = true, ["~"] = true, null = true, Null = true, NULL = true }

--- The truth value of a word, as in variables of the environment. nil for other words.
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

--- Numbers of YAML as they stand in configurations.
M.integer, M.number = integer, number

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
--- the allowed values.
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

--- The value of a text by the key's type. Returns nil and the expected form on failure.
---@param row accel.config.Key
---@param text string
---@return any value
---@return string? expected
function M.typed(row, text)
  local value, expected = (readers[row.type] or readers.text)(text)
  if value == nil then return nil, expected end
  return value
end

--- A node of a file by the key's type: the value, nil for null, or nil and the expected form.
function M.of_node(row, node)
  if M.is_null(node) then return nil end
  if row.type == "table" then return require "accel.config.yaml11".plain(node) end
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

return M
