--- Metrics over all ranks, exact although the last batch is filled up.
---
---   accel-run [--num-processes N] examples/10_multi_process_metrics.lua [--epochs N] [DIR]
---
--- All ranks get equally many rows, so the last batch of a data set may repeat some. Three ways to count each row once:
--- accel.metrics keeps sums on each rank and leaves the repeated rows out by itself. gather_for_metrics brings the rows
--- of all ranks to every rank, without them. loader:mask() marks the rows of this rank's batch that count. Prints the
--- same numbers on 1, 2 and 4 ranks, over all 357 test pictures: 357 is odd on purpose. In Python:
--- examples/by_feature/multi_process_metrics.py.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "10_multi_process_metrics.lua", usage = "[options] [DIR]", summary = "Evaluates on several ranks, exactly.",
  { "epochs", "int", 2, "N", "passes over the data" },
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
local test = open "test"

accel.manual_seed(o.seed)
local model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
local optimizer = optim.AdamW(model:parameters(), { lr = 5e-3 })
local train_loader = data.DataLoader(open "train", {
  batch_size = o.batch, shuffle = true, drop_last = true, seed = o.seed,
})
local test_loader = data.DataLoader(test:take(#test // 4 * 4 - 3), { batch_size = 32 })
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

for epoch = 1, o.epochs do
  model:train()
  for batch in train_loader() do
    accelerator:backward(nn.functional.cross_entropy(model(batch[1]), batch[2]))
    optimizer:step()
    optimizer:zero_grad()
  end

  model:eval()
  local accuracy, f1, loss = accel.metrics.Accuracy(), accel.metrics.F1 { average = "macro" }, accel.metrics.Mean()
  local gathered, n, masked = 0, 0, 0
  for batch in test_loader() do
    local images, labels = batch[1], batch[2]
    local logits = accel.no_grad(function() return model(images) end)
    local guesses = logits:argmax(2)

    -- First way. Nothing is sent until compute().
    accuracy:update(guesses, labels)
    f1:update(guesses, labels)
    loss:update(nn.functional.cross_entropy(logits, labels, { reduction = "none" }))

    -- Second way, also for figures without an accel metric, with any number of calls per batch.
    local all = accelerator:gather_for_metrics { guesses = guesses, labels = labels }
    gathered, n = gathered + all.guesses:eq(all.labels):sum():item(), n + #all.labels

    -- Third way: numbers of this rank alone, added up by hand.
    masked = masked + guesses:eq(labels):logical_and(test_loader:mask()):sum():item()
  end
  masked = accelerator:reduce(accel.tensor(masked)):item()
  accelerator:print(("epoch %d: accuracy %.6f, macro F1 %.4f, mean loss %.3f"):format(epoch,
    accuracy:compute().accuracy, f1:compute().f1, loss:value()))
  accelerator:print(("  by gather_for_metrics: %d right of %d; by mask: %d right"):format(gathered, n, masked))
end
