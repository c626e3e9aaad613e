--- data.PadCollate{padding_value = 0, ...}: a collate_fn for sequences of unequal lengths.
---
---   local loader = data.DataLoader { dataset = rows, batch_size = 32, collate_fn = data.PadCollate() }
---   for batch in loader() do local logits = model(batch.input_ids, { attention_mask = batch.attention_mask }) ... end
---
--- Sequences are lists of numbers (or of booleans) and tensors of one dimension, at any depth of nested samples. They
--- become tensors [n, longest], padded at the end. Everything else is collated by default_collate.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local collate = require "accel.data.collate"
local nearest = require "accel.util.nearest"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- Options, which refer to entries by their names, at any depth, or by their paths ("question.ids", 1 for the first of
--- a list):
---
--- - padding_value: a number, or a table of numbers by entry (0 for those it lacks)
--- - max_length: longer sequences are cut to it
--- - pad_to_multiple_of: the padded length is rounded up to a multiple of it. Together with the same
---   max_length every batch has this length
--- - padding_side: "right", or "left" for generation
--- - keys: names of the entries to pad. Others are left to default_collate. Tensors of more dimensions that are
---   named here are padded along their first
--- - attention_mask: name of the sequence ("input_ids") whose mask, 1 for given values and 0 for padding, is
---   added as the entry `attention_mask` next to it, unless the samples have one. false for none
---
--- example: local pad = accel.data.PadCollate { padding_value = { input_ids = 9 } }
---   return pad { { input_ids = { 5 } }, { input_ids = { 6, 7 } } }
---   --> { input_ids = { { 5, 9 }, { 6, 7 } }, attention_mask = { { 1, 0 }, { 1, 1 } } }
--- example: local pad = accel.data.PadCollate { pad_to_multiple_of = 4, padding_side = "left" }
---   return pad { { { 1, 2 }, 0.5 }, { { 3 }, 1.5 } }
---   --> { { { 0, 0, 1, 2 }, { 0, 0, 0, 3 } }, { 0.5, 1.5 } }
---@class accel.data.PadCollate
local PadCollate = class("accel.data.PadCollate")

---@class accel.data.PadCollate.Options
---@field padding_value (number|table<string, number>)?
---@field max_length integer?
---@field pad_to_multiple_of integer?
---@field padding_side ("right"|"left")?
---@field keys string[]?
---@field attention_mask (string|false)?

---@param opts? accel.data.PadCollate.Options
function PadCollate:init(opts)
  local o = options("PadCollate", opts, {
    padding_value = options.none, max_length = options.none, pad_to_multiple_of = 1, padding_side = "right",
    keys = options.none, attention_mask = options.none,
  })
  self.options = opts
  local value = o.padding_value == nil and 0 or o.padding_value
  self.values, self.value = {}, 0
  if type(value) == "table" then
    for key, number in next, value do
      self.values[tostring(key)] = check.number("PadCollate", ("padding_value.%s"):format(tostring(key)), number)
    end
  else
    self.value = check.number("PadCollate", "padding_value", value)
    self.values.attention_mask = 0
    self.uniform = true
  end
  self.max_length = o.max_length and check.positive("PadCollate", "max_length", o.max_length)
  self.multiple = check.positive("PadCollate", "pad_to_multiple_of", o.pad_to_multiple_of)
  self.left = check.word("PadCollate", "padding_side", o.padding_side, { "right", "left" }) == "left"
  if o.keys ~= nil then
    if type(o.keys) ~= "table" then raise("PadCollate: keys must be a list, got %s", check.shown(o.keys)) end
    self.keys = {}
    for _, key in ipairs(o.keys) do self.keys[tostring(key)] = true end
  end
  self.masked = o.attention_mask == nil and "input_ids" or o.attention_mask
  if self.masked and type(self.masked) ~= "string" then
    raise("PadCollate: attention_mask must be the name of a sequence or false, got %s", check.shown(self.masked))
  end
  self.mask_demanded = o.attention_mask and true or false
end

--- For workers.
function PadCollate:worker_spec() return { module = "accel.data.pad_collate", args = { self.options, n = 1 } } end

--- "list of numbers", "list of booleans", "tensor". "empty" for a list of unknown kind. nil for other values.
local function sequence_kind(value, named)
  if tensors.is_tensor(value) then
    local n = #value.shape
    return (n == 1 or named and n > 1) and "tensor" or nil
  end
  if type(value) ~= "table" then return nil end
  local kind, n = type(value[1]), 0
  if kind == "nil" then return next(value) == nil and "empty" or nil end
  if kind ~= "number" and kind ~= "boolean" then return nil end
  for key, entry in next, value do
    if math.type(key) ~= "integer" or type(entry) ~= kind then return nil end
    n = n + 1
  end
  return n == #value and "list of " .. kind .. "s" or nil
end

--- The kind of a column of sequences. nil if one of them is not a sequence.
local function column_kind(samples, named)
  local kind
  for _, value in ipairs(samples) do
    local found = sequence_kind(value, named)
    if not found then return nil end
    if not kind or kind == "empty" then
      kind = found
    elseif found ~= kind and found ~= "empty" then
      return nil
    end
  end
  return kind
end

local function named(path) return path == "" and "the samples" or ("'%s'"):format(path) end

--- [n, length] from lists, filled with value after the end of a list.
local function pad_lists(samples, lengths, length, value, left, kind)
  local flat, at, float = {}, 0, false
  for i, list in ipairs(samples) do
    local n = lengths[i]
    local gap = length - n
    if left then
      for k = at + 1, at + gap do flat[k] = value end
      at = at + gap
    end
    for k = 1, n do
      local x = list[k]
      flat[at + k] = x
      float = float or math.type(x) == "float"
    end
    at = at + n
    if not left then
      for k = at + 1, at + gap do flat[k] = value end
      at = at + gap
    end
  end
  local dtype = kind == "list of booleans" and "bool" or float and "f32" or "i64"
  return accel.tensor(flat, { dtype = dtype }):view(#samples, length), dtype
end

local function pad_tensors(samples, lengths, length, value, left, path)
  local out, first = {}, samples[1]
  for i, t in ipairs(samples) do
    if #t.shape ~= #first.shape or not tensors.same_shape(t:narrow(1, 1, 0), first:narrow(1, 1, 0)) then
      raise("PadCollate: samples 1 and %d of %s have shapes %s and %s; only the first dimension may differ", i,
        named(path), tensors.shape_string(first), tensors.shape_string(t))
    end
    t = t:narrow(1, 1, lengths[i])
    local gap, amounts = length - lengths[i], {}
    if gap > 0 then
      for k = 1, 2 * #t.shape do amounts[k] = 0 end
      amounts[#amounts - (left and 1 or 0)] = gap
      t = accel.pad(t, amounts, "constant", value)
    end
    out[i] = t
  end
  return accel.stack(out, 1)
end

local function entry_of(set, path, key)
  local entry = set[path]
  if entry == nil and type(key) == "string" then entry = set[key] end
  return entry
end

--- Pads a column of sequences and records the lengths in `seen`. nil for anything else.
function PadCollate:_column(samples, path, key, seen)
  seen.keys[path] = true
  if type(key) == "string" then seen.keys[key] = true end
  if self.keys and not entry_of(self.keys, path, key) then return nil end
  local kind = column_kind(samples, self.keys ~= nil)
  if not kind then
    if self.keys then raise("PadCollate: entry '%s' is not a sequence of numbers in every sample", path) end
    return nil
  end
  local lengths, longest = {}, 0
  for i, value in ipairs(samples) do
    local n = kind == "tensor" and tensors.is_tensor(value) and value.shape[1] or #value
    lengths[i] = math.min(n, self.max_length or n)
    longest = math.max(longest, lengths[i])
  end
  local length = -(-longest // self.multiple) * self.multiple
  local value = entry_of(self.values, path, key) or self.value
  local column, dtype
  if kind == "tensor" then
    for i, t in ipairs(samples) do
      if not tensors.is_tensor(t) then
        raise("PadCollate: sample %d of %s is a list, others are tensors", i, named(path))
      end
    end
    dtype = samples[1].dtype
    self:_check_value(value, dtype, path)
    column = pad_tensors(samples, lengths, length, value, self.left, path)
  else
    if kind == "list of booleans" then value = value ~= 0 end
    column, dtype = pad_lists(samples, lengths, length, value, self.left, kind)
    self:_check_value(value, dtype, path)
  end
  seen.columns[path] = { lengths = lengths, length = length, device = column.device }
  return column
end

function PadCollate:_check_value(value, dtype, path) -- luacheck: ignore self
  if type(value) == "number" and not tensors.is_floating(dtype) and not math.tointeger(value) then
    raise("PadCollate: %s cannot pad %s, of dtype %s", tostring(value), named(path), dtype)
  end
end

--- The mask of a padded column: i64 [n, length].
function PadCollate:_mask(column)
  local ones = {}
  for i, n in ipairs(column.lengths) do
    ones[i] = {}
    for k = 1, n do ones[i][k] = 1 end
  end
  return (pad_lists(ones, column.lengths, column.length, 0, self.left, "list of numbers")):to(column.device)
end

--- Names that no sample has are mistakes.
function PadCollate:_check_names(what, names, seen) -- luacheck: ignore self
  for key in next, names do
    if not seen.keys[key] then
      local near = nearest(key, seen.keys)
      raise("PadCollate: %s names '%s', which the samples do not have%s", what, key,
        near and ("; did you mean '%s'?"):format(near) or "")
    end
  end
end

---@param samples any[]
---@return any
function PadCollate.__call(self, samples)
  if type(samples) ~= "table" or samples[1] == nil then raise "PadCollate: expected a list of at least one sample" end
  local seen = { keys = {}, columns = {} }
  local batch = collate.walk(samples, "", {
    leaf = function(column, path, key) return self:_column(column, path, key, seen) end,
    after = function(entries, path)
      local masked = self.masked and seen.columns[(path == "" and "" or path .. ".") .. self.masked]
      if masked and entries.attention_mask == nil then
        entries.attention_mask, seen.masked = self:_mask(masked), true
      end
    end,
  })
  if self.keys then self:_check_names("keys", self.keys, seen) end
  if not self.uniform then self:_check_names("padding_value", self.values, seen) end
  if self.mask_demanded then self:_check_names("attention_mask", { [self.masked] = true }, seen) end
  return batch
end

return PadCollate
