--- Schedule-free training: no learning-rate schedule, and no end of training to plan for.
---
---   accel-run [--num-processes N] examples/15_schedule_free.lua [--epochs N] [DIR]
---
--- AdamWScheduleFree keeps a running average of the weights and takes gradients between it and the latest ones. The
--- model's parameters hold the one or the other: optimizer:train() before training, optimizer:eval() before evaluating
--- or saving. A prepared optimizer passes both on. Prints the same numbers on 1, 2 and 4 ranks. More than 85 % of the
--- test pictures are classified correctly after any epoch except the first, about 90 % in the end. In Python:
--- examples/by_feature/schedule_free.py.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "15_schedule_free.lua", usage = "[options] [DIR]", summary = "Trains without a learning-rate schedule.",
  { "epochs", "int", 10, "N", "passes over the data" },
  { "batch", "int", 32, "N", "pictures a step, over all ranks" },
  { "lr", "number", 1e-2, "X", "learning rate" },
  { "seed", "int", 1, "N", "of weights and order" },
}
local o, dirs = accel.util.cli(declared)

local accelerator = accel.Accelerator { split_batches = true }

local dir = dirs[1] or (arg[0]:match "^.*/" or "") .. "digits"
local function open(part)
  local set, message = data.IDX.open(("%s/%s-images-idx3-ubyte"):format(dir, part),
    ("%s/%s-labels-idx1-ubyte"):format(dir, part), { scale = 16 })
  return set or accel.util.cli.fail(declared, message)
end

accel.manual_seed(o.seed)
local model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
local optimizer = optim.AdamWScheduleFree(model:parameters(), { lr = o.lr, warmup_steps = 20 })
local train_loader = data.DataLoader(open "train", {
  batch_size = o.batch, shuffle = true, drop_last = true, seed = o.seed,
})
local test_loader = data.DataLoader(open "test", { batch_size = 64 })
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

local function evaluate()
  model:eval()
  local accuracy = accel.metrics.Accuracy()
  for batch in test_loader() do
    accuracy:update(accel.no_grad(function() return model(batch[1]):argmax(2) end), batch[2])
  end
  return accuracy:compute().accuracy
end

for epoch = 1, o.epochs do
  model:train()
  optimizer:train() -- the weights to take gradients at
  for batch in train_loader() do
    accelerator:backward(nn.functional.cross_entropy(model(batch[1]), batch[2]))
    optimizer:step()
    optimizer:zero_grad()
  end
  local latest = evaluate()
  optimizer:eval() -- the average: the model to use
  accelerator:print(("epoch %d: accuracy %.3f of the weights in training, %.3f of their average"):format(epoch, latest,
    evaluate()))
end
