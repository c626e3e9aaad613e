--- cpu_ram_efficient_loading: rank 0 reads a model's weights, the other ranks have shapes alone (the meta device) and receive them
--- when the model is sharded. Set by an Accelerator with such a plugin, asked by models.from_pretrained.
local dist = require "accel.dist"

local M = {}

require "accel.nn.divided".loading = M

local on = false

--- Has models be read by rank 0 alone from now on, or not.
---@param value boolean
function M.set(value) on = value end

--- Has rank 0 alone read models, as an Accelerator with such a plugin does.
function M.enable_fsdp_ram_efficient_loading() on = true end

--- Has every rank read models.
function M.disable_fsdp_ram_efficient_loading() on = false end

--- Whether this rank leaves the reading to rank 0.
---@return boolean
function M.leaves() return on and dist.is_initialized() and dist.get_rank() > 0 end

return M
