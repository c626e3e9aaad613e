--- Selective recompute (Korthikanti et al. 2022): attention keeps only its inputs and is computed again in backward. All other modules keep
--- their tensors for backward. Used by gradient_checkpointing_enable { granularity = "selective" } and by MegatronLMPlugin.
local accel = require "accel"

local M = {}

--- The field of an attention that holds its dropout probability. nil for other modules.
---@param module accel.nn.Module
---@return string?
function M.dropout_field(module)
  if math.type(module.attn_pdrop) then return "attn_pdrop" end
  return math.type(module.dropout) and (module.heads or module.num_heads) and "dropout" or nil
end

--- Makes a model's attention a checkpoint. Returns false if the model has no known attention.
---@param model accel.nn.Module
---@param o? table options of accel.checkpoint
---@return boolean
function M.set(model, o)
  M.clear(model)
  local found = false
  for _, module in ipairs(model:modules()) do
    if M.dropout_field(module) then
      found = true
      local own, forward = rawget(module, "forward"), module.forward
      rawset(module, "recomputed", { forward = own })
      rawset(module, "forward", function(self, ...)
        if not self.training or not accel.is_grad_enabled() then return forward(self, ...) end
        if not o then return accel.checkpoint(forward, self, ...) end
        local args = table.pack(self, ...)
        args[args.n + 1] = o
        return accel.checkpoint(forward, table.unpack(args, 1, args.n + 1))
      end)
    end
  end
  return found
end

--- Attention keeps its tensors for backward, as before.
---@param model accel.nn.Module
function M.clear(model)
  for _, module in ipairs(model:modules()) do
    local was = rawget(module, "recomputed")
    if was then
      rawset(module, "forward", was.forward)
      rawset(module, "recomputed", nil)
    end
  end
end

return M
