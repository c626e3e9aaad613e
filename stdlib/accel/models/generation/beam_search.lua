--- Beam search: the num_beams likeliest continuations of each prompt continue together, and ended ones are kept by score.
--- The rules (which candidates continue, when a better end is ruled out, length penalty) are Transformers 5's. Used by
--- models/generate.lua.
local accel = require "accel"
local sampling = require "accel.models.generation.sampling"

local FAR <const> = -1.0e9 -- Transformers' addition to scores of forbidden ids

--- The positions of the n largest values of list, the greatest first. Equal ones are in order.
local function largest(list, n)
  local order = {}
  for i = 1, #list do order[i] = i end
  table.sort(order, function(a, b)
    if list[a] ~= list[b] then return list[a] > list[b] end
    return a < b
  end)
  return table.move(order, 1, n, 1, {})
end

--- One prompt's beams.
---@class accel.models.Beams
---@field scores number[] of the running ones
---@field ended {score: number, done: boolean, ids: integer[], beams: integer[]}[] the best so far, the greatest first
---@field hopeful boolean whether a running beam may still beat the worst of them

local function new_beams(k)
  local beams = { scores = {}, ended = {}, hopeful = true, paths = {} }
  for i = 1, k do
    -- all beams are equal at first: the others must not repeat the first one's candidates
    beams.scores[i] = i == 1 and 0.0 or FAR
    beams.ended[i] = { score = FAR, done = false, ids = {}, beams = {} }
    beams.paths[i] = {}
  end
  return beams
end

local function all_done(beams)
  for _, e in ipairs(beams.ended) do
    if not e.done then return false end
  end
  return true
end

--- Takes the candidates of one step into a prompt's beams: the continuing ones (list of {beam, id}) and the ended ones.
---@param beams accel.models.Beams
---@param cands {score: number, beam: integer, id: integer, hits: boolean}[] the greatest score first
---@param length integer ids after the prompt, including this one
---@param text fun(beam: integer, id: integer): integer[] the new ids of a candidate
local function advance(beams, cands, length, o, text)
  local k = o.num_beams
  local running = {}
  for i, c in ipairs(cands) do running[i] = c.score + (c.hits and FAR or 0) end
  local go, scores, paths = {}, {}, {}
  for i, at in ipairs(largest(running, k)) do
    local c = cands[at]
    go[i], scores[i] = c, running[at]
    paths[i] = table.move(beams.paths[c.beam], 1, length - 1, 1, {})
    paths[i][length] = c.global
  end
  local full = o.early_stopping == true and all_done(beams)
  local merged, values = {}, {}
  for _, e in ipairs(beams.ended) do merged[#merged + 1], values[#values + 1] = e, e.score end
  for i, c in ipairs(cands) do
    local done = c.hits and i <= k
    local score = c.score / length ^ o.length_penalty + (full and FAR or 0) + (beams.hopeful and 0 or FAR) + (done and 0 or FAR)
    merged[#merged + 1], values[#values + 1] = { score = score, done = done, cand = c }, score
  end
  local ended = {}
  for i, at in ipairs(largest(values, k)) do
    local e = merged[at]
    if e.cand then -- texts are copied for the few that stay
      local path = table.move(beams.paths[e.cand.beam], 1, length - 1, 1, {})
      path[length] = e.cand.global
      e = { score = e.score, done = e.done, ids = text(e.cand.beam, e.cand.id), beams = path }
    end
    ended[i] = e
  end
  beams.ended, beams.scores, beams.paths = ended, scores, paths
  return go
end

--- Whether running beams may still beat the worst ended one, judged at the length they have or, with early_stopping =
--- "never", may reach.
local function hope(beams, length, most, o)
  if not beams.hopeful then return false end
  local at = o.early_stopping == "never" and o.length_penalty > 0 and most or length
  local best, worst = beams.scores[1] / at ^ o.length_penalty, math.huge
  for _, e in ipairs(beams.ended) do worst = math.min(worst, e.score) end
  for _, e in ipairs(beams.ended) do
    if best > (e.done and worst or FAR) then return true end
  end
  return false
end

---@param decoder accel.models.Decoder
---@param o table GenerationConfig's names, with process, any_process, stopping, random, filler
---@return accel.models.GenerateOutput
return function(decoder, o)
  local B, k, stopping = decoder.n, o.num_beams, o.stopping
  local keep = math.max(2, 1 + #o.end_list) * k
  local least = #o.end_list + 1
  if #o.end_list == 0 then least = 2 end
  local all, kept_scores, kept_logits = {}, {}, {}
  for b = 1, B do all[b] = new_beams(k) end
  local most, first = o.max_width - decoder.width, true
  local prompt = decoder.width
  while decoder.width < o.max_width do
    local logits = decoder:logits():select(2, -1)
    if logits.dtype ~= "f64" then logits = logits:to "f32" end
    if first then
      decoder:expand(k)
      logits, first = logits:repeat_interleave(k, 1), false
    end
    local scores, rows, V = logits:log_softmax(2), {}, logits.shape[2]
    for i = 1, B * k do rows[i] = decoder:ids(i) end
    if o.any_process then scores = o.process(rows, scores, decoder.width) end
    if o.do_sample then scores = sampling.scatter(sampling.candidates(scores, o, least), V) end
    if o.renormalize_logits then scores = scores:log_softmax(2) end
    if o.output_scores then kept_scores[#kept_scores + 1] = scores:clone() end
    if o.output_logits then kept_logits[#kept_logits + 1] = logits:clone() end
    local sums = {}
    for b = 1, B do
      for i = 1, k do sums[(b - 1) * k + i] = { all[b].scores[i] } end
    end
    scores = (scores + accel.tensor(sums, { dtype = scores.dtype, device = scores.device })):reshape(B, k * V)
    local values, index
    if o.do_sample then
      values, index = sampling.draw_several(scores, keep, o.random)
    else
      values, index = scores:topk(math.min(keep, k * V))
    end
    values, index = values:tolist(), index:tolist()
    local width, order, ids = decoder.width + 1, {}, {}
    local length, stuck, late = width - prompt, true, stopping:late()
    for b = 1, B do
      local cands = {}
      for j, at in ipairs(index[b]) do
        local beam, id = at // V + 1, at % V
        local row = rows[(b - 1) * k + beam]
        row[#row + 1] = id
        local hits = late or stopping:row(row, width, scores)
        row[#row] = nil
        cands[j] = { score = values[b][j], beam = beam, id = id, hits = hits, global = (b - 1) * k + beam - 1 }
        stuck = stuck and hits
      end
      local go = advance(all[b], cands, length, o, function(beam, id)
        local new = decoder:ids((b - 1) * k + beam, true)
        new[#new + 1] = id
        return new
      end)
      for i, c in ipairs(go) do
        order[(b - 1) * k + i], ids[(b - 1) * k + i] = (b - 1) * k + c.beam, c.id
      end
    end
    decoder:reorder(order)
    decoder:push(ids)
    local better, open = false, false
    for b = 1, B do
      all[b].hopeful = hope(all[b], length, most, o)
      better = better or all[b].hopeful
      open = open or not all_done(all[b])
    end
    if not better or stuck or (o.early_stopping == true and not open) then break end
  end
  local sequences, sequences_scores, beam_indices, longest = {}, {}, {}, 0
  for b = 1, B do
    for i = 1, o.num_return_sequences do
      local e = all[b].ended[i]
      sequences[#sequences + 1], longest = e.ids, math.max(longest, #e.ids)
      sequences_scores[#sequences], beam_indices[#sequences] = e.score, e.beams
    end
  end
  for _, ids in ipairs(sequences) do
    for i = #ids + 1, longest do ids[i] = o.filler or 0 end
  end
  return { sequences = sequences, sequences_scores = sequences_scores, beam_indices = beam_indices,
    scores = o.output_scores and kept_scores or nil, logits = o.output_logits and kept_logits or nil }
end
