--- A rank is killed in the middle of training, and the others continue at the same update, in their processes and without a checkpoint.
---
---   accel-run --num-machines 1:1 --nproc-per-node 3 examples/43_lose_a_rank.lua [--kill-at U] [--updates N]
---
--- --num-machines 1:1 makes a job that outlives its ranks. At update U the last rank kills itself with SIGKILL, as the kernel does when
--- memory runs out. The others do that update again with its samples dealt out anew, so every sample counts once. The weights at
--- the end have the same bits as without the kill, and as on one rank: compare the last line with that of --kill-at 0.
---
--- accel-run also starts a new rank, which gets its state from the others. With --updates 2000 the job lasts long enough to see it
--- join. The guide ranks has the rules that a script of such a job keeps to.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local o = accel.util.cli {
  name = "43_lose_a_rank.lua", summary = "Kills one of its ranks and trains on with the others.",
  { "kill-at", "int", 5, "U", "update at which the last rank dies; 0: never" },
  { "updates", "int", 20, "N", "training updates" },
  { "seed", "int", 1, "N", "of weights and data" },
}

-- Six micro-batches of 8 samples are one update, whoever computes them. "world" sums them in one order for any number of ranks.
local accelerator = accel.Accelerator { micro_batches = 6, kwargs_handlers = { accel.DistributedDataParallelKwargs { deterministic = "world" } } }
accel.manual_seed(o.seed)
local x = accel.randn(960, 8)
local set = data.TensorDataset(x, (x:sum(2, true)):sin())
local model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
local optimizer = optim.AdamW(model:parameters(), { lr = 0.01 })
local loader = data.DataLoader(set, { batch_size = 8, shuffle = true, seed = o.seed, drop_last = true })
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)

accelerator:on_membership_change(function(change)
  accelerator:print(("generation %d (%s): %d rank(s) continue at update %d"):format(change.generation, change.kind, accelerator.num_processes,
    accelerator.step + 1))
end)

while accelerator.step < o.updates do
  for batch in loader() do
    accelerator:accumulate(model, function()
      local loss = nn.functional.mse_loss(model(batch[1]), batch[2])
      local last = accelerator.process_index == accelerator.num_processes - 1
      if accelerator.step + 1 == o.kill_at and accelerator.generation == 1 and last and accelerator.num_processes > 1 then
        os.execute "kill -9 $PPID"
      end
      accelerator:backward(loss)
      optimizer:step()
      optimizer:zero_grad()
    end)
    if accelerator.step >= o.updates then break end
  end
end

local digest = 0
for _, p in ipairs(accelerator:unwrap_model(model):parameters()) do
  for _, byte in ipairs { p:detach():to_bytes():byte(1, -1) } do digest = (digest * 31 + byte) & 0xffffffff end
end
accelerator:print(("%d updates, weights %08x"):format(accelerator.step, digest))
