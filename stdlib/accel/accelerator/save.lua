--- Methods of Accelerator that write files for others: save, save_model.
local check = require "accel.util.check"
local model_files = require "accel.ckpt.model_files"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local unwritten = require "accel.util.unwritten"

local M = {}

--- Writes tensors by name to a safetensors file, or any data in PyTorch's format, on the main process (on the first process of every
--- machine with project_config.save_on_each_node). All processes may call it. A file that cannot be written is an error there, which
--- other processes meet at their next step or collective.
---@param tensors table<string, accel.Tensor>|any
---@param path string
---@param opts? {safe_serialization: boolean?} false writes PyTorch's format and true safetensors. Without it a name with .bin, .pt, .pth,
---  .ckpt or .pkl means PyTorch's format
function M.save(self, tensors, path, opts, ...)
  check.surplus("save", ...)
  local o = options("save", opts, { safe_serialization = options.none })
  require("accel.accelerator.standalone").save(tensors, path, {
    save_on_each_node = self.project_configuration.save_on_each_node, safe_serialization = o.safe_serialization,
  })
end

--- Writes the weights of a model to a folder with Hugging Face's names: model.safetensors or, above max_shard_size,
--- model-00001-of-0000N.safetensors with model.safetensors.index.json. Tensors have their names from before prepare, and tied
--- weights are written once. Weights of an earlier save stay until all new files are on disk. Only the main process writes, or
--- the first process of every machine with project_config.save_on_each_node. All processes can call it.
---@param model accel.nn.Module
---@param save_directory string created if it is missing
---@param max_shard_size? integer|string|{max_shard_size: integer|string?, safe_serialization: boolean?, adapter_only: boolean?}
---  largest file in bytes or as a size such as "5GB" (10^9 bytes), "10GB" by default. It may be a table with this option and others.
---  With adapter_only the active adapter alone is written, as a folder for PEFT. safe_serialization = false writes PyTorch's
---  files, pytorch_model.bin.
function M.save_model(self, model, save_directory, max_shard_size, ...)
  check.surplus("save_model", ...)
  local who, given = "save_model", max_shard_size
  if type(given) ~= "table" then given = { max_shard_size = given } end
  local o = options(who, given, { max_shard_size = options.none, safe_serialization = true, adapter_only = false })
  local limit = model_files.parse_size(o.max_shard_size == nil and "10GB" or o.max_shard_size)
  if type(save_directory) ~= "string" or save_directory == "" then
    raise("%s: save_directory must be the path of a folder, got %s", who, check.shown(save_directory))
  end
  local state = self:get_state_dict(model, o.adapter_only and { adapter_only = true } or nil)
  for name, t in pairs(state) do
    if t.device == "meta" and not unwritten.note then
      raise("%s: '%s' is on the meta device, so it has no values to save; load the model's weights first", who, name)
    end
  end
  local mine = self.is_main_process
  if self.project_configuration.save_on_each_node then mine = self.is_local_main_process end
  if not mine then return end
  if o.adapter_only then
    local inner = self:unwrap_model(model)
    local made, why = require "accel.peft.files".write(save_directory, inner.peft_config[inner.active_adapter], state, o.safe_serialization)
    if not made then raise("%s: %s", who, why) end
    return
  end
  local files, message = model_files.save(save_directory, state, { max_shard_size = limit, safe_serialization = o.safe_serialization })
  if not files then raise("%s: %s", who, message) end
end

return M
