--- MegatronLMPlugin: tensor, pipeline, context and expert parallelism in Megatron-LM's words.
local accel = require "accel"
local base = require "accel.accelerator.plugins.base"
local check = require "accel.util.check"
local environment = require "accel.accelerator.environment"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

local none <const> = options.none

local FIELDS <const> = {
  { "tp_degree", 1, "int" }, { "pp_degree", 1, "int" }, { "use_custom_fsdp", false, "bool" },
  { "overlap_cpu_optimizer_d2h_h2d", false, "bool" }, { "no_load_optim", false, "bool" }, { "eod_mask_loss", false, "bool" },
  { "no_save_optim", false, "bool" }, { "optimizer_cpu_offload", false, "bool" },
  { "use_precision_aware_optimizer", false, "bool" }, { "decoder_last_pipeline_num_layers", none, "int" },
  { "recompute_granularity", "full", "text" }, { "recompute_method", "uniform", "text" }, { "recompute_num_layers", 1, "int" },
  { "attention_backend", true, "bool" }, { "expert_model_parallel_size", 1, "int" }, { "context_parallel_size", 2, "int" },
  { "attention_dropout", 0.0, "float" }, { "hidden_dropout", 0.0, "float" }, { "attention_softmax_in_fp32", true, "bool" },
  { "expert_tensor_parallel_size", 1, "int" }, { "calculate_per_token_loss", true, "bool" },
  { "use_rotary_position_embeddings", true, "bool" }, { "num_micro_batches", 1, "int" }, { "gradient_clipping", 1.0, "float" },
  { "sequence_parallelism", false, "bool" }, { "recompute_activations", false, "bool" },
  { "use_distributed_optimizer", false, "bool" }, { "pipeline_schedule", "1f1b", "text" },
  { "num_layers_per_virtual_pipeline_stage", none, "int" },
  -- these have no variable
  { "pipeline_model_parallel_split_rank", none },
  { "is_train_batch_min", true }, { "train_iters", none }, { "train_samples", none },
  { "weight_decay_incr_style", "constant" }, { "start_weight_decay", none }, { "end_weight_decay", none },
  { "lr_decay_style", "linear" }, { "lr_decay_iters", none }, { "lr_decay_samples", none }, { "lr_warmup_iters", none },
  { "lr_warmup_samples", none }, { "lr_warmup_fraction", none }, { "min_lr", 0 }, { "consumed_samples", none },
  { "no_wd_decay_cond", none }, { "scale_lr_cond", none }, { "lr_mult", 1.0 }, { "megatron_dataset_flag", false },
  { "seq_length", none }, { "encoder_seq_length", none }, { "decoder_seq_length", none }, { "tensorboard_dir", none },
  { "set_all_logging_options", false }, { "eval_iters", 100 }, { "eval_interval", 1000 }, { "return_logits", false },
  { "custom_train_step_class", none }, { "custom_train_step_kwargs", none }, { "custom_model_provider_function", none },
  { "custom_prepare_model_function", none }, { "custom_megatron_datasets_provider_function", none },
  { "custom_get_batch_function", none }, { "custom_loss_function", none }, { "other_megatron_args", none },
  { "DDP_impl", none }, { "megatron_lm_default_args", none }, { "global_batch_size", none }, { "micro_batch_size", none },
  { "data_parallel_size", none },
}

for _, f in ipairs(FIELDS) do
  if f[3] then f[3], f[4] = "MEGATRON_LM_" .. f[1]:upper(), f[3] end
end

--- Sizes of the mesh and the training options of Megatron-LM. context_parallel_size is 2 by default, as in Accelerate. Missing values
--- come from the environment (MEGATRON_LM_...), which a launch with megatron_lm_config sets. megatron_lm_default_args holds the same
--- under Megatron's names. pipeline_schedule is accel's own option: "1f1b", "gpipe", "interleaved" (with
--- num_layers_per_virtual_pipeline_stage), "zero_bubble". attention_dropout, hidden_dropout and recompute_granularity, recompute_method,
--- recompute_num_layers only count if given: otherwise a model keeps its own dropout and activations. The Accelerator reports options
--- without effect.
--- example: accel.accelerator.MegatronLMPlugin { tp_degree = 4 }.megatron_lm_default_args.tensor_model_parallel_size --> 4
---@class accel.accelerator.MegatronLMPlugin : accel.accelerator.Plugin
local Megatron = base.extend("MegatronLMPlugin", FIELDS)
M.MegatronLMPlugin = Megatron

--- Megatron's name of a field, if it differs.
local NAMES <const> = { tp_degree = "tensor_model_parallel_size", pp_degree = "pipeline_model_parallel_size",
  sequence_parallelism = "sequence_parallel", gradient_clipping = "clip_grad" }
--- Fields that are passed to Megatron.
local TOLD <const> = [[tp_degree pp_degree pipeline_model_parallel_split_rank num_layers_per_virtual_pipeline_stage DDP_impl
  use_distributed_optimizer sequence_parallelism gradient_clipping num_micro_batches consumed_samples no_wd_decay_cond
  scale_lr_cond lr_mult megatron_dataset_flag eval_iters eval_interval use_custom_fsdp no_load_optim eod_mask_loss no_save_optim
  optimizer_cpu_offload overlap_cpu_optimizer_d2h_h2d use_precision_aware_optimizer decoder_last_pipeline_num_layers
  recompute_granularity recompute_method recompute_num_layers attention_backend expert_model_parallel_size
  context_parallel_size attention_dropout hidden_dropout attention_softmax_in_fp32 expert_tensor_parallel_size
  calculate_per_token_loss use_rotary_position_embeddings]]

local FIELD_OF <const>, IS_FIELD <const> = {}, {}
for field, name in next, NAMES do FIELD_OF[name] = field end
for field in TOLD:gmatch "%S+" do IS_FIELD[field] = true end

---@param given? table fields by name
function Megatron:init(given, ...)
  base.Plugin.init(self, given, ...)
  for key, value in accel.pairs(self.other_megatron_args or {}) do -- Megatron's names of fields win over these
    local field = type(key) == "string" and (FIELD_OF[key] or IS_FIELD[key] and key)
    if field then self[field], self._asked[field] = value, value end
  end
  local asked = self._asked.context_parallel_size or environment.get "MEGATRON_LM_CONTEXT_PARALLEL_SIZE"
  self._context_parallel_size = asked and self.context_parallel_size or 1
  self.DDP_impl = self.use_distributed_optimizer and "local" or "torch"
  local told = {}
  for field in TOLD:gmatch "%S+" do told[NAMES[field] or field] = self[field] end
  told.tensorboard_dir = self.tensorboard_dir
  for key, value in next, self.other_megatron_args or {} do told[key] = value end
  self.megatron_lm_default_args = told
end

--- The names of Megatron-LM's arguments that are fields here.
---@return table<string, string>
function Megatron:told() -- luacheck: no self
  local all = {}
  for field in next, IS_FIELD do all[NAMES[field] or field], all[field] = field, field end
  return all
end

--- Tells the sizes of batches once a loader is prepared: global_batch_size rows of an update, of which a data rank has micro_batch_size *
--- num_micro_batches.
---@param loader accel.accelerator.DataLoader?
---@param ranks integer data ranks
function Megatron:count_batch(loader, ranks)
  local rows = loader and loader.total_batch_size
  if not rows then return end
  self.global_batch_size, self.data_parallel_size = rows, ranks
  local most = ranks * self.num_micro_batches
  self.micro_batch_size = rows % most == 0 and rows // most or nil
end

local DEGREES <const> = { "tp_degree", "pp_degree", "expert_model_parallel_size", "num_micro_batches" }

--- The plugin's mesh, as a ParallelismConfig. context_parallel_size only counts if given: its default of 2 would need twice the ranks
--- that a script starts.
---@param num_processes integer
---@return accel.accelerator.ParallelismConfig
function Megatron:parallelism(num_processes)
  local who, plugins = "MegatronLMPlugin", require "accel.accelerator.plugins.parallelism"
  for _, key in ipairs(DEGREES) do check.positive(who, key, self[key]) end
  check.word(who, "pipeline_schedule", self.pipeline_schedule, { "gpipe", "1f1b", "interleaved", "zero_bubble" })
  if self.pp_degree > 1 and self.pipeline_schedule == "interleaved" and self.num_layers_per_virtual_pipeline_stage == nil then
    raise("%s: pipeline_schedule 'interleaved' needs num_layers_per_virtual_pipeline_stage; give it, or use '1f1b'", who)
  end
  local cp = self._context_parallel_size
  local model = self.tp_degree * self.pp_degree * cp
  if num_processes % model ~= 0 then
    raise("%s: tp_degree %d, pp_degree %d and context_parallel_size %d are %d ranks, which do not divide the %d processes", who,
      self.tp_degree, self.pp_degree, cp, model, num_processes)
  end
  local data, ep = num_processes // model * cp, self.expert_model_parallel_size
  if data % ep ~= 0 then
    raise("%s: expert_model_parallel_size %d does not divide the %d ranks that read different data (%d processes over tp_degree and"
      .. " pp_degree)", who, ep, data, num_processes)
  end
  return plugins.ParallelismConfig {
    ep_size = ep,
    tp_size = self.tp_degree, pp_size = self.pp_degree, cp_size = cp, dp_shard_size = num_processes // model,
    tp_handler = plugins.TorchTensorParallelConfig { sequence_parallel = self.sequence_parallelism },
    pp_handler = plugins.PipelineParallelConfig {
      num_micro_batches = self.num_micro_batches, loss_fn = self.custom_loss_function, schedule = self.pipeline_schedule,
    },
  }
end

require "accel.util.absent".members(Megatron, "MegatronLMPlugin")

return M
