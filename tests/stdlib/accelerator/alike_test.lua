-- One rank and several behave alike: what is refused on several ranks is refused on one, with the same message, although there nothing is
-- wrapped, divided or sent. Every case is wrong in one place; a new check belongs here.
--   accel-run tests/stdlib/accelerator/alike_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, dist = accel.nn, accel.dist

if not ranks.launched then
  local said = {}
  for _, n in ipairs { 1, 2 } do
    local out, err, status = ranks.try(n, { capture = true })
    assert(status == 0, err)
    said[n] = {}
    for name, text in out:gmatch "case (%S+) ([^\n]*)" do
      said[n][name] = text:gsub("%d+ ranks", "N ranks"):gsub("world of %d+", "world of N")
    end
  end
  local count = 0
  for name, text in accel.pairs(said[1]) do
    assert(text == said[2][name], ("%s\n  on one rank:  %s\n  on two ranks: %s"):format(name, text, said[2][name]))
    assert(not text:find "attempt to" and text ~= "passes", ("%s: %s"):format(name, text))
    count = count + 1
  end
  assert(count > 80, count)
  return
end

local F, D, K = accel.FullyShardedDataParallelPlugin, accel.DeepSpeedPlugin, accel.DistributedDataParallelKwargs

local function fresh(o)
  accel.AcceleratorState._reset_state(true)
  return accel.Accelerator(o or {})
end

--- Prepares a layer with the options that make(...) returns; optimizer: made of the layer, prepared with it.
local function prepare(make, optimizer)
  local a = fresh(make())
  local model = nn.Linear(4, 4)
  return a:prepare(model, optimizer and optimizer(model) or nil)
end
local function fsdp(o, optimizer) return prepare(function() return { fsdp_plugin = F(o) } end, optimizer) end
local function zero(o) return prepare(function() return { deepspeed_plugin = D { hf_ds_config = { zero_optimization = o } } } end) end
local function ddp(o, more)
  return prepare(function()
    local all = { kwargs_handlers = { K(o) } }
    for key, value in next, more or {} do all[key] = value end
    return all
  end)
end
local function each_batch() return { gradient_accumulation_plugin = accel.GradientAccumulationPlugin { num_steps = 2, sync_each_batch = true } } end

local function ones() return accel.ones(4) end
local function sharded(o) return nn.parallel.FullyShardedDataParallel(nn.Linear(1, 1), o) end
local BY_CLASS <const> = "TRANSFORMER_BASED_WRAP"

local cases = {
  -- plugins
  wrap_class = function() fsdp { auto_wrap_policy = BY_CLASS, transformer_cls_names_to_wrap = { "Nope" } } end,
  wrap_class_2 = function() fsdp { fsdp_version = 2, auto_wrap_policy = BY_CLASS, transformer_cls_names_to_wrap = { "Nope" } } end,
  wrap_no_class = function() fsdp { auto_wrap_policy = BY_CLASS } end,
  wrap_number = function() fsdp { auto_wrap_policy = BY_CLASS, transformer_cls_names_to_wrap = 7 } end,
  wrap_entry = function() fsdp { auto_wrap_policy = BY_CLASS, transformer_cls_names_to_wrap = { 7 } } end,
  ignored_expression = function() fsdp { ignored_modules = "(" } end,
  ignored_nothing = function() fsdp { ignored_modules = "nothing" } end,
  ignored_type = function() fsdp { ignored_modules = 7 } end,
  ignored_entry = function() fsdp { ignored_modules = { 7 } } end,
  ignored_foreign = function() fsdp { fsdp_version = 2, ignored_modules = { nn.Linear(1, 1) } } end,
  init_fn = function() fsdp { param_init_fn = 7 } end,
  policy = function() fsdp { mixed_precision_policy = { param_dtype = "bf17", reduce_dtype = "f32", buffer_dtype = "f32" } } end,
  cpu_offload = function() fsdp { cpu_offload = 7 } end,
  foreign = function() fsdp({}, function() return accel.optim.SGD(nn.Linear(1, 1):parameters(), { lr = 1 }) end) end,
  foreign_2 = function() fsdp({ fsdp_version = 2 }, function() return accel.optim.SGD(nn.Linear(1, 1):parameters(), { lr = 1 }) end) end,
  foreign_before = function() -- found in the first step, since the model may come later
    local a = fresh { deepspeed_plugin = D { zero_stage = 2 } }
    local o = a:prepare(accel.optim.SGD(nn.Linear(4, 4):parameters(), { lr = 1 }))
    local model = a:prepare(nn.Linear(4, 4))
    a:backward(model(accel.ones(1, 4)):sum())
    o:step()
  end,
  foreign_group = function()
    local a, model = fresh { fsdp_plugin = F {} }, nn.Linear(4, 4)
    local o = accel.optim.SGD(model:parameters(), { lr = 1 })
    model, o = a:prepare(model, o)
    a:backward(model(accel.ones(1, 4)):sum())
    o:step()
    o:add_param_group { params = nn.Linear(4, 4):parameters() }
    o:step()
  end,
  micro_batches_alone = function() ddp({}, { micro_batches = 4 }) end,
  micro_batches_twice = function() ddp({ deterministic = "world" }, { micro_batches = 4, gradient_accumulation_steps = 2 }) end,
  micro_batches_type = function() ddp({ deterministic = "world" }, { micro_batches = 2.5 }) end,
  micro_batches_split = function()
    fresh { micro_batches = 4, split_batches = true, kwargs_handlers = { K { deterministic = "world" } } }:prepare(
      accel.data.DataLoader(accel.data.TensorDataset(accel.ones(8, 1)), { batch_size = 2 }))
  end,
  sharded_world_each = function()
    local o = each_batch()
    o.fsdp_plugin = F {}
    ddp({ deterministic = "world" }, o)
  end,
  moe_class = function() prepare(function() return { deepspeed_plugin = D { transformer_moe_cls_names = "Nope" } } end) end,
  quantized_weights = function() zero { stage = 2, zero_quantized_weights = true } end,
  quantized_gradients = function() zero { stage = 0, zero_quantized_gradients = true } end,
  hpz = function() zero { stage = 2, zero_hpz_partition_size = 2 } end,
  bucket_word = function() zero { stage = 2, reduce_bucket_size = "x" } end,
  bucket_negative = function() zero { stage = 2, reduce_bucket_size = -1 } end,
  quantized_world = function()
    local config = { zero_optimization = { stage = 2, zero_quantized_gradients = true } }
    ddp({ deterministic = "world" }, { deepspeed_plugin = D { hf_ds_config = config } })
  end,
  ddp_bucket = function() ddp { bucket_cap_mb = -1 } end,
  ddp_bucket_word = function() ddp { bucket_cap_mb = "x" } end,
  ddp_hook = function() ddp { comm_hook = "nope" } end,
  ddp_wrapper = function() ddp { comm_hook = "fp16", comm_wrapper = "nope" } end,
  ddp_state = function() ddp { comm_hook = "power_sgd", comm_state_option = { nope = 1 } } end,
  ddp_rank = function() ddp { comm_hook = "power_sgd", comm_state_option = { matrix_approximation_rank = -1 } } end,
  ddp_deterministic = function() ddp { deterministic = "nope" } end,
  ddp_world_each = function() ddp({ deterministic = "world" }, each_batch()) end,
  ddp_world_hook = function() ddp { deterministic = "world", comm_hook = "fp16" } end,
  placement = function() fresh():prepare(nn.Linear(1, 1), nn.Linear(1, 1), { device_placement = { true } }) end,
  not_a_model = function() fresh():prepare_model(7) end,
  -- wrappers of their own
  wrapper_nothing = function() nn.parallel.DistributedDataParallel(nn.ReLU()) end,
  wrapper_type = function() nn.parallel.DistributedDataParallel(7) end,
  strategy = function() sharded { sharding_strategy = "x" } end,
  stage = function() sharded { zero_stage = 9 } end,
  prefetch = function() sharded { backward_prefetch = "x" } end,
  group = function() sharded { sharding_strategy = "NO_SHARD", process_group = dist.group.WORLD } end,
  sharded_join = function() sharded():join() end,
  summon = function() sharded():summon_full_params { writeback = true, rank0_only = true } end,
  summon_key = function() sharded():summon_full_params { nope = true } end,
  sharded_to = function() sharded():to "bf16" end,
  replicated_to = function() nn.parallel.DistributedDataParallel(nn.Linear(1, 1)):to "meta" end,
  gathered = function() accel.deepspeed.GatheredParameters(7) end,
  gathered_rank = function() accel.deepspeed.GatheredParameters(nn.Linear(1, 1):parameters(), { modifier_rank = 9 }, function() end) end,
  zero_init = function() accel.deepspeed.zero.Init { nope = 1 } end,
  -- collectives
  reduce_word = function() fresh():reduce(ones(), "nonsense") end,
  reduce_scale = function() fresh():reduce(ones(), "sum", "x") end,
  reduce_type = function() fresh():reduce(7) end,
  gather_type = function() fresh():gather "x" end,
  gather_nothing = function() fresh():gather(nil) end,
  metrics_nothing = function() fresh():gather_for_metrics(nil) end,
  pad_base = function() fresh():pad_across_processes(ones(), { dim = 0 }) end,
  pad_key = function() fresh():pad_across_processes(ones(), { dimm = 1 }) end,
  pad_type = function() fresh():pad_across_processes(ones(), { dim = "x" }) end,
  pad_value = function() fresh():pad_across_processes(ones(), { pad_index = "x" }) end,
  broadcast_from = function() accel.accelerator.broadcast(ones(), 7) end,
  broadcast_negative = function() accel.accelerator.broadcast(ones(), -1) end,
  broadcast_type = function() accel.accelerator.broadcast "x" end,
  objects_from = function() accel.accelerator.broadcast_object_list({ 1 }, 7) end,
  objects_type = function() accel.accelerator.broadcast_object_list(1) end,
  objects_function = function() accel.accelerator.gather_object(function() end) end,
  dist_op = function() dist.all_reduce(ones(), "nonsense") end,
  dist_src = function() dist.broadcast(ones(), { src = 7 }) end,
  dist_dst = function() dist.reduce(ones(), { dst = 7 }) end,
  dist_key = function() dist.all_reduce(ones(), { opp = "sum" }) end,
  dist_gather = function() dist.gather(ones(), { dst = 9 }) end,
  dist_type = function() dist.all_reduce(7) end,
  dist_meta = function() dist.all_reduce(accel.empty(2, { device = "meta" })) end,
  dist_objects = function() dist.broadcast_object_list({ 1 }, { src = 9 }) end,
  -- control
  split_type = function() fresh():split_between_processes(5) end,
  split_lengths = function() fresh():split_between_processes { a = { 1, 2 }, b = { 1 } } end,
  split_number = function() fresh():split_between_processes(accel.tensor(1.0)) end,
  first = function() fresh():main_process_first "x" end,
  main = function() fresh():on_main_process(7) end,
  join_key = function()
    local a = fresh()
    a:join_uneven_inputs({ (a:prepare(nn.Linear(1, 1))) }, { nope = 1 }, function() end)
  end,
  join_unprepared = function() fresh():join_uneven_inputs({ nn.Linear(1, 1) }, nil, function() end) end,
  join_type = function() fresh():join_uneven_inputs(7, nil, function() end) end,
  no_sync = function() fresh():no_sync(7) end,
  accumulate = function() fresh():accumulate(7) end,
  clip = function() fresh():clip_grad_norm_({ ones() }, "x") end,
  clip_value = function() fresh():clip_grad_value_(nn.Linear(1, 1):parameters(), "x") end,
  skip = function() fresh():skip_first_batches(7, 1) end,
  unwrap = function() fresh():unwrap_model(7) end,
  -- training on one's own for a while
  local_steps = function()
    local a = fresh()
    accel.LocalSGD { accelerator = a, model = a:prepare(nn.Linear(1, 1)), local_sgd_steps = 0 }
  end,
  local_model = function() accel.LocalSGD { accelerator = fresh(), model = 7, local_sgd_steps = 2 } end,
  local_fsdp = function() accel.LocalSGD { accelerator = fresh { fsdp_plugin = F {} }, model = nn.Linear(1, 1), local_sgd_steps = 2 } end,
  local_zero = function() accel.LocalSGD { accelerator = fresh { deepspeed_plugin = D {} }, model = nn.Linear(1, 1), local_sgd_steps = 2 } end,
  local_off = function()
    accel.LocalSGD { accelerator = fresh { fsdp_plugin = F {} }, model = nn.Linear(1, 1), local_sgd_steps = 2, enabled = false }
  end,
  local_sharded = function() dist.LocalSGD { model = sharded(), local_sgd_steps = 2 } end,
}

for name, fn in accel.pairs(cases) do
  local ok, e = pcall(fn)
  if ranks.rank == 0 then print(("case %s %s"):format(name, ok and "passes" or tostring(e):gsub("^%S*lua:%d+: ", ""):gsub("\n.*", ""))) end
end
