--- Ranks agree on their loaders when these are prepared. All ranks take the seed of rank 0. Loaders that would load
--- different data raise an error on every rank, which names both. One collective. Used by loader.lua.
local accel = require "accel"
local dist = require "accel.dist"
local raise = require "accel.util.raise"

--- Samples, or batches, of a pass, as far as this rank knows, or -1.
local function length_of(base)
  local source = base.batch_sampler or base.sampler or base.dataset.len and base.dataset
  return source and source:len() or -1
end

---@param base accel.data.DataLoader
---@param accelerator table
---@param alike boolean false if only rank 0 reads: then ranks agree only on the seed
---@return integer seed of rank 0's loader
return function(base, accelerator, alike)
  local own = (base.batch_sampler or base.sampler or {}).seed
  local seed = base.seed
  if not base.seed_given then
    seed = accelerator.dataloader_config.data_seed or accel.get_rng_state().seed
  end
  local ranks = accelerator.num_processes
  -- a script gave another number of processes than this run has: there is no peer to agree with
  if ranks == 1 or ranks ~= dist.get_world_size() or dist.get_backend() == "sim" then return seed end
  local mine = { seed, -1, -1, 0, 0 }
  if alike then
    mine = { seed, length_of(base), base.batch_size or -1, base.drop_last and 1 or 0, own and 1 or 0 }
  end
  local all = accel.empty(ranks, #mine, { dtype = "i64", device = "cpu" })
  dist.all_gather_into_tensor(all, accel.tensor(mine, { dtype = "i64", device = "cpu" }))
  all = all:tolist()
  local first = all[1]
  for r = 1, alike and ranks - 1 or 0 do
    local other = all[r + 1]
    local function differ(k, what, advice)
      if first[k] ~= other[k] then
        raise("prepare: the loaders of rank 0 and rank %d differ in %s: %d and %d; %s", r, what, first[k], other[k],
          advice)
      end
    end
    differ(2, "length", "every rank gives prepare the whole data set, which is shared out there")
    differ(3, "batch_size", "give all ranks the same")
    differ(4, "drop_last (1: true)", "give all ranks the same")
    differ(5, "whether the sampler has a seed (1: it has)", "give all ranks the same")
    if first[5] == 1 then differ(1, "the seed of their samplers", "give it on all ranks alike, or leave it out") end
  end
  return first[1]
end
