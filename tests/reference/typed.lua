-- Typed JSON of Python values, as the READMEs of shared/reference describe it, beside the values that accel.load makes of them. Used by
-- pt.lua and folders_torch.lua.
local accel = require "accel"
local raw = require "raw"
local null = accel.json.null
local M = {}

local function same_items(want, got, at, tensor)
  if type(got) ~= "table" or #got ~= #want then
    return false, ("%s: %s instead of %d items"):format(at, type(got) == "table" and #got or tostring(got), #want)
  end
  for i, w in ipairs(want) do
    local g = got[i]
    if g == null then g = nil end
    local ok, why = M.same(w, g, at .. "/" .. i - 1, tensor)
    if not ok then return false, why end
  end
  return true
end

-- Entries in the order of the file; None as a value is absent.
local function same_dict(want, got, at, tensor)
  if type(got) ~= "table" then return false, at .. ": " .. tostring(got) .. " instead of a dict" end
  local entries = {}
  for k, v in pairs(got) do entries[#entries + 1] = { k, v } end
  local i = 0
  for _, pair in ipairs(want) do
    if not pair[2].none then
      i = i + 1
      local e = entries[i]
      if not e then return false, at .. ": too few entries" end
      local key = e[1]
      if key == null then key = nil end
      local ok, why = M.same(pair[1], key, at .. "/key", tensor)
      if not ok then return false, why end
      ok, why = M.same(pair[2], e[2], ("%s/%s"):format(at, tostring(e[1])), tensor)
      if not ok then return false, why end
    end
  end
  return i == #entries, at .. ": too many entries"
end

local function same_set(want, got, at, tensor)
  if type(got) ~= "table" or #got ~= #want then return false, at .. ": another set" end
  for _, w in ipairs(want) do
    local found = false
    for _, g in ipairs(got) do found = found or M.same(w, g, at, tensor) end
    if not found then return false, at .. ": a member is missing" end
  end
  return true
end

local function same_bits(a, b) return math.type(b) == "float" and string.pack("d", a) == string.pack("d", b) end

local function same_float(want, got)
  if math.type(got) ~= "float" then return false end
  local named = { nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }
  if want.float == "nan" then return got ~= got end
  return same_bits(named[want.float] or tonumber(want.hex), got)
end

--- Whether a value is the one that `want` describes; if not, where and how it differs. tensor(want, got, at) compares tensors and arrays.
function M.same(want, got, at, tensor)
  local kind, v = next(want)
  if want.tensor or want.array then return tensor(want, got, at) end
  if want.float then return same_float(want, got), ("%s: %s instead of %s"):format(at, tostring(got), want.float) end
  if want.numpy_scalar then return M.same(want.value, got, at, tensor) end
  for _, k in ipairs { "dict", "odict", "counter", "defaultdict" } do
    if want[k] then return same_dict(want[k], got, at, tensor) end
  end
  for _, k in ipairs { "list", "tuple" } do
    if want[k] then return same_items(want[k], got, at, tensor) end
  end
  if want.size then return type(got) == "table" and raw.same_list(want.size, got), at .. ": another size" end
  if want.set then return same_set(v, got, at, tensor) end
  local ok
  if kind == "none" then ok = got == nil
  elseif kind == "bool" or kind == "str" then ok = got == v
  elseif kind == "int" then ok = tostring(got) == v and (math.type(got) == "integer" or math.type(tonumber(v)) == "float")
  elseif kind == "bytes" or kind == "bytearray" then
    ok = type(got) == "string" and got:gsub(".", function(c) return ("%02x"):format(c:byte()) end) == v
  elseif kind == "complex" then
    ok = type(got) == "table" and same_bits(tonumber(v[1]), got.real) and same_bits(tonumber(v[2]), got.imag)
  elseif kind == "dtype" or kind == "numpy_dtype" then ok = got == raw.dtype(v)
  elseif kind == "device" then ok = got == v
  elseif kind == "object" then ok = got ~= nil -- a class without recorded data
  else return false, ("%s: the runner knows no '%s'"):format(at, tostring(kind)) end
  return ok, ("%s: %s instead of the %s %s"):format(at, tostring(got), kind, tostring(v))
end

return M
