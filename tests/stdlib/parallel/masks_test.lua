-- Labels of -100 at random, and in all of a micro-batch, a part of the sequence, the rows of a rank, or everywhere: loss and norm of gradients
-- of one call on one rank are those of every layout of 1, 2 and 4 ranks and every number of micro-batches, which are those of a pipeline, else
-- micro-steps that accumulate. 1e-5 relative in f64, 1e-4 in f32. Losses are means, or sums with their weights.
--   accel-run tests/stdlib/parallel/masks_test.lua
-- The whole product, which a later run continues where an earlier one ended (seed, cases and distances are kept in FILE):
--   ACCEL_TEST_FULL=1 ACCEL_TEST_RESUME=FILE accel-run tests/stdlib/parallel/masks_test.lua
-- tier: sampled
-- parts: 1 2 4
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local A, R = accel.accelerator, ranks.rank
local ROWS <const>, T <const>, V <const> = 8, 8, 33

-- ---- cases ----

local FAMILIES <const> = { "llama", "gpt2", "mixtral", "bert", "t5" }
local CUT <const> = { llama = true, gpt2 = true, mixtral = true } -- take parts of sequences
local MASKS <const> = { "random", "sparse", "micro-batch", "part", "rank", "all" }

--- Layouts of n ranks.
local function layouts(family, n)
  local list = {}
  for _, tp in ipairs { 1, 2, 4 } do
    for _, pp in ipairs { 1, 2, 4 } do
      for _, dp in ipairs { 1, 2, 4 } do
        for _, how in ipairs { "", "cp", "sp" } do
          local cut = how == "" and 1 or 2
          if tp * pp * dp * cut == n and (cut == 1 or CUT[family]) and not (how == "sp" and tp == 4) then
            for _, ep in ipairs(family == "mixtral" and dp * cut > 1 and { 1, dp * cut } or { 1 }) do
              for _, zero in ipairs(dp > 1 and ep == 1 and { false, "FULL_SHARD" } or { false }) do
                list[#list + 1] = { tp = tp, pp = pp, dp = dp, how = how, ep = ep, zero = zero, seq = tp > 1 and cut == 1 }
              end
            end
          end
        end
      end
    end
  end
  return list
end

local cases, seen = {}, ranks.sample.seed
for _, n in ipairs { 1, 2, 4 } do
  for _, family in ipairs(FAMILIES) do
    for _, layout in ipairs(layouts(family, n)) do
      for _, micros in ipairs { 1, 2, 4, 8 } do
        for _, mask in ipairs(MASKS) do
          local fits = ROWS % (layout.dp * micros) == 0
          seen = seen + 1
          if fits then
            cases[#cases + 1] = { n = n, family = family, layout = layout, micros = micros, mask = mask, seed = seen,
              dtype = seen % 3 == 0 and "f32" or "f64", weighs = seen % 5 < 2 }
          end
        end
      end
    end
  end
end

local function text(c)
  local l = c.layout
  return ("%s, tp %d pp %d dp %d %s ep %d%s%s, %d micro-batches, mask %s, %s%s, seed %d"):format(c.family, l.tp, l.pp, l.dp, l.how, l.ep,
    l.zero and " " .. l.zero or "", l.seq and " seq" or "", c.micros, c.mask, c.dtype, c.weighs and ", weights" or "", c.seed)
end

-- ---- all cases: each job of some cases prints one line, which ACCEL_TEST_RESUME keeps ----

local DONE <const> = "seed (%d+), (%d+) ranks, cases ([%d ]+): f64 loss (%S+) gradient (%S+), f32 loss (%S+) gradient (%S+)"

local function jobs()
  local part, lists, take = os.getenv "ACCEL_TEST_PART", {}, ranks.sample.one_of(250)
  for i, c in ipairs(cases) do
    if (part == nil or tonumber(part) == c.n) and take() then
      lists[c.n] = lists[c.n] or {}
      table.insert(lists[c.n], i)
    end
  end
  local list = {}
  for n, chosen in accel.pairs(lists) do
    for first = 1, #chosen, 40 do list[#list + 1] = { n = n, cases = table.concat(chosen, " ", first, math.min(first + 39, #chosen)) } end
  end
  return list
end

if not ranks.launched then
  local resume, kept = os.getenv "ACCEL_TEST_RESUME", {}
  local file <close> = resume and assert(io.open(resume, "a+"))
  for line in (file and file:lines() or function() end) do
    local seed, n, list = line:match(DONE)
    if tonumber(seed) == ranks.sample.seed then kept[n .. ":" .. list] = line end
  end
  local count, worst = 0, { 0, 0, 0, 0 }
  for _, job in ipairs(jobs()) do
    local line = kept[job.n .. ":" .. job.cases]
    if not line then
      line = ranks.run(job.n, { args = job.cases, capture = true }):match "seed [^\n]*"
      if file then assert(file:write(line, "\n") and file:flush()) end
    end
    local found = { line:match(DONE) }
    assert(tonumber(found[1]) == ranks.sample.seed and found[3] == job.cases, line)
    count = count + select(2, job.cases:gsub("%d+", ""))
    for i = 1, 4 do worst[i] = math.max(worst[i], assert(tonumber(found[3 + i]))) end
  end
  print(("%d of %d cases, seed %d; worst relative distance in f64: loss %.2g, gradient %.2g; in f32: loss %.2g, gradient %.2g"):format(
    count, #cases, ranks.sample.seed, table.unpack(worst)))
  return
end

-- ---- one case ----

local function net(c)
  accel.manual_seed(c.seed % 7)
  local rotary = { vocab_size = V, hidden_size = 16, intermediate_size = 24, num_hidden_layers = 4, num_attention_heads = 4,
    num_key_value_heads = 4, max_position_embeddings = 16 }
  local model
  if c.family == "gpt2" then
    model = accel.models.GPT2 { vocab_size = V, n_positions = 16, n_embd = 16, n_layer = 4, n_head = 4, resid_pdrop = 0, embd_pdrop = 0,
      attn_pdrop = 0 }
  elseif c.family == "llama" then
    model = accel.models.Llama(rotary)
  elseif c.family == "mixtral" then -- the balance of a batch is not the mean over its parts
    rotary.num_local_experts, rotary.num_experts_per_tok, rotary.output_router_logits = 4, 2, false
    model = accel.models.MixtralForCausalLM(rotary)
  elseif c.family == "bert" then
    model = accel.models.BertForMaskedLM { vocab_size = V, hidden_size = 16, intermediate_size = 24, num_hidden_layers = 4,
      num_attention_heads = 4, max_position_embeddings = 16, hidden_dropout_prob = 0, attention_probs_dropout_prob = 0 }
  else
    model = accel.models.T5ForConditionalGeneration { vocab_size = V, d_model = 16, d_kv = 4, d_ff = 24, num_layers = 2, num_heads = 4,
      dropout_rate = 0 }
  end
  return model:to(c.dtype)
end

local function labels_of(c, g)
  local labels = accel.randint(0, V, { ROWS, T }, { generator = g })
  local share = c.mask == "sparse" and 0.9 or 0.4
  labels = labels:masked_fill(accel.rand(ROWS, T, { generator = g }):lt(share), -100)
  if c.mask == "micro-batch" then labels:narrow(1, 1, math.max(ROWS // c.micros, 1) % ROWS + (c.micros == 1 and 3 or 0)):fill_(-100)
  elseif c.mask == "part" then labels:narrow(2, 1, T // 2):fill_(-100)
  elseif c.mask == "rank" then labels:narrow(1, ROWS // 2 + 1, ROWS // 2):fill_(-100)
  elseif c.mask == "all" then labels:fill_(-100) end
  return labels
end

--- The options by which a model takes labels at their own places.
local function told(c, labels) return { [CUT[c.family] and "shift_labels" or "labels"] = labels } end

local function alone(c, ids, labels)
  local model = net(c)
  local loss = model(ids, told(c, labels))
  loss:backward()
  return loss:item(), accel.nn.utils.clip_grad_norm_(model:parameters(), 1e9):item()
end

-- The largest relative distances of this process.
local far = { f64 = { loss = 0, gradient = 0 }, f32 = { loss = 0, gradient = 0 } }

local function compare(dtype, what, got, want, tolerance, at)
  local unit = math.max(math.abs(want), 1e-3)
  ranks.close(got, want, at .. ": " .. what, tolerance * unit)
  far[dtype][what] = math.max(far[dtype][what], math.abs(got - want) / unit)
end

local function run(c)
  local l, g = c.layout, accel.Generator(c.seed)
  local ids, labels = accel.randint(0, V, { ROWS, T }, { generator = g }), nil
  labels = labels_of(c, g)
  A.AcceleratorState._reset_state(true)
  local want, norm = alone(c, ids, labels)
  local staged = l.pp > 1
  local a = accel.Accelerator {
    gradient_accumulation_steps = staged and 1 or c.micros,
    fsdp_plugin = l.zero and accel.FullyShardedDataParallelPlugin { sharding_strategy = l.zero } or nil,
    parallelism_config = c.n > 1 and accel.ParallelismConfig { tp_size = l.tp, pp_size = l.pp, dp_shard_size = l.dp,
      cp_size = l.how == "cp" and 2 or 1, sp_size = l.how == "sp" and 2 or 1, ep_size = l.ep,
      tp_handler = l.tp > 1 and A.TorchTensorParallelConfig { sequence_parallel = l.seq } or nil,
      pp_handler = staged and A.PipelineParallelConfig { num_micro_batches = c.micros } or nil } or nil }
  local model = net(c)
  local optimizer = accel.optim.SGD(model:parameters(), { lr = 0.1 })
  model, optimizer = a:prepare(model, optimizer)
  local dp = a._parallel and a._parallel:axis "dp" or { size = 1, rank = 0 }
  local steps = staged and 1 or c.micros
  local per = ROWS // steps // dp.size
  local sums = accel.zeros(2, { dtype = "f64" })
  for step = 1, steps do
    local first = (step - 1) * ROWS // steps + dp.rank * per + 1
    local x, y = ids:narrow(1, first, per):clone(), labels:narrow(1, first, per):clone()
    local _ <close> = not staged and a:accumulate(model) or nil
    local n = y:ne(-100):sum():item()
    local function call()
      local loss = model(x, told(c, y))
      if c.weighs then -- each rank the labels that it has
        local own = y:ne(-100):sum()
        local sum = l.how == "" and loss * own or loss * n / 2 -- the loss of whole sequences, on both ranks
        a:backward(sum, { weight = l.how == "" and own or n / 2 })
      else
        a:backward(loss)
      end
      sums:add_(accel.tensor({ loss:item() * n, n }, { dtype = "f64" }))
    end
    if l.how == "" then call() else
      a:maybe_context_parallel({ buffers = { x, y }, buffer_seq_dims = { 2, 2 } }, call)
    end
  end
  if dp.size > 1 then accel.dist.all_reduce(sums, { group = dp.group }) end
  local tolerance, at = c.dtype == "f64" and 1e-10 or 1e-4, text(c)
  compare(c.dtype, "loss", sums[1]:item() / math.max(sums[2]:item(), 1), want, tolerance, at)
  compare(c.dtype, "gradient", a:clip_grad_norm_(model:parameters(), 1e9):item(), norm, tolerance, at)
  optimizer:step()
  optimizer:zero_grad()
end

for _, i in ipairs(arg) do
  local c = cases[tonumber(i)]
  local ok, err = xpcall(run, debug.traceback, c)
  if not ok then error(("rank %d: %s\n%s"):format(R, text(c), err), 0) end
end
if R == 0 then
  print(("seed %d, %d ranks, cases %s: f64 loss %.3g gradient %.3g, f32 loss %.3g gradient %.3g"):format(ranks.sample.seed, ranks.size,
    table.concat(arg, " "), far.f64.loss, far.f64.gradient, far.f32.loss, far.f32.gradient))
end
