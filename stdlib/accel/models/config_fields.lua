--- Kinds of keys of a configuration: each makes an accel.models.Field, which tests one value of a config.json and has its default. Used by
--- models/config.lua, which hands them on, and by the families through it.
local activation = require "accel.models.activation"
local check = require "accel.util.check"

local M = {}

-- Far above any existing model. Products of two sizes stay within an i64.
local MOST_SIZE, MOST_PARTS = 2 ^ 31 - 1, 4096

---@class accel.models.Field
---@field default any nil: may be absent
---@field in_files any default for a file without the key, if different: ids of tokens, which only a file's vocabulary has
---@field unused boolean? no class reads it: any value is kept
---@field nullable boolean? null stands for none, not for the default
---@field test fun(value: any): any, string?, string? the converted value, or nil, the error, and the code ("format")

local function field(default, test) return { default = default, test = test } end

--- The field, null of which means none.
---@param f accel.models.Field
---@return accel.models.Field
function M.nullable(f)
  f.nullable = true
  return f
end

--- The field, with the default of files that lack the key. A table made in Lua has no such default.
---@param f accel.models.Field
---@param default any
---@return accel.models.Field
function M.in_files(f, default)
  f.in_files, f.nullable = default, true
  return f
end

local function anything(v) return v end

--- A key of the family that no class here reads: kept, and written again.
---@return accel.models.Field
function M.unused() return { test = anything, unused = true } end

--- A key that changes a model's computation, with only some values supported.
---@param fits fun(value: any): boolean
---@param expected string
---@return accel.models.Field
function M.only(fits, expected)
  return field(nil, function(v)
    if fits(v) then return v end
    return nil, ("%s is not supported: expected %s"):format(check.shown(v), expected), "unsupported"
  end)
end

--- A flag of Transformers whose other side is not built.
---@param value boolean
---@return accel.models.Field
function M.fixed(value)
  local f = M.only(function(v) return v == value end, tostring(value))
  f.default = value
  return f
end

--- A key that no model here reads: one warning for any value but the usual one.
---@param key string
---@param why string
---@param usual? any the value that changes nothing in Transformers (false)
---@return accel.models.Field
function M.no_effect(key, why, usual)
  return field(nil, function(v)
    if v ~= (usual or false) and not M.warned[key] then
      M.warned[key] = true
      warn(("config.json: %s = %s has no effect: %s; set it to %s"):format(key, check.shown(v), why, check.shown(usual or false)))
    end
    return v
  end)
end

--- Keys that were warned of in this process.
---@type table<string, boolean>
M.warned = {}

local function integer(value, low, high, words)
  local n = type(value) == "number" and math.tointeger(value)
  if not n or n < low or n > high then
    return nil, ("must be %s, got %s"):format(words, check.shown(value))
  end
  return n
end

local function positive(value) return integer(value, 1, MOST_SIZE, "a positive integer below 2^31") end

--- A width or length: 1, 2, ...
---@param default? integer
function M.size(default) return field(default, positive) end

local function part(value) return integer(value, 1, MOST_PARTS, "an integer in 1 .. 4096") end

--- How many layers, heads or experts there are.
---@param default? integer
function M.count(default) return field(default, part) end

local function token(v)
  local n, problem = integer(v, -MOST_SIZE, MOST_SIZE, "a token id")
  if n and n < 0 then return nil end
  return n, problem
end

--- A token id: 0, 1, ... Ids below zero, which some files use for "none", count as absent.
---@param default? integer
function M.token(default) return field(default, token) end

local function tokens(v)
  if type(v) ~= "table" then return token(v) end
  for _, id in ipairs(v) do
    local n, problem = token(id)
    if not n then return nil, problem or "holds a negative id" end
  end
  return v
end

--- A token id or a list of them.
---@param default? integer|integer[]
function M.tokens(default) return field(default, tokens) end

local function number(value, low, high)
  if type(value) ~= "number" or value ~= value or value < low or value > high then
    return nil, ("must be a number in %g .. %g, got %s"):format(low, high, check.shown(value))
  end
  return value + 0.0
end

--- A finite number within bounds.
---@param default? number
---@param low? number default 0
---@param high? number default 1e30
function M.number(default, low, high)
  return field(default, function(v) return number(v, low or 0, high or 1e30) end)
end

local function probability(v) return number(v, 0, 1) end

--- A probability.
---@param default? number
function M.rate(default) return field(default, probability) end

local function boolean(v)
  if type(v) ~= "boolean" then return nil, "must be true or false, got " .. check.shown(v) end
  return v
end

---@param default? boolean
function M.flag(default) return field(default, boolean) end

--- One of the given words. Without any, a string.
---@param default? string
---@param words? string[]
function M.word(default, words)
  return field(default, function(v)
    for _, word in ipairs(words or { v }) do
      if v == word and type(v) == "string" then return v end
    end
    return nil, ("must be %s, got %s"):format(words and "one of " .. table.concat(words, ", ") or "a string",
      check.shown(v))
  end)
end

--- The name of an activation function (models/activation.lua).
---@param default? string
function M.activation(default)
  return field(default, function(v)
    if type(v) == "string" and activation.find(v) then return v end
    local near = type(v) == "string" and require "accel.util.nearest"(v, activation.names())
    return nil, ("names no activation function: %s%s"):format(check.shown(v),
      near and ("; did you mean '%s'?"):format(near) or ""), type(v) == "string" and "unsupported" or nil
  end)
end

--- A value of either kind.
---@param a accel.models.Field
---@param b accel.models.Field
---@return accel.models.Field
function M.any_of(a, b)
  return field(a.default, function(v)
    local used, problem = a.test(v)
    if not problem then return used end
    return b.test(v)
  end)
end

--- A list of sizes.
---@param default? integer[]
---@param most? integer entries
function M.sizes(default, most)
  return field(default, function(v)
    if type(v) ~= "table" or #v == 0 or #v > (most or 64) then
      return nil, ("must be a list of 1 .. %d sizes, got %s"):format(most or 64, check.shown(v))
    end
    for i, n in ipairs(v) do
      local _, problem = positive(n)
      if problem then return nil, ("[%d] %s"):format(i, problem) end
    end
    return v
  end)
end

--- A size for both sides of an image, or {height, width}.
---@param default? integer|integer[]
function M.pair(default)
  local list = M.sizes(nil, 2).test
  return field(default, function(v)
    if type(v) ~= "table" then return positive(v) end
    if #v ~= 2 then return nil, ("must be a size or two, got %d"):format(#v) end
    return list(v)
  end)
end

local function any_table(v)
  if type(v) ~= "table" then return nil, "must be a table, got " .. check.shown(v) end
  return v
end

--- A table that the family's own check reads.
---@param default? table
function M.table(default) return field(default, any_table) end

--- Names of classes by id. Files have an object with ids as keys. A Lua list counts from id 0.
local function labels(v)
  if type(v) ~= "table" then return nil, "must be a table of names, got " .. check.shown(v) end
  local out, n = {}, 0
  if #v > 0 then
    for i, name in ipairs(v) do out[("%d"):format(i - 1)] = name end
  else
    for id, name in next, v do out[("%d"):format(math.tointeger(tonumber(id)) or -1)] = name end
  end
  for id, name in next, out do
    if type(name) ~= "string" then return nil, ("[%s] must be a name, got %s"):format(id, check.shown(name)) end
    n = n + 1
  end
  for i = 0, n - 1 do
    if not out[("%d"):format(i)] then return nil, ("has no name for id %d"):format(i) end
  end
  return out
end

--- Names of classes by id.
---@return accel.models.Field
function M.labels_by_id() return field(nil, labels) end

return M
