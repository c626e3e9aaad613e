--- The random state of a rank in a checkpoint: the default generator of tensors, math.random, and the generators of
--- prepared loaders. A run with another number of ranks takes it over by rule: counter-based generators are the same on
--- all ranks, or their seeds are seed0 + rank, and the new ranks continue this rule. Used by checkpoint_content.lua and
--- checkpoint_load.lua.
local accel = require "accel"
local Random = require "accel.util.random"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

local M = {}

local function is_random(x) return class.isinstance(x, Random) end

--- The generators of prepared loaders, by their position.
local function generators(prepared)
  local list = {}
  for i, loader in ipairs(prepared.dataloaders) do
    local generator = rawget(loader, "generator")
    if generator ~= nil then list[i] = generator end
  end
  return list
end

--- This rank's random state, as plain data.
---@param accelerator accel.Accelerator
---@return table
function M.get(accelerator)
  local state = { default = accel.get_rng_state(), loaders = {}, rank = accelerator.process_index }
  for i, generator in next, generators(accelerator._prepared) do
    state.loaders[i] = is_random(generator) and { state = generator.state } or generator:get_state()
  end
  return state
end

--- The state that rank `rank` takes over from `n` ranks, of which it was not one.
---@param read fun(rank: integer): table
---@param n integer
---@param rank integer
---@return table
local function derived(read, n, rank)
  local first = read(0)
  local seed0, by_rank = first.default.seed, n > 1
  for r = 1, n - 1 do by_rank = by_rank and read(r).default.seed == seed0 + r end
  if not by_rank then return first end
  first.default.seed = seed0 + rank
  first.reseeds = seed0 + rank -- math.random has no counters: it begins anew, as set_seed has it
  return first
end

--- Reads and checks the state that this rank takes over.
---@param accelerator accel.Accelerator
---@param read fun(rank: integer): table the stored state of a rank. Raises if there is none
---@param n integer ranks that stored one
---@return table
function M.take(accelerator, read, n)
  local rank = accelerator.process_index
  local state = rank < n and read(rank) or derived(read, n, rank)
  if type(state.default) ~= "table" or math.type(state.default.seed) ~= "integer" or type(state.loaders) ~= "table" then
    raise "the random state is none"
  end
  for i in next, generators(accelerator._prepared) do
    if state.loaders[i] == nil then raise("there is no generator state for loader %d", i - 1) end
  end
  return state
end

--- Takes a random state over.
---@param accelerator accel.Accelerator
---@param state table
function M.set(accelerator, state)
  accel.set_rng_state(state.default)
  if state.reseeds then math.randomseed(state.reseeds) end
  for i, generator in next, generators(accelerator._prepared) do
    local stored = state.loaders[i]
    if is_random(generator) then generator.state = stored.state else generator:set_state(stored) end
  end
end

return M
