--- Batch size by trial: start large, take less as long as memory runs out.
---
---   accel-run [--num-processes N] examples/09_memory.lua [--start N] [--fits ROWS] [DIR]
---   accel-run --memory-limit 24M examples/09_memory.lua --width 4096 --fits 0      # memory that really runs out
---
--- accel.find_executable_batch_size(fn, options) calls fn(batch_size). When that raises out of memory, on any rank, all
--- ranks return and try a size 10 % smaller. Every other error propagates. By default this script pretends that only
--- --fits rows fit. By default this script pretends that only --fits rows fit. A step here has batch_size rows of every
--- rank, so its figures depend on the number of ranks. The output does not: the sizes tried, and that most test
--- pictures are classified correctly. In Python: examples/by_feature/memory.py.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "09_memory.lua", usage = "[options] [DIR]", summary = "Finds the largest batch that fits into memory.",
  { "start", "int", 128, "N", "the first size to try: pictures a step of each rank" },
  { "fits", "int", 60, "ROWS", "pretend that a rank has memory for this many; 0: do not pretend" },
  { "width", "int", 64, "N", "numbers in the hidden layer" },
  { "epochs", "int", 20, "N", "passes over the data" },
  { "seed", "int", 1, "N", "of weights and order" },
}
local o, dirs = accel.util.cli(declared)

local accelerator = accel.Accelerator() -- { memory = "low" } makes larger batches fit (guide big-models)

local dir = dirs[1] or (arg[0]:match "^.*/" or "") .. "digits"
local function open(part)
  local set, message = data.IDX.open(("%s/%s-images-idx3-ubyte"):format(dir, part),
    ("%s/%s-labels-idx1-ubyte"):format(dir, part), { scale = 16 })
  return set or accel.util.cli.fail(declared, message)
end
local train, test = open "train", open "test"

local tried = {}

--- One whole training: whatever holds memory is made in here and given up when this is left.
local function training(batch_size)
  tried[#tried + 1] = batch_size
  accelerator:free_memory() -- drops the objects of the last try
  accel.manual_seed(o.seed)
  local model = nn.Sequential(nn.Flatten(), nn.Linear(64, o.width), nn.ReLU(), nn.Linear(o.width, 10))
  local optimizer = optim.AdamW(model:parameters(), { lr = 1e-2 })
  local loader = data.DataLoader(train, { batch_size = batch_size, shuffle = true, seed = o.seed })
  local test_loader = data.DataLoader(test, { batch_size = batch_size })
  model, optimizer, loader, test_loader = accelerator:prepare(model, optimizer, loader, test_loader)
  for _ = 1, o.epochs do
    for batch in loader() do
      if o.fits > 0 and #batch[2] > o.fits then
        error(("pretending that %d rows are out of memory."):format(#batch[2]))
      end
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
  return accuracy:compute().accuracy
end

local accuracy = accel.find_executable_batch_size(training, { starting_batch_size = o.start })()
accelerator:print("tried: " .. table.concat(tried, " "))
accelerator:print(("%d rows fit; more than 85 %% of the test pictures right: %s"):format(tried[#tried],
  accuracy > 0.85 and "yes" or "no"))
