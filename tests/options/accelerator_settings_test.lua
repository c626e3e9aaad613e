-- Options of the Accelerator's constructor, handlers, configurations and plugins: each one changes a short training, what it writes, or
-- what ranks send each other; warns; or raises (support/option_sweep.lua). The fields that a class keeps are not looked at. On two ranks, over
-- sockets, where all gathers are collectives.
-- tier: slow
--   accel-run tests/options/accelerator_settings_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local ranks = dofile(here .. "/../support/ranks.lua")
if ranks.start { 2, backend = "tcp", args = arg[1] and ("'%s'"):format(arg[1]) } then return end
local sweep = require "option_sweep"
local core = require "accel.offload.core"
local A, nn, optim, data = accel.accelerator, accel.nn, accel.optim, accel.data

local s = sweep.folder("accelerator", require "option_groups".accelerator "settings")

function accel.Accelerator:_warn(text) -- luacheck: ignore 212
  warn(text)
end

local root = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/settings-")
local list = { root }
accel.dist.broadcast_object_list(list, 0) -- one folder for both ranks
root = list[1]
local n = 0
local function folder()
  n = n + 1
  return root .. "/" .. n
end

--- What ranks sent since a number of a collective: kinds, sizes and ends, whether the script waited, without times.
local function sent(after)
  local lines = {}
  for _, r in ipairs(accel.dist.records()) do
    if r.number > after then
      lines[#lines + 1] = ("%s %s %s %d%s"):format(r.kind, r.dtype, r.group == 0 and "all" or "group", r.count, r.async and " async" or "")
    end
  end
  return lines
end

local function last_number()
  local all = accel.dist.records()
  return #all > 0 and all[#all].number or 0
end

--- Names of the files below a folder, with their sizes where these do not depend on times.
local function files(dir, prefix, out)
  out, prefix = out or {}, prefix or ""
  for _, name in ipairs(accel.listdir(dir) or {}) do
    local path = dir .. "/" .. name
    if accel.listdir(path) then files(path, prefix .. name .. "/", out) else out[#out + 1] = prefix .. name:gsub("%d%d%d%d+[%w.-]*", "N") end
  end
  table.sort(out)
  return out
end

local function model_of(kind)
  if kind == "gpt" then return accel.models.GPT2(accel.models.tiny.gpt2) end
  if kind == "large head" then -- three blocks cost as much as one and the head
    return accel.models.GPT2 { vocab_size = 600, n_positions = 8, n_embd = 16, n_layer = 4, n_head = 2 }
  end
  return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 32), nn.Linear(32, 16))
end

--- A short training with an Accelerator that make() makes: all numbers of it, and the checkpoint that it writes. how: model = "gpt", batch =
--- true (Megatron's step), clip, save, rows = of the data, opts = { of AdamW }, after = fn(a, model, dir).
local function train(make, how)
  how = how or {}
  A.AcceleratorState._reset_state(true)
  local dir = folder()
  local a = make(dir)
  accel.manual_seed(3)
  local model = model_of(how.model)
  if how.change then how.change(model) end
  local opt = optim.AdamW(model:parameters(), { lr = 0.01 })
  local rows = how.model and accel.randint(0, 9, { 16, 8 }) or accel.randn(how.rows or 10, 16)
  local loader = data.DataLoader(data.TensorDataset(rows), { batch_size = 4, shuffle = true })
  local schedule = optim.lr_scheduler.StepLR(opt, 1, { gamma = 0.9 })
  if how.schedule then schedule = how.schedule(opt) end
  local m, op, dl, sch = a:prepare(model, opt, loader, schedule)
  local from = last_number()
  local seen = { losses = {}, batches = {}, rates = {}, length = #dl }
  for _ = 1, 2 do
    for batch in dl() do
      local x = batch[1]
      seen.batches[#seen.batches + 1] = x
      a:accumulate(m, function()
        local loss
        if how.model then
          loss = how.batch and m { input_ids = x } or m(x, { labels = x })
        else
          loss = m(x)
          seen.dtype = loss.dtype
          loss = loss:float():square():mean() * (how.scale or 1)
        end
        if type(loss) == "table" then loss = loss[1] end
        seen.losses[#seen.losses + 1] = loss:detach():float()
        a:backward(loss)
        if a.sync_gradients and how.clip then a:clip_grad_norm_(m:parameters(), 0.1) end
        op:step()
        sch:step()
        op:zero_grad()
      end)
      seen.rates[#seen.rates + 1] = op.param_groups[1].lr
    end
  end
  seen.sent = sent(from)
  if not how.whole then seen.state = a:get_state_dict(m) end
  seen.tier = accel.offload.tier(m:parameters()[1])
  if how.save then
    local path = a:save_state(type(how.save) == "function" and how.save(a, dir) or dir .. "/state")
    seen.pending = a._checkpointing.pending ~= nil
    a:wait_for_save()
    seen.files = files(path or dir)
  end
  if how.after then seen.after = table.pack(how.after(a, m, dir)) end
  return seen
end

--- The batches of all ranks in two passes of a prepared loader, and what ranks send each other meanwhile.
local function loaded(make)
  A.AcceleratorState._reset_state(true)
  local rows = accel.arange(5):to "f32":reshape(5, 1)
  local loader = make():prepare(data.DataLoader(data.TensorDataset(rows), { batch_size = 2, shuffle = true }))
  local seen, from = {}, last_number()
  for _ = 1, 2 do
    for batch in loader() do seen[#seen + 1] = batch[1]:tolist() end
  end
  return accel.dist.all_gather_object { seen, #sent(from) }
end

--- A recipe of a class that `key` of the constructor takes. more: further options of the constructor; how: train's.
local function plugin(name, key, recipe)
  recipe.run = recipe.run or function(call, given)
    local how = type(recipe.how) == "function" and recipe.how(given) or recipe.how
    return train(function(dir)
      local o = recipe.more and recipe.more(given, dir) or {}
      o[key] = key == "kwargs_handlers" and { call() } or call()
      return accel.Accelerator(o)
    end, how)
  end
  s:recipe("accel.accelerator." .. name, recipe)
end

-- ---- constructor ----
s:recipe("accel.accelerator.Accelerator", {
  run = function(call, given)
    if given.split_batches ~= nil then return loaded(call) end
    if given.cpu ~= nil or given.device_placement ~= nil then -- beside a device that is not the CPU
      A.AcceleratorState._reset_state(true)
      local a = A.patch_environment({ ACCELERATE_TORCH_DEVICE = "meta" }, call)
      local model = a:prepare_model(nn.Linear(1, 1, { device = "cpu" }), { evaluation_mode = true })
      accel.set_default_device "cpu"
      return a.device, model.weight.device
    end
    local how = { save = true, after = function(a, _, dir)
      a:init_trackers "sweep"
      a:log({ x = 1 }, { step = 1 })
      a:end_training()
      return a.device_placement and 1 or 0, a.distributed_type, given.project_dir and files(given.project_dir) or files(dir)
    end }
    if given.project_config then
      how.save = function() return nil end
    end
    return train(function() return call() end, how)
  end,
  values = {
    dataloader_config = function() return { A.DataLoaderConfiguration { data_seed = 9 } } end,
    deepspeed_plugin = function() return { A.DeepSpeedPlugin { zero_stage = 2, gradient_clipping = 0.01 } } end,
    deepspeed_plugins = function() return { { one = A.DeepSpeedPlugin { zero_stage = 2, gradient_clipping = 0.01 } } } end,
    dynamo_backend = { "nonsense" },

    fsdp_plugin = function() return { A.FullyShardedDataParallelPlugin { mixed_precision_policy = "bf16" } } end,
    gradient_accumulation_plugin = function() return { A.GradientAccumulationPlugin(2) } end,
    gradient_accumulation_steps = { 2 }, kwargs_handlers = function() return { { A.AutocastKwargs { enabled = false } } } end,
    log_with = { "jsonl" }, mixed_precision = { "bf16", "fp16", "fp8" },
    parallelism_config = function() return { A.ParallelismConfig { tp_size = 2, dp_shard_size = 2 } } end,
    cpu = { true }, project_config = function() return { A.ProjectConfiguration { project_dir = folder(), automatic_checkpoint_naming = true } } end,
    project_dir = function() return { folder() } end, rng_types = { { "nonsense" } }, step_unit = { "nonsense" },
    torch_tp_plugin = { {} },
  },
  with = { cpu = { cpu = false }, split_batches = { split_batches = false },
    device_placement = { device_placement = true }, kwargs_handlers = { mixed_precision = "bf16" },
    step_scheduler_with_optimizer = { gradient_accumulation_steps = 2 } },
  raises = { parallelism_config = "ranks", dynamo_backend = "backend must be",
    rng_types = "nonsense", step_unit = "step_unit", torch_tp_plugin = "torch_tp_plugin", log_with = "jsonl" },
  elsewhere = { micro_batches = "tests/stdlib/accelerator/micro_batches_test.lua", memory = "tests/stdlib/accelerator/low_memory_test.lua",
    step_unit = "tests/stdlib/accelerator/scheduler_test.lua", dynamo_plugin = "tests/stdlib/compile_test.lua",
    project_dir = "tests/stdlib/accelerator/constructor_test.lua", fsdp_plugin = "tests/stdlib/shard/plugin_test.lua",
    megatron_lm_plugin = "tests/stdlib/parallel/megatron_step_test.lua" },
})

-- ---- handlers and configurations ----
-- What reaches the wrapper; tests/stdlib/dist/ddp_test.lua shows what it does.
local DDP <const> = "tests/stdlib/accelerator/prepare_test.lua"
plugin("AutocastKwargs", "kwargs_handlers", { more = function() return { mixed_precision = "bf16" } end, values = { cache_enabled = { false } } })
plugin("DataLoaderConfiguration", "dataloader_config", { values = { data_seed = { 9 }, dispatch_batches = { true } },
  run = function(call) return loaded(function() return accel.Accelerator { dataloader_config = call() } end) end,
  elsewhere = { non_blocking = "tests/cuda/prefetch_suite.lua" } })
plugin("GradScalerKwargs", "kwargs_handlers", { more = function() return { mixed_precision = "fp16" } end,
  how = function(given) return { after = function(a) return a.scaler and a.scaler:get_scale() end,
    scale = given.backoff_factor and 1e38 or nil } end,
  values = { growth_interval = { 2 }, growth_factor = { 3.0 }, backoff_factor = { 0.25 } }, with = { growth_factor = { growth_interval = 1 } } })
plugin("GradientAccumulationPlugin", "gradient_accumulation_plugin", { base = function() return { num_steps = 3 } end,
  values = { num_steps = { 2 } }, elsewhere = { sync_each_batch = "tests/stdlib/accelerator/accumulation_test.lua" } })
plugin("DistributedDataParallelKwargs", "kwargs_handlers", { values = { dim = { 2 }, bucket_cap_mb = { 0.001 },
  broadcast_buffers = { false }, deterministic = { "world" },
  comm_hook = { "bf16", "int8" }, comm_wrapper = { "bf16" }, comm_state_option = { { start_powerSGD_iter = 2 } } },
  with = { comm_wrapper = { comm_hook = "power_sgd" },
    comm_state_option = { comm_hook = "power_sgd" }, broadcast_buffers = { broadcast_buffers = true } },
  how = function(given)
    return { change = given.broadcast_buffers ~= nil and function(model) model[2] = nn.BatchNorm1d(32) end or nil }
  end,
  elsewhere = { find_unused_parameters = DDP, gradient_as_bucket_view = DDP, static_graph = DDP } })
plugin("InitProcessGroupKwargs", "kwargs_handlers", { values = { backend = { "nonsense" }, init_method = { "tcp://x" }, timeout = { 0 } },
  raises = { backend = "backend", init_method = "env://", timeout = "timeout" } })

-- Of a profile all is seen but times: spans, bytes of the pools, what on_trace_ready saw, and files.
local shown = {}
local PROFILE <const> = "tests/stdlib/profiler/profile_test.lua"
local GPU <const> = accel.devices()[3] -- after cpu and meta
plugin("ProfileKwargs", "kwargs_handlers", {
  run = function(call, given)
    A.AcceleratorState._reset_state(true)
    shown = {}
    local a = accel.Accelerator { kwargs_handlers = { call() } }
    local m = a:prepare(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    local x, seen = accel.ones(2, 4), { spans = {} }
    local prof = a:profile(nil, function(prof)
      for _ = 1, 4 do
        a:backward(m(x):sum())
        prof:step()
      end
    end)
    for _, e in ipairs(prof:events()) do
      if e.thread == 0 and e.name ~= "comm::wait" then -- what other threads do, and waits for them, have no fixed place
        table.insert(seen.spans, ("%s %s %s %s %s %s"):format(e.kind, e.name, e.shapes, e.flops, e.memory, e.site))
      end
    end
    seen.memory = given.profile_memory and #prof:memory_timeline()
    return seen, shown, given.output_trace_dir and files(given.output_trace_dir)
  end,
  values = { on_trace_ready = { function(prof) shown[#shown + 1] = prof.step_num end }, schedule_option = { { wait = 1, active = 2 } },
    output_trace_dir = function() return { folder() } end, activities = GPU == nil and { { "cpu", "cuda" } } or nil },
  elsewhere = { activities = GPU and PROFILE },
})

local function of_project(given)
  return { save = function(a, dir) return not given.automatic_checkpoint_naming and dir .. "/state" or nil end, after = function(a, _, dir)
    a:init_trackers "sweep"
    a:log({ x = 1 }, { step = 1 })
    a:end_training()
    if given.total_limit then
      a:save_state()
      a:save_state()
    end
    return files(dir), given.project_dir and files(given.project_dir), given.logging_dir and files(given.logging_dir)
  end }
end
plugin("ProjectConfiguration", "project_config", {
  base = function() return { project_dir = folder() } end, how = of_project, more = function() return { log_with = "jsonl" } end,
  values = { project_dir = function() return { folder() } end, logging_dir = function() return { folder() } end, total_limit = { 1 },
    iteration = { 5 }, on_existing = { "beside" } },
  with = { total_limit = { automatic_checkpoint_naming = true }, iteration = { automatic_checkpoint_naming = true } },
  elsewhere = { save_on_each_node = "tests/stdlib/accelerator/checkpoint_nodes_test.lua",
    project_dir = "tests/stdlib/accelerator/checkpoint_test.lua",
    on_existing = "tests/stdlib/accelerator/checkpoint_age_test.lua" },
})

-- ---- plugins ----
local function dtypes(third)
  return { param_dtype = "bf16", reduce_dtype = "bf16", [third] = "bf16" }
end
local UNITS <const> = { auto_wrap_policy = "SIZE_BASED_WRAP", min_num_params = 100 }
local function units(more)
  local all = { auto_wrap_policy = UNITS.auto_wrap_policy, min_num_params = UNITS.min_num_params }
  for key, value in pairs(more or {}) do all[key] = value end
  return all
end
local SHARD <const> = "tests/stdlib/shard/plugin_test.lua"
plugin("FullyShardedDataParallelPlugin", "fsdp_plugin", {
  how = function(given)
    return { save = true, after = function(_, m) return given.cpu_offload and accel.offload.tier(m:parameters()[1]) end }
  end,
  values = { fsdp_version = { 2 }, sharding_strategy = { "SHARD_GRAD_OP", "NO_SHARD" }, activation_checkpointing = { true },
    activation_checkpointing_offload = { true }, auto_wrap_policy = { "SIZE_BASED_WRAP" }, backward_prefetch = { "BACKWARD_PRE" },
    cpu_offload = { true }, cpu_ram_efficient_loading = { true }, forward_prefetch = { true }, ignored_modules = { "0", "[03]" },
    limit_all_gathers = { false }, min_num_params = { 2000 }, mixed_precision_policy = { "bf16", dtypes "buffer_dtype" },
    optim_state_dict_config = { {} }, param_init_fn = { function(module) return module end }, reshard_after_forward = { false },
    state_dict_config = { {} }, state_dict_type = { "SHARDED_STATE_DICT" }, sync_module_states = { false },
    transformer_cls_names_to_wrap = { { "Linear" } }, use_orig_params = { false } },
  with = { sharding_strategy = units(), activation_checkpointing = units(), auto_wrap_policy = { min_num_params = 100 }, backward_prefetch = units(),
    forward_prefetch = units(), limit_all_gathers = units(), min_num_params = units(),
    activation_checkpointing_offload = units { fsdp_version = 2, activation_checkpointing = true },
    reshard_after_forward = units { fsdp_version = 2 },
    transformer_cls_names_to_wrap = { auto_wrap_policy = "TRANSFORMER_BASED_WRAP", transformer_cls_names_to_wrap = { "Tanh" } } },
  elsewhere = { backward_prefetch = SHARD, forward_prefetch = SHARD, sharding_strategy = SHARD, reshard_after_forward = SHARD,
    activation_checkpointing = SHARD, cpu_ram_efficient_loading = SHARD, param_init_fn = SHARD, activation_checkpointing_offload = SHARD },
})

plugin("DeepSpeedPlugin", "deepspeed_plugin", {
  how = function(given)
    local function large(model) model[4], model[5] = nn.Linear(32, 4096), nn.Linear(4096, 16) end -- above the persistence threshold
    return { save = true, whole = given.zero_stage == 3, change = given.offload_param_device and large or nil,
      after = given.offload_param_device and function(_, m)
      local home = rawget(m, "reducer").units[1].home
      return home and core.tier(home) or "none"
    end or given.offload_optimizer_device and function(a)
      local state = a._prepared.optimizers[1].optimizer.state
      local tiers = {}
      for _, buffers in pairs(state) do
        for _, t in pairs(type(buffers) == "table" and buffers or {}) do
          if accel.is_tensor(t) then tiers[accel.offload.tier(t) or "none"] = true end
        end
      end
      return tiers
    end }
  end, base = function() return { zero_stage = 2 } end,
  values = { deepspeed_config = { {} }, gradient_accumulation_steps = { 2 }, gradient_clipping = { 0.01 },
    hf_ds_config = { { zero_optimization = { stage = 1 }, gradient_clipping = 0.01 } }, msamp_opt_level = { "O2" },
    offload_optimizer_device = { "nvme" }, offload_optimizer_nvme_path = { "/tmp" }, offload_param_device = { "cpu" },
    offload_param_nvme_path = { "/tmp" }, transformer_moe_cls_names = { "Linear" }, zero3_init_flag = { true },
    zero3_save_16bit_model = { true }, zero_stage = { 0, 1, 3 } },
  with = { offload_param_device = { zero_stage = 3, offload_param_device = "none" },
    offload_optimizer_device = { offload_optimizer_device = "none", offload_optimizer_nvme_path = root } },
  elsewhere = { is_train_batch_min = "tests/stdlib/deepspeed/config_test.lua", zero_stage = "tests/stdlib/deepspeed/zero_test.lua",
  },
})
plugin("ParallelismConfig", "parallelism_config", {
  how = { model = "gpt" }, base = function() return { dp_replicate_size = 2 } end,
  values = { cp_backend = { "nonsense" }, sp_backend = { "nonsense" }, total_size = { 4 }, non_dp_size = { 4 }, data_parallel_size = { 4 },
    tp_size = { 2 }, cp_size = { 2 }, sp_size = { 2 }, pp_size = { 2 }, dp_shard_size = { 2 }, ep_size = { 2 }, dp_replicate_size = { 4 },
    tp_handler = function() return { A.TorchTensorParallelConfig { sequence_parallel = true } } end,
    cp_handler = function() return { A.TorchContextParallelConfig { cp_comm_strategy = "alltoall" } } end,
    sp_handler = function() return { A.DeepSpeedSequenceParallelConfig { sp_seq_length = 8 } } end,
    pp_handler = function() return { A.PipelineParallelConfig { num_micro_batches = 2 } } end },
  raises = { cp_backend = "cp_backend", sp_backend = "sp_backend", ep_size = "mixture of experts", dp_replicate_size = "dp_replicate_size 4" },
  with = { tp_size = { dp_replicate_size = 1 }, cp_size = { dp_replicate_size = 1 }, sp_size = { dp_replicate_size = 1 },
    pp_size = { dp_replicate_size = 1 }, dp_shard_size = { dp_replicate_size = 1 } },
  elsewhere = { dp_shard_size = "tests/stdlib/parallel/accelerator_test.lua" },
})
local function handler(name, key, size, recipe)
  recipe.run = function(call)
    local how, order = { model = recipe.model or "gpt" }, {}
    function how.change(model) -- what runs here, and when the script waits for others
      for i, block in ipairs(model.transformer.h) do
        block:register_forward_pre_hook(function() order[#order + 1] = ("F%d after %d"):format(i, last_number()) end)
        block.mlp.c_fc.weight:register_hook(function() order[#order + 1] = ("W%d after %d"):format(i, last_number()) end)
      end
    end
    local from
    function how.after()
      for k, text in ipairs(order) do order[k] = text:gsub("%d+$", function(n) return n - from end) end
      return order
    end
    return train(function()
      from = last_number()
      return accel.Accelerator { parallelism_config = A.ParallelismConfig { [size] = 2, [key] = call() } }
    end, how)
  end
  s:recipe("accel.accelerator." .. name, recipe)
end
handler("TorchTensorParallelConfig", "tp_handler", "tp_size", { raises = { tp_plan = "cannot be multiplied" },
  values = { tp_plan = { { ["h.0.mlp.c_fc"] = "colwise" } },
  sequence_parallel = { true }, tp_comm_overlap = { true } } })
handler("TorchContextParallelConfig", "cp_handler", "cp_size", { elsewhere = { cp_comm_strategy = "tests/stdlib/parallel/context_test.lua" } })
handler("DeepSpeedSequenceParallelConfig", "sp_handler", "sp_size", { values = { sp_seq_length = { 8 }, sp_seq_length_is_variable = { false },
  sp_attn_implementation = { "flash_attention_2" } }, with = { sp_seq_length_is_variable = { sp_seq_length = 8 } } })
handler("PipelineParallelConfig", "pp_handler", "pp_size", { model = "large head", values = { num_micro_batches = { 2 },
  schedule = { "gpipe", "zero_bubble" },
  virtual_stages = { 2 }, split_points = { "even" }, stage_layers = { { 1, 3 } }, loss_fn = { function(loss) return loss * 2 end },
  pipeline_plan = { {} } },
  with = { schedule = { num_micro_batches = 4 }, virtual_stages = { num_micro_batches = 4 } },
  raises = { pipeline_plan = "too few" } })
plugin("TorchDynamoPlugin", "dynamo_plugin", {
  how = { after = function(a, m) return A.is_compiled_module(a:unwrap_model(m)) end },
  base = function() return { backend = "INDUCTOR" } end,
  values = { backend = { "nonsense" }, dynamic = { false }, mode = { "max-autotune" }, options = { { max_autotune = true } } },
  raises = { backend = "backend" },
  elsewhere = { use_regional_compilation = "tests/stdlib/compile_regions_test.lua" },
})
plugin("TERecipeKwargs", "kwargs_handlers", { more = function() return { mixed_precision = "fp8" } end,
  how = { after = function(_, m) m:eval() return m(accel.ones(2, 16)) end },
  values = { amax_history_len = { 1 }, amax_compute_algo = { "max" }, fp8_format = { "E4M3" }, margin = { 3 }, interval = { 2 },
    override_linear_precision = { { true, false, false } } }, with = { amax_history_len = { amax_compute_algo = "max" } } })
plugin("AORecipeKwargs", "kwargs_handlers", { more = function(given)
  return { mixed_precision = "fp8", fsdp_plugin = given.enable_fsdp_float8_all_gather ~= nil
    and A.FullyShardedDataParallelPlugin { fsdp_version = 2 } or nil }
end, how = function(given)
  return { change = given.pad_inner_dim ~= nil and function(m) m[5], m[4] = nn.Linear(20, 16), nn.Linear(32, 20) end or nil }
end, raises = { pad_inner_dim = "multiples of 16" },
  values = { config = { { recipe_name = "rowwise" } }, module_filter_func = { function() return false end },
    enable_fsdp_float8_all_gather = { true } },
  with = { enable_fsdp_float8_all_gather = { enable_fsdp_float8_all_gather = false },
    pad_inner_dim = { pad_inner_dim = true, module_filter_func = function() return true end } } })
plugin("MSAMPRecipeKwargs", "kwargs_handlers", { more = function() return { mixed_precision = "fp8" } end, values = { opt_level = { "O1" } } })

local RECOMPUTE <const> = "tests/stdlib/parallel/options_test.lua"
local MEGATRON <const> = "tests/stdlib/parallel/megatron_step_test.lua"
plugin("MegatronLMPlugin", "megatron_lm_plugin", {
  how = function(given)
    return { model = "gpt", batch = not given.gradient_clipping, clip = given.gradient_clipping ~= nil, save = given.no_save_optim ~= nil,
      schedule = function(opt) return A.MegatronLMDummyScheduler(opt, not (given.train_iters or given.train_samples) and 20 or nil, 2) end }
  end,
  values = { use_custom_fsdp = { true }, eod_mask_loss = { true }, tp_degree = { 2 }, pp_degree = { 2 }, expert_model_parallel_size = { 2 },
    context_parallel_size = { 2 }, attention_dropout = { 0.3 }, hidden_dropout = { 0.3 }, recompute_granularity = { "selective", "full" },
    recompute_method = { "block" }, decoder_last_pipeline_num_layers = { 1 }, pipeline_schedule = { "gpipe" },
    num_layers_per_virtual_pipeline_stage = { 1 }, pipeline_model_parallel_split_rank = { 1 }, train_iters = { 5 }, train_samples = { 40 },
    weight_decay_incr_style = { "linear" }, start_weight_decay = { 0.1 }, end_weight_decay = { 0.3 }, lr_decay_style = { "cosine" },
    lr_decay_iters = { 4 }, lr_decay_samples = { 32 }, lr_warmup_iters = { 3 }, lr_warmup_samples = { 24 }, lr_warmup_fraction = { 0.75 },
    min_lr = { 0.005 }, consumed_samples = { 8 }, no_wd_decay_cond = { function() return true end }, scale_lr_cond = { function() return true end },
    lr_mult = { 3.0 }, seq_length = { 8 }, encoder_seq_length = { 8 }, decoder_seq_length = { 8 }, tensorboard_dir = { "/tmp" },
    custom_train_step_class = function() return { A.GPTTrainStep:extend "Own" } end, custom_train_step_kwargs = { {} },
    custom_model_provider_function = { print }, custom_prepare_model_function = { print }, custom_megatron_datasets_provider_function = { print },
    custom_get_batch_function = { function(batch) return { tokens = batch.input_ids, labels = batch.input_ids } end },
    custom_loss_function = { function(logits) return logits:square():mean() end }, other_megatron_args = { { zzz = 1 } }, DDP_impl = { "local" },
    megatron_lm_default_args = { {} }, global_batch_size = { 4 }, micro_batch_size = { 2 }, data_parallel_size = { 2 },
    num_micro_batches = { 2 }, gradient_clipping = { 0.01 }, expert_tensor_parallel_size = { 2 }, recompute_num_layers = { 2 } },
  with = { no_save_optim = { no_save_optim = false }, end_weight_decay = { start_weight_decay = 0.1 },
    weight_decay_incr_style = { start_weight_decay = 0.1, end_weight_decay = 0.3 },
    start_weight_decay = { weight_decay_incr_style = "linear", end_weight_decay = 0.3, start_weight_decay = 0.2 },
    lr_decay_style = { lr_decay_iters = 7 }, lr_warmup_fraction = { lr_decay_iters = 4 }, scale_lr_cond = { lr_mult = 2.0 },
    lr_mult = { scale_lr_cond = function() return true end } },
  raises = { eod_mask_loss = "eod", expert_model_parallel_size = "mixture", num_layers_per_virtual_pipeline_stage = "num_layers" },
  elsewhere = { custom_train_step_class = MEGATRON, tp_degree = "tests/stdlib/parallel/accelerator_test.lua", return_logits = MEGATRON,
    calculate_per_token_loss = MEGATRON, no_load_optim = MEGATRON, recompute_activations = RECOMPUTE, recompute_granularity = RECOMPUTE,
    recompute_method = RECOMPUTE, megatron_dataset_flag = "tests/stdlib/parallel/megatron_data_test.lua" },
})

s:finish()
