--- Functions of accelerate.utils and accelerate.data_loader for scripts without an Accelerator, which has methods of the
--- same names.
local GradientState = require "accel.accelerator.gradient_state"
local accel = require "accel"
local check = require "accel.util.check"
local configuration = require "accel.accelerator.configuration"
local dist = require "accel.dist"
local forward_precision = require "accel.amp.forward_precision"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local random = require "accel.accelerator.random"
local state = require "accel.accelerator.state"

local M = {}

--- Returns when every process has called it.
--- example: accel.accelerator.wait_for_everyone() -->
function M.wait_for_everyone() state.PartialState():wait_for_everyone() end

local function unwrap(who, model, keep_fp32_wrapper, declared)
  declared.keep_fp32_wrapper, declared.keep_torch_compile = true, true
  if type(keep_fp32_wrapper) == "boolean" then keep_fp32_wrapper = { keep_fp32_wrapper = keep_fp32_wrapper } end
  local o = options(who, keep_fp32_wrapper, declared)
  local Module = require "accel.nn.module"
  if not Module.is_module(model) then raise("%s: %s", who, Module.not_a_module(model)) end
  if rawget(model, "reducer") then model = model.module end
  local compile = package.loaded["accel.compile"] -- around the precision
  local kept, again
  if compile and (not o.keep_torch_compile or not o.keep_fp32_wrapper) then kept, again = compile.undo(model) end
  if not o.keep_fp32_wrapper then forward_precision.unwrap(model) end
  if kept and o.keep_torch_compile then again(model, { backend = kept.backend, mode = kept.mode, disable = kept.disable }) end
  if o.recursive then
    for _, child, kind, field in model:_fields() do
      if kind == "module" then model[field] = unwrap(who, child, o, { recursive = false }) end
    end
  end
  return model
end

M._unwrap = unwrap -- accelerator:unwrap_model

--- The model without the wrapper that accelerator:prepare or DistributedDataParallel put around it. keep_fp32_wrapper =
--- false also takes off the mixed precision.
--- example: local net = accel.nn.Linear(1, 1)
---   return accel.accelerator.extract_model_from_parallel(accel.nn.parallel.DistributedDataParallel(net)) == net --> true
---@param model accel.nn.Module
---@param keep_fp32_wrapper? boolean|{keep_fp32_wrapper: boolean?, keep_torch_compile: boolean?, recursive: boolean?}
---  true. recursive: replace wrapped modules inside the model as well
---@return accel.nn.Module
function M.extract_model_from_parallel(model, keep_fp32_wrapper, ...)
  check.surplus("extract_model_from_parallel", ...)
  return unwrap("extract_model_from_parallel", model, keep_fp32_wrapper, { recursive = false })
end

local declared = {
  device = options.none, num_processes = options.none, process_index = options.none, split_batches = false,
  put_on_device = false, rng_types = options.none, dispatch_batches = options.none, even_batches = true,
  slice_fn_for_dispatch = options.none, use_seedable_sampler = false, data_seed = options.none, non_blocking = false,
  use_stateful_dataloader = false,
}

--- A loader that gives every process its part of the data, as accelerator:prepare(loader) does.
--- example: local set = accel.data.TensorDataset(accel.arange(6))
---   local loader = accel.accelerator.prepare_data_loader(accel.data.DataLoader(set, { batch_size = 2 }), {
---     num_processes = 3, process_index = 1 }) for batch in loader() do return batch[1], #loader end --> { 2, 3 }, 1
---@param dataloader accel.data.DataLoader
---@param device? string the device of batches with put_on_device
---@param opts? table
---  device string: the device of batches with put_on_device (default: the process's)
---  num_processes integer: how many share the data (default: all of this run)
---  process_index integer: which of them this one is
---  split_batches boolean = false: the loader's batch size is the global batch size
---  put_on_device boolean = false: batches are moved to the device
---  rng_types string[]: generators that all processes share
---  dispatch_batches boolean: process 0 reads and sends (default: if the data set is a stream and put_on_device is set)
---  even_batches boolean = true: processes get equally many batches
---  slice_fn_for_dispatch function: cuts a batch for dispatch_batches
---  use_seedable_sampler boolean = false: without effect, because the order is a function of (seed, epoch) in any case
---  data_seed integer: seed of the order
---  non_blocking boolean = false: one batch is read ahead and copied to the device while the step on the one before it runs
---  use_stateful_dataloader boolean = false: without effect, because every loader has state_dict
---@return accel.accelerator.DataLoader
function M.prepare_data_loader(dataloader, device, opts, ...)
  check.surplus("prepare_data_loader", ...)
  local who = "prepare_data_loader"
  if type(device) == "table" and opts == nil then device, opts = nil, device end
  local o = options(who, opts, declared)
  require "accel.util.no_effect"("accel.accelerator.prepare_data_loader", o)
  local process = state.PartialState()
  local ranks = check.positive(who, "num_processes", o.num_processes or process.num_processes)
  local rank = check.count(who, "process_index", o.process_index or process.process_index)
  if rank >= ranks then raise("%s: process_index is %d, there are %d processes, from 0", who, rank, ranks) end
  if o.dispatch_batches and ranks ~= dist.get_world_size() then
    raise("%s: dispatch_batches sends batches to the %d processes of this run, not to %d", who, dist.get_world_size(), ranks)
  end
  return require("accel.accelerator.loader").prepare(dataloader, {
    device = o.put_on_device and (device or o.device or process.device) or nil, slice_fn = o.slice_fn_for_dispatch,
    accelerator = {
      gradient_state = GradientState.current() or GradientState(configuration.GradientAccumulationPlugin(1)),
      num_processes = ranks, process_index = rank,
      rng_types = o.rng_types and random.check_types(who, o.rng_types),
      dataloader_config = configuration.DataLoaderConfiguration {
        split_batches = o.split_batches, dispatch_batches = o.dispatch_batches, even_batches = o.even_batches,
        data_seed = o.data_seed, non_blocking = o.non_blocking,
      },
    },
  })
end

--- Writes tensors by name to a safetensors file, or any data in PyTorch's format, on the main process, or on the first one of every
--- machine.
---@param tensors table<string, accel.Tensor>|any
---@param path string
---@param opts? {save_on_each_node: boolean?, safe_serialization: boolean?} safe_serialization: false writes PyTorch's format and true
---  safetensors. Without it a name with .bin, .pt, .pth, .ckpt or .pkl means PyTorch's format
function M.save(tensors, path, opts, ...)
  check.surplus("save", ...)
  local o = options("save", opts, { save_on_each_node = false, safe_serialization = options.none })
  local process = state.PartialState()
  local mine = process.is_main_process
  if o.save_on_each_node then mine = process.is_local_main_process end
  if not mine then return end
  local format
  if o.safe_serialization ~= nil then format = { format = o.safe_serialization and "safetensors" or "torch" } end
  local done, message = accel.save(path, tensors, format)
  if not done then raise("save: %s", message) end
end

--- accel.load: tensors by name.
M.load = accel.load

--- accel.is_tensor.
M.is_torch_tensor = accel.is_tensor

--- A field by its path: recursive_getattr(model, "transformer.wte.weight"). Modules use the keys of their state dict ("h.0").
--- example: accel.accelerator.recursive_getattr({ a = { b = 3 } }, "a.b") --> 3
---@param object any
---@param path string
---@return any
function M.recursive_getattr(object, path)
  for key in path:gmatch "[^.]+" do
    if type(object) ~= "table" and type(object) ~= "userdata" then
      raise("recursive_getattr: %s has no field '%s', of '%s'", check.shown(object), key, path)
    end
    local child
    if accel.nn.Module.is_module(object) then -- keys are the state dict's, in which children of a list count from 0
      for name, value in object:_fields() do
        if tostring(name) == key then child = value end
      end
    end
    if child == nil then child = object[key] end
    if child == nil and math.tointeger(tonumber(key)) then child = object[math.tointeger(tonumber(key))] end
    object = child
  end
  return object
end

return M
