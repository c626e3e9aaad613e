--- The position of a prepared loader in its data, from the state of a loader. Used by loader.lua.
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local M = {}

--- A number that a state has, nil without it.
function M.count(state, key)
  local n = state[key]
  if n ~= nil and (math.type(n) ~= "integer" or n < 0) then
    raise("DataLoader: not the state of a loader: %s is %s", key, check.shown(n))
  end
  return n
end

--- The number of batches that each rank has delivered at a state's position, counted in batches of this loader. If the
--- position is not a whole number of these, also the number of samples before the first one.
---@param self accel.accelerator.DataLoader
---@param state table
---@return integer batches
---@return integer start
function M.from_state(self, state)
  local samples, batches, total = M.count(state, "samples"), M.count(state, "batches"), self.source:total_batch_size()
  if state.position ~= nil then -- of a loader that is not prepared
    local size = state.batch_size
    if size == nil and self.batch_sampler then size = self.batch_sampler.batch_size end
    batches = M.count(state, "position")
    samples = size ~= nil and batches * (size or 1) or nil
  end
  if (samples or batches or 0) == 0 then return 0, 0 end
  local length = self.source:total_length()
  if state.length ~= nil and length ~= nil and state.length ~= length then
    raise("DataLoader: the state is from a pass over %d samples, but the data has %d; use the same data, or "
      .. "set_epoch(%d) to begin the pass anew", state.length, length, state.epoch)
  end
  if state.shards ~= nil then
    if state.shards == self.num_processes and self.source.native_shards then return batches, 0 end
    raise("DataLoader: the state is from a pass over %d shards of a data set that shards itself; use %d "
      .. "processes, or set_epoch(%d) to begin the pass anew", state.shards, state.shards, state.epoch)
  end
  local n, unit, what = samples, total, "samples"
  if samples == nil or total == nil then n, unit, what = batches, self.num_processes, "batches" end
  if n == nil or total ~= nil and samples == nil then
    raise("DataLoader: the state counts %s, this loader %s, since its batches have %s; use the same batch sampler, "
      .. "or set_epoch(%d) to begin the pass anew", samples and "samples" or "batches",
      total and "samples" or "batches", total and "a common size" or "no common size", state.epoch)
  end
  local round = self.source.round and self.source:round() or 1
  if n % unit ~= 0 and unit == total and self.source.starts_anywhere then return n // unit * round, n % unit end
  if n % unit ~= 0 then
    raise("DataLoader: the state is %d %s into a pass, which is not a multiple of global batches of %d; use a "
      .. "batch size and a number of processes whose global batch divides %d, or set_epoch(%d) to begin the pass anew",
      n, what, unit, n, state.epoch)
  end
  return n // unit * round, 0
end

return M
