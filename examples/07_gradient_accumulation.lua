--- Gradient accumulation: steps of many rows, read a few at a time.
---
---   accel-run [--num-processes N] examples/07_gradient_accumulation.lua [--accumulate K] [--epochs N] [DIR]
---
--- Inside `accelerator:accumulate(model)` the loop is written as if every micro-batch made a step: until K of them were
--- seen, step() and zero_grad() do nothing, and ranks do not talk to each other. backward divides each loss by K. The
--- last group of an epoch may be shorter. It makes a step as well. Prints the same numbers on 1, 2 and 4 ranks. Test
--- accuracy is about 90 % at the end. In Python: examples/by_feature/gradient_accumulation.py.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "07_gradient_accumulation.lua", usage = "[options] [DIR]",
  summary = "Makes one step of several micro-batches.",
  { "accumulate", "int", 4, "K", "micro-batches a step" },
  { "batch", "int", 8, "N", "pictures of a micro-batch, over all ranks" },
  { "epochs", "int", 10, "N", "passes over the data" },
  { "lr", "number", 1e-2, "X", "learning rate" },
  { "seed", "int", 1, "N", "of weights and order" },
}
local o, dirs = accel.util.cli(declared)

local accelerator = accel.Accelerator { gradient_accumulation_steps = o.accumulate, split_batches = true }

local dir = dirs[1] or (arg[0]:match "^.*/" or "") .. "digits"
local function open(part)
  local set, message = data.IDX.open(("%s/%s-images-idx3-ubyte"):format(dir, part),
    ("%s/%s-labels-idx1-ubyte"):format(dir, part), { scale = 16 })
  return set or accel.util.cli.fail(declared, message)
end

accel.manual_seed(o.seed)
local model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
local optimizer = optim.AdamW(model:parameters(), { lr = o.lr })
local train_loader = data.DataLoader(open "train", {
  batch_size = o.batch, shuffle = true, drop_last = true, seed = o.seed,
})
local test_loader = data.DataLoader(open "test", { batch_size = 64 })
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

local updates = 0
for epoch = 1, o.epochs do
  model:train()
  for batch in train_loader() do
    -- <close> ends the block with this iteration of the loop. accelerator:accumulate(model, function() ... end) does
    -- the same.
    local _ <close> = accelerator:accumulate(model)
    local loss = nn.functional.cross_entropy(model(batch[1]), batch[2])
    accelerator:backward(loss)
    if accelerator.sync_gradients then -- the last micro-batch of a group: from here on gradients are complete
      accelerator:clip_grad_norm_(model:parameters(), 1.0)
      updates = updates + 1
    end
    optimizer:step()
    optimizer:zero_grad()
  end

  model:eval()
  local accuracy = accel.metrics.Accuracy()
  for batch in test_loader() do
    accuracy:update(accel.no_grad(function() return model(batch[1]):argmax(2) end), batch[2])
  end
  accelerator:print(("epoch %d: %d micro-batches, %d updates so far, accuracy %.3f"):format(epoch, #train_loader,
    updates, accuracy:compute().accuracy))
end
