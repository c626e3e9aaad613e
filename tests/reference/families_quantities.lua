-- The quantities of one folder of shared/reference/families, for families.lua. Distances are relative to the largest magnitude of what is
-- expected; gradients to that of all gradients.
local accel = require "accel"

local M = {}

local BARS <const> = { out = 1e-10, loss = 1e-10, grad = 1e-9, step = 1e-8 }
local FIRST <const> = { input_ids = true, pixel_values = true, input_features = true, input_values = true }

local function largest(t) return t:numel() == 0 and 0 or t:abs():max():item() end

--- Largest difference relative to the largest value, or to `scale`.
local function distance(got, want, scale)
  got, want = got:to "f64", want:to "f64"
  if want.ndim == 1 and want:numel() == 1 and got.ndim == 0 then want = want:reshape({}) end
  if tostring(got.shape) ~= tostring(want.shape) then return math.huge, ("shape %s, not %s"):format(got.shape, want.shape) end
  local n = scale or largest(want)
  local d = largest(got - want) / (n == 0 and 1 or n)
  return d == d and d or math.huge
end

--- Tensors of a file under a prefix, by the rest of their names.
local function under(tensors, prefix)
  local found = {}
  for name, t in next, tensors do
    local rest = name:match("^" .. prefix .. "/(.*)$")
    if rest then found[rest] = t end
  end
  return found
end

--- The first argument of forward and the table of the others, floats in the model's dtype.
local function arguments(inputs, dtype)
  local first, rest = nil, {}
  for name, t in next, inputs do
    if t:is_floating_point() then t = t:to(dtype) end
    if FIRST[name] and not (name ~= "input_ids" and inputs.input_ids) then first = t else rest[name] = t end
  end
  return first, rest
end

--- Names of what forward returns.
local function names_of(model)
  if model.outputs then return model.outputs end
  local name = accel.util.class.of(model).__name
  if name:find "QuestionAnswering$" then return { "start_logits", "end_logits" } end
  if name:find "Model$" and not name:find "LMHeadModel$" then return { "last_hidden_state", "pooler_output" } end
  return { "logits", "aux_loss" }
end

local TARGETS <const> = { labels = true, start_positions = true, end_positions = true, next_sentence_label = true, return_loss = true }

local function without_targets(opts)
  local rest = {}
  for key, t in next, opts do
    if not TARGETS[key] then rest[key] = t end
  end
  return next(rest) and rest or nil
end

--- What a call returns, by name. Places that the mask leaves out hold zeros, as in the files.
local function outputs(model, first, opts)
  local got = table.pack(model(first, without_targets(opts)))
  local by_name, own = {}, opts.decoder_attention_mask or not opts.decoder_input_ids and opts.attention_mask or nil
  for i, name in ipairs(names_of(model)) do
    local t, mask = got[i], own
    if name:find "^encoder" then mask = opts.attention_mask end
    if t and mask and (t.ndim == 3 or t.ndim == 2 and name == "logits") and mask.ndim == 2 and t.shape[1] == mask.shape[1] and t.shape[2] == mask.shape[2]
      and name ~= "pooler_output" and not name:find "^start_" and not name:find "^end_" then
      local m = mask:to(t.dtype)
      t = accel.where((t.ndim == 3 and m:unsqueeze(3) or m):ne(0), t, 0)
    end
    by_name[name] = t
  end
  if model.encode and not by_name.encoder_last_hidden_state then
    local t, seen = model:encode(first, opts.attention_mask), opts.attention_mask
    if seen and seen.shape[2] == t.shape[2] then t = accel.where(seen:to(t.dtype):unsqueeze(3):ne(0), t, 0) end
    by_name.encoder_last_hidden_state = t
  end
  return by_name
end

--- The loss of a call: that of its labels, else the sum of outputs times the cotangents of the file.
local function loss_of(model, first, opts, cotangents)
  local has = false
  for key in next, opts do has = has or TARGETS[key] end
  if has then
    local y = model(first, opts)
    return y
  end
  local total
  for name, t in accel.pairs(outputs(model, first, opts)) do
    local cot = cotangents[name]
    if cot then
      local part = (t * cot:to(t.dtype)):sum()
      total = total and total + part or part
    end
  end
  return total
end

local function compare_outputs(got, want, kind, bar, report)
  for name, t in accel.pairs(want) do
    if not got[name] then
      report(kind .. "/" .. name, "not returned", "returned")
    else
      local d, words = distance(got[name], t)
      if not (d <= bar) then report(kind .. "/" .. name, words or ("%.2g"):format(d), ("%.2g"):format(bar)) end
    end
  end
end

local function gradients_of(model)
  local grads, values = {}, {}
  local back = model._to_file_names and model:_to_file_names()
  for name, p in pairs(model:_slots()) do
    local at = back and back[name] or name
    grads[at], values[at] = p.tensor.grad, p.tensor
  end
  return grads, values
end

local function check_gradients(model, expected, meta, bar, report)
  local grads, values = gradients_of(model)
  local want, most = under(expected, "grad"), 0
  for _, t in next, want do most = math.max(most, largest(t)) end
  for name, t in accel.pairs(want) do
    if not grads[name] then
      report("grad/" .. name, "no gradient", "a gradient")
    else
      local d, words = distance(grads[name], t, most)
      if not (d <= bar) then report("grad/" .. name, words or ("%.2g"):format(d), ("%.2g"):format(bar)) end
    end
  end
  local greatest = 0
  for _, pair in next, meta.gradient_summary or {} do greatest = math.max(greatest, pair[1]) end
  for name, pair in accel.pairs(meta.gradient_summary or {}) do
    local g, w = grads[name], values[name]
    if not g then
      report("gradient_summary/" .. name, "no gradient", "a gradient")
    else
      local norm, dot = g:to("f64"):square():sum():item() ^ 0.5, (g:to "f64" * w:detach():to "f64"):sum():item()
      local d = math.max(math.abs(norm - pair[1]) / greatest, math.abs(dot - pair[2]) / math.max(greatest, math.abs(pair[2])))
      if not (d <= bar) then report("gradient_summary/" .. name, ("%.2g"):format(d), ("%.2g"):format(bar)) end
    end
  end
  for _, name in ipairs(meta.no_gradient or {}) do
    local g = grads[name]
    if g and largest(g) > 0 then report("no_gradient/" .. name, ("%.2g"):format(largest(g)), "none") end
  end
  for _, name in ipairs(meta.zero_gradient or {}) do
    local g = grads[name]
    if g and largest(g) > math.max(1e-12, bar) * most then report("zero_gradient/" .. name, ("%.2g"):format(largest(g) / most), "0") end
  end
end

--- Outputs after one step of AdamW on the gradients that are there.
local function check_step(model, first, opts, expected, meta, bar, report)
  local params, frozen = {}, {}
  for _, name in ipairs(meta.no_gradient or {}) do frozen[name] = true end
  local back = model._to_file_names and model:_to_file_names()
  for name, p in model:named_parameters() do
    if frozen[back and back[name] or name] then p.grad = nil end
    params[#params + 1] = p
  end
  accel.optim.AdamW(params, { lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0.1 }):step()
  local _ <close> = accel.no_grad()
  local want = under(expected, "step")
  local loss = want.loss
  want.loss = nil
  compare_outputs(outputs(model, first, opts), want, "step", bar, report)
  if loss then
    local d = distance(loss_of(model, first, opts, under(expected, "cot")), loss)
    if not (d <= bar) then report("step/loss", ("%.2g"):format(d), ("%.2g"):format(bar)) end
  end
end

--- The last three positions of row 0 one by one with a cache, after the others.
local function check_decode(model, inputs, expected, bar, report)
  local want = expected["decode/logits"]
  if not want then return end
  local _ <close> = accel.no_grad()
  local step, ids
  local function row(t) return t:narrow(1, 1, 1) end
  if inputs.decoder_input_ids then
    ids = row(inputs.decoder_input_ids)
    local cache = model:new_cache(1, ids.shape[2])
    local source = inputs.input_ids or inputs.input_features
    local memory = model:encode(row(source:is_floating_point() and source:to(model:parameters()[1].dtype) or source))
    step = function(new) return (model(nil, { decoder_input_ids = new, encoder_outputs = memory, cache = cache })) end
  else
    ids = row(inputs.input_ids)
    local cache = model:new_cache(1, ids.shape[2])
    step = function(new) return (model(new, cache)) end
  end
  local n = ids.shape[2]
  step(ids:narrow(2, 1, n - 3))
  local got = {}
  for i = 1, 3 do got[i] = step(ids:narrow(2, n - 3 + i, 1)) end
  local d, words = distance(accel.cat(got, 2), want)
  if not (d <= bar) then report("decode/logits", words or ("%.2g"):format(d), ("%.2g"):format(bar)) end
end

local function same_ids(got, want, pad)
  local rows = want:tolist()
  for b, row in ipairs(rows) do
    local mine = got[b] or {}
    for i = 1, math.max(#row, #mine) do
      local w = row[i]
      if (mine[i] or pad) ~= (w or pad) then return ("row %d, place %d: %s, not %s"):format(b, i, tostring(mine[i]), tostring(w)) end
    end
  end
end

local function check_generate(model, expected, report)
  local given = under(expected, "gen")
  if not given.greedy then return end
  local source = given.input_ids or given.input_features or given.pixel_values
  if source:is_floating_point() then source = source:to(model:parameters()[1].dtype) end
  local function run(opts)
    opts.attention_mask, opts.decoder_input_ids, opts.return_dict_in_generate = given.attention_mask, given.decoder_input_ids, true
    return model:generate(source, opts)
  end
  local prompt = given.decoder_input_ids or not model.begin_generation and given.input_ids or nil
  local pad = model.config.pad_token_id or 0
  --- Whole rows: the prompt in front of new ids, where sequences are of new ids alone.
  local function rows_of(out)
    local rows = {}
    for b, ids in ipairs(out.sequences) do
      rows[b] = ids
      if prompt then
        local whole = prompt[b]:tolist()
        table.move(ids, 1, #ids, #whole + 1, whole)
        rows[b] = whole
      else
        table.insert(rows[b], 1, model.config.decoder_start_token_id)
      end
    end
    return rows
  end
  local wrong = same_ids(rows_of(run { max_new_tokens = 12, do_sample = false, num_beams = 1 }), given.greedy, pad)
  if wrong then report("gen/greedy", wrong, "equal") end
  local out = run { max_new_tokens = 8, num_beams = 2, do_sample = false }
  wrong = same_ids(rows_of(out), given.beam, pad)
  if wrong then report("gen/beam", wrong, "equal") end
  if not wrong and given.beam_scores then
    local d = distance(accel.tensor(out.sequences_scores, { dtype = "f64" }), given.beam_scores)
    if not (d <= 1e-5) then report("gen/beam_scores", ("%.2g"):format(d), "1e-05") end
  end
end

--- The folder that the model is saved to has the keys, dtypes and bytes of the one it came from.
local function check_saved(path, report)
  local model = assert(accel.models.from_pretrained(path))
  local saved = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/families-")
  assert(model:save_pretrained(saved .. "/model"))
  local function tensors_of(at)
    local out = {}
    local index = io.open(at .. "/model.safetensors.index.json", "rb")
    local files = { ["model.safetensors"] = true }
    if index then
      files = {}
      for _, name in next, accel.json.decode(index:read "a").weight_map do files[name] = true end
      index:close()
    end
    for name in next, files do
      for key, t in next, (assert(accel.load(at .. "/" .. name))) do out[key] = t end
    end
    return out
  end
  local want, got = tensors_of(path), tensors_of(saved .. "/model")
  for name, t in accel.pairs(want) do
    local mine = got[name]
    if not mine then report("saved/" .. name, "missing", "there")
    elseif mine.dtype ~= t.dtype then report("saved/" .. name, mine.dtype, t.dtype)
    elseif not accel.equal(mine, t) then report("saved/" .. name, "other values", "the same bytes") end
  end
  for name in accel.pairs(got) do
    if not want[name] then report("saved/" .. name, "extra", "not there") end
  end
end

--- One folder in f64 and f32.
---@param model accel.models.PreTrainedModel in f64
---@param info table keys that did not fit
---@param path string
---@param meta table meta.json
---@param report fun(quantity: string, distance: string, bar: string)
function M.check(model, info, path, meta, report)
  for _, kind in ipairs { "missing_keys", "unexpected_keys", "mismatched_keys" } do
    for _, key in ipairs(info[kind]) do report(kind, key, "none") end
  end
  local expected = assert(accel.load(path .. "/expected.safetensors"))
  local inputs = under(expected, "in")
  for _, dtype in ipairs { "f64", "f32" } do
    local m = dtype == "f64" and model or assert(accel.models.from_pretrained(path, { dtype = dtype }))
    local f32 = meta.torch_error.f32
    local function bar(kind) return dtype == "f64" and BARS[kind] or math.max(4 * (f32[kind] or 0), 1e-5) end
    local function say(quantity, d, b) report(dtype .. " " .. quantity, d, b) end
    local first, opts = arguments(inputs, dtype)
    if meta.loss == "own" then opts.return_loss = true end
    do
      local _ <close> = accel.no_grad()
      compare_outputs(outputs(m, first, opts), under(expected, "out"), "out", bar "out", say)
    end
    check_decode(m, inputs, expected, bar "out", say)
    check_generate(m, expected, say)
    local loss = loss_of(m, first, opts, under(expected, "cot"))
    if expected.loss then
      local d = distance(loss, expected.loss)
      if not (d <= bar "loss") then say("loss", ("%.2g"):format(d), ("%.2g"):format(bar "loss")) end
    end
    loss:backward()
    check_gradients(m, expected, meta, bar "grad", say)
    check_step(m, first, opts, expected, meta, bar "step", say)
  end
  check_saved(path, report)
end

--- The same numbers from a configuration as older versions wrote it.
---@param old string folder with config_old.json as its config.json
---@param path string
---@param report fun(quantity: string, distance: string, bar: string)
function M.check_old(old, path, report)
  local model, message = accel.models.from_pretrained(old, { dtype = "f64" })
  if not model then return report("config_old", message, "loads") end
  local expected = assert(accel.load(path .. "/expected.safetensors"))
  local first, opts = arguments(under(expected, "in"), "f64")
  local _ <close> = accel.no_grad()
  compare_outputs(outputs(model, first, opts), under(expected, "out"), "config_old out", BARS.out, report)
end

return M
