--- Samples of a data set, one or a batch, as loaders and workers read them.
---
--- Random numbers drawn while a data set is read are separate: `draws` (accel.worker.draws) replaces the default
--- generator and math.random, anew for every sample, by (seed, epoch, offset of the sample in the pass). So
--- augmentation is the same whoever reads, and the script's own numbers are untouched.
local raise = require "accel.util.raise"

local M = {}

-- For messages: the position of the sample being read, or the positions of the samples being collated.
M.position, M.collated = nil, nil

--- Sample i, which must not be nil.
---@param dataset table
---@param i integer
---@return any
function M.sample(dataset, i)
  local sample = dataset:get(i)
  if sample == nil then raise("data: sample %s of the data set is nil", tostring(i)) end
  return sample
end

local function not_nil(batch, what)
  if batch == nil then raise("data: %s returned nil; return a batch, or leave samples out in a sampler", what) end
  return batch
end

--- A list of samples as a batch, which must not be nil: to a loop, nil is the end of the pass.
---@param samples any[]
---@param collate? fun(samples: any[]): any
---@return any
function M.collate(samples, collate)
  return not_nil((collate or require("accel.data.collate").default_collate)(samples), "collate_fn")
end

local forget = setmetatable({}, { __close = function() M.collated = nil end })

local function gather(dataset, positions, collate, draws, sample_offset)
  local samples = {}
  for k, i in ipairs(positions) do
    if draws and k > 1 then draws:at(sample_offset + k - 1) end
    M.position = i
    samples[k] = M.sample(dataset, i)
  end
  M.position = nil
  local _ <close> = forget
  M.collated = positions
  return M.collate(samples, collate)
end

--- One batch: by the data set's get_batch if it has one, otherwise collated.
---@param dataset table
---@param positions integer[]
---@param collate? fun(samples: any[]): any given by the user. get_batch is then not used
---@return any
function M.batch(dataset, positions, collate)
  if dataset.get_batch and not collate then
    return not_nil(dataset:get_batch(positions), "get_batch of the data set")
  end
  return gather(dataset, positions, collate)
end

--- The same, or, if `unbatched`, the one sample, with random numbers from `draws`.
---@param dataset table
---@param positions integer[]
---@param collate (fun(samples: any[]): any)?
---@param unbatched boolean
---@param draws table
---@param sample_offset integer of the first sample in the pass, over all ranks
---@return any
function M.read(dataset, positions, collate, unbatched, draws, sample_offset)
  M.position = nil
  local _ <close> = draws:enter(sample_offset)
  if unbatched then
    M.position = positions[1]
    return M.sample(dataset, positions[1])
  end
  if dataset.get_batch and not collate then
    return not_nil(dataset:get_batch(positions), "get_batch of the data set")
  end
  return gather(dataset, positions, collate, draws, sample_offset)
end

--- A pass over a stream as stream.begin returns it, with random numbers separate from the script's.
---@param dataset table
---@param epoch integer
---@param seed integer
---@param id? integer of the worker
---@return fun(read: (fun(): any)): any calls a function with these numbers
---@return fun(): any step
---@return any closing
function M.begin_stream(dataset, epoch, seed, id)
  local draws = require("accel.core").worker.draws(seed, epoch)
  draws:at(-1 - (id or 0)) -- a place that no sample has
  local function within(read)
    local _ <close> = draws:enter()
    return read()
  end
  local step, closing
  within(function() step, closing = require("accel.data.stream").begin(dataset, epoch, seed) end)
  return within, step, closing
end

return M
