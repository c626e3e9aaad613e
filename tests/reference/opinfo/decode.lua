-- Arguments of PyTorch as make/opinfo.py and make/modinfo.py write them.
local accel = require "accel"
local spell = require "opinfo.spell"

local M = { dim = spell.dim, layout = nil }

--- The tensors of a file by key. Complex ones are stored as pairs, with a "c" after their key.
function M.tensors(path)
  local data = assert(accel.load(path))
  for key, t in pairs(data) do
    if key:sub(-1) == "c" then data[key] = t:view_as_complex() end
  end
  return data
end

--- A copy of t in the layout that M.layout names: nil packed, "strided" with other numbers after each element and before the first, "transposed" by
--- columns.
function M.copy(t)
  if M.layout == "transposed" and t.ndim > 1 then return t:transpose(-1, -2):contiguous():transpose(-1, -2) end
  if M.layout ~= "strided" then return t:clone() end
  local other = t.dtype == "bool" and t:logical_not() or t:flip { 1 }
  return accel.stack({ other, t, other }, -1):select(-1, 2)
end

--- A function that reads a JSON file of the folder.
function M.reader(folder)
  return function(name)
    local f = assert(io.open(folder .. "/" .. name, "rb"))
    local text = f:read "a"
    f:close()
    return accel.json.decode(text)
  end
end

local function number(text)
  return text == "nan" and 0 / 0 or text == "inf" and math.huge or text == "-inf" and -math.huge or tonumber(text) + 0.0
end

--- A value; every tensor goes to inputs, in order.
function M.value(v, data, inputs)
  if type(v) ~= "table" then return v end
  if v.tensor then
    local t = M.copy(data[v.tensor])
    if v.grad then t.requires_grad = true end
    inputs[#inputs + 1] = t
    return t
  end
  if v.float then return number(v.float) end
  if v.int then return math.tointeger(v.int) or tonumber(v.int) end
  if v.none then return nil end
  if v.dtype then return v.dtype end
  if v.device then return v.device end
  if v.ellipsis then return spell.ellipsis end
  if v.slice then
    local s = {}
    for i = 1, 3 do s[i] = M.value(v.slice[i], data, inputs) end
    return setmetatable(s, spell.slice)
  end
  local out = {}
  for i = 1, #v.list do
    local x = M.value(v.list[i], data, inputs)
    if x == nil then x = false end -- None in a list
    out[i] = x
  end
  return out
end

local function first_key(v)
  if type(v) ~= "table" then return -1 end
  if v.tensor then return tonumber(v.tensor:match "%d+") end
  local least = -1
  for _, x in ipairs(v.list or {}) do
    local k = first_key(x)
    if k >= 0 and (least < 0 or k < least) then least = k end
  end
  return least
end

--- Positional arguments with n, named ones, and the tensors among them in order.
function M.arguments(case, data)
  local inputs, args, kwargs = {}, { n = #case.args }, {}
  for i, v in ipairs(case.args) do args[i] = M.value(v, data, inputs) end
  local order = {} -- that of the file: keys of tensors are numbered
  for name, v in pairs(case.kwargs) do order[#order + 1] = { name, first_key(v) } end
  table.sort(order, function(a, b) return a[2] < b[2] or a[2] == b[2] and a[1] < b[1] end)
  for _, row in ipairs(order) do kwargs[row[1]] = M.value(case.kwargs[row[1]], data, inputs) end
  return args, kwargs, inputs
end

local none = require("opinfo.compare").none

--- Results as one list; nil is compare.none.
function M.flat(out, list)
  list = list or {}
  for i = 1, out.n or #out do
    local v = out[i]
    if type(v) == "table" then M.flat(v, list)
    elseif v == nil then list[#list + 1] = none
    else list[#list + 1] = v end
  end
  return list
end

return M
