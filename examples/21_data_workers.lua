--- Loader workers: threads with a Lua state each that read batches ahead, while this one computes.
---
---   accel-run examples/21_data_workers.lua [--num-workers N] [--work N] [DIR]
---
--- Reads the same epoch of randomly shifted digits without workers and with N of them. The batches are the same, random
--- numbers included. If reading is expensive (--work), it takes a fraction of the time, as far as there are cores.
--- Prints whether they are the same on standard output, times on standard error. In Python: DataLoader(num_workers=N).
local accel = require "accel"
local data = accel.data

local declared = {
  name = "21_data_workers.lua", usage = "[options] [DIR]", summary = "Reads data in threads parallel to the script.",
  { "num-workers", "int", 2, "N", "threads that read" },
  { "work", "int", 20, "N", "how often each picture is drawn, to make reading dear" },
  { "batch", "int", 64, "N", "pictures in a batch" },
}
local o, dirs = accel.util.cli(declared)
local here = arg[0]:match "^.*/" or "./"
local dir = dirs[1] or here .. "digits"
local found, message = data.IDX.open(dir .. "/train-images-idx3-ubyte", dir .. "/train-labels-idx1-ubyte")
if not found then accel.util.cli.fail(declared, message) end

-- Workers share nothing with this state but tensors: they make the data set again, by the name of its module.
package.path = here .. "?.lua;" .. package.path
local AugmentedDigits = require "augmented_digits"

--- An epoch's batches, and the seconds that they took.
local function read(num_workers)
  local loader = data.DataLoader(AugmentedDigits(dir, { work = o.work }), {
    batch_size = o.batch, shuffle = true, seed = 1, num_workers = num_workers,
  })
  local batches, from = {}, accel.clock()
  for batch in loader() do batches[#batches + 1] = batch end
  return batches, accel.clock() - from
end

local alone, seconds_alone = read(0)
local ahead, seconds_ahead = read(o.num_workers)
local same = #alone == #ahead
for k, batch in ipairs(alone) do
  same = same and accel.equal(batch[1], ahead[k][1]) and accel.equal(batch[2], ahead[k][2])
end
print(("%d batches of %d pictures; the same with %d workers: %s"):format(#alone, o.batch, o.num_workers, same))
io.stderr:write(("without workers %.2f s, with %d %.2f s: %.1f times the speed\n"):format(seconds_alone,
  o.num_workers, seconds_ahead, seconds_alone / seconds_ahead))
