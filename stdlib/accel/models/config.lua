--- Configurations in the form of Hugging Face's config.json: a family's declaration (keys, kinds, defaults), and the
--- check of a table against it. Files come from anywhere, so that every declared value is checked for type and size
--- before anything is built from it.
---
---   local schema = config.schema("gpt2", {
---     vocab_size = config.size(50257), n_inner = config.size(), resid_pdrop = config.rate(0.1) }, further_check)
---   local c, problem, code = config.read(schema, given)
---
--- A checked configuration holds declared keys alone, so that a key which the family does not have cannot change a model. Keys of a file
--- that the family does not declare are kept apart for save_pretrained, with a warning unless they change nothing (config_ignored.lua).
--- Code that serves several families reads by config.get, which knows each family's declaration. In accel's own tests any other read of an
--- undeclared key raises.
local accel = require "accel"
local check = require "accel.util.check"
local ignored = require "accel.models.config_ignored"
local kinds = require "accel.models.config_fields"

local M = {}
for name, kind in next, kinds do M[name] = kind end

local MOST_CLASSES <const> = 4096

-- While this is set, as in accel's tests, reads of undeclared keys raise. Otherwise a checked configuration is a plain table.
local STRICT <const> = os.getenv "ACCEL_TEST_STRICT" == "1"

--- Keys of every family, in addition to its own.
local common = {
  model_type = M.word(), architectures = M.table(), tie_word_embeddings = M.flag(),
  dtype = M.word(), torch_dtype = M.word(), transformers_version = M.word(),
  bos_token_id = M.token(), eos_token_id = M.tokens(), pad_token_id = M.token(),
  num_labels = M.count(), id2label = M.labels_by_id(), label2id = M.table(), use_cache = M.flag(),
  quantization_config = M.table(), problem_type = M.unused(), chunk_size_feed_forward = M.unused(), -- the same sums, in parts
  is_encoder_decoder = M.unused(), return_dict = M.unused(),
  pruned_heads = M.only(function(v) return type(v) == "table" and next(v) == nil end, "no pruned heads"),
  output_attentions = M.no_effect("output_attentions", "models of accel return no attention scores"),
  output_hidden_states = M.no_effect("output_hidden_states", "models of accel return the last hidden states alone"),
}

---@class accel.models.Schema
---@field model_type string
---@field fields table<string, accel.models.Field>
---@field aliases table<string, string> other names of keys, as Transformers' attribute_map has them
---@field check? fun(c: table): string?, string? completes a configuration. Returns the error of the whole, and the code

---@param model_type string
---@param fields table<string, accel.models.Field>
---@param further? fun(c: table): string?, string?
---@param aliases? table<string, string>
---@return accel.models.Schema
function M.schema(model_type, fields, further, aliases)
  local all = {}
  for key, f in next, common do all[key] = f end
  for key, f in next, fields do all[key] = f end
  local schema = { model_type = model_type, fields = all, check = further, aliases = aliases or {} }
  schema.strict = { __index = function(_, key)
    if all[key] == nil then error(("config: a model of '%s' reads '%s', which its schema does not declare"):format(model_type, tostring(key)), 2) end
  end }
  return schema
end

-- Checked configurations: c -> { schema =, others = keys of the file that the family does not declare }.
local checked = setmetatable({}, { __mode = "k" })

--- The value of a key if the family of a checked configuration declares it, even by Transformers' other names. For any other table the
--- plain value.
---@param c table?
---@param key string
---@return any
function M.get(c, key)
  if type(c) ~= "table" then return nil end
  local known = checked[c]
  if not known then return c[key] end
  key = known.schema.aliases[key] or key
  if known.schema.fields[key] then return c[key] end
  return nil
end

--- The values of a configuration in a separate table, for code that identifies families by their keys.
---@param c? table
---@return table
function M.plain(c)
  local out = {}
  for key, value in next, c or out do out[key] = value end
  return out
end

--- Keys of the file that the family does not declare.
---@param c table a checked configuration
---@return table
function M.others(c)
  local known = checked[c]
  return known and known.others or {}
end

--- Sets num_labels, id2label and label2id from whichever of them is there.
local function complete_labels(c)
  if c.id2label then
    local n, back = 0, {}
    for id, name in next, c.id2label do
      n = n + 1
      back[name] = math.tointeger(tonumber(id))
    end
    if n == 0 or n > MOST_CLASSES then return "id2label must name 1 .. 4096 classes" end
    if c.num_labels and c.num_labels ~= n then
      return ("num_labels is %d, id2label names %d classes"):format(c.num_labels, n)
    end
    c.num_labels, c.label2id = n, back
  end
end

--- One warning of keys of a file that may change the model elsewhere, each once in a process.
local function warn_of(model_type, others)
  local new = {}
  for _, key in ipairs(ignored(others)) do
    local name = model_type .. "." .. key
    if not M.warned[name] then new[#new + 1], M.warned[name] = ("'%s'"):format(key), true end
  end
  if #new > 0 then
    warn(("config.json: %s of model_type '%s' %s no effect: the model does not have %s; remove %s to avoid this message"):format(
      table.concat(new, ", "), model_type, #new == 1 and "has" or "have", #new == 1 and "such a key" or "such keys", #new == 1 and "it" or "them"))
  end
end

--- One given key, tested: its value, or nil, the error and the code.
local function tested(key, f, value)
  if value == accel.json.null then
    if f.default ~= nil and not f.nullable then return nil, key .. " must not be null", "format" end
    return nil
  end
  local used, problem, code = f.test(value)
  if problem then return nil, ("%s %s"):format(key, problem), code or "format" end
  return used
end

--- The given keys completed with the defaults, or nil, the error and the code ("format", or "unsupported": Transformers has it, accel does
--- not). Keys unknown to the family are kept separately if the table names its model_type, as every config.json does. Otherwise they are
--- errors.
---@param schema accel.models.Schema
---@param given? table
---@return table?, string?, string?
function M.read(schema, given)
  given = given or {}
  if type(given) ~= "table" then return nil, "the configuration must be a table, got " .. check.shown(given), "format" end
  local before = checked[given] -- a checked one: missing keys were null
  local c, others, renamed = {}, {}, {}
  for key, value in next, before and before.others or {} do others[key] = value end
  for key, value in accel.pairs(given) do
    local f = schema.fields[key]
    if f then
      local problem, code
      c[key], problem, code = tested(key, f, value)
      if problem then return nil, problem, code end
    elseif schema.aliases[key] then
      renamed[key] = value
    elseif type(key) ~= "string" or rawget(given, "model_type") == nil then
      local near = type(key) == "string" and require "accel.util.nearest"(key, schema.fields)
      return nil, ("unknown key '%s' in the configuration%s"):format(tostring(key),
        near and ("; did you mean '%s'?"):format(near) or ""), "format"
    else
      others[key] = value
    end
  end
  for key, value in next, renamed do -- they win, as in Transformers
    local problem, code
    local own = schema.aliases[key]
    c[own], problem, code = tested(key, schema.fields[own], value)
    if problem then return nil, problem, code end
  end
  for key, f in next, schema.fields do
    local default = f.default
    if f.in_files ~= nil and rawget(given, "model_type") ~= nil then default = f.in_files end
    if c[key] == nil and default ~= nil and not (f.nullable and (before or rawget(given, key) ~= nil)) then c[key] = default end
  end
  if c.model_type and c.model_type ~= schema.model_type then
    return nil, ("model_type is '%s', not '%s'"):format(c.model_type, schema.model_type), "format"
  end
  c.model_type = schema.model_type
  local problem, code = complete_labels(c), nil
  if not problem and schema.check then problem, code = schema.check(c) end
  if problem then return nil, problem, code or "format" end
  warn_of(schema.model_type, others)
  checked[c] = { schema = schema, others = others }
  return STRICT and setmetatable(c, schema.strict) or c
end

--- Number of classes of a classifier: two unless the configuration sets it. Names them if it does not.
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

--- "n_embd 10 is not a multiple of n_head 3", or nil if it is.
---@return string?
function M.not_multiple(c, width, parts)
  if c[width] % c[parts] ~= 0 then
    return ("%s %d is not a multiple of %s %d"):format(width, c[width], parts, c[parts])
  end
end

return M
