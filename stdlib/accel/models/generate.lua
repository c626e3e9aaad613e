--- models.generate(model, ids, opts): continues token sequences with a language model, or with an
--- encoder-decoder answers them. Greedy unless temperature, top_k or top_p ask for sampling. Used as
--- model:generate.
---
--- The model gives forward(ids, cache, {attention_mask=, position_ids=}) -> logits [B, T, V],
--- new_cache(batch, length) and context_length(); one that does not continue the prompts themselves,
--- begin_generation(prompts) -> the rows to continue, and a function in place of forward. Where a text
--- outgrows the context, its last half is read again and generation goes on from there.
local accel = require "accel"
local Random = require "accel.util.random"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local shown = require "accel.util.check".shown
local tensors = require "accel.util.tensors"

local M = {}

local function greedy(row)
  local best = 1
  for i = 2, #row do
    if row[i] > row[best] then best = i end
  end
  return best - 1
end

--- Chooses an id (0-based) from a list of logits. Options: temperature, top_k, top_p.
---@param row number[]
---@param o table
---@param random accel.util.Random
---@return integer
function M.choose(row, o, random)
  if o.temperature == 0 then return greedy(row) end
  local top, weights, order = -math.huge, {}, {}
  for i, v in ipairs(row) do
    if v ~= v or v == math.huge then raise("generate: the logit of id %d is not finite", i - 1) end
    if v > top then top = v end
  end
  if top == -math.huge then raise "generate: every logit is minus infinity" end
  local n = #row
  for i, v in ipairs(row) do weights[i], order[i] = math.exp((v - top) / o.temperature), i end
  local k = o.top_k > 0 and math.min(o.top_k, n) or n
  if k < n or o.top_p < 1 then
    table.sort(order, function(a, b)
      if weights[a] ~= weights[b] then return weights[a] > weights[b] end
      return a < b
    end)
  end
  if o.top_p < 1 then
    local total, sum = 0.0, 0.0
    for i = 1, k do total = total + weights[order[i]] end
    for i = 1, k do
      sum = sum + weights[order[i]]
      if sum >= o.top_p * total then
        k = i
        break
      end
    end
  end
  local kept = {}
  for i = 1, k do kept[i] = weights[order[i]] end
  return order[random:choice(kept)] - 1
end

--- The rows of a batch of prompts, and whether it was one alone: a list of ids or a tensor [T].
local function rows_of(ids)
  if tensors.is_tensor(ids) then ids = ids:tolist() end
  if type(ids) ~= "table" then raise("generate: expected ids as a list or a tensor, got %s", type(ids)) end
  if type(ids[1]) == "table" then return ids, false end
  return { ids }, true
end

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

--- The ids that end a text, as a set; and what a finished row is filled up with.
local function ends_of(o, config)
  local given = o.eos_token_id
  if given == nil then given = config and config.eos_token_id end
  local list = type(given) == "table" and given or { given or nil }
  local ends = {}
  for _, id in ipairs(list) do ends[id] = true end
  return ends, config and config.pad_token_id or list[1]
end

--- Prompts of different lengths end in the same column: shorter ones have padding before them. Returns the
--- padded rows, and how much padding each has, or nil where none has any.
local function align(rows, filler)
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

--- What forward needs to look past padding: the mask of columns from .. last, positions of first .. last.
local function past_padding(lead, from, first, last, device)
  local mask, positions = {}, {}
  for b, n in ipairs(lead) do
    local row, start = {}, math.max(from, n + 1)
    for column = from, last do row[#row + 1] = column >= start end
    mask[b], row = row, {}
    for column = first, last do row[#row + 1] = math.max(column - start, 0) end
    positions[b] = row
  end
  return {
    attention_mask = accel.tensor(mask, { device = device }),
    position_ids = accel.tensor(positions, { dtype = "i64", device = device }),
  }
end

--- Extends every row until all have ended; returns what was added.
local function extend(model, rows, o)
  local random, context = Random(o.seed, 0x67656e), model:context_length()
  local ends, filler = ends_of(o, model.config)
  local forward = model
  if model.begin_generation then rows, forward = model:begin_generation(rows) end
  local all, lead = align(rows, filler or 0)
  local n_prompt, device = #all[1], model:parameters()[1].device
  local cache = model:new_cache(#rows, math.min(context, n_prompt + o.max_new_tokens))
  local done, n_done = {}, 0
  local feed, from = nil, math.max(1, n_prompt - context + 1)
  for _ = 1, o.max_new_tokens do
    local length = #all[1]
    if feed and cache.past >= cache.length then
      cache:reset()
      from = length - math.max(1, context // 2) + 1
      feed = nil
    end
    local first, input = feed or from, {}
    for b, row in ipairs(all) do input[b] = table.move(row, first, length, 1, {}) end
    local logits = forward(accel.tensor(input, { dtype = "i64", device = device }), cache,
      lead and past_padding(lead, from, first, length, device))
    local last = logits:select(2, -1):to("f32"):tolist()
    local step = {}
    for b, row in ipairs(all) do
      local id = done[b] and filler or M.choose(last[b], o, random)
      row[length + 1], step[b] = id, id
      if not done[b] and ends[id] then done[b], n_done = true, n_done + 1 end
    end
    feed = length + 1
    if o.on_token then o.on_token(step) end
    if n_done == #all then break end
  end
  local new = {}
  for b, row in ipairs(all) do new[b] = table.move(row, n_prompt + 1, #row, 1, {}) end
  return new
end

--- Returns the new ids: a list, or a list of lists for several prompts, which may differ in
--- length; a row that ended before the others is filled up with the padding token.
---@param model any
---@param ids integer[]|integer[][]|accel.Tensor
---@param opts? table
---  max_new_tokens integer = 32: most ids that a prompt gets
---  temperature number: logits are divided by it before sampling; 0: the greatest is taken
---    (default: 1 with top_k or top_p, else 0)
---  top_k integer = 0: sample among so many; 0: all
---  top_p number = 1: sample among the likeliest that make up this share
---  seed integer = 0: of the sampling
---  eos_token_id integer|integer[]|false: ends a row; false: none does (default: the configuration's)
---  on_token function: called with the new ids after each step
---@return integer[]|integer[][]
function M.run(model, ids, opts)
  local o = options("generate", opts, {
    max_new_tokens = 32, temperature = options.none, top_k = 0, top_p = 1, seed = 0,
    eos_token_id = options.none,
    on_token = options.none,
  })
  for _, name in ipairs { "max_new_tokens", "top_k" } do
    if math.type(o[name]) ~= "integer" or o[name] < 0 then
      raise("generate: %s must be an integer of at least 0, got %s", name, shown(o[name]))
    end
  end
  o.temperature = o.temperature or ((o.top_k > 0 or o.top_p < 1) and 1 or 0)
  if o.temperature < 0 then raise("generate: temperature must not be negative, got %g", o.temperature) end
  if not (o.top_p > 0 and o.top_p <= 1) then raise("generate: top_p must lie in (0, 1], got %g", o.top_p) end
  local rows, single = rows_of(ids)
  check(rows)
  local was_training = model.training
  model:eval()
  local ok, result = pcall(function()
    local _ <close> = accel.no_grad()
    return extend(model, rows, o)
  end)
  model:train(was_training)
  if not ok then error(result, 0) end
  return single and result[1] or result
end

return setmetatable(M, { __call = function(_, ...) return M.run(...) end })
