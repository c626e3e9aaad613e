--- The table of options that have no effect, with the reasons: read by no_effect.lua once such an option is given. The sweep of options
--- (tests/support/option_sweep.lua) demands that each warns. Every other accepted option does something or raises.

--- Owner, a full name of the reference pages -> option -> why it has no effect.
---@type table<string, table<string, string>>
local reasons = {}

local function each(prefix, names, why)
  for name in names:gmatch "%S+" do reasons[prefix .. name] = why end
end

each("accel.nn.", "AlphaDropout CELU Dropout Dropout1d Dropout2d Dropout3d ELU FeatureAlphaDropout Hardshrink Hardtanh LeakyReLU ReLU6 "
  .. "Softplus Softshrink Threshold", { inplace = "the result gets separate memory, and the input is not changed" })
each("accel.optim.", "AdEMAMix32bit Adagrad32bit Adam32bit AdamW32bit Lion32bit RMSprop32bit SGD32bit PagedAdEMAMix PagedAdEMAMix32bit "
  .. "PagedAdam PagedAdam32bit PagedAdamW PagedAdamW32bit PagedLion PagedLion32bit",
  { min_8bit_size = "every state has 32 bits" })
each("accel.autograd.", "gradcheck gradgradcheck", { check_grad_dtypes = "backward gives every gradient the dtype of its tensor" })
reasons["accel.data.DataLoader"] = { pin_memory = "copies from the memory of the CPU need no pinned pages before them" }
local decoder = "only T5Dataset has a decoder"
reasons["accel.data.BERTDataset"] = { bos = decoder, eos = decoder, sentinels = decoder }
reasons["accel.data.T5Dataset"] = { mask = "gaps are marked by sentinels", vocab_size = "no token is drawn at random" }
local metric = "the rate follows a metric, not the number of steps"
each("accel.optim.lr_scheduler.get_scheduler.", "reduce_lr_on_plateau greedy", { num_warmup_steps = metric, num_training_steps = metric })
each("accel.optim.lr_scheduler.get_scheduler.", "constant", {
  num_warmup_steps = "the rate is constant from the first step (constant_with_warmup has a warm-up)",
  num_training_steps = "the rate has no end",
})
each("accel.optim.lr_scheduler.get_scheduler.", "constant_with_warmup inverse_sqrt", { num_training_steps = "the rate has no end" })

local LOADED_LATE <const> = "weights come when they are used, whoever uses them"
local ONE_BY_ONE <const> = "tensors go to their place one by one, and nothing is collected before"
local ORDER <const> = "the order is a function of (seed, epoch) in any case"
local STATES <const> = "every loader has state_dict and load_state_dict"

each("accel.accelerator.", "DataLoaderConfiguration prepare_data_loader", { use_seedable_sampler = ORDER, use_stateful_dataloader = STATES })
each("accel.accelerator.", "GradientAccumulationPlugin", { adjust_scheduler = "schedules advance by applied updates" })
each("accel.accelerator.", "set_seed", { deterministic = "the same seed and number of ranks give the same bits in any case" })
each("accel.accelerator.", "is_bf16_available", { ignore_tpu = "accel has no TPU backend" })
each("accel.accelerator.", "cpu_offload disk_offload attach_align_device_hook", { preload_module_classes = LOADED_LATE,
  tied_params_map = "tied weights are one tensor, which is on a device once" })
each("accel.accelerator.", "AlignDevicesHook", { tied_params_map = "tied weights are one tensor, which is on a device once" })
each("accel.accelerator.", "dispatch_model load_checkpoint_and_dispatch load_checkpoint_in_model", { preload_module_classes = LOADED_LATE,
  offload_state_dict = ONE_BY_ONE, full_state_dict = "files hold whole tensors" })
each("accel.accelerator.", "attach_layerwise_casting_hooks LayerwiseCastingHook send_to_device",
  { non_blocking = "the order of work on a device is kept in any case" })
each("accel.accelerator.", "notebook_launcher", { use_port = "ranks of one machine need no port", log_line_prefix_template = "lines of ranks"
  .. " begin with [rank N]", master_addr = "ranks are on this machine", rdzv_backend = "ranks of one machine need no rendezvous",
  rdzv_endpoint = "ranks of one machine need no rendezvous", rdzv_conf = "ranks of one machine need no rendezvous",
  rdzv_id = "ranks of one machine need no rendezvous" })
each("accel.", "accelerator.GatheredParameters deepspeed.GatheredParameters", {
  fwd_module = "the engine knows which modules use a parameter" })
each("accel.accelerator.", "prepare_pippy", { example_args = "nothing is traced", example_kwargs = "nothing is traced" })
each("accel.accelerator.", "Accelerator:load_state", { map_location = "tensors go to the model's devices" })
each("accel.accelerator.", "Accelerator:prepare_optimizer", {
  device_placement = "the state is where the parameters are" })
each("accel.quant.", "load_and_quantize_model", { offload_state_dict = ONE_BY_ONE })
each("accel.accelerator.", "load_and_quantize_model", { offload_state_dict = ONE_BY_ONE })
each("accel.track.", "SummaryWriter", { max_queue = "logged values are written twice a second",
  flush_secs = "logged values are written twice a second" })

each("accel.nn.parallel.", "DistributedDataParallel", { device_ids = "a process has one device",
  output_device = "results stay on the device of the module", dim = "batches are divided by rows",
  check_reduction = "ranks compare every collective in any case" })
local IMPORT <const> = "only the importer uses it; give it to the command that the end of the run prints"
each("accel.track.", "AimTracker", { experiment = IMPORT, run_hash = IMPORT, system_tracking_interval = IMPORT, log_system_params = IMPORT,
  capture_terminal_logs = IMPORT })
each("accel.track.", "SwanLabTracker", { experiment_name = IMPORT, description = IMPORT, config = IMPORT, logdir = IMPORT, mode = IMPORT,
  workspace = IMPORT, tags = IMPORT, group = IMPORT })
each("accel.track.", "WandBTracker", { save_code = "`wandb sync` sends the content of the run's folder, and accel puts no sources there",
  reinit = "a tracker is a separate run" })
each("accel.track.", "DVCLiveTracker", { live = "accel writes DVCLive's files itself",
  save_dvc_exp = "`dvc exp save` belongs to dvc", report = "`dvc plots show` makes reports" })

return reasons
