--- Local SGD: ranks train on their own for some steps, then average their weights.
---
---   accel-run [--num-processes N] examples/13_local_sgd.lua [--local-sgd-steps K] [--steps N]
---
--- Inside a LocalSGD block gradients are not averaged. sgd:step() replaces all weights by their mean over the ranks at
--- every K-th call, and the end of the block does so as well. That sends a K-th of the bytes. Between two averages the
--- ranks' models differ, and so do all numbers on different numbers of ranks. On one rank it is plain training. The
--- output is the same on 1, 2 and 4 ranks: every point of an easy set is classified correctly, and in the end all ranks
--- hold the same weights. In Python: examples/by_feature/local_sgd.py.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "13_local_sgd.lua", summary = "Averages weights now and then instead of gradients every time.",
  { "local-sgd-steps", "int", 8, "K", "steps between two averages" },
  { "steps", "int", 200, "N", "training steps" },
  { "seed", "int", 1, "N", "of weights and data" },
}
local o = accel.util.cli(declared)

local accelerator = accel.Accelerator { split_batches = true }

-- Four clouds of points, far from each other.
accel.manual_seed(o.seed)
local function clouds(n)
  local labels = accel.randint(0, 4, { n })
  local middles = accel.tensor { { 4, 0 }, { 0, 4 }, { -4, 0 }, { 0, -4 } }
  return data.TensorDataset(middles:index_select(1, labels) + 0.5 * accel.randn(n, 2), labels)
end
local train_loader = data.DataLoader(clouds(512), { batch_size = 64, shuffle = true, seed = o.seed })
local test_loader = data.DataLoader(clouds(256), { batch_size = 64 })
local model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4))
local optimizer = optim.SGD(model:parameters(), { lr = 0.2 })
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

local averages, step = 0, 0
do
  local sgd <close> = accel.LocalSGD {
    accelerator = accelerator, model = model, local_sgd_steps = o.local_sgd_steps,
  }
  while step < o.steps do
    for batch in train_loader() do
      accelerator:backward(nn.functional.cross_entropy(model(batch[1]), batch[2]))
      optimizer:step()
      optimizer:zero_grad()
      sgd:step()
      step = step + 1
      if step % o.local_sgd_steps == 0 then averages = averages + 1 end
      if step == o.steps then break end
    end
  end
end -- the last average, including steps since the last K-th one

model:eval()
local accuracy = accel.metrics.Accuracy()
for batch in test_loader() do
  accuracy:update(accel.no_grad(function() return model(batch[1]):argmax(2) end), batch[2])
end

--- Whether every weight has the same bits on all ranks.
local function same_everywhere(net)
  local _ <close> = accel.no_grad()
  for _, weights in ipairs(accelerator:gather(net:parameters())) do -- ranks' weights, one after the other
    local parts = weights:chunk(accelerator.num_processes, 1)
    for rank = 2, #parts do
      if not accel.equal(parts[1], parts[rank]) then return false end
    end
  end
  return true
end

accelerator:print(("%d steps, weights averaged after every %d (%d times) and at the end"):format(step,
  o.local_sgd_steps, averages))
accelerator:print(("test accuracy: %.1f %%"):format(100 * accuracy:compute().accuracy))
accelerator:print(("same weights on all ranks: %s"):format(same_everywhere(model) and "yes" or "no"))
