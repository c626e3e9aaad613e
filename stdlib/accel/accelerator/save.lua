--- Method of Accelerator: save.
local options = require "accel.util.options"

local M = {}

--- Writes tensors by name to a safetensors file, on the main process (on the first process of every machine with
--- project_config.save_on_each_node). All processes may call it. A file that cannot be written is an error there, which
--- other processes meet at their next step or collective.
---@param tensors table<string, accel.Tensor>
---@param path string
---@param opts? {safe_serialization: boolean?} files are always safetensors
function M.save(self, tensors, path, opts)
  local o = options("save", opts, { safe_serialization = true })
  require("accel.accelerator.standalone").save(tensors, path, {
    save_on_each_node = self.project_configuration.save_on_each_node, safe_serialization = o.safe_serialization,
  })
end

return M
