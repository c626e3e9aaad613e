--- Methods of Accelerator that Accelerate has and this build does not: each says so. And saving weights, which needs no
--- more than what is here.
local accel = require "accel"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

local absent = {
  save_state = "checkpoint folders", load_state = "checkpoint folders", save_model = "checkpoint folders",
  register_for_checkpointing = "checkpoint folders", register_save_state_pre_hook = "checkpoint folders",
  register_load_state_pre_hook = "checkpoint folders", profile = "the profiler",
  maybe_context_parallel = "context parallelism", lomo_backward = "fused backward and step",
  get_deepspeed_plugin = "DeepSpeed's options", select_deepspeed_plugin = "DeepSpeed's options",
}

for name, what in next, absent do
  M[name] = function() raise("Accelerator:%s: %s: not in this build", name, what) end
end

--- Writes tensors by name to a safetensors file, on the main process (on the first process of every machine with
--- project_config.save_on_each_node). All processes may call it. A file that cannot be written is an error there, which
--- other processes meet at their next step or collective.
---@param tensors table<string, accel.Tensor>
---@param path string
---@param opts? {safe_serialization: boolean?} files are always safetensors
function M.save(self, tensors, path, opts)
  options("save", opts, { safe_serialization = true })
  local mine = self.is_main_process
  if self.project_configuration.save_on_each_node then mine = self.is_local_main_process end
  if not mine then return end
  local done, message = accel.save(path, tensors)
  if not done then raise("save: %s", message) end
end

return M
