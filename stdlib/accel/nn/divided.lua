--- Modules that divide models and their inputs over ranks: such a module registers itself in a field here when it is loaded, and layers
--- that must not require it read the field. A field is false as long as nothing is divided in that way.
---@class accel.nn.Divided
---@field owners table|false accel.shard.owners: engines that hold parameters (FullyShardedDataParallel, ZeRO)
---@field placements table|false accel.parallel.placements: parts of parameters (tensor parallelism, experts)
---@field creation table|false accel.deepspeed.zero: parameters that were created in parts (zero.Init)
---@field creates fun(): table|false deepspeed.zero if new parameters are sharded now
---@field sequences table|false accel.parallel.context: parts of sequences
---@field loading table|false accel.shard.efficient_loading: rank 0 alone reads the values of a file
---@field steps table|false accel.offload.step: gradients whose home is a file
local Divided = { owners = false, placements = false, creation = false, creates = false, sequences = false, loading = false, steps = false }

local function unknown(_, field) error(("accel.nn.divided has no field '%s'"):format(tostring(field)), 2) end

return setmetatable(Divided, { __index = unknown, __newindex = unknown })
