--- Configurations as Hugging Face's config.json holds them: what a family declares (keys, kinds, defaults),
--- and the check of a table against it. Files come from anywhere, so that every declared value is checked for
--- type and size before anything is built from it.
---
---   local schema = config.schema("gpt2", {
---     vocab_size = config.size(50257), n_inner = config.size(), resid_pdrop = config.rate(0.1) }, further_check)
---   local c, problem = config.read(schema, given)
local accel = require "accel"
local activation = require "accel.models.activation"
local check = require "accel.util.check"
local nearest = require "accel.util.nearest"

local M = {}

-- Far above any model there is; products of two sizes stay within an i64.
local MOST_SIZE, MOST_PARTS = 2 ^ 31 - 1, 4096

---@class accel.models.Field
---@field default any nil: may be absent
---@field test fun(value: any): any, string? the value as it is used, or nil and what is wrong

local function field(default, test) return { default = default, test = test } end

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

--- How many layers, heads or experts there are.
---@param default? integer
function M.count(default)
  return field(default, function(v) return integer(v, 1, MOST_PARTS, "an integer in 1 .. 4096") end)
end

--- A token id: 0, 1, ... Ids below zero, which some files use for "none", count as absent.
---@param default? integer
function M.token(default)
  return field(default, function(v)
    local n, problem = integer(v, -MOST_SIZE, MOST_SIZE, "a token id")
    if n and n < 0 then return nil end
    return n, problem
  end)
end

--- A token id or a list of them.
---@param default? integer|integer[]
function M.tokens(default)
  local one = M.token().test
  return field(default, function(v)
    if type(v) ~= "table" then return one(v) end
    for _, id in ipairs(v) do
      local n, problem = one(id)
      if not n then return nil, problem or "holds a negative id" end
    end
    return v
  end)
end

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

--- A probability.
---@param default? number
function M.rate(default) return field(default, function(v) return number(v, 0, 1) end) end

---@param default? boolean
function M.flag(default)
  return field(default, function(v)
    if type(v) ~= "boolean" then return nil, "must be true or false, got " .. check.shown(v) end
    return v
  end)
end

--- One of the given words; without any, a string.
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
    local near = type(v) == "string" and nearest(v, activation.names())
    return nil, ("names no activation function: %s%s"):format(check.shown(v),
      near and ("; did you mean '%s'?"):format(near) or "")
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

--- A table that the family's own check looks into.
---@param default? table
function M.table(default)
  return field(default, function(v)
    if type(v) ~= "table" then return nil, "must be a table, got " .. check.shown(v) end
    return v
  end)
end

--- Names of classes by id. Files have an object whose keys are ids; a Lua list counts from id 0.
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

--- What every family has, beside its own keys.
local common = {
  model_type = M.word(), architectures = M.table(), tie_word_embeddings = M.flag(),
  dtype = M.word(), torch_dtype = M.word(), transformers_version = M.word(),
  bos_token_id = M.token(), eos_token_id = M.tokens(), pad_token_id = M.token(),
  num_labels = M.count(), id2label = field(nil, labels), label2id = M.table(), use_cache = M.flag(),
}

---@class accel.models.Schema
---@field model_type string
---@field fields table<string, accel.models.Field>
---@field check? fun(c: table): string? completes a configuration; what is wrong with it as a whole

---@param model_type string
---@param fields table<string, accel.models.Field>
---@param further? fun(c: table): string?
---@return accel.models.Schema
function M.schema(model_type, fields, further)
  local all = {}
  for key, f in next, common do all[key] = f end
  for key, f in next, fields do all[key] = f end
  return { model_type = model_type, fields = all, check = further }
end

--- Sets num_labels, id2label and label2id from whichever of them is there.
local function complete_labels(c)
  if c.id2label then
    local n, back = 0, {}
    for id, name in next, c.id2label do
      n = n + 1
      back[name] = math.tointeger(tonumber(id))
    end
    if n == 0 or n > MOST_PARTS then return "id2label must name 1 .. 4096 classes" end
    if c.num_labels and c.num_labels ~= n then
      return ("num_labels is %d, id2label names %d classes"):format(c.num_labels, n)
    end
    c.num_labels, c.label2id = n, back
  end
end

--- The given keys completed with the defaults; or nil and what is wrong. Keys that the family does not know
--- are kept where the table names its model_type, as every config.json does; elsewhere they are mistakes.
---@param schema accel.models.Schema
---@param given? table
---@return table?, string?
function M.read(schema, given)
  given = given or {}
  if type(given) ~= "table" then return nil, "the configuration must be a table, got " .. check.shown(given) end
  local c = {}
  for key, value in accel.pairs(given) do
    local known = schema.fields[key]
    if value == accel.json.null then
      value = nil
    elseif known then
      local problem
      value, problem = known.test(value)
      if problem then return nil, ("%s %s"):format(key, problem) end
    elseif type(key) ~= "string" or given.model_type == nil then
      local near = type(key) == "string" and nearest(key, schema.fields)
      return nil, ("unknown key '%s' in the configuration%s"):format(tostring(key),
        near and ("; did you mean '%s'?"):format(near) or "")
    end
    c[key] = value
  end
  for key, f in next, schema.fields do
    if c[key] == nil and f.default ~= nil then c[key] = f.default end
  end
  if c.model_type and c.model_type ~= schema.model_type then
    return nil, ("model_type is '%s', not '%s'"):format(c.model_type, schema.model_type)
  end
  c.model_type = schema.model_type
  local problem = complete_labels(c) or (schema.check and schema.check(c))
  if problem then return nil, problem end
  return c
end

--- Number of classes that a classifier tells apart: two unless the configuration says otherwise. Names them
--- where it does not.
---@param c table
---@return integer
function M.labels(c)
  c.num_labels = c.num_labels or 2
  if not c.id2label then
    c.id2label, c.label2id = {}, {}
    for i = 0, c.num_labels - 1 do
      c.id2label[("%d"):format(i)], c.label2id["LABEL_" .. i] = "LABEL_" .. i, i
    end
  end
  return c.num_labels
end

--- "n_embd 10 is not a multiple of n_head 3", or nil where it is.
---@return string?
function M.not_multiple(c, width, parts)
  if c[width] % c[parts] ~= 0 then
    return ("%s %d is not a multiple of %s %d"):format(width, c[width], parts, c[parts])
  end
end

return M
