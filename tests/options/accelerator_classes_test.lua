-- Options of the classes of accel.accelerator without a test of their own, of their methods, and of launchers: each one changes what is
-- computed, what a launch tells its ranks, warns, or raises (support/option_sweep.lua). On one rank.
-- tier: slow
--   accel-run tests/options/accelerator_classes_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local groups = require "option_groups"
local sweep = require "option_sweep"
local A, nn, optim, data = accel.accelerator, accel.nn, accel.optim, accel.data
local s = sweep.folder("accelerator", groups.accelerator "classes")
local function recipe(name, r) s:recipe("accel.accelerator." .. name, r) end

function accel.Accelerator:_warn(text) -- luacheck: ignore 212
  warn(text)
end

local root, n = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/classes-"), 0
local function folder()
  n = n + 1
  return root .. "/" .. n
end
local function fresh(opts)
  A.AcceleratorState._reset_state(true)
  return accel.Accelerator(opts)
end
local function weight() return nn.Parameter(accel.ones(1)) end
local FN <const> = { fn = { function() return "called" end } }

-- ---- optimizers and schedules ----
recipe("AcceleratedOptimizer", {
  base = function() return { optimizer = optim.SGD({ weight() }, { lr = 1 }), accelerator = fresh() } end,
  run = function(call)
    call():step()
    return "made"
  end,
})
recipe("AcceleratedOptimizer:step", {
  run = function(call)
    local a, p = fresh(), weight()
    local o = a:prepare(optim.SGD({ p }, { lr = 1 }))
    return call(o), p
  end,
  values = { closure = { function() return 7 end } },
})
local function stepped(call, given)
  local a = fresh { step_unit = given.split_batches ~= nil and "process" or nil }
  local p = weight()
  local o = a:prepare(optim.SGD({ p }, { lr = 1 }))
  given.accelerator, given.scheduler = given.accelerator or a, optim.lr_scheduler.StepLR(o.optimizer, 1, { gamma = 0.5 })
  if given.optimizers then given.optimizers = { o } end
  local schedule = call()
  a.sync_gradients = false
  schedule:step()
  a.sync_gradients = true
  schedule:step()
  return schedule:get_last_lr(), #schedule.optimizers
end
recipe("AcceleratedScheduler", {
  run = stepped,
  values = { accelerator = function() return { fresh { step_unit = "process" } } end, optimizers = { {} }, step_with_optimizer = { false },
    split_batches = { true } },
  elsewhere = { accelerator = "tests/stdlib/accelerator/scheduler_test.lua",
    split_batches = "tests/stdlib/accelerator/scheduler_test.lua" },
})
recipe("AcceleratedScheduler:step", { run = function(call)
  local a = fresh()
  local o, schedule = a:prepare(optim.SGD({ weight() }, { lr = 1 }))
  schedule = a:prepare(optim.lr_scheduler.ReduceLROnPlateau(o.optimizer, {}))
  return call(schedule, 1)
end, passes_on = true })
local function deepspeed(config, make, steps)
  local a = fresh { deepspeed_plugin = A.DeepSpeedPlugin { hf_ds_config = config } }
  accel.manual_seed(3)
  local model = nn.Linear(1, 1)
  local m, o, schedule = a:prepare(model, make(model))
  local seen = {}
  for i = 1, steps or 3 do
    a:backward(m(accel.ones(2, 1)):square():sum())
    seen[i] = o.param_groups[1].lr
  end
  return m:state_dict(), seen, schedule ~= nil
end
local CONFIG <const> = function(given)
  local fixed = given.fixed
  given.fixed = nil
  return { train_micro_batch_size_per_gpu = 2, zero_optimization = { stage = 0 },
    optimizer = { type = "SGD", params = { lr = fixed and 0.1 or "auto", weight_decay = fixed and 0 or "auto" } },
    scheduler = { type = "WarmupDecayLR", params = { warmup_min_lr = "auto", warmup_max_lr = "auto",
      warmup_num_steps = fixed and 2 or "auto", total_num_steps = fixed and 8 or "auto" } } }
end
for label, fixed in pairs { auto = false, fixed = true } do
  s:variant("accel.accelerator.DummyOptim", label, {
    run = function(call, given)
      given.fixed = fixed
      local config = CONFIG(given)
      config.scheduler = nil
      return deepspeed(config, function(model)
        given.params = model:parameters()
        return call()
      end)
    end,
    values = { lr = { 0.2 }, weight_decay = { 0.3 }, betas = { { 0.8, 0.9 } } },
  })
  s:variant("accel.accelerator.DummyScheduler", label, {
    base = function() return { total_num_steps = 6 } end,
    run = function(call, given)
      given.fixed = fixed
      return deepspeed(CONFIG(given), function(model)
        local optimizer = A.DummyOptim(model:parameters(), { lr = 0.1 })
        given.optimizer = optimizer
        return optimizer, call()
      end)
    end,
    values = { total_num_steps = { 9 }, warmup_num_steps = { 3 }, cooldown = { 4 },
      lr_scheduler_callable = { function(o) return optim.lr_scheduler.StepLR(o, 1, { gamma = 0.5 }) end } },
  })
end
recipe("MegatronLMDummyScheduler", {
  base = function() return { optimizer = optim.SGD({ weight() }, { lr = 1 }) } end,
  run = function(call)
    local schedule, rates = call(), {}
    for i = 1, 6 do
      schedule:step()
      rates[i] = schedule:get_last_lr()[1]
    end
    return rates
  end,
  values = { total_num_steps = { 4 }, warmup_num_steps = { 2 } },
})

-- ---- states ----
for _, name in ipairs { "PartialState", "AcceleratorState" } do
  recipe(name, {
    run = function(call, given)
      A.AcceleratorState._reset_state(true)
      if given._from_accelerator ~= nil then return (pcall(call)) end -- before there is an Accelerator
      if name == "AcceleratorState" then A.patch_environment({ ACCELERATE_TORCH_DEVICE = "meta" }, accel.Accelerator) end
      local ok, made = pcall(A.patch_environment, { ACCELERATE_TORCH_DEVICE = "meta" }, call)
      accel.set_default_device "cpu"
      if not ok then error(made, 0) end
      return made.device, made.backend, name == "AcceleratorState" and made.mixed_precision or nil
    end,
    values = { cpu = { true }, backend = { "nonsense" }, init_method = { "tcp://x" }, timeout = { -1 }, mixed_precision = { "bf16" },
      init_handler = function() return { A.InitProcessGroupKwargs { backend = "nonsense" } } end, _from_accelerator = { true } },
    raises = { backend = "backend", init_method = "env://", timeout = "timeout", mixed_precision = "mixed_precision", init_handler = "backend",
      cpu = "cannot become 'cpu'" },
    with = { _from_accelerator = { _from_accelerator = false } },
  })
end
recipe("GradientState", {
  run = function(call)
    local a = fresh()
    call()
    return a.gradient_accumulation_steps
  end,
  values = { plugin = function() return { A.GradientAccumulationPlugin(3) } end },
})

-- ---- loaders ----
local function loader_of(rows)
  return data.DataLoader(data.TensorDataset(accel.arange(rows):to "f32":reshape(rows, 1)), { batch_size = 2, shuffle = true })
end
recipe("DataLoader", {
  base = function() return { base = loader_of(5), accelerator = fresh(), source = require "accel.accelerator.indexed"(loader_of(5), {
    num_processes = 1, process_index = 0, split_batches = false, even_batches = true }) } end,
  run = function(call)
    local loader, seen = call(), {}
    for batch in loader() do seen[#seen + 1] = batch[1] * 1 end
    return seen, loader.drop_last
  end,
  values = { device = { "meta" }, drop_last = { true }, non_blocking = { true }, rng_types = { { "generator" } }, seed = { 9 } },
  elsewhere = { non_blocking = "tests/cuda/prefetch_suite.lua", rng_types = "tests/stdlib/accelerator/loader_test.lua" },
})
recipe("DataLoader:prepare", {
  base = function() return { base = loader_of(5), accelerator = fresh() } end,
  run = function(call)
    local loader, seen = call(), {}
    for batch in loader() do seen[#seen + 1] = batch[1] * 1 end
    return seen
  end,
  values = { device = { "meta" }, slice_fn = { function(batch) return batch end } },
})
local corpus = root .. "/corpus"
for which, path in ipairs { corpus, corpus .. "2" } do
  local builder = data.IndexedDatasetBuilder(path, { dtype = "u16" })
  for d = 1, 40 do
    local list = {}
    for i = 1, 3 + d % 5 do list[i] = 1 + (d * 7 + i * which) % 8 end
    list[#list + 1] = 0
    builder:add_item(list)
    builder:end_document()
  end
  builder:finalize()
end
local MASKED <const> = {}
for name in ("bos classification_head cls continuing eos mask masking_do_full_word masking_max_ngram masking_probability "
  .. "masking_use_geometric_distribution masking_use_longer_ngrams pad sentinels sep sequence_length_decoder short_sequence_probability "
  .. "tokenizer vocab_size"):gmatch "%S+" do MASKED[name] = true end
recipe("MegatronLMDummyDataLoader", {
  base = function() return { data_path = corpus, seq_length = 8, micro_batch_size = 1, eod = 0 } end,
  run = function(call, given)
    local a = fresh { megatron_lm_plugin = accel.MegatronLMPlugin { train_iters = 4, eval_iters = 1, eval_interval = 2,
      megatron_dataset_flag = true } }
    local dummy = call()
    local train, valid, test = a:prepare(dummy, dummy, dummy)
    local seen, threads = {}, 0
    for _, loader in ipairs { train or false, valid or false, test or false } do
      for batch in loader and loader() or function() end do
        threads = math.max(threads, #accel.listdir "/proc/self/task")
        seen[#seen + 1] = { batch.tokens:tolist(), batch.labels:tolist(), batch.position_ids and batch.position_ids:tolist() or "none",
          batch.attention_mask and batch.attention_mask:to "i64":sum():item() or "none" }
      end
    end
    return seen, given.data_cache_path and accel.listdir(given.data_cache_path), threads
  end,
  values = { data_path = { { 0.5, corpus, 0.5, corpus .. "2" } }, splits_string = { "50,40,10" }, split = { "50,40,10" }, seq_length = { 4 },
    micro_batch_size = { 2 },
    seed = { 9 }, data_cache_path = function() return { folder() } end, eod = { 3 }, eod_mask_loss = { true }, reset_position_ids = { true },
    reset_attention_mask = { true }, num_workers = { 1 }, dataset_type = { "bert" }, train_data_path = { corpus }, valid_data_path = { corpus },
    test_data_path = { corpus }, bos = { 1 }, classification_head = { true }, cls = { 1 }, continuing = { "##" }, eos = { 1 }, mask = { 1 },
    masking_do_full_word = { true }, masking_max_ngram = { 2 }, masking_probability = { 0.5 }, masking_use_geometric_distribution = { true },
    masking_use_longer_ngrams = { true }, pad = { 1 }, sentinels = { { 1 } }, sep = { 1 }, sequence_length_decoder = { 8 },
    short_sequence_probability = { 0.5 }, tokenizer = { "x" }, vocab_size = { 9 } },
  with = { eod = { reset_position_ids = true }, train_data_path = { data_path = sweep.none, train_data_path = corpus .. "2" },
    valid_data_path = { data_path = sweep.none, train_data_path = corpus }, test_data_path = { data_path = sweep.none, train_data_path = corpus } },
  raises = setmetatable({}, { __index = function(_, option) -- of data sets of other types, which tests/options/data_test.lua sweeps
    return MASKED[option] and 'dataset_type "bert"' or option == "dataset_type" and "" or nil
  end }),
})

-- ---- steps of Megatron ----
for _, name in ipairs { "AbstractTrainStep", "GPTTrainStep", "BertTrainStep", "T5TrainStep" } do
  recipe(name, {
    base = function() return { args = {} } end,
    run = function(call)
      local step = call()
      return step.kwargs -- what a step below it reads
    end,
    values = { kwargs = { { x = 1 } } }, passes_on = true,
  })
end
s:leave({ "accel.accelerator.AbstractTrainStep:with_labels", "accel.accelerator.BertTrainStep:with_labels",
  "accel.accelerator.GPTTrainStep:with_labels" }, "opts are the options of the model's forward, passed on")
s:leave("accel.accelerator.GeneralTracker:log", "a tracker below it defines it")
s:leave("accel.accelerator.DeepSpeedEngineWrapper:norm_instead", "what accelerator:clip_grad_norm_ calls: tests/stdlib/deepspeed/training_test.lua")

-- ---- plugins ----
recipe("DeepSpeedEngineWrapper:backward", {
  base = function() return { loss = false } end,
  run = function(call, given)
    local a = fresh { deepspeed_plugin = A.DeepSpeedPlugin { zero_stage = 0 } }
    local p = weight()
    local model = nn.Linear(1, 1)
    a:prepare(model, optim.SGD(model:parameters(), { lr = 1 }))
    given.loss = (model(accel.ones(2, 1)) * p):sum()
    if given.inputs then given.inputs = { model.weight } end
    call(a.deepspeed_engine_wrapped)
    return model:state_dict(), p.grad and p.grad:detach(), p.grad and p.grad.requires_grad, (pcall(given.loss.backward, given.loss))
  end,
  values = { weight = { 3 }, retain_graph = { true }, create_graph = { true }, gradient = { accel.full({}, 3.0) }, inputs = { {} } },
})
local function plugin_of() return A.DeepSpeedPlugin { hf_ds_config = { train_batch_size = 4, zero_optimization = { stage = 2 } } } end
recipe("DeepSpeedPlugin:deepspeed_config_process", {
  base = function() return { values = { train_batch_size = 8 }, must_match = false } end,
  run = function(call)
    local p = plugin_of()
    call(p)
    return p.deepspeed_config.train_batch_size
  end,
  values = { must_match = { true } }, raises = { must_match = "train_batch_size" },
})
recipe("DeepSpeedPlugin:get_value", { base = function() return { key = "no.such" } end, run = function(call) return call(plugin_of()) end,
  values = { default = { 3 } }, passes_on = true }) -- a default of any type
recipe("DeepSpeedPlugin:zero3_init_context_manager", { base = function() return { enable = true } end,
  run = function(call)
    local r = call(plugin_of())
    return type(r) == "string" and r or "block"
  end, values = FN, passes_on = true })
recipe("FullyShardedDataParallelPlugin:set_mixed_precision", {
  base = function() return { precision = "bf16" } end,
  run = function(call, given)
    local p = A.FullyShardedDataParallelPlugin { mixed_precision_policy = given.override ~= nil and "fp16" or nil }
    call(p)
    return p.mixed_precision_policy
  end,
  values = { buffer_autocast = { true }, override = { true } }, with = { override = { override = false } },
})
local function config_of() return A.HfDeepSpeedConfig { a = { b = 1, c = "auto" } } end
recipe("HfDeepSpeedConfig", { run = function(call) return call { a = 1 }:get_value "a" end, passes_on = true })
recipe("HfDeepSpeedConfig:get_value", { base = function() return { key = "no.such" } end, run = function(call) return call(config_of()) end,
  values = { default = { 3 } }, passes_on = true })
recipe("HfDeepSpeedConfig:del_config_sub_tree", { base = function() return { key = "no.such" } end,
  run = function(call) return call(config_of()) end, values = { must_exist = { true } }, raises = { must_exist = "no.such" } })
recipe("HfDeepSpeedConfig:fill", { base = function() return { key = "a.b", values = { ["a.b"] = 2 } } end,
  run = function(call) return call(config_of()) end, values = { must_match = { false } } })
recipe("LayerwiseCastingHook", { base = function() return { storage_dtype = "bf16", compute_dtype = "f32" } end,
  run = function(call)
    local m = nn.Linear(2, 1)
    A.add_hook_to_module(m, call())
    return m.weight.dtype, m(accel.ones(1, 2)).dtype
  end, values = { non_blocking = { true } } })
recipe("HfDeepSpeedConfig:process", {
  base = function() return { values = { ["a.b"] = 1 }, must_match = false } end,
  run = function(call)
    local c = config_of()
    local ok, why = pcall(call, c)
    return ok, not ok and tostring(why), c.config
  end,
  values = { optional = { { ["a.c"] = true } } }, passes_on = true, -- a set of keys
})

-- ---- launchers ----
local told
accel.launch = function(module, args, opts) -- luacheck: ignore 122
  for key in next, args or {} do
    if type(key) == "string" then error "launch: args must be a list" end -- as the launch itself
  end
  told = { module, args or "none", opts }
  return told
end
for _, name in ipairs { "notebook_launcher", "debug_launcher" } do
  recipe(name, {
    base = function() return { module = "m", args = {} } end,
    run = function(call)
      A.AcceleratorState._reset_state(true)
      call()
      return told
    end,
    values = { args = { { 1 } }, num_processes = { 3 }, mixed_precision = { "bf16" }, use_port = { "1" }, master_addr = { "h" }, node_rank = { 1 },
      num_nodes = { 2 }, rdzv_backend = { "static" }, rdzv_endpoint = { "h:1" }, rdzv_conf = { { x = 1 } }, rdzv_id = { "x" }, max_restarts = { 2 },
      monitor_interval = { 0.5 }, log_line_prefix_template = { "x" } },
    with = { monitor_interval = { max_restarts = 1 } }, raises = { node_rank = "node_rank", num_nodes = "one machine" },
  })
end

s:finish()
