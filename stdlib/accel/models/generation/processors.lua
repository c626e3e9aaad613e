--- Changes to the scores of the next id before one is chosen: penalties and bans of GenerationConfig, in Transformers' order.
--- `build` makes a list of functions (rows, scores) -> scores. rows are the ids so far without padding and scores are [N, V].
--- Used by models/generate.lua.
local accel = require "accel"
local raise = require "accel.util.raise"

local M = {}

local NOT <const> = -math.huge

local function index_of(list, device) return accel.tensor(list, { dtype = "i64", device = device }) end

--- scores with minus infinity at the ids of lists[row].
local function ban(scores, lists)
  local V, flat = scores.shape[2], {}
  for b, list in ipairs(lists) do
    for _, id in ipairs(list) do
      if id < V then flat[#flat + 1] = (b - 1) * V + id end
    end
  end
  if #flat == 0 then return scores end
  return scores:reshape(-1):index_fill(1, index_of(flat, scores.device), NOT):view(scores.shape)
end

local function every(n, list)
  local lists = {}
  for b = 1, n do lists[b] = list end
  return lists
end

--- Scores of the ids of texts[b]: positive ones are divided by the penalty, others multiplied (Keskar et al. 2019).
local function penalise(scores, texts, penalty)
  local most, unique = 0, {}
  for b, text in ipairs(texts) do
    local seen, list = {}, {}
    for _, id in ipairs(text) do
      if not seen[id] then seen[id], list[#list + 1] = true, id end
    end
    unique[b], most = list, math.max(most, #list)
  end
  if most == 0 then return scores end
  for _, list in ipairs(unique) do -- an id that stands there twice gets the same value twice
    for i = #list + 1, most do list[i] = list[1] or 0 end
  end
  local index = index_of(unique, scores.device)
  local s = scores:gather(2, index)
  return scores:scatter(2, index, accel.where(s:lt(0), s * penalty, s / penalty))
end

--- The ids that would complete an n-gram that `text` already contains. `tail` is the beginning of the n-gram.
local function repeated(text, n, tail)
  local list, size = {}, n - 1
  if #tail < size then return list end
  for i = 1, #text - size do
    local same = true
    for k = 1, size do
      if text[i + k - 1] ~= tail[#tail - size + k] then
        same = false
        break
      end
    end
    if same then list[#list + 1] = text[i + size] end
  end
  return list
end

local function ends_with(row, ids, n)
  if #row < n then return false end
  for k = 1, n do
    if row[#row - n + k] ~= ids[k] then return false end
  end
  return true
end

--- All scores minus infinity except the ids' scores.
local function only(scores, ids)
  local out = accel.full(scores.shape, NOT, { dtype = scores.dtype, device = scores.device })
  return out:index_fill(2, index_of(ids, scores.device), 0)
end

local makers = {}

function makers.sequence_bias(value)
  return function(rows, scores)
    local bias = accel.zeros(scores.shape, { dtype = scores.dtype, device = scores.device })
    for b, row in ipairs(rows) do
      for _, pair in ipairs(value) do
        local ids, at = pair[1], bias:select(1, b)
        local last = ids[#ids]
        if last >= scores.shape[2] then
          raise("generate: sequence_bias names id %d, the model has %d", last, scores.shape[2])
        end
        if ends_with(row, ids, #ids - 1) then at:narrow(1, last + 1, 1):add_(pair[2]) end
      end
    end
    return scores + bias
  end
end

function makers.encoder_repetition_penalty(value, o)
  if value == 1 then return nil end
  return function(rows, scores)
    local texts, copies = {}, #rows // #o.encoder_ids
    for b = 1, #rows do texts[b] = o.encoder_ids[(b - 1) // copies + 1] end
    return penalise(scores, texts, 1 / value)
  end
end

function makers.repetition_penalty(value)
  return value ~= 1 and function(rows, scores) return penalise(scores, rows, value) end or nil
end

function makers.no_repeat_ngram_size(n)
  return n > 0 and function(rows, scores)
    local lists = {}
    for b, row in ipairs(rows) do lists[b] = repeated(row, n, row) end
    return ban(scores, lists)
  end or nil
end

function makers.encoder_no_repeat_ngram_size(n, o)
  if n == 0 then return nil end
  return function(rows, scores)
    local lists, copies = {}, #rows // #o.encoder_ids
    for b, row in ipairs(rows) do lists[b] = repeated(o.encoder_ids[(b - 1) // copies + 1], n, row) end
    return ban(scores, lists)
  end
end

function makers.bad_words_ids(words, o)
  return function(rows, scores)
    local lists = {}
    for b, row in ipairs(rows) do
      lists[b] = {}
      for _, ids in ipairs(words) do
        local last = ids[#ids]
        if not (#ids == 1 and o.ends[last]) and ends_with(row, ids, #ids - 1) then table.insert(lists[b], last) end
      end
    end
    return ban(scores, lists)
  end
end

local function until_length(rows, scores, o, width, least)
  return width < least and #o.end_list > 0 and ban(scores, every(#rows, o.end_list)) or scores
end

function makers.min_length(least, o)
  return least > 0 and function(rows, scores, width) return until_length(rows, scores, o, width, least) end or nil
end

function makers.min_new_tokens(least, o)
  return least > 0 and function(rows, scores, width)
    return until_length(rows, scores, o, width, least + o.prompt_width)
  end or nil
end

--- fn(prompt, row) -> the allowed ids. prompt counts from 0, as the rows of the batch.
function makers.prefix_allowed_tokens_fn(fn, o)
  return function(rows, scores)
    local allowed, copies = {}, #rows // o.n_prompts
    local mask = accel.full(scores.shape, NOT, { dtype = scores.dtype, device = scores.device })
    for b, row in ipairs(rows) do
      allowed[b] = fn((b - 1) // copies, row)
      if type(allowed[b]) ~= "table" or #allowed[b] == 0 then
        raise("generate: prefix_allowed_tokens_fn allows no token after row %d", b)
      end
      mask:select(1, b):copy_(mask:select(1, b):index_fill(1, index_of(allowed[b], scores.device), 0))
    end
    return scores + mask
  end
end

function makers.forced_bos_token_id(id)
  return function(_, scores, width) return width == 1 and only(scores, { id }) or scores end
end

function makers.forced_eos_token_id(id, o)
  return function(_, scores, width)
    return width == o.max_width - 1 and only(scores, type(id) == "table" and id or { id }) or scores
  end
end

function makers.remove_invalid_values(on)
  return on and function(_, scores) return scores:nan_to_num(0, 3.4028234663852886e38, -3.4028234663852886e38) end or nil
end

function makers.exponential_decay_length_penalty(value, o)
  local start, factor = value[1] + o.prompt_width, value[2]
  return function(rows, scores, width)
    if width <= start or #o.end_list == 0 then return scores end
    local index = index_of(every(#rows, o.end_list), scores.device)
    local s = scores:gather(2, index)
    local more = s:abs() * (factor ^ (width - start) - 1)
    return scores:scatter(2, index, s + accel.where(s:isfinite(), more, 0.0))
  end
end

function makers.suppress_tokens(list)
  return function(rows, scores) return ban(scores, every(#rows, list)) end
end

function makers.begin_suppress_tokens(list, o)
  local begin = o.prompt_width
  if begin <= 1 and o.forced_bos_token_id then begin = begin + 1 end
  return function(rows, scores, width) return width == begin and ban(scores, every(#rows, list)) or scores end
end

local order = {
  "sequence_bias", "encoder_repetition_penalty", "repetition_penalty", "no_repeat_ngram_size",
  "encoder_no_repeat_ngram_size", "bad_words_ids", "min_length", "min_new_tokens", "prefix_allowed_tokens_fn",
  "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
  "suppress_tokens", "begin_suppress_tokens",
}

--- The functions that o asks for. Beside GenerationConfig's names o has: prompt_width and max_width (columns, with padding),
--- n_prompts, ends (a set) and end_list, encoder_ids (the prompts), logits_processor.
---@param o table
---@return fun(rows: integer[][], scores: accel.Tensor, width: integer): accel.Tensor
---@return boolean any whether it does anything
function M.build(o)
  local list = {}
  for _, name in ipairs(order) do
    if o[name] ~= nil then list[#list + 1] = makers[name](o[name], o) or nil end
  end
  local own = o.logits_processor
  if type(own) == "table" and not getmetatable(own) then
    table.move(own, 1, #own, #list + 1, list)
  else
    list[#list + 1] = own
  end
  return function(rows, scores, width)
    for _, process in ipairs(list) do scores = process(rows, scores, width) end
    return scores
  end, #list > 0
end

return M
