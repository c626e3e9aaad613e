--- Trains a small GPT on the characters of any UTF-8 text files:
---
---   accel-run examples/train_gpt.lua [options] [FILE ...]
---
--- On several ranks (accel-run --num_processes 4 examples/train_gpt.lua) each takes its part of every batch. Training
--- is the same up to rounding, or, with --deterministic world and one value of --micro, to the last bit. Rank 0 writes
--- and talks.
---
--- Without files it takes CMake's manual and the licence texts of every Debian machine, as paragraphs of one line each: otherwise a
--- small model would mostly learn their indents and line ends. Files are taken as they are, unless --paragraphs asks for the same.
--- Files are used unchanged, unless --paragraphs requests the same. The last tenth of each file is kept for validation. A smoothed
--- trigram model of the same split is the baseline. At the end, or on Ctrl-C, everything is in one checkpoint, a folder that
--- accelerator:save_state writes, from which --resume continues bit for bit, on any number of ranks. A run that diverges ends with
--- status 1 and leaves the last good checkpoint.
local accel = require "accel"
local nn, optim, models = accel.nn, accel.optim, accel.models
local dist = accel.dist
local TokenFile, CharVocab, Trigram = accel.data.TokenFile, accel.text.CharVocab, accel.text.Trigram
local Progress, Random, plot = accel.util.Progress, accel.util.Random, accel.util.plot

local declared = {
  name = "train_gpt.lua",
  usage = "[options] [FILE ...]",
  summary = "Trains a GPT on the characters of UTF-8 text files and writes some text.",
  { "seconds", "number", 120, "S", "train for S seconds, or" },
  { "steps", "int", nil, "N", "for N steps" },
  { "layers", "int", 4, "N", "transformer blocks" },
  { "width", "int", 128, "N", "numbers per position" },
  { "heads", "int", 4, "N", "attention heads" },
  { "block", "int", 128, "N", "characters of context" },
  { "batch", "int", 12, "N", "windows per step, of all ranks together" },
  { "micro", "int", nil, "N", "windows per forward [batch / ranks]" },
  { "deterministic", { "no", "world" }, "no", "WORD", "world: the same bits on 1, 2, 4, ... ranks (--batch 16)" },
  { "lr", "number", 2e-3, "X", "highest learning rate" },
  { "dropout", "number", 0, "P", "share of activations dropped" },
  { "recompute", "flag", false, nil, "compute activations again in backward: less memory, same bits" },
  { "dtype", { "auto", "f32", "bf16" }, "auto", "WORD", "format of matrix products" },
  { "paragraphs", "flag", false, nil, "join the lines of each paragraph of FILEs, with single blanks" },
  { "seed", "int", 1337, "N", "of weights, batches and samples" },
  { "out", "string", "gpt", "DIR", "checkpoint" },
  { "model", "string", nil, "DIR", "write the model here at the end: config.json, tokenizer.json and weights, for accel-run generate" },
  { "resume", "flag", false, nil, "continue from the checkpoint" },
  { "on-existing", { "raise", "beside" }, "raise", "WORD", "another run's checkpoint at --out is an error, or kept as OUT.bak" },
  { "stop", "int", nil, "N", "save and end after step N, as Ctrl-C would" },
  { "sample", "int", 400, "N", "characters to write at the end" },
  { "temperature", "number", 0.8, "X", "of the sampled text" },
  { "svg", "string", nil, "FILE", "write the loss curve here as well" },
  { "track", "string", nil, "DIR", "log into the run store DIR/runs.db (accel-run runs, accel-run ui)" },
  epilog = "Exit status: 0 done, 1 error, 2 wrong usage, 3 checkpoint does not fit, 130 Ctrl-C (saved).",
}
local o, files, given = accel.util.cli(declared)
local rank, ranks = dist.get_rank(), dist.get_world_size()

local function say(fmt, ...)
  if rank > 0 then return end
  io.stdout:write(select("#", ...) > 0 and fmt:format(...) or fmt, "\n")
  io.stdout:flush()
end

local function plural(n, word) return ("%d %s%s"):format(n, word, n == 1 and "" or "s") end

local function is_finite(v) return v == v and math.abs(v) ~= math.huge end

local function stop_with(status, fmt, ...)
  if rank == 0 then io.stderr:write("train_gpt.lua: ", fmt:format(...), "\n") end
  os.exit(status, true)
end

-- Wrong use is found here, not after two minutes -------------------------------------------------

local function demand(ok, fmt, ...)
  if not ok then accel.util.cli.fail(declared, fmt:format(...)) end
end

for _, key in ipairs { "layers", "width", "heads", "block", "batch", "micro", "steps", "stop" } do
  demand(o[key] == nil or o[key] >= 1, "option '--%s' must be positive, got %s", key, o[key])
end
for _, key in ipairs { "seconds", "lr" } do
  demand(o[key] > 0 and is_finite(o[key]), "option '--%s' must be positive, got %s", key, o[key])
end
demand(not (given.steps and given.seconds), "give --steps or --seconds, not both")
demand(o.dropout >= 0 and o.dropout < 1, "option '--dropout' must lie in 0 .. 1, below 1, got %s", o.dropout)
demand(o.sample >= 0, "option '--sample' must not be negative, got %d", o.sample)
demand(o.temperature >= 0 and is_finite(o.temperature), "option '--temperature' must not be negative, got %s",
  o.temperature)

--- Ends the script unless it can write here.
local function check_writable(kind, path)
  local ok, why = accel.util.writable[kind](path)
  if not ok then stop_with(1, "cannot write %s", why) end
end

--- Whether there is a checkpoint at --out, which is written next to it and renamed. Nothing else may be there.
local function check_out()
  local names = accel.listdir(o.out)
  local c, message, code = accel.ckpt.open(o.out)
  if c then c:close() end
  if not c and code == "not_found" then
    local file = not names and io.open(o.out, "rb")
    if file or names and #names > 0 then stop_with(1, "cannot write %s: it is there, and no checkpoint", o.out) end
  end
  check_writable(names and "folder" or "file", o.out)
  return c ~= nil or code ~= "not_found", message
end

local existed = rank == 0 and check_out()
if existed and not o.resume and o.on_existing == "raise" and accel.ckpt.other_run(o.out) then
  stop_with(1, "%s holds a checkpoint of another run; to continue it add --resume, to keep both give another --out or "
    .. "--on-existing beside", o.out)
end
if o.svg and rank == 0 then check_writable("file", o.svg) end
if o.model and rank == 0 then check_writable("folder", o.model) end

-- Text -------------------------------------------------------------------------------------------

local licences = {
  "Apache-2.0", "Artistic", "BSD", "CC0-1.0", "GFDL-1.2", "GFDL-1.3", "GPL-1", "GPL-2", "GPL-3", "LGPL-2",
  "LGPL-2.1", "LGPL-3", "MPL-1.1", "MPL-2.0",
}

--- The words of each paragraph in one line. Rules and other lines without letters are removed.
local function paragraphs(text)
  local out, words = {}, {}
  for line in (text .. "\n\n"):gmatch "([^\n]*)\n" do
    if line:find "%a" then
      for word in line:gmatch "%S+" do words[#words + 1] = word end
    elseif not line:find "%S" and #words > 0 then
      out[#out + 1], words = table.concat(words, " "), {}
    end
  end
  return table.concat(out, "\n") .. "\n"
end

--- CMake's manual, which is installed wherever accel is built: its pages, in order.
local function manual()
  local pages = {}
  local function add(folder)
    for _, name in ipairs(accel.listdir(folder) or {}) do
      if name:find "%.rst$" then pages[#pages + 1] = folder .. "/" .. name
      elseif not name:find "%." then add(folder .. "/" .. name) end
    end
  end
  for _, name in ipairs(accel.listdir "/usr/share" or {}) do
    if name:find "^cmake" and #pages == 0 then add("/usr/share/" .. name .. "/Help") end
  end
  return pages
end

--- The words of a page without its markup.
local function without_markup(page)
  return (page:gsub("%f[^\n\0]%.%. [^\n]*", ""):gsub(":[%w:-]+:`([^`<]*)[^`]*`", "%1"):gsub("[`*]+", ""))
end

--- The texts to train on, in order.
local function read_texts()
  local paths, texts, named = files, {}, #files > 0
  if not named then
    paths = manual()
    for _, name in ipairs(licences) do paths[#paths + 1] = "/usr/share/common-licenses/" .. name end
  end
  for _, path in ipairs(paths) do
    local file, message = io.open(path, "rb")
    local text = file and file:read "a"
    if text then
      local n, at = utf8.len(text)
      if not n then stop_with(1, "%s: not valid UTF-8 at byte %d", path, at) end
      if not named and path:find "%.rst$" then text = without_markup(text) end
      texts[#texts + 1] = (o.paragraphs or not named) and paragraphs(text) or text
    elseif named then
      stop_with(1, "%s", message or path .. ": cannot be read")
    end
    if file then file:close() end
  end
  if #texts == 0 then stop_with(2, "this machine has no CMake manual and no licence texts; name text files") end
  return texts
end

--- A number that changes with the text (FNV-1a over the ends and a sample), so that a checkpoint knows its
--- data.
local function fingerprint(texts)
  local h = 0xcbf29ce484222325
  for _, text in ipairs(texts) do
    local stride = math.max(1, #text // 4096)
    for i = 1, #text, stride do h = (h ~ text:byte(i)) * 0x100000001b3 end
    h = (h ~ #text) * 0x100000001b3
  end
  return ("%016x"):format(h)
end

local texts = read_texts()
local vocab = CharVocab.from_text(table.concat(texts))
local train_parts, val_parts = {}, {}
for i, text in ipairs(texts) do
  local ids = vocab:encode(text)
  local n = ids:numel() * 9 // 10
  train_parts[i] = ids:narrow(1, 1, n)
  val_parts[i] = ids:narrow(1, n + 1, ids:numel() - n)
end
local train_ids, val_ids = accel.cat(train_parts, 1), accel.cat(val_parts, 1)
local n_train, n_val = train_ids:numel(), val_ids:numel()

-- Checkpoint: read -------------------------------------------------------------------------------

local shape_options = {
  "layers", "width", "heads", "block", "batch", "micro", "deterministic", "lr", "dropout", "dtype", "seed",
}
local saved -- this script's state besides model, optimizer and schedule: the object `progress` below
if o.resume then
  local c, message = accel.ckpt.open(o.out)
  if not c then stop_with(3, "cannot resume: %s", message) end
  local bytes, why = c:bytes "custom_checkpoint_0.accel"
  c:close()
  saved = bytes and accel.decode(bytes)
  if not saved or saved.script ~= "train_gpt" then
    stop_with(3, "%s is not a checkpoint of this script%s", o.out, bytes and "" or " (" .. why .. ")")
  end
  if saved.text ~= fingerprint(texts) then stop_with(3, "%s was trained on other text", o.out) end
  for _, key in ipairs(shape_options) do
    if given[key] and o[key] ~= saved.options[key] then
      stop_with(3, "%s was made with --%s %s", o.out, key, saved.options[key])
    end
    o[key] = saved.options[key]
  end
  if not given.steps and not given.seconds then
    o.steps, o.seconds = saved.options.steps, saved.options.seconds
  end
end

demand(o.width % o.heads == 0, "--width must be a multiple of --heads")
demand(o.batch % (ranks * (o.micro or 1)) == 0, "--batch %d cannot be cut into equal parts of %s on %s", o.batch,
  plural(o.micro or 1, "window"), plural(ranks, "rank"))
local micro = o.micro or o.batch // ranks -- windows per forward
local n_micro = o.batch // ranks // micro -- forwards of each rank per step
if math.min(n_train, n_val) < o.block + 2 then
  stop_with(1, "the text is too short: %d characters for windows of %d", n_train + n_val, o.block)
end
if o.dtype == "auto" then
  -- Reduced precision pays once the products are large and the CPU multiplies bf16 itself.
  o.dtype = "f32"
  if o.width >= 256 then
    local features = accel.features()
    for _, name in ipairs(features.cpu) do
      if (name == "amx-bf16" or name == "avx512bf16") and features.onednn then o.dtype = "bf16" end
    end
  end
end

-- Model ------------------------------------------------------------------------------------------

accel.manual_seed(o.seed)
local model = models.GPT2 {
  vocab_size = #vocab, n_positions = o.block, n_embd = o.width, n_layer = o.layers, n_head = o.heads,
  resid_pdrop = o.dropout, embd_pdrop = o.dropout, attn_pdrop = o.dropout,
}
if o.recompute then model:gradient_checkpointing_enable() end
local decayed, plain = {}, {}
for _, p in ipairs(model:parameters()) do
  local group = p.ndim >= 2 and decayed or plain
  group[#group + 1] = p
end
local optimizer = optim.AdamW({ { params = decayed }, { params = plain, weight_decay = 0 } },
  { lr = o.lr, betas = { 0.9, 0.99 }, weight_decay = 0.1 })
local parameters = model:parameters()
local world = o.deterministic == "world"
local accelerator = accel.Accelerator {
  kwargs_handlers = world and { accel.DistributedDataParallelKwargs { deterministic = "world" } } or nil,
}
local prepared = accelerator:prepare(model)
optimizer = accelerator:prepare(optimizer)
local ddp = prepared ~= model and prepared or nil

local step, tokens, elapsed = 0, 0, 0 -- done so far. seconds include earlier runs
local spent, interrupted = 0, false -- seconds of this run and whether to stop, as ranks agreed before this step
local batches = Random(o.seed, 1)
local history = { train = { x = {}, y = {} }, val = { x = {}, y = {} } }
local recent = {}

--- The completed share of the training: by steps if their number is given, so that a run repeats exactly.
local started = accel.clock()
local function fraction()
  if o.steps then return math.min(1, step / math.max(1, o.steps)) end
  return math.min(1, (elapsed + spent) / o.seconds)
end

--- Between steps: looks at the clock, rank 0's, and whether any rank was interrupted, so that all take one way.
local function look_around()
  spent, interrupted = accel.clock() - started, accel.interrupted()
  if ranks == 1 then return end
  local t = accel.tensor({ rank == 0 and spent or 0.0, interrupted and 1.0 or 0.0 }, { dtype = "f64" })
  dist.all_reduce(t, "max")
  local list = t:tolist()
  spent, interrupted = list[1], list[2] > 0
end

--- Linear warm-up, then half a cosine down to a hundredth.
local warmup = o.steps and math.max(1, math.min(100, o.steps // 10)) or 100
local function rate()
  return math.min(1, (step + 1) / warmup) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * fraction())))
end
local schedule = accelerator:prepare(optim.lr_scheduler.LambdaLR(optimizer.optimizer, rate))

local function with_dtype(fn)
  if o.dtype == "bf16" then
    local _ <close> = accel.autocast { device = "cpu", dtype = "bf16" }
    return fn()
  end
  return fn()
end

local function loss_of(net, x, y)
  return with_dtype(function()
    return nn.functional.cross_entropy(net(x):view(-1, #vocab), y:reshape(-1))
  end)
end

--- Nats per character over the validation text in windows of `block`: all of them, or `limit` batches of windows
--- spread evenly over it. Ranks share the batches.
local val_data = TokenFile(val_ids, { block = o.block })
local function validate(limit)
  local _ <close> = accel.no_grad()
  model:eval()
  local n, size = val_data:len(), 64
  local total = limit and math.min(n, limit * size) or n
  local sums, seen = {}, 0
  for k = 1, total, size do
    local positions = {}
    for i = k, math.min(k + size - 1, total) do positions[#positions + 1] = (i - 1) * n // total + 1 end
    seen = seen + #positions
    if #sums % ranks == rank then
      local batch = val_data:get_batch(positions)
      sums[#sums + 1] = loss_of(model, batch[1], batch[2]):item() * #positions
    else
      sums[#sums + 1] = 0.0
    end
  end
  model:train()
  if ranks > 1 then
    local t = accel.tensor(sums, { dtype = "f64" })
    dist.all_reduce(t)
    sums = t:tolist()
  end
  local sum = 0.0
  for _, value in ipairs(sums) do sum = sum + value end
  return sum / seen
end

-- Checkpoint: write ------------------------------------------------------------------------------

local saved_step -- the step of the checkpoint that this run wrote or began with

--- All that the script itself knows of its run.
local progress = {}
function progress:state_dict() -- luacheck: ignore self
  local options = { steps = o.steps, seconds = o.seconds }
  for _, key in ipairs(shape_options) do options[key] = o[key] end
  return {
    script = "train_gpt", options = options, text = fingerprint(texts), characters = table.concat(vocab.chars), step = step,
    tokens = tokens, elapsed = elapsed + spent, batches = batches.state, history = history, recent = recent,
  }
end

function progress:load_state_dict(state) -- luacheck: ignore self
  step, tokens, elapsed, history, recent = state.step, state.tokens, state.elapsed, state.history, state.recent
  batches.state, saved_step = state.batches, state.step
end
accelerator:register_for_checkpointing(progress)

--- A free name for the existing entry at --out.
local function kept_as()
  local name, n = o.out .. ".bak", 1
  while accel.listdir(name) do
    n = n + 1
    name = ("%s.bak%d"):format(o.out, n)
  end
  return name
end

local function save()
  saved_step = step
  if existed and not saved and rank == 0 then -- somebody's checkpoint, which this run does not continue
    local ok, message = os.rename(o.out, kept_as())
    if not ok then stop_with(1, "cannot keep the old checkpoint: %s", message) end
  end
  existed = false
  accelerator:save_state(o.out)
end

local function resume() accelerator:load_state(o.out) end

-- Training ---------------------------------------------------------------------------------------

local n_parameters = 0
for _, p in ipairs(parameters) do n_parameters = n_parameters + p:numel() end
say("text: %s, %d characters to train on, %d to validate, %d different ones", plural(#texts, "file"), n_train,
  n_val, #vocab)
say("model: GPT, %s x %d, %s, context %d, %.2fM parameters, %s, %s%s", plural(o.layers, "layer"), o.width,
  plural(o.heads, "head"), o.block, n_parameters / 1e6, o.dtype, plural(accel.num_threads(), "thread"),
  ranks > 1 and " on each of " .. plural(ranks, "rank") or "")
local trigram = rank == 0 and Trigram(train_ids:tolist(), #vocab):loss(val_ids:tolist()) or nil
if trigram then say("trigram baseline (Kneser-Ney): %.4f nats per character", trigram) end
if saved then
  resume()
  say("resumed from %s at step %d", o.out, step)
elseif existed then
  say("%s exists: it will be kept as %s; --resume would continue it", o.out, kept_as())
end

local train_data = TokenFile(train_ids, { block = o.block })
local last_start = n_train - 1 - o.block
local last_val
local bar, run -- made when training begins. run: on rank 0, with --track

--- Ends a run whose numbers are not finite any more, before they reach a checkpoint.
local function diverged(what, value, at)
  bar:finish()
  local kept = saved_step and ("the last good checkpoint is %s, of step %d"):format(o.out, saved_step)
    or "nothing was saved"
  stop_with(1, "%s is %s at step %d; %s; a lower --lr may help", what, value ~= value and "NaN" or "infinite",
    at, kept)
end

local norm -- of the last step's gradients: finite ones leave finite weights

--- Looks at the losses that were not looked at yet, and at the last update.
local function check_finite()
  if #recent == 0 then return end
  if not is_finite(accel.stack(recent, 1):sum():item()) then
    for i, loss in ipairs(recent) do
      if not is_finite(loss:item()) then diverged("loss", loss:item(), step - #recent + i) end
    end
  end
  if norm and not is_finite(norm:item()) then diverged("gradient", norm:item(), step) end
end

local function record_validation(limit)
  check_finite()
  last_val = validate(limit)
  if not is_finite(last_val) then diverged("validation loss", last_val, step) end
  local series = history.val
  series.x[#series.x + 1], series.y[#series.y + 1] = step, last_val
  if run then run:log({ val = { loss = last_val } }, step) end
  return last_val
end

--- The mean of the losses of all micro-batches, in their order in the global batch.
local function mean_loss(losses)
  local t = accel.stack(losses, 1)
  if ranks > 1 then
    local all = accel.empty(ranks * n_micro)
    dist.all_gather_into_tensor(all, t)
    t = all
  end
  return t:mean()
end

--- Forward and backward of the k-th micro-batch of this rank: rows of the global batch, which all ranks have drawn.
local function micro_step(starts, k)
  local row0 = (rank * n_micro + k - 1) * micro
  local x, y = train_data:windows { table.unpack(starts, row0 + 1, row0 + micro) }
  accel.micro_batch(row0) -- dropout belongs to the rows, wherever they are computed
  local _ <close> = ddp and k < n_micro and ddp:no_sync() or nil
  local loss = loss_of(ddp or model, x, y)
  local scaled = (world or n_micro == 1) and loss or loss / n_micro
  scaled:backward()
  return loss:detach()
end

--- One step. Returns the loss.
local function train_step()
  local starts, losses = {}, {}
  for i = 1, o.batch do starts[i] = batches:below(last_start + 1) end
  for k = 1, n_micro do losses[k] = micro_step(starts, k) end
  norm = nn.utils.clip_grad_norm_(parameters, 1.0)
  optimizer:step()
  optimizer:zero_grad()
  step, tokens = step + 1, tokens + o.batch * o.block
  schedule:step()
  return mean_loss(losses)
end

bar = Progress { label = "train", unit = "tok" }
if o.track and rank == 0 then
  local config = { ranks = ranks }
  for key, value in pairs(o) do config[key] = value end
  run = accel.track.Run { dir = o.track, project = "train_gpt", config = config, alerts = true }
end
started = accel.clock()
local average, first_tokens = nil, tokens
accel.on_interrupt "flag" -- Ctrl-C lets the step finish. A second one ends at once
local function show(done, loss)
  if rank > 0 then return end
  bar:update(done, tokens - first_tokens, { { "loss", loss }, last_val and { "val", last_val } or nil })
end
local evaluations, next_save = 10, 60
local next_eval = math.floor(fraction() * evaluations) + 1

look_around()
while fraction() < 1 and not interrupted and not (o.stop and step >= o.stop) do
  local loss = train_step()
  look_around()
  recent[#recent + 1] = loss
  if #recent == 10 then
    check_finite()
    local mean = accel.stack(recent, 1):mean():item()
    local series = history.train
    series.x[#series.x + 1], series.y[#series.y + 1] = step, mean
    if run then
      local seconds = accel.clock() - started
      run:log({ train = { loss = mean, gradient_norm = norm and norm:item() }, tokens_per_second = (tokens - first_tokens) / seconds }, step)
    end
    average = average and 0.8 * average + 0.2 * mean or mean
    recent = {}
  end
  local done = fraction()
  if done * evaluations >= next_eval and done < 1 then
    next_eval = math.floor(done * evaluations) + 1
    record_validation(4)
  end
  if rank == 0 and bar:due() then show(done, average or loss:item()) end
  if spent >= next_save then
    check_finite()
    save()
    next_save = spent + 60
  end
end

check_finite()
if interrupted or (o.stop and step >= o.stop and fraction() < 1) then
  bar:finish()
  if interrupted and rank == 0 then io.stderr:write "train_gpt.lua: saving; Ctrl-C again stops at once\n" end
  save()
  say("stopped at step %d; saved in %s, --resume continues", step, o.out)
  os.exit(interrupted and 130 or 0, true)
end
if average then show(1, average) end
bar:finish()

-- Results ----------------------------------------------------------------------------------------

local final = record_validation()
save()
if rank > 0 then return end
local curves = {
  { name = "training loss", x = history.train.x, y = history.train.y },
  { name = "validation", x = history.val.x, y = history.val.y },
}
io.stdout:write("\n", plot.text(curves))
if o.svg then
  local file, message = io.open(o.svg, "wb")
  local ok = file
  if file then
    ok, message = file:write(plot.svg(curves, { title = "GPT, nats per character" }))
    ok = file:close() and ok
  end
  if not ok then stop_with(1, "the loss curve was not written: %s", message or o.svg) end
end
say("\nvalidation: %.4f nats per character after %s, %d characters (trigram %.4f: %s)", final,
  plural(step, "step"), tokens, trigram, final < trigram and "beaten" or "not beaten")
say("checkpoint: %s", o.out)

if o.model then
  model.generation_config = models.GenerationConfig {
    do_sample = true, temperature = o.temperature, max_new_tokens = math.max(1, o.block - 8), -- more than that forgets the prompt
  }
  local ok, message = model:save_pretrained(o.model, { beside = vocab:tokenizer():_files() })
  if not ok then stop_with(1, "the model was not written: %s", message) end
  say("model: %s", o.model)
end

--- Text of n characters. Each piece continues the last half of the context, since the model reads no more than the context.
local function sampled(n)
  local ids, half = { vocab.ids["\n"] or 0 }, math.max(1, o.block // 2)
  while #ids <= n do
    local prompt = table.move(ids, math.max(1, #ids - half + 1), #ids, 1, {})
    local new = model:generate(prompt, {
      max_new_tokens = math.min(n + 1 - #ids, math.max(1, o.block - #prompt)), temperature = o.temperature, seed = o.seed + #ids,
    })
    table.move(new, 1, #new, #ids + 1, ids)
  end
  return vocab:decode(table.move(ids, 2, #ids, 1, {}))
end

if o.sample > 0 then
  local text = sampled(o.sample)
  say("\n%s", text)
  if run then run:log({ sample = text }, step) end
end
if run then run:finish() end
