--- A model during generation: the rows of ids so far, the cache of keys and values, masks and positions for prompts of
--- different length. The searches in this folder use it. `logits` runs the model on the ids it has not seen yet.
---
--- The model provides forward(ids, {cache=, attention_mask=, position_ids=, logits_to_keep=}) -> logits [N, T, V],
--- cache_shape, new_cache(batch, length, opts) and context_length(). A model that does not continue the prompts themselves
--- provides begin_generation(prompts) -> the rows to continue, and an object with forward and expand. If a text exceeds the
--- context, its last half is read again and generation continues from there.
local accel = require "accel"
local class = require "accel.util.class"
local prompts = require "accel.models.generation.prompts"
local raise = require "accel.util.raise"

---@class accel.models.Decoder
---@field rows integer[][] of one width, with leading padding
---@field lead integer[]? padding of each row
---@field width integer
---@field cache? accel.models.KVCache
---@field virtual integer tokens of a tuned prompt (accel.peft) that the cache holds before the rows' tokens
local Decoder = class("accel.models.Decoder")

--- Models whose texts exceeded their context: each warns once.
local told = setmetatable({}, { __mode = "k" })

---@param model any
---@param rows integer[][] the prompts
---@param o {filler: integer?, room: integer, use_cache: boolean, cache_implementation: string?, cache_config: table?,
---  past_key_values: accel.models.KVCache?, given: table?} room: most ids that are appended; given: features and first ids of a decoder
function Decoder:init(model, rows, o)
  self.model, self.context, self.forward = model, model:context_length(), model
  self.device = model:parameters()[1].device
  self.virtual = model.virtual or 0
  if model.begin_generation then
    rows, self.source = model:begin_generation(rows, o.given)
    self.forward = self.source.forward
  end
  self.rows, self.lead = prompts.align(rows, o.filler or 0)
  self.n, self.width = #rows, #self.rows[1]
  self.prompt, self.capacity = self.width, self.width + o.room
  self.from, self.seen = math.max(1, self.width - self.context + 1), 0
  if o.past_key_values then
    self:continue(o.past_key_values)
  elseif o.use_cache then
    self.cache = model:new_cache(self.n, math.min(self.context, self.capacity), {
      implementation = o.cache_implementation, config = o.cache_config,
    })
  end
end

--- Takes a cache that has seen the beginning of the rows.
function Decoder:continue(cache)
  if self.virtual > 0 then raise "generate: past_key_values of a model with a tuned prompt cannot be continued; leave them out" end
  if self.lead or self.source then raise "generate: past_key_values go with prompts of one length, and a model without an encoder" end
  if cache.batch ~= self.n then
    raise("generate: past_key_values were made for a batch of %d, got %d prompts", cache.batch, self.n)
  end
  if self.from > 1 or cache.length < math.min(self.capacity, self.context) then
    raise("generate: past_key_values hold %s tokens, the text may have %d", cache.length, self.capacity)
  end
  if cache.past >= self.width then cache:crop(self.width - 1) end
  self.cache, self.seen = cache, cache.past
end

--- The columns with a token of each row, and the start of positions: tensors of the whole width, made once.
function Decoder:masks()
  if not self.visible then
    local lead = accel.tensor(self.lead, { dtype = "i64", device = self.device }):unsqueeze(2)
    local column = accel.arange(self.capacity, { device = self.device }):unsqueeze(1)
    self.visible, self.start = column:ge(lead), lead
  end
  return self.visible, self.start
end

--- forward's options to skip padding, for columns first .. width.
function Decoder:past_padding(o, first)
  local from, width = self.from, self.width
  local visible, start = self:masks()
  o.attention_mask = visible:narrow(2, from, width - from + 1)
  local column = accel.arange(first - 1, width, { device = self.device }):unsqueeze(1)
  o.position_ids = (column - start:maximum(from - 1)):maximum(0)
end

--- Logits [N, keep, V] of the last `keep` columns (1), after the model has seen all rows to their end.
---@param keep? integer
---@return accel.Tensor
function Decoder:logits(keep)
  local width, cache = self.width, self.cache
  if width > self.context and not told[self.model] then
    told[self.model] = true
    warn(("generate: the text exceeds the %d tokens of the model's context; from here on only the last ones are read"):format(self.context))
  end
  if not cache then
    self.from = math.max(self.from, width - self.context + 1)
    self.seen = self.from - 1
  elseif width - self.from + 1 > self.context then
    cache:reset()
    self.from = width - math.max(1, self.context // 2) + 1
    self.seen = self.from - 1
  end
  local first, input = math.max(self.seen + 1, self.from), {}
  for b, row in ipairs(self.rows) do input[b] = table.move(row, first, width, 1, {}) end
  local o = { cache = cache, logits_to_keep = keep or 1 }
  if self.lead then self:past_padding(o, first) end
  if width - first + 1 < o.logits_to_keep then raise "generate: fewer columns are new than logits are wanted" end
  local logits = self.forward(accel.tensor(input, { dtype = "i64", device = self.device }), o)
  self.seen = width
  return logits
end

--- Appends an id to every row.
---@param ids integer[]
function Decoder:push(ids)
  local at = self.width + 1
  for b, row in ipairs(self.rows) do row[at] = ids[b] end
  self.width = at
end

--- Goes back to that many columns. Later ones are dropped.
---@param width integer
function Decoder:crop(width)
  for _, row in ipairs(self.rows) do
    for i = #row, width + 1, -1 do row[i] = nil end
  end
  self.width = width
  if self.seen > width then
    self.seen = width
    if self.cache then self.cache:crop(width - self.from + 1 + self.virtual) end
  end
end

--- Every row `copies` times in a row.
---@param copies integer
function Decoder:expand(copies)
  if copies == 1 then return end
  local rows, lead = {}, self.lead and {}
  for b, row in ipairs(self.rows) do
    for _ = 1, copies do
      rows[#rows + 1] = table.move(row, 1, #row, 1, {})
      if lead then lead[#rows] = self.lead[b] end
    end
  end
  self.rows, self.lead, self.n, self.visible = rows, lead, #rows, nil
  if self.cache then self.cache:expand(copies) end
  if self.source then self.source.expand(copies) end
end

--- Row i becomes the former row order[i] (1-based). Rows only change places within the copies of one prompt.
---@param order integer[]
function Decoder:reorder(order)
  local rows, same, index = {}, true, {}
  for i, from in ipairs(order) do
    rows[i] = table.move(self.rows[from], 1, self.width, 1, {})
    same, index[i] = same and from == i, from - 1
  end
  if same then return end
  self.rows = rows
  if self.cache then self.cache:reorder(accel.tensor(index, { dtype = "i64", device = self.device })) end
end

--- The ids of row b without padding. With `new`, only those after the prompt.
---@param b integer
---@param new? boolean
---@return integer[]
function Decoder:ids(b, new)
  local first = new and self.prompt + 1 or (self.lead and self.lead[b] or 0) + 1
  return table.move(self.rows[b], first, self.width, 1, {})
end

return Decoder
