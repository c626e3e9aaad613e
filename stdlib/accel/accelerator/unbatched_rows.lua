--- The known row counts of a global batch without automatic batching (batch_size = false): every rank has one sample,
--- and only its rank knows its number of rows. Used by the Sources indexed and iterable.
local accel = require "accel"
local dist = require "accel.dist"

--- Of a full global batch nothing: gather exchanges sizes. A full global batch has no known counts: gather exchanges
--- sizes. If a rank has a repeated sample, all ranks exchange their numbers of rows, so that it counts as padding. If
--- ranks have no batch at all, only that is known.
---@param rows table Rows that count a sample as one row
---@param even boolean every rank has a sample in this global batch
---@param batch any
---@return table? rows
return function(rows, even, batch)
  if rows.full then return nil end
  if not even then return rows end
  local own = require "accel.accelerator.operations".ignorant_find_batch_size(batch) or 1
  local all = accel.empty(#rows.counts, { dtype = "i64", device = "cpu" })
  if dist.get_backend() == "sim" then
    all:fill_(own)
  else
    dist.all_gather_into_tensor(all, accel.tensor({ own }, { dtype = "i64", device = "cpu" }))
  end
  local counts, valid = all:tolist(), {}
  for r, n in ipairs(rows.valid) do valid[r] = n > 0 and counts[r] or 0 end
  return { counts = counts, valid = valid, full = false }
end
