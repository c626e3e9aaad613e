--- Whether a checkpoint is recomputing its function. accel.checkpoint sets it here, and layers with running statistics read
--- it.
local M = { depth = 0 }

--- Options of checkpoint and checkpoint_sequential, with their defaults.
M.options = { preserve_rng_state = true, determinism_check = "default", early_stop = true, use_reentrant = false, offload = "none" }

--- Whether the current run is a checkpoint's recomputation. Modules that count or average their inputs skip that then,
--- as BatchNorm does with its running statistics, since the forward has already counted them.
--- example: local x, log = accel.ones(1, { requires_grad = true }), {} accel.checkpoint(function(t)
---   log[#log + 1] = accel.autograd.is_recomputing() return t:exp() end, x):backward() return log --> { false, true }
---@return boolean
function M.is_recomputing() return M.depth > 0 end

return M
