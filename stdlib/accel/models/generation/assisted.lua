--- Assisted generation: a smaller model, or the text's own past, proposes several ids, which the model checks in one pass
--- (Leviathan et al. 2023). 2023). Greedy results are the same as without it. Sampled ones have the same distribution.
--- One prompt at a time. Used by models/generate.lua.
local raise = require "accel.util.raise"
local sampling = require "accel.models.generation.sampling"

--- Ids go from the model to the assistant and back: raises for one that the other has no row for.
local function known(id, size, whose)
  if size and id >= size then
    raise("generate: id %d is not one of the %d of the %s: assistant_model must have the model's tokenizer", id, size, whose)
  end
end

--- Scores of the next id after the decoder's rows: [V] as [1, V].
local function scores_at(o, row, logits, width)
  if logits.dtype ~= "f64" then logits = logits:to "f32" end
  return o.any_process and o.process({ row }, logits, width) or logits
end

--- Probabilities over all ids [1, V] that sampling draws from.
local function distribution(o, scores)
  local V = scores.shape[2]
  return sampling.scatter(sampling.candidates(scores, o), V):to("f64"):softmax(2)
end

local function draw(probs, random)
  local sums = probs:cumsum(2)
  local n = probs.shape[2]
  local limit = sums:select(2, n):item() * random:uniform()
  return math.min(sums:le(limit):to("i64"):sum():item(), n - 1)
end

--- Proposals of a draft model: ids, and with sampling the distribution of each.
local function from_model(draft, o, most)
  local ids, probs = {}, {}
  for i = 1, most do
    local scores = scores_at(o, o.any_process and draft:ids(1), draft:logits():select(2, -1), draft.width)
    local p, id = nil, nil
    if o.do_sample then
      p = distribution(o, scores)
      id = draw(p, o.random)
    else
      id = scores:argmax(2):item()
    end
    ids[i], probs[i] = id, p
    draft:push { id }
    local sure = o.assistant_confidence_threshold
    if o.ends[id] then break end
    if sure > 0 and (p or scores:softmax(2)):select(2, id + 1):item() < sure then break end
  end
  return ids, probs
end

--- Proposals by prompt lookup: the continuation of an earlier occurrence of the longest of the last n-grams.
local function from_text(row, o, most)
  for n = math.min(o.max_matching_ngram_size, #row - 1), 1, -1 do
    for at = 1, #row - n do
      local same = true
      for k = 1, n do
        if row[at + k - 1] ~= row[#row - n + k] then
          same = false
          break
        end
      end
      if same then return table.move(row, at + n, math.min(at + n + most - 1, #row), 1, {}) end
    end
  end
  return {}
end

--- How many proposals are accepted and the id that follows them. scores: list of [1, V], one more than proposals.
local function judge(o, ids, probs, scores)
  for i = 1, #ids do
    local own = scores(i)
    if not o.do_sample then
      local best = own:argmax(2):item()
      if best ~= ids[i] then return i - 1, best end
    else
      local p = distribution(o, own)
      if not probs[i] then -- proposed deterministically: keep it if the sample agrees
        local id = draw(p, o.random)
        if id ~= ids[i] then return i - 1, id end
      else
        local q = probs[i]
        local share = p:select(2, ids[i] + 1):item() / q:select(2, ids[i] + 1):item()
        if o.random:uniform() > share then
          local rest = (p - q):maximum(0)
          return i - 1, draw(rest:sum():item() > 0 and rest or p, o.random)
        end
      end
    end
  end
  local own = scores(#ids + 1)
  return #ids, o.do_sample and draw(distribution(o, own), o.random) or own:argmax(2):item()
end

--- How many ids are proposed next, after `accepted` of `proposed`.
local function schedule(o, n, accepted, proposed)
  if o.num_assistant_tokens_schedule == "constant" then return n end
  return accepted == proposed and n + 2 or math.max(1, n - 1)
end

---@param decoder accel.models.Decoder of one row
---@param o table as in sample.lua, with draft (a Decoder) or prompt_lookup_num_tokens
---@return accel.models.GenerateOutput
return function(decoder, o)
  local stopping, draft, ended = o.stopping, o.draft, false
  local n = o.prompt_lookup_num_tokens or o.num_assistant_tokens
  local proposed, accepted, passes = 0, 0, 0
  local own_size, draft_size = o.vocab_size, draft and o.draft_vocab_size
  for _, id in ipairs(draft and decoder.rows[1] or {}) do known(id, draft_size, "assistant") end
  while decoder.width < o.max_width and not ended do
    local base = decoder.width
    local most = math.max(0, math.min(n, o.max_width - base - 1, decoder.context - base))
    local ids, probs = {}, {}
    if draft then most = math.min(most, draft.context - base) end
    if most > 0 then
      if draft then
        ids, probs = from_model(draft, o, most)
      else
        ids = from_text(decoder:ids(1), o, most)
      end
    end
    for _, id in ipairs(ids) do
      known(id, own_size, "model")
      decoder:push { id }
    end
    local logits, text = decoder:logits(#ids + 1), decoder:ids(1)
    passes = passes + 1
    local n_text = #text - #ids -- ids of the text before the proposals
    local matches, follow = judge(o, ids, probs, function(i)
      local row = o.any_process and table.move(text, 1, n_text + i - 1, 1, {})
      return scores_at(o, row, logits:select(2, i), base + i - 1)
    end)
    proposed, accepted = proposed + #ids, accepted + matches
    if #ids > 0 then n = schedule(o, n, matches, #ids) end
    decoder:crop(base)
    ids[matches + 1] = follow
    local late = stopping:late()
    for i = 1, matches + 1 do
      decoder:push { ids[i] }
      ended = late or stopping:row(decoder:ids(1), decoder.width)
      if o.streamer then o.streamer:put { ids[i] } end
      if o.on_token and o.on_token { ids[i] } == false then ended = true end
      if ended then break end
    end
    if draft and not ended then -- an end may be an id that the assistant does not have
      local common = math.min(decoder.width, base + matches)
      draft:crop(math.min(draft.width, common))
      for i = draft.width + 1, decoder.width do
        known(decoder.rows[1][i], draft_size, "assistant")
        draft:push { decoder.rows[1][i] }
      end
    end
  end
  return { sequences = { decoder:ids(1, true) }, assisted = { proposed = proposed, accepted = accepted, passes = passes } }
end
