--- The "auto" values of a DeepSpeed configuration, from the arguments of accelerator:prepare: batch sizes of the loaders, the
--- hidden size of the model, rates of dummies. Used by prepare.lua.
local configuration = require "accel.models.config"
local raise = require "accel.util.raise"

local M = {}

local HIDDEN_KEYS <const> = {
  "zero_optimization.reduce_bucket_size", "zero_optimization.stage3_prefetch_bucket_size",
  "zero_optimization.stage3_param_persistence_threshold",
}

--- Rows of a micro-batch of one rank: the smallest (or the largest) of the loaders'. nil without loaders.
local function micro_batch(accelerator, plugin, loaders)
  local best
  for _, loader in ipairs(loaders) do
    local size = loader.batch_size
    if math.type(size) ~= "integer" then
      raise("prepare: a loader has no batch_size, which train_micro_batch_size_per_gpu = \"auto\" of the DeepSpeed configuration is"
        .. " to be; give an integer there")
    end
    if accelerator.split_batches then size = size // accelerator.num_processes end
    if best == nil then best = size
    else best = plugin.is_train_batch_min and math.min(best, size) or math.max(best, size) end
  end
  return best
end

--- A list of numbers, or a number.
local function largest(value) return type(value) == "table" and math.max(table.unpack(value)) or value end

--- The hidden size of a model by its config, under the names that models have for it.
local function hidden_size(model, keys)
  local config = model.config
  local reason = ("so that %s of the DeepSpeed configuration cannot be \"auto\"; give integers"):format(table.concat(keys, ", "))
  if type(config) ~= "table" then raise("prepare: the model has no config, %s", reason) end
  for _, name in ipairs { "hidden_size", "hidden_sizes", "n_embd", "d_model" } do
    local size = configuration.get(config, name)
    if size ~= nil then return largest(size) end
  end
  raise("prepare: the model's config has neither hidden_size nor hidden_sizes, %s", reason)
end

--- Sizes of buckets and thresholds by the hidden size, if they are "auto".
local function by_hidden_size(plugin, model, values)
  local keys = {}
  for _, key in ipairs(HIDDEN_KEYS) do
    if plugin:is_auto(key) then keys[#keys + 1] = key end
  end
  if #keys == 0 then return end
  local h = hidden_size(model, keys)
  values[HIDDEN_KEYS[1]] = h * h
  values[HIDDEN_KEYS[2]] = math.tointeger(0.9 * h * h // 1)
  values[HIDDEN_KEYS[3]] = 10 * h
end

--- A dummy's settings have no effect unless the configuration takes them over.
local function look(accelerator, dummy, who, name, why)
  if dummy._set[name] then accelerator:_warn(("%s: %s has no effect: %s"):format(who, name, why)) end
end

local function of_dummy(accelerator, plugin, dummy, who, name, path, value)
  local own = plugin:get_value(path)
  if own == "auto" or own == value then return value end
  look(accelerator, dummy, who, name, ("the DeepSpeed configuration has %s = %s; set it to \"auto\" there, or leave %s out"):format(path,
    own == nil and "nothing" or tostring(own), name))
  return value
end

--- The dummies' values.
local function by_dummies(accelerator, plugin, optimizer, scheduler, values)
  for _, name in ipairs(optimizer and { "lr", "weight_decay" } or {}) do
    local path = "optimizer.params." .. name
    values[path] = of_dummy(accelerator, plugin, optimizer, "DummyOptim", name, path, optimizer[name])
  end
  if not scheduler then return end
  local who = "DummyScheduler"
  if scheduler.lr_scheduler_callable then
    for _, name in ipairs { "total_num_steps", "warmup_num_steps" } do
      look(accelerator, scheduler, who, name, "lr_scheduler_callable makes the schedule; leave it out")
    end
    return
  end
  local of, path = scheduler.optimizer, "scheduler.params."
  values[path .. "warmup_min_lr"] = 0
  values[path .. "warmup_max_lr"] = of.options and of.options.lr or of.lr
  values[path .. "warmup_num_steps"] = of_dummy(accelerator, plugin, scheduler, who, "warmup_num_steps", path .. "warmup_num_steps",
    math.max(1, scheduler.warmup_num_steps))
  local total = scheduler.total_num_steps
  if not total then return end
  if not accelerator.split_batches then total = -(-total // accelerator.num_processes) end
  values[path .. "total_num_steps"] = of_dummy(accelerator, plugin, scheduler, who, "total_num_steps", path .. "total_num_steps",
    math.tointeger(total) or total)
end

--- Completes the batch sizes of the configuration: micro-batch, and the update over all ranks.
local function batches(accelerator, plugin, given, values)
  local world, steps = accelerator.num_processes, plugin:get_value "gradient_accumulation_steps"
  local micro, train = plugin:get_value "train_micro_batch_size_per_gpu", plugin:get_value "train_batch_size"
  local own = math.type(micro) == "integer"
  if own and given and given ~= micro then
    accelerator:_warn(("the DeepSpeed configuration sets train_micro_batch_size_per_gpu = %d, the loaders make batches of %d; \z
      the configuration wins"):format(micro, given))
  end
  if micro == "auto" or micro == nil then micro = given end
  if micro == nil and math.type(train) == "integer" then micro = train // (steps * world) end
  values["train_micro_batch_size_per_gpu"] = micro
  values["train_batch_size"] = micro and micro * steps * world
  if micro and math.type(train) == "integer" and train ~= micro * steps * world then
    raise("the DeepSpeed configuration: train_batch_size is not train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks: "
      .. "%d != %d * %d * %d; set one of them to \"auto\"", train, micro, steps, world)
  end
end

--- Micro-steps of an update: the configuration's number counts.
local function accumulation(accelerator, plugin)
  plugin:fill_match("gradient_accumulation_steps", { gradient_accumulation_steps = accelerator.gradient_accumulation_steps })
  local steps = plugin:get_value "gradient_accumulation_steps"
  if steps ~= nil and steps ~= accelerator.gradient_accumulation_steps then
    accelerator:_warn(("gradient_accumulation_steps is %d, the DeepSpeed configuration sets %d; the configuration wins"):format(
      accelerator.gradient_accumulation_steps, steps))
    accelerator.gradient_accumulation_steps = steps
  end
end

--- Fills the configuration of a plugin for a model. Batch sizes may stay "auto" without a loader: nothing here depends on them.
---@param accelerator accel.Accelerator
---@param plugin accel.accelerator.DeepSpeedPlugin
---@param o {model: accel.nn.Module, loaders: table[], optimizer: accel.deepspeed.DummyOptim?,
--- scheduler: accel.deepspeed.DummyScheduler?}
function M.fill(accelerator, plugin, o)
  accumulation(accelerator, plugin)
  local values = {
    gradient_clipping = 1.0, ["zero_optimization.stage3_gather_16bit_weights_on_model_save"] = false,
  }
  batches(accelerator, plugin, micro_batch(accelerator, plugin, o.loaders), values)
  by_hidden_size(plugin, o.model, values)
  by_dummies(accelerator, plugin, o.optimizer, o.scheduler, values)
  local optional = { train_micro_batch_size_per_gpu = true, train_batch_size = true }
  plugin.hf_ds_config:process(values, false, optional)
  local clip = plugin:get_value "gradient_clipping"
  if type(clip) == "number" then plugin.gradient_clipping = clip end
end

return M
