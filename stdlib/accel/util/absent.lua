--- Names of PyTorch, Accelerate and Transformers that accel lacks, with their replacements: the only table of them. Asked by
--- the library's modules for entries that they lack (util/lazy.lua), by the Accelerator for options and methods, and by
--- accel-run for topics of help and for Accelerate's commands.
---
--- Reading a name of this table from a module raises (accel.init_empty_weights, accel.nn.DataParallel). Every other
--- name that a module lacks is nil, so that scripts can ask whether there is one.
local raise = require "accel.util.raise"

local M = {}

-- Rows: the missing feature, or false if there is only another way; the replacement; the names, as documentation spells
-- them. "accel-run#name" is a command, "Tensor#name" a method or field.
local ROWS <const> = {
  -- Accelerate: plugins and related names
  { "sharding of models by other means", "accel.Accelerator { fsdp_plugin = accel.FullyShardedDataParallelPlugin {} } and "
      .. "accel.nn.parallel.FullyShardedDataParallel shard models",
    [[FSDP FSDP2 FSDPModule fully_shard
      MixedPrecisionPolicy ShardingStrategy StateDictType ZeroRedundancyOptimizer save_fsdp_model load_fsdp_model
      save_fsdp_optimizer load_fsdp_optimizer ensure_weights_retied]] },
  { false, "accel-run merge-weights DIR OUT writes whole weights of a checkpoint", "merge_fsdp_weights" },
  { "sharding by DeepSpeed's options",
    "accel.Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 2 } } shards models",
    "map_pytorch_optim_to_deepspeed deepspeed_ulysses_dl_adapter" },
  { false, "accel.Accelerator { deepspeed_plugin = ... } does it; accelerator.state.deepspeed_plugin is the active one",
    "DeepSpeed DeepSpeedOptimizerWrapper DeepSpeedSchedulerWrapper get_active_deepspeed_plugin deepspeed_required" },
  { "Megatron-LM's own classes", "accel.Accelerator { megatron_lm_plugin = accel.MegatronLMPlugin { tp_degree = 2 } } splits models; "
      .. "models, optimizers and schedules are accel's",
    "MegatronEngine MegatronLMOptimizerWrapper MegatronLMSchedulerWrapper add_model_config_to_megatron_parser" },
  { false, "the method is model:generate(ids, { attention_mask = mask, max_new_tokens = 64 })", "Module#megatron_generate" },
  { "tensor parallelism by a separate plugin", "accel.Accelerator { parallelism_config = accel.ParallelismConfig { tp_size = 2 } } does it",
    "TorchTensorParallelPlugin torch_tp_plugin" },
  { false, 'a plan is data: accel.parallel.parallelize_module(model, mesh, { ["blocks.*.up"] = "colwise", ["blocks.*.down"] = "rowwise" })',
    "TensorParallel DTensor distribute_tensor ColwiseParallel RowwiseParallel SequenceParallel" },
  { false, "the scope is accelerator:maybe_context_parallel { buffers = {...}, buffer_seq_dims = {...} }", "ContextParallel context_parallel" },
  { false, "accel.compile(fn) fuses chains of elementwise operations; ops are native code already", "jit" },
  { false, "accel.compile(model) compiles it in place", "Module#compile" },
  { false, 'accel.Accelerator { mixed_precision = "fp8", kwargs_handlers = { accel.TERecipeKwargs {} } } converts models in prepare; '
      .. "accel.fp8.convert_model does it alone",
    [[convert_model apply_fp8_autowrap contextual_fp8_autocast has_transformer_engine_layers has_ao_layers
      convert_model_to_fp8_ao filter_first_and_last_linear_layers check_fp8_capability]] },
  { false, "accelerator:save_state(folder) and accelerator:load_state(folder) do it",
    "save_accelerator_state load_accelerator_state" },
  { false, "accelerator:save_model(model, folder) writes tied tensors once", "clean_state_dict_for_safetensors" },
  { false, "accelerator:load_state(folder) loads the state of a run, accel.accelerator.load_checkpoint_in_model weights",
    "load_checkpoint" },
  { "fused backward and step", "call accelerator:backward(loss), then optimizer:step()", "lomo_backward Lomo AdaLomo" },
  { false, 'trackers are named in log_with: log_with = "wandb", "mlflow", ...', "wandb trackio comet_ml aim mlflow clearml dvclive swanlab" },
  { false, "the class is accel.track.SummaryWriter", "SummaryWriter" },
  { false, "the method is accelerator:set_trigger()", "set_breakpoint" },
  { false, "the method is accelerator:check_trigger()", "check_breakpoint" },
  { false, 'accel.Accelerator { mixed_precision = "fp16" } makes the scaler, an accel.amp.GradScaler', "get_grad_scaler" },
  { false, "the method is accelerator:autocast()", "get_mixed_precision_context_manager" },
  { false, "accel.features() lists this build's features",
    [[is_torch_version compare_versions are_libraries_initialized check_os_kernel get_ccl_version get_gpu_info
      check_cuda_p2p_ib_support is_habana_gaudi1 is_peft_model is_namedtuple]] },
  { false, "accel.load(path) reads the tensors of a file", "load_state_dict" },
  { false, "accel.PartialState() knows the ranks: process_index, num_processes, local_process_index",
    "get_cpu_distributed_information" },
  { false, "tensors of any shapes are an error that names ranks and shapes", "DistributedOperationException" },
  { false, "a nested tensor is a table of tensors", "CannotPadNestedTensorWarning" },
  { false, "accel-run passes its environment on to every rank", "convert_dict_to_env_variables" },
  { false, "start ranks under numactl", "set_numa_affinity override_numa_affinity" },
  { false, "there are CPUs and CUDA GPUs: accel.features().devices counts them", "install_xla" },
  { false, 'accel.launch("module", args, { num_processes = 2 }) starts ranks from a script or a prompt',
    "PrepareForLaunch" },
  -- Accelerate: big models
  { false, "hooks are set by attach_align_device_hook and dispatch_model", "attach_align_device_hook_on_blocks" },
  { false, "accel.accelerator.find_tied_parameters(model) lists tied parameters", "check_tied_parameters_in_config" },
  { false, "accel.accelerator.OffloadedWeightsLoader reads an offload folder", "load_offloaded_weights" },
  { false, "module.weight.quant_state describes a layer's quantisation", "has_4bit_bnb_layers" },
  -- Accelerate: commands
  { false, "`accel-run --num-processes 4 train.lua` starts ranks", "accelerate torchrun" },
  { false, "`accel-run config default` writes a configuration", "write_basic_config" },
  { false, "accel-run picks ports by itself", "is_port_in_use get_free_port" },
  -- PyTorch
  { false, "accelerator:prepare(model) averages gradients over the ranks of `accel-run --num-processes 4 train.lua`",
    "DataParallel" },
  { false, "accelerator:prepare(loader) gives every rank its part of the data", "DistributedSampler" },
  { false, 'devices are strings, "cpu" or "cuda:0"; see accel.devices, accel.synchronize and accel.empty_cache',
    "cuda mps xpu" },
  { false, 'give the dtype: accel.tensor(list, { dtype = "i64" })',
    "FloatTensor LongTensor DoubleTensor HalfTensor IntTensor BoolTensor ByteTensor" },
  { false, "accel.tensor takes nested lists; accel.from_dlpack and accel.from_bytes take memory", "from_numpy" },
  { false, "accel.no_grad() does the same", "inference_mode" },
  { false, 'tensors and models go to a device by x:to "cuda:0"', "Tensor#cuda Tensor#mps Tensor#xpu Module#cuda Module#xpu" },
  { false, 'model:to "cpu" moves it', "Module#cpu" },
  { false, "t:tolist() makes tables, t:to_dlpack() gives memory to other libraries", "Tensor#numpy Tensor#storage" },
  { false, "t.dtype is its type, t:to(dtype) converts", "Module#type" },
  { false, "copies from the CPU need no call before them", "Tensor#pin_memory" },
  { false, "ranks of one machine share parameters by themselves", "Tensor#share_memory_ Module#share_memory" },
  { false, "modules made on the device \"meta\" get values by load_state_dict(state, { assign = true })", "Module#to_empty" },
  { false, "the module is accel.dist", "distributed" },
  { false, "accel.data.DataLoader { num_workers = 4 } reads in threads, accel.launch starts processes", "multiprocessing" },
  { false, "accel.mem_stats(device).peak_bytes is the peak since accel.reset_peak_memory(device), live_bytes the memory in use",
    "max_memory_allocated max_memory_reserved reset_peak_memory_stats memory_allocated memory_reserved memory_summary mem_get_info" },
  -- Transformers and its neighbours
  { false, "accel.models.from_pretrained(dir) takes the class from config.json",
    "AutoConfig" },
  { false, "accel.text.Tokenizer.from_pretrained(dir) reads tokenizers", "AutoTokenizer" },
  { false, "`accel-run help Accelerator` shows the loop", "Trainer TrainingArguments" },
  { false, "accel.data.load_dataset reads the folder of a data set, accel.data.Parquet and others read files", "accel.load_dataset" },
  { false, "accel.metrics.load and accel.metrics.glue have the metrics", "evaluate" },
}

local rows, folded = {}, {}
for _, row in ipairs(table.move(require "accel.util.absent_accelerate", 1, 500, #ROWS + 1, ROWS)) do
  for name in row[3]:gmatch "%S+" do
    name = name:gsub("^accel%-run#", "accel-run "):gsub("#", ":")
    rows[name], folded[name:lower()] = row, name
  end
end

-- PyTorch's own names, by namespace: a name may be free in one module and stay out of another.
local BEFORE <const> = { torch = "accel.", Tensor = "Tensor:", F = "accel.nn.functional.", nn = "accel.nn.", linalg = "accel.linalg.",
  fft = "accel.fft.", func = "accel.func.", vision = "accel.vision.", io = "accel.vision.io.", transforms = "accel.vision.transforms.",
  sounds = "accel.audio.transforms." }
for _, row in ipairs(require "accel.util.absent_torch") do
  for space in row[1]:gmatch "%S+" do
    for name in row[3]:gmatch "%S+" do rows[BEFORE[space] .. name] = { false, row[2] } end
  end
end

-- The row of a name of PyTorch without its namespace, and its full name.
local function torch_row(name)
  for _, space in ipairs { "torch", "Tensor", "F", "nn", "linalg", "fft", "func", "vision", "io", "transforms", "sounds" } do
    local row = rows[BEFORE[space] .. name]
    if row then return row, BEFORE[space] .. name end
  end
end

local function text_of(name, row)
  if row[1] then return ("%s is not in accel yet (%s); %s"):format(name, row[1], row[2]) end
  return ("%s is not in accel; %s"):format(name, row[2])
end

--- The text for a name. nil for one that is not in the table.
---@param name string in any case, optionally with its prefix: "accelerate.utils.FSDP", "Accelerator:save_state"
---@return string?
function M.explain(name)
  local given = name
  local known = rows[name] and name or folded[name:lower()]
  if not known then
    name = (name:match "([%w_]+)$" or ""):lower()
    known = folded[name] or folded["accel-run " .. name]
  end
  if known then return text_of(known, rows[known]) end
  local row, full = torch_row(given:match "([%w_]+)$" or "")
  return row and text_of(full, row) or nil
end

--- Raises when a name of the table is read from a module, or the Accelerator.
---@param before string the prefix of the name: "accel.nn.", "Accelerator:"
---@param name any
function M.refuse(before, name)
  local row = type(name) == "string" and rows[before .. name] or rows[name] -- the class's own row first
  if row then raise("%s", text_of(before .. name, row)) end
end

--- Gives a class the methods of the table that it lacks, "Class:name": a call of one raises and names what to use.
---@param cls table
---@param name string of the class, as in the table
function M.members(cls, name)
  for full, row in next, rows do
    local member = full:match("^" .. name .. ":(.*)$")
    if member then
      cls[member] = function(...) raise("%s", text_of(full, row)) end -- luacheck: no unused
    end
  end
end

--- What to use in the place of a flag of Accelerate's commands, "--ipex"; nil: not in the table.
---@param flag string
---@return string?
function M.flag(flag)
  local row = rows[(flag:gsub("%-", "_"):gsub("^__", "--"))]
  return row and row[2]
end

--- Raises where a function is given an option of the table, "function:option".
---@param who string
---@param option any
function M.refuse_option(who, option)
  local full = who .. ":" .. tostring(option)
  if rows[full] then raise("%s: option '%s' is not in accel; %s", who, tostring(option), rows[full][2]) end
end

--- The feature that a name belongs to, or false if there is another way, and the replacement. nil: not in the table.
---@param name string
---@return string|false|nil feature
---@return string? use
function M.feature(name)
  local row = rows[name]
  if row then return row[1], row[2] end
end

--- The replacement of a method or field.
---@param owner string "Tensor" or "Module"
---@param name string
---@return string?
function M.instead_of(owner, name)
  local row = rows[owner .. ":" .. name]
  return row and row[2]
end

--- Why a name of PyTorch is refused: what to use in its place. nil: it is not in the table.
---@param space string the namespace: "torch", "Tensor", "F", "nn", "linalg" or "fft"
---@param name string
---@return string?
function M.reason(space, name)
  local row = rows[BEFORE[space] .. name] or space ~= "Tensor" and rows[name]
  return row and row[2]
end

--- The names, sorted.
---@return string[]
function M.names()
  local list = {}
  for name in next, rows do list[#list + 1] = name end
  table.sort(list)
  return list
end

return M
