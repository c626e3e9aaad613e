--- The Accelerator: a plain training loop, and the five lines that make it run on any number of ranks.
---
---   accel-run [--num-processes N] examples/06_accelerator.lua [--epochs N] [--batch N] [DIR]
---
--- A small network learns to read digits. The lines marked (1) to (5) are all that the Accelerator needs. Without them
--- this is the loop of 02_mlp.lua. Prints the loss and the share of right answers after each epoch, which climbs to
--- about 90 %: the same numbers on 1, 2 and 4 ranks. In Python: Accelerate's quicktour.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "06_accelerator.lua", usage = "[options] [DIR]", summary = "Trains on as many ranks as accel-run starts.",
  { "epochs", "int", 8, "N", "passes over the data" },
  { "batch", "int", 32, "N", "pictures a step, over all ranks" },
  { "lr", "number", 2e-2, "X", "learning rate at the start" },
  { "seed", "int", 1, "N", "of weights and order" },
}
local o, dirs = accel.util.cli(declared)

-- (1) Detects this rank. split_batches treats the loaders' batch size as the global batch, and each rank gets its part
-- of every batch, so that training does not depend on the number of ranks. Without it every rank gets whole batches: N
-- ranks then make N times as large steps, which is Accelerate's default.
local accelerator = accel.Accelerator { split_batches = true }

local dir = dirs[1] or (arg[0]:match "^.*/" or "") .. "digits"
local function open(part)
  local set, message = data.IDX.open(("%s/%s-images-idx3-ubyte"):format(dir, part),
    ("%s/%s-labels-idx1-ubyte"):format(dir, part), { scale = 16 })
  return set or accel.util.cli.fail(declared, message)
end
local train, test = open "train", open "test"
local train_loader = data.DataLoader(train, { batch_size = o.batch, shuffle = true, drop_last = true, seed = o.seed })
local test_loader = data.DataLoader(test, { batch_size = 64 })

accel.manual_seed(o.seed)
local model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
local optimizer = optim.AdamW(model:parameters(), { lr = o.lr })
local scheduler = optim.lr_scheduler.get_scheduler("linear", optimizer, {
  num_warmup_steps = 0, num_training_steps = o.epochs * #train_loader,
})

-- (2) Wraps them for this run. They are used as before.
model, optimizer, scheduler, train_loader, test_loader =
  accelerator:prepare(model, optimizer, scheduler, train_loader, test_loader)

for epoch = 1, o.epochs do
  model:train()
  local sum = 0
  for batch in train_loader() do
    local images, labels = batch[1], batch[2]
    local loss = nn.functional.cross_entropy(model(images), labels)
    accelerator:backward(loss) -- (3) instead of loss:backward()
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
    sum = sum + loss:detach()
  end
  local mean = accelerator:reduce(sum / #train_loader, "mean") -- (4) each rank saw its own rows

  model:eval()
  local right, n = 0, 0
  for batch in test_loader() do
    local guesses = accel.no_grad(function() return model(batch[1]):argmax(2) end)
    -- (4) The answers of all ranks, without the rows that only pad the last batch.
    local answers, labels = table.unpack(accelerator:gather_for_metrics { guesses, batch[2] })
    right, n = right + answers:eq(labels):sum():item(), n + #labels
  end

  -- (5) One rank prints.
  accelerator:print(("epoch %d: loss %.3f, %.1f %% of %d test pictures right"):format(epoch, mean:item(),
    100 * right / n, n))
end
accelerator:print(("last learning rate: %g"):format(scheduler:get_last_lr()[1]))
