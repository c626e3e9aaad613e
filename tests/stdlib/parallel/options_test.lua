-- Fields of plugins act or are said: Megatron's dropout is that of a model with such a configuration, layers and attention are computed again
-- as asked with the same losses, the last stage has the layers that were asked for, on 1 and 2 ranks; what has no effect is one warning that
-- names the field and why.
--   accel-run tests/stdlib/parallel/options_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, R, P = accel.accelerator, ranks.rank, ranks.size

--- Warnings of an Accelerator made with these options, and of what fn does with it.
local function said(o, fn)
  A.AcceleratorState._reset_state(true)
  local list, warn = {}, A.Accelerator._warn
  A.Accelerator._warn = function(_, text) list[#list + 1] = text end
  local ok, e = pcall(function()
    local a = accel.Accelerator(o)
    if fn then fn(a) end
  end)
  A.Accelerator._warn = warn
  assert(ok, e)
  return list
end

local SMALL <const> = { vocab_size = 33, n_positions = 16, n_embd = 16, n_layer = 4, n_head = 4 }

--- Losses of 3 steps, how many attentions of this rank were computed, again or not, in a micro-batch, the model, and how many MLPs were.
local function train(plugin, dropout, size)
  A.AcceleratorState._reset_state(true)
  plugin.pp_degree = plugin.pp_degree or P
  plugin.num_micro_batches = 2
  local a = accel.Accelerator { megatron_lm_plugin = accel.MegatronLMPlugin(plugin) }
  local c = { resid_pdrop = dropout or 0, embd_pdrop = dropout or 0, attn_pdrop = dropout or 0 }
  for key, value in pairs(SMALL) do c[key] = value end
  for key, value in pairs(size or {}) do c[key] = value end
  accel.manual_seed(3)
  local model = accel.models.GPT2(c)
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-2 })
  model, optimizer = a:prepare(model, optimizer)
  accel.manual_seed(7)
  local ids = accel.randint(0, 33, { 4, 8 }, { generator = accel.Generator(1) })
  local runs, mlps, losses = 0, 0, {}
  for name, module in pairs(model.module:named_modules()) do
    if name:find "c_attn$" then
      module:register_forward_pre_hook(function(_, args) runs = runs + (args[1].device ~= "meta" and 1 or 0) end)
    elseif name:find "c_fc$" then
      module:register_forward_pre_hook(function(_, args) mlps = mlps + (args[1].device ~= "meta" and 1 or 0) end)
    end
  end
  for step = 1, 3 do
    local loss = model(ids, { labels = ids })
    a:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    losses[step] = loss:item()
  end
  return losses, runs / 6, model, mlps / 6 -- 3 steps of 2 micro-batches
end

if arg[1] == "zeropp" then -- parameters lie once for these ranks
  local list = {}
  rawset(_G, "warn", function(text) list[#list + 1] = text end)
  for _ = 1, 2 do
    A.AcceleratorState._reset_state(true)
    local a = accel.Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = { zero_optimization = { stage = 3,
      zero_quantized_weights = true, zero_hpz_partition_size = 2 } } } }
    a:prepare(accel.nn.Linear(64, 64), accel.optim.SGD(accel.ones(1), { lr = 1 }))
  end
  ranks.same(#list, R == 0 and 1 or 0, "warnings of ZeRO++: " .. accel.json.encode(list))
  assert(R > 0 or list[1]:find("zero_quantized_weights, zero_hpz_partition_size: no effect on ranks that share memory", 1, true), list[1])
  return
end

-- on every rank of a pipeline over all ranks
local plain = train({}, 0.0)
local wet = train({}, 0.2)
assert(wet[1] ~= plain[1])
ranks.same(train({ attention_dropout = 0.2, hidden_dropout = 0.2 }, 0.0), wet, "dropout by the plugin")
ranks.same(train({ attention_dropout = 0, hidden_dropout = 0 }, 0.2), plain, "no dropout by the plugin")
ranks.same(train({}, 0.2), wet, "what the plugin leaves out stays as it is")

local n = SMALL.n_layer // P -- layers of a stage
for _, case in ipairs {
  { 0 }, { n, recompute_activations = true }, { n, recompute_granularity = "full" }, { n, recompute_method = "uniform" },
  { 1, recompute_method = "block", recompute_num_layers = 1 }, { n, recompute_granularity = "selective" },
  { n, recompute_method = "block", recompute_num_layers = 9 }, { 0, recompute_method = "block", recompute_num_layers = 0 },
  { 1, recompute_activations = true, recompute_granularity = "full", recompute_method = "block" },
} do
  local plugin, want = {}, case[1]
  for key, value in pairs(case) do plugin[key] = key ~= 1 and value or nil end
  local losses, runs, _, mlps = train(plugin, 0.2)
  ranks.same(runs - n, want + 0.0, "modules computed again: " .. accel.json.encode(plugin))
  local attention_alone = plugin.recompute_granularity == "selective" or plugin.recompute_activations and not plugin.recompute_granularity
  ranks.same(mlps - n, attention_alone and 0.0 or want + 0.0, "MLPs computed again: " .. accel.json.encode(plugin))
  ranks.same(losses, wet, "losses: " .. accel.json.encode(plugin))
end
ranks.fails("recompute_granularity must be one of full, selective", train, { recompute_granularity = "half" })
ranks.fails("recompute_method must be one of uniform, block", train, { recompute_method = "ring" })
ranks.fails("attention_dropout", train, { attention_dropout = 1.5 })

if P == 2 then
  local losses, _, model = train({ decoder_last_pipeline_num_layers = 1 }, 0.2)
  local counts = {}
  for _, b in ipairs(model._blocks) do counts[b.stage + 1] = (counts[b.stage + 1] or 0) + 1 end
  ranks.same(counts, { 3, 1 }, "layers of stages")
  ranks.same(losses, wet, "losses of uneven stages")
  ranks.fails("decoder_last_pipeline_num_layers 4 leaves 0 layers", train, { decoder_last_pipeline_num_layers = 4 })
end
if ranks.launched then return end
ranks.run(2, {})
ranks.run(2, { args = "zeropp" })

-- what has no effect is said, once
local function one(o, ...)
  local list = said(o)
  assert(#list == 1, accel.json.encode(list))
  for _, part in ipairs { ... } do assert(list[1]:find(part, 1, true), list[1]) end
end
ranks.same(said { megatron_lm_plugin = accel.MegatronLMPlugin {} }, {}, "defaults")
ranks.same(said { megatron_lm_plugin = accel.MegatronLMPlugin { tp_degree = 1, eod_mask_loss = false, lr_mult = 1.0,
  recompute_method = "block", recompute_num_layers = 2, custom_loss_function = function() end } }, {}, "what is done")
one({ megatron_lm_plugin = accel.MegatronLMPlugin { eval_iters = 5, eval_interval = 7, lr_mult = 2, custom_train_step_kwargs = {},
  recompute_granularity = "selective", recompute_num_layers = 2, other_megatron_args = { vocab_file = "a", eod = 3, no_save_optim = true } } },
  "eval_interval (the script's own loop", "eval_iters (", "lr_mult (it is for the parameters of scale_lr_cond",
  "custom_train_step_kwargs (they are for a custom_train_step_class", "other_megatron_args vocab_file (kept in megatron_lm_default_args",
  "recompute_num_layers (every layer")
ranks.same(accel.MegatronLMPlugin { tp_degree = 2, other_megatron_args = { tensor_model_parallel_size = 4, clip_grad = 2.5 } }._asked.tp_degree,
  4, "Megatron's names win")
one({ megatron_lm_plugin = accel.MegatronLMPlugin { sequence_parallelism = true, decoder_last_pipeline_num_layers = 2 } },
  "sequence_parallelism (tp_degree is 1)", "decoder_last_pipeline_num_layers (pp_degree is 1)")
one({ parallelism_config = accel.ParallelismConfig { tp_handler = A.TorchTensorParallelConfig { enable_async_tp = false } } },
  "ParallelismConfig: fields that have no effect here: tp_handler (tp_size is 1)")
ranks.same(require "accel.accelerator.plugins.idle".lines { accel.ParallelismConfig { tp_size = 2, sp_size = 2,
  tp_handler = A.TorchTensorParallelConfig { enable_async_tp = true },
  sp_handler = A.DeepSpeedSequenceParallelConfig { sp_seq_length = 8, sp_attn_implementation = "flash_attention_2" } } }, {
  "DeepSpeedSequenceParallelConfig: fields that have no effect here: sp_attn_implementation (attention chooses its kernel by itself, with"
    .. " the same results); sp_seq_length (sequences have the length of their batch)" }, "handlers")
local F = accel.FullyShardedDataParallelPlugin
ranks.same(said { fsdp_plugin = F {} }, {}, "defaults of FSDP")
one({ fsdp_plugin = F { use_orig_params = false, min_num_params = 5, state_dict_config = {} } }, "min_num_params (auto_wrap_policy is not",
  "use_orig_params (parameters keep", "state_dict_config (")
one({ fsdp_plugin = F { fsdp_version = 2, backward_prefetch = "BACKWARD_PRE", sharding_strategy = "FULL_SHARD" } },
  "backward_prefetch (it is of fsdp_version 1)", "sharding_strategy (in fsdp_version 2")
ranks.fails("forward_prefetch needs version 1", F, { fsdp_version = 2, forward_prefetch = true })
one({ deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 2, zero3_init_flag = true, offload_param_nvme_path = "x" } },
  "zero3_init_flag (it is of stage 3)", "offload_param_nvme_path (offload_param_device is not 'nvme')")

-- fields of model(batch), where the model is called with its own arguments
ranks.same(said({ megatron_lm_plugin = accel.MegatronLMPlugin { return_logits = true, eod_mask_loss = true } }, function(a)
  local model, ids = a:prepare(accel.models.Llama(accel.models.tiny.llama)), accel.ones(2, 4, { dtype = "i64" })
  for _ = 1, 2 do model(ids, { labels = ids }) end
end), { "MegatronLMPlugin: eod_mask_loss, return_logits: no effect on a call with the model's own arguments; call model(batch)" }, "calls")

-- a schedule that nobody takes over, said at the first step; a model without dropout
local list = said({ megatron_lm_plugin = accel.MegatronLMPlugin { lr_warmup_iters = 3, hidden_dropout = 0.1 } }, function(a)
  local model = a:prepare(accel.models.Llama(accel.models.tiny.llama))
  local optim = a:prepare(accel.optim.SGD(model:parameters(), { lr = 0.1 }))
  local ids = accel.ones(2, 4, { dtype = "i64" })
  for _ = 1, 2 do
    a:backward(model(ids, { labels = ids }))
    optim:step()
  end
end)
ranks.same(list, { "MegatronLMPlugin: no effect on this model: hidden_dropout (the model has no Dropout)",
  "MegatronLMPlugin: lr_warmup_iters: no effect here: prepare a MegatronLMDummyScheduler, which takes them" }, "said in training")
