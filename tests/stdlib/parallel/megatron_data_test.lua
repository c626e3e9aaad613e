-- MegatronLMDummyDataLoader: each data rank reads the samples of data.GPTDataset that the formula says, ranks that share a model the same,
-- on 1 and 2 data ranks, with tensor, pipeline and context parallelism; blends, parts, passes of evaluation, resets behind documents; a run that
-- is saved inside an epoch goes on with the next sample, on other numbers of ranks as well; what is wrong is one line.
--   accel-run tests/stdlib/parallel/megatron_data_test.lua
-- tier: every change
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, R = accel.accelerator, ranks.rank
local folder = os.getenv "MEGATRON_DATA" or accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/megatron-data")
local EOD <const> = 0

if not ranks.launched then
  for f, name in ipairs { "a", "b" } do
    local builder = accel.data.IndexedDatasetBuilder(folder .. "/" .. name, { dtype = "u16" })
    local at = 0
    for d = 1, 60 do
      local list = {}
      for i = 1, 2 + d % 7 do list[i], at = 1 + (at + f * 7) % 30, at + 1 end
      list[#list + 1] = EOD
      builder:add_item(list)
      builder:end_document()
    end
    builder:finalize()
  end
end

local a_path, b_path = folder .. "/a", folder .. "/b"
local SPLIT <const> = "80,15,5"

--- An Accelerator with the plugin, and the number and place of its data ranks.
local function open(plugin)
  plugin.megatron_dataset_flag = true
  local a = accel.Accelerator { megatron_lm_plugin = accel.MegatronLMPlugin(plugin) }
  local axis = a._parallel and a._parallel:axis "dp"
  return a, axis and axis.size or 1, axis and axis.rank or 0
end

local function same(batch, sample, row, what)
  for _, key in ipairs { "tokens", "labels", "loss_mask", "position_ids" } do
    ranks.same(batch[key][row]:tolist(), sample[key]:tolist(), ("%s: %s of row %d"):format(what, key, row))
  end
end

--- Global batch k has the samples behind k * rows * data; data rank r has `rows` of these. first: the sample that a pass begins with, from 0.
local function check_order(loader, set, rows, data, r, what, first)
  local k = 0
  for batch in loader() do
    assert(batch.tokens.shape[1] == rows, what)
    for row = 1, rows do same(batch, set:get((first or 0) + (k * data + r) * rows + row), row, what) end
    k = k + 1
  end
  return k
end

if ranks.launched and arg[1] == "order" then
  local tp, pp, cp = tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4])
  local plugin = { tp_degree = tp, pp_degree = pp, context_parallel_size = cp,
    num_micro_batches = 2, train_iters = 9, eval_iters = 2, eval_interval = 4 }
  local a, data, r = open(plugin)
  assert(data == ranks.size // (tp * pp * cp) and a.state.megatron_lm_plugin == a.megatron_lm_plugin)
  local dummy = A.MegatronLMDummyDataLoader { data_path = { a_path }, splits_string = SPLIT, seq_length = 8, micro_batch_size = 1, eod = EOD,
    data_cache_path = folder .. "/cache" }
  local train, valid, test = a:prepare(dummy, dummy, dummy)
  local G = 2 * data
  local o = { sequence_length = 8, split = SPLIT, num_samples = 9 * G }
  assert(#train == 9 and check_order(train, accel.data.GPTDataset(a_path, o), 2, data, r, "train") == 9)
  o.part, o.num_samples = 2, (9 // 4 + 1) * 2 * G -- three evaluations of two batches
  local set = accel.data.GPTDataset(a_path, o)
  for pass = 0, 3 do assert(check_order(valid, set, 2, data, r, "valid", pass % 3 * 2 * G) == 2) end
  o.part, o.num_samples = 3, 2 * G
  assert(check_order(test, accel.data.GPTDataset(a_path, o), 2, data, r, "test") == 2)
  assert(a:prepare(dummy) == train)
  -- a blend by weights: megatron-core's numbers of samples
  local mixed = a:prepare(A.MegatronLMDummyDataLoader { data_path = { 0.75, a_path, "0.25", b_path }, split = "1", seq_length = 8,
    micro_batch_size = 1 })
  local sets, n = {}, 9 * G
  for i, path in ipairs { a_path, b_path } do
    sets[i] = accel.data.GPTDataset(path, { sequence_length = 8, split = "1", num_samples = math.ceil(math.ceil(n * ({ 3, 1 })[i] / 4) * 1.005) })
  end
  assert(check_order(mixed, accel.data.BlendedDataset(sets, { 0.75, 0.25 }, n), 2, data, r, "blend") == 9)
  return
end

--- A model, what trains it and its loader.
local function training(plugin)
  plugin.num_micro_batches, plugin.train_iters = 2, 8
  local a = open(plugin)
  local model = accel.models.GPT2 { vocab_size = 32, n_positions = 8, n_embd = 16, n_layer = 2, n_head = 2 }
  local optimizer = accel.optim.SGD(model:parameters(), { lr = 0.1 })
  local dummy = A.MegatronLMDummyDataLoader { data_path = a_path, splits_string = SPLIT, seq_length = 8, eod = EOD,
    micro_batch_size = 4 // (ranks.size // (plugin.tp_degree * (plugin.pp_degree or 1))), reset_position_ids = true,
    reset_attention_mask = true }
  local loader
  model, optimizer, loader = a:prepare(model, optimizer, dummy)
  return a, model, optimizer, loader
end

local function step(a, model, optimizer, batch)
  local loss = model(batch.tokens, { shift_labels = batch.labels, position_ids = batch.position_ids, attention_mask = batch.attention_mask })
  a:backward(loss)
  optimizer:step()
  optimizer:zero_grad()
  if R == 0 then print("tokens " .. table.concat(batch.tokens[1]:tolist(), ",")) end
  loss = a:reduce(loss:detach(), "mean"):item()
  if R == 0 then print(("loss %.7f"):format(loss)) end
end

if ranks.launched then
  accel.manual_seed(5)
  local a, model, optimizer, loader = training { tp_degree = tonumber(arg[2]), pp_degree = tonumber(arg[3]) }
  local n = 0
  if arg[1] == "resume" then a:load_state(folder .. "/state") end
  for batch in loader() do
    step(a, model, optimizer, batch)
    n = n + 1
    if n == 3 and arg[1] == "whole" then a:save_state(folder .. "/state") end
  end
  if R == 0 then print(("steps %d"):format(n)) end
  return
end

for _, layout in ipairs { { 1, 1, 1, 1 }, { 2, 1, 1, 1 }, { 2, 2, 1, 1 }, { 4, 2, 1, 1 }, { 2, 1, 2, 1 }, { 4, 1, 1, 2 } } do
  ranks.run(layout[1], { args = ("order %d %d %d"):format(table.unpack(layout, 2, 4)), env = { MEGATRON_DATA = folder } })
end

-- saved on 2 data ranks after 3 of 8 batches: bit for bit the rest there, the same losses with tp 2 and on one rank
local function run(n, args)
  local out, losses, tokens = ranks.run(n, { args = args, capture = true, env = { MEGATRON_DATA = folder } }), {}, {}
  for x in out:gmatch "loss (%S+)" do losses[#losses + 1] = x end
  for x in out:gmatch "tokens (%S+)" do tokens[#tokens + 1] = x end
  return losses, tokens, tonumber(out:match "steps (%d+)")
end
local losses, tokens, steps = run(2, "whole 1 1")
assert(steps == 8 and #losses == 8)
for _, layout in ipairs { { 2, "resume 1 1", exact = true }, { 2, "resume 2 1" }, { 1, "resume 1 1" }, { 2, "resume 1 2" } } do
  local l, t, n = run(layout[1], layout[2])
  assert(n == 5, layout[2])
  for i = 1, 5 do
    assert(t[i] == tokens[3 + i], "tokens of step " .. 3 + i)
    if layout.exact then
      assert(l[i] == losses[3 + i], "loss of step " .. 3 + i)
    else
      assert(math.abs(tonumber(l[i]) / tonumber(losses[3 + i]) - 1) < 1e-5, ("%s: %s, not %s"):format(layout[2], l[i], losses[3 + i]))
    end
  end
end

-- on one rank: consumed samples, parts without sequences, paths of parts, unweighted blends, resets by hand
local function loaders(plugin, given)
  local a = open(plugin)
  given.seq_length, given.micro_batch_size = given.seq_length or 8, given.micro_batch_size or 2
  local dummy = A.MegatronLMDummyDataLoader(given)
  return a:prepare(dummy, dummy, dummy)
end
do
  local train, valid = loaders({ consumed_samples = { 6, 30, 0 }, train_iters = 8, eval_iters = 3, eval_interval = 2 },
    { data_path = a_path, split = SPLIT })
  local set = accel.data.GPTDataset(a_path, { sequence_length = 8, split = SPLIT, num_samples = 16 })
  assert(#train == 5 and check_order(train, set, 2, 1, 0, "behind 6 samples", 6) == 5)
  set = accel.data.GPTDataset(a_path, { sequence_length = 8, split = SPLIT, part = 2, num_samples = 5 * 6 })
  assert(check_order(valid, set, 2, 1, 0, "after five evaluations", 0) == 3)
end
do
  local train, valid, test = loaders({}, { data_path = a_path, splits_string = "1,0,0" })
  local set = accel.data.GPTDataset(a_path, { sequence_length = 8, split = "1" })
  assert(valid == nil and test == nil and check_order(train, set, 2, 1, 0, "an epoch") == #set // 2)
  train, valid, test = loaders({}, { train_data_path = a_path, valid_data_path = { b_path } })
  assert(test == nil and check_order(train, set, 2, 1, 0, "a part of its own") == #set // 2)
  local other = accel.data.GPTDataset(b_path, { sequence_length = 8, split = "1" })
  assert(check_order(valid, other, 2, 1, 0, "valid of its own") == #other // 2)
  train = loaders({}, { data_path = a_path .. " " .. b_path, split = "1", num_workers = 2 })
  check_order(train, accel.data.BlendedDataset({ set, other }, { #set, #other }, #set + #other), 2, 1, 0, "a blend without weights, by workers")
  train = loaders({}, { data_path = { 1, a_path, 1, b_path }, split = "1" })
  assert(#train == 2 * math.min(#set, #other) // 2)
  -- ceil(ceil(42 * (9 / 14)) * 1.005) in floating point, as megatron-core has it, where 42 * 9 / 14 is 27
  train = loaders({ train_iters = 21 }, { data_path = { 5, a_path, 9, b_path }, split = "1" })
  assert(train.dataset.sets[2].options.num_samples == 29 and #train == 21)
  local taken
  train = loaders({ train_iters = 3, custom_megatron_datasets_provider_function = function(samples)
    taken = samples[1]
    return accel.data.TensorDataset(accel.arange(20)), nil, nil
  end }, {})
  assert(taken == 6 and #train == 3)
end
do -- every document is one of its own for positions, attention and loss
  local train = loaders({ seq_length = 12 }, { data_path = a_path, split = "1", eod = EOD, reset_position_ids = true, reset_attention_mask = true,
    eod_mask_loss = true })
  local ends = 0
  for batch in train() do
    local ids = batch.tokens[1]:tolist()
    local at, first = 0, 1
    for i, token in ipairs(ids) do
      assert(batch.position_ids[1][i]:item() == at)
      for k = 1, i do assert((batch.attention_mask[1][i][k]:item() == true) == (k >= first), "attention") end
      assert((batch.labels[1][i]:item() == -100) == (token == EOD) and (batch.loss_mask[1][i]:item() == 0) == (token == EOD))
      at = at + 1
      if token == EOD then at, first, ends = 0, i + 1, ends + 1 end
    end
    if ends > 5 then break end
  end
  assert(ends > 5)
end

local ok = { data_path = a_path, micro_batch_size = 2, seq_length = 8 }
local function with(key, value, other)
  local given = {}
  for k, v in pairs(ok) do given[k] = v end
  if other then given[other] = nil end
  given[key] = value
  return given
end
for _, case in ipairs {
  { "did you mean 'seq_length'", with("seq_lenght", 8) }, { "not a prefix or a list", with("data_path", {}) },
  { "a weight above 0", with("data_path", { 0.5, a_path, "x", b_path }) }, { "a weight that no prefix follows", with("data_path", { 1, a_path, 2 }) },
  { "two names of one option", with("split", "1", nil), more = "splits_string" }, { "micro_batch_size must be", with("micro_batch_size", 0) },
  { "is not a number", with("splits_string", "1,x") }, { "not both", with("train_data_path", b_path) },
  { "micro_batch_size is missing", with("x", nil, "micro_batch_size") }, { "seq_length is missing", with("x", nil, "seq_length") },
  { "data_path is missing", with("x", nil, "data_path") }, { "needs eod", with("reset_position_ids", true) },
  { "No such file", with("data_path", folder .. "/none") }, { "train_iters or train_samples", ok, { train_iters = 1, train_samples = 2 } },
  { "consumed_samples[1]", ok, { consumed_samples = { -1 } } }, { "given 4 times", ok, {}, 4 },
} do
  if case.more then case[2][case.more] = "1" end
  local good, why = pcall(function()
    local a, dummy = open(case[3] or {}), A.MegatronLMDummyDataLoader(case[2])
    return a:prepare(table.unpack({ dummy, dummy, dummy, dummy }, 1, case[4] or 1))
  end)
  why = tostring(why)
  assert(not good and why:find(case[1], 1, true), ("%s: %s"):format(case[1], why))
  assert(not why:find("\n", 1, true) or why:find("\nstack traceback", 1, true), why)
end
local notes = require "accel.accelerator.plugins.idle".notes
for flag, wanted in pairs { [true] = 0, [false] = 3 } do -- fields that act with these data sets alone
  local list = notes(accel.MegatronLMPlugin { megatron_dataset_flag = flag, eval_iters = 3, consumed_samples = { 5 }, seq_length = 8 })
  assert(#list == wanted, table.concat(list, "; "))
end
ranks.fails("there is no megatron_lm_plugin", function() accel.Accelerator {}:prepare(A.MegatronLMDummyDataLoader(ok)) end)
