--- Automatic gradient accumulation: the largest batch that fits into memory, and as many of them as make up the batch
--- that training is meant to have.
---
---   accel-run [--num-processes N] examples/08_automatic_gradient_accumulation.lua [--fits ROWS] [DIR]
---
--- find_executable_batch_size tries a batch size, and smaller ones as long as a rank runs out of memory. All ranks
--- continue with the same one. Accumulation makes up for the smaller size, so that --batch stays the number of rows of
--- a step. So that something happens on a machine with enough memory, this script pretends that only --fits rows of a
--- rank fit. Ends with a test accuracy of about 90 %. Prints the same on 1, 2 and 4 ranks. In Python:
--- examples/by_feature/automatic_gradient_accumulation.py.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "08_automatic_gradient_accumulation.lua", usage = "[options] [DIR]",
  summary = "Finds a batch size that fits, and accumulates up to the one that is wanted.",
  { "batch", "int", 64, "N", "pictures a step, over all ranks" },
  { "fits", "int", 16, "ROWS", "pretend that a rank has memory for so many rows" },
  { "epochs", "int", 12, "N", "passes over the data" },
  { "seed", "int", 1, "N", "of weights and order" },
}
local o, dirs = accel.util.cli(declared)

local accelerator = accel.Accelerator()
local ranks = accelerator.num_processes
if o.batch % ranks ~= 0 then
  accel.util.cli.fail(declared, ("a batch of %d cannot be cut into %d equal parts"):format(o.batch, ranks))
end

local dir = dirs[1] or (arg[0]:match "^.*/" or "") .. "digits"
local function open(part)
  local set, message = data.IDX.open(("%s/%s-images-idx3-ubyte"):format(dir, part),
    ("%s/%s-labels-idx1-ubyte"):format(dir, part), { scale = 16 })
  return set or accel.util.cli.fail(declared, message)
end
local train, test = open "train", open "test"
train = train:take(#train // o.batch * o.batch) -- whole steps only

--- Trains with batch_size rows on each rank and returns the test accuracy. Everything that takes memory is made in
--- here, so that it is free again before the next try.
local function training(batch_size)
  accelerator:free_memory()
  accelerator.gradient_accumulation_steps = o.batch // (batch_size * ranks)

  accel.manual_seed(o.seed)
  local model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
  local optimizer = optim.AdamW(model:parameters(), { lr = 1e-2 })
  local loader = data.DataLoader(train, { batch_size = batch_size, shuffle = true, seed = o.seed })
  local test_loader = data.DataLoader(test, { batch_size = 64 })
  model, optimizer, loader, test_loader = accelerator:prepare(model, optimizer, loader, test_loader)
  for _ = 1, o.epochs do
    for batch in loader() do
      if #batch[2] > o.fits then error(("pretending that %d rows are out of memory."):format(#batch[2])) end
      local _ <close> = accelerator:accumulate(model)
      accelerator:backward(nn.functional.cross_entropy(model(batch[1]), batch[2]))
      optimizer:step()
      optimizer:zero_grad()
    end
  end
  model:eval()
  local accuracy = accel.metrics.Accuracy()
  for batch in test_loader() do
    accuracy:update(accel.no_grad(function() return model(batch[1]):argmax(2) end), batch[2])
  end
  return accuracy:compute().accuracy, batch_size
end

-- Halving keeps the sizes divisors of the requested one. Without reduce_batch_size_fn each try is 10 % smaller.
local accuracy, size = accel.find_executable_batch_size(training, {
  starting_batch_size = o.batch // ranks, reduce_batch_size_fn = function(n) return n // 2 end,
})()
accelerator:print(("%d rows fit at once; a step takes %d such micro-batches over all ranks; accuracy %.3f"):format(
  size, o.batch // size, accuracy))
