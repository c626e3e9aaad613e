--- Early stopping: one rank decides, all ranks stop at the same place.
---
---   accel-run [--num-processes N] examples/12_early_stopping.lua [--patience N] [--epochs N] [DIR]
---
--- A rank that leaves the loop alone would leave the others waiting for its gradients. A rank that leaves the loop
--- alone would leave the others waiting for its gradients. So a rank calls `accelerator:set_trigger()`, and
--- `accelerator:check_trigger()`, which all ranks call at the same place, returns true on all of them if any rank has
--- set it since the last check. Here the main rank watches the loss of the test pictures and pulls the trigger when it
--- has not fallen for --patience epochs. Prints the same on 1, 2 and 4 ranks, and stops long before the last epoch. In
--- Python: examples/by_feature/early_stopping.py.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "12_early_stopping.lua", usage = "[options] [DIR]", summary = "Trains until the test loss falls no more.",
  { "patience", "int", 2, "N", "epochs without a lower loss" },
  { "epochs", "int", 40, "N", "passes over the data at most" },
  { "batch", "int", 32, "N", "pictures a step, over all ranks" },
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
local optimizer = optim.AdamW(model:parameters(), { lr = 2e-2 }) -- large: overfits within a few epochs
local train_loader = data.DataLoader(open "train", {
  batch_size = o.batch, shuffle = true, drop_last = true, seed = o.seed,
})
local test_loader = data.DataLoader(open "test", { batch_size = 64 })
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

--- Keeps the lowest loss. Returns true when it is `patience` epochs old.
local lowest, waited = math.huge, 0
local function enough(loss)
  if loss < lowest then lowest, waited = loss, 0 else waited = waited + 1 end
  return waited >= o.patience
end

for epoch = 1, o.epochs do
  model:train()
  for batch in train_loader() do
    accelerator:backward(nn.functional.cross_entropy(model(batch[1]), batch[2]))
    optimizer:step()
    optimizer:zero_grad()
  end

  model:eval()
  local loss = accel.metrics.Mean()
  for batch in test_loader() do
    local _ <close> = accel.no_grad()
    loss:update(nn.functional.cross_entropy(model(batch[1]), batch[2], { reduction = "none" }))
  end
  local value = loss:value()
  accelerator:print(("epoch %d: test loss %.3f"):format(epoch, value))

  -- Only the main rank decides. This needs no communication.
  if accelerator.is_main_process and enough(value) then accelerator:set_trigger() end
  if accelerator:check_trigger() then -- collective: every rank asks, and all get the same answer
    accelerator:print(("no lower loss in %d epochs: stopped after %d of %d"):format(o.patience, epoch, o.epochs))
    break
  end
end
