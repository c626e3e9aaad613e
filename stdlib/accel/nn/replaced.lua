--- Parameters that a module converts, moves or replaces keep their optimizers: these step on the new tensors, and their states follow.
--- Called by nn.Module, which does not know optimizers.
local M = {}

local live = setmetatable({}, { __mode = "k" })

--- Every optimizer is notified of tensors that modules replace.
---@param optimizer accel.optim.Optimizer
function M.register(optimizer) live[optimizer] = true end

local function holds(optimizer, new_of)
  for _, group in ipairs(optimizer.param_groups) do
    for _, p in ipairs(group.params) do
      if new_of[p] then return true end
    end
  end
  return false
end

--- Optimizers go over to new tensors.
---@param new_of table<accel.Tensor, accel.Tensor> old tensor -> new tensor, which is the same if only its bytes are new
function M.replace(new_of)
  for optimizer in next, live do
    if holds(optimizer, new_of) then
      local before = optimizer:state_dict()
      for _, group in ipairs(optimizer.param_groups) do
        for i, p in ipairs(group.params) do group.params[i] = new_of[p] or p end
        -- numbers on the device are recreated on the parameters' present device
        optimizer._private[group] = { step_groups = {}, pending = table.move(group.params, 1, #group.params, 1, {}) }
      end
      optimizer.state = {}
      if next(before.state) ~= nil then optimizer:load_state_dict(before) end
    end
  end
end

return M
