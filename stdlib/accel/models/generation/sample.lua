--- Greedy search and sampling: one id a step for every row, until all have ended. Used by models/generate.lua.
local sampling = require "accel.models.generation.sampling"

--- A step's data for callbacks and for the result.
local function record(o, kept, logits, scores, c, V)
  if not o.return_dict_in_generate then return end
  if o.output_logits then kept.logits[#kept.logits + 1] = logits:clone() end
  if o.output_scores then kept.scores[#kept.scores + 1] = c and sampling.scatter(c, V) or scores:clone() end
end

---@param decoder accel.models.Decoder
---@param o table GenerationConfig's names, with process, any_process, stopping, random, copies, filler
---@return accel.models.GenerateOutput
return function(decoder, o)
  local stopping, random, kept = o.stopping, o.random, { scores = {}, logits = {} }
  local done, n_done, first = {}, 0, true
  local reads = o.any_process or stopping:reads_rows()
  while decoder.width < o.max_width do
    local logits = decoder:logits():select(2, -1)
    if logits.dtype ~= "f64" then logits = logits:to "f32" end
    if first and o.copies > 1 then
      decoder:expand(o.copies)
      logits = logits:repeat_interleave(o.copies, 1)
    end
    first = false
    local rows, scores = {}, logits
    if reads then
      for b = 1, decoder.n do rows[b] = decoder:ids(b) end
    end
    if o.any_process then scores = o.process(rows, scores, decoder.width) end
    local ids, c
    if o.do_sample then
      sampling.check(scores)
      c = sampling.candidates(scores, o)
      ids = sampling.draw(c, random)
    else
      ids = scores:argmax(2):tolist()
    end
    record(o, kept, logits, scores, c, logits.shape[2])
    for b = 1, decoder.n do
      if done[b] then ids[b] = o.filler end
    end
    decoder:push(ids)
    local late = stopping:late()
    for b = 1, decoder.n do
      if not done[b] then
        local row = rows[b] or { ids[b] }
        if reads then row[#row + 1] = ids[b] end
        if late or stopping:row(row, decoder.width, scores) then done[b], n_done = true, n_done + 1 end
      end
    end
    if o.streamer then o.streamer:put(ids) end
    if (o.on_token and o.on_token(ids) == false) or n_done == decoder.n then break end
  end
  if first and o.copies > 1 then decoder:expand(o.copies) end -- nothing was asked for
  local sequences = {}
  for b = 1, decoder.n do sequences[b] = decoder:ids(b, true) end
  return { sequences = sequences, scores = o.output_scores and kept.scores or nil,
    logits = o.output_logits and kept.logits or nil }
end
