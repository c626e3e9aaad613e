--- Whether a checkpoint is computing its function again: accel.checkpoint says so here, layers with running statistics ask.
local M = { depth = 0 }

--- Whether what runs now is the second run of a checkpoint. Modules that count or average what they see leave that out
--- then, as BatchNorm does with its running statistics, since they saw the same in the forward.
--- example: local x, log = accel.ones(1, { requires_grad = true }), {} accel.checkpoint(function(t)
---   log[#log + 1] = accel.autograd.is_recomputing() return t:exp() end, x):backward() return log --> { false, true }
---@return boolean
function M.is_recomputing() return M.depth > 0 end

return M
