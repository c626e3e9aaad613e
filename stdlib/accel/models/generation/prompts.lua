--- Prompts of a generation: from lists or tensors of ids, with or without attention_mask, to rows of one width. Used by
--- models/generate.lua and generation/decoder.lua.
local raise = require "accel.util.raise"
local shown = require "accel.util.check".shown
local tensors = require "accel.util.tensors"

local M = {}

local function check(rows)
  if #rows == 0 then raise "generate: the prompt is empty" end
  for i, row in ipairs(rows) do
    if type(row) ~= "table" then raise("generate: prompt %d is a %s, not a list of ids", i, type(row)) end
    if #row == 0 then
      if #rows == 1 then raise "generate: the prompt is empty" end
      raise("generate: prompt %d is empty", i)
    end
    for k, id in ipairs(row) do
      if math.type(id) ~= "integer" then
        raise("generate: prompt %d holds %s at place %d, not an id", i, shown(id), k)
      end
    end
  end
end

--- A list of lists from a list, or from a tensor, and whether it was a single row.
local function lists(value, what)
  if tensors.is_tensor(value) then value = value:tolist() end
  if type(value) ~= "table" then raise("generate: expected %s as a list or a tensor, got %s", what, type(value)) end
  if value.input_ids ~= nil then
    raise("generate: expected %s as a list or a tensor, got the result of a tokenizer; pass its input_ids, and its attention_mask as the "
      .. "option attention_mask", what)
  end
  if type(value[1]) == "table" then return value, false end
  return { value }, true
end

--- The rows of ids [T], [B, T] or a list of lists that may differ in length, and whether it was a single one. With
--- attention_mask (of the same form, 0: padding), masked ids are removed, and rows are padded anew.
---@param ids any
---@param mask? any
---@return integer[][], boolean
function M.read(ids, mask)
  local rows, single = lists(ids, "ids")
  check(rows)
  if mask == nil then return rows, single end
  local masks, out = lists(mask, "attention_mask"), {}
  if #masks ~= #rows then raise("generate: attention_mask has %d rows for %d prompts", #masks, #rows) end
  for b, row in ipairs(rows) do
    local m, kept = masks[b], {}
    if type(m) ~= "table" or #m ~= #row then
      raise("generate: row %d of attention_mask does not fit the %d ids of the prompt", b, #row)
    end
    for i, id in ipairs(row) do
      if m[i] == true or (type(m[i]) == "number" and m[i] ~= 0) then kept[#kept + 1] = id end
    end
    if #kept == 0 then raise("generate: attention_mask hides all of prompt %d", b) end
    out[b] = kept
  end
  return out, single
end

--- Prompts of different lengths end in the same column: shorter ones have padding before them. Returns the padded rows, and
--- the padding of each, or nil if none has any.
---@param rows integer[][]
---@param filler integer
---@return integer[][], integer[]?
function M.align(rows, filler)
  local width, ragged = 0, false
  for _, row in ipairs(rows) do
    ragged = ragged or (width > 0 and #row ~= width)
    width = math.max(width, #row)
  end
  local all, lead = {}, {}
  for b, row in ipairs(rows) do
    lead[b] = width - #row
    all[b] = table.move(row, 1, #row, lead[b] + 1, {})
    for i = 1, lead[b] do all[b][i] = filler end
  end
  return all, ragged and lead or nil
end

return M
