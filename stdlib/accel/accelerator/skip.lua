--- accel.accelerator.skip_first_batches(loader, n): the rest of an interrupted epoch, for data.DataLoaders and prepared
--- ones. It is the same loader with all its options, seen through a view that is good for one pass.
local check = require "accel.util.check"
local class = require "accel.util.class"
local DataLoader = require "accel.data.dataloader"
local proxy = require "accel.util.proxy"
local raise = require "accel.util.raise"

local M = {}

---@class accel.accelerator.SkippedDataLoader
---@field loader table
---@field skip_batches integer
local Skipped = class("accel.accelerator.SkippedDataLoader")
M.Skipped = Skipped

function Skipped:init(loader, n) self.loader, self.skip_batches, self.used = loader, n, false end

--- Remaining batches of the coming pass. nil if the data has no length.
local function rest(self)
  local loader, n = self.loader, self.skip_batches
  if loader._rest then return loader:_rest(n) end
  if loader.stream and not loader.dataset.len then return nil end
  return math.max(0, loader:len() - loader.position - n)
end

--- Batches of the one pass.
---@return integer
function Skipped:len() return self.left or rest(self) or self.loader:len() end

function Skipped.__len(self) return self:len() end

proxy(Skipped, "loader") -- all other fields are the loader's
Skipped.__newindex = rawset

function Skipped.__call(self, ...)
  if select("#", ...) > 0 then raise "DataLoader: write `for batch in loader() do`, with the parentheses" end
  if self.used then
    raise "skip_first_batches: its result is for one pass; from the next epoch on, loop over the loader itself"
  end
  local loader, n = self.loader, self.skip_batches
  self.left, self.used = rest(self), true
  if loader._pass_from then return loader:_pass_from(n) end
  local epoch = loader.epoch
  if loader._pass then loader:set_epoch(epoch + 1) end -- a pass under way ends
  loader.position = loader.position + n
  return loader()
end

function Skipped.__tostring(self)
  return ("skip_first_batches(%s, %d)"):format(tostring(self.loader), self.skip_batches)
end

--- The coming pass of a loader without its first n batches: use it in the place of the loader for the epoch that was
--- interrupted, and the loader itself afterwards. If the data has positions, skipped samples are not read.
--- example: local loader = accel.data.DataLoader(accel.data.TensorDataset(accel.arange(6)), { batch_size = 2 })
---   local rest = accel.accelerator.skip_first_batches(loader, 2)
---   for batch in rest() do return #rest, batch[1] end --> 1, { 4, 5 }
---@param dataloader accel.data.DataLoader|accel.accelerator.DataLoader
---@param num_batches? integer 0
---@return table
function M.skip_first_batches(dataloader, num_batches, ...)
  check.surplus("skip_first_batches", ...)
  local n = check.count("skip_first_batches", "num_batches", num_batches or 0)
  if class.isinstance(dataloader, Skipped) then return Skipped(dataloader.loader, dataloader.skip_batches + n) end
  local Prepared = package.loaded["accel.accelerator.loader"]
  if not class.isinstance(dataloader, DataLoader) and not (Prepared and class.isinstance(dataloader, Prepared)) then
    raise("skip_first_batches: expected a DataLoader, got %s", check.shown(dataloader))
  end
  return Skipped(dataloader, n)
end

return M
