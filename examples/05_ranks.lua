--- One script on several ranks:   accel-run --num-processes 4 examples/05_ranks.lua [--steps N]
---
--- Every rank runs this file. It shows ranks, collectives, plain data between ranks, data-parallel training whose
--- result does not depend on the number of ranks, and the flight recorder. It also works on one rank.
local accel = require "accel"
local nn, optim, dist = accel.nn, accel.optim, accel.dist

local o = accel.util.cli {
  name = "05_ranks.lua", summary = "Collectives and data-parallel training on the ranks that accel-run starts.",
  { "steps", "int", 200, "N", "training steps" },
  { "seed", "int", 1, "N", "of weights and data" },
}
local rank, ranks = dist.get_rank(), dist.get_world_size()
local function say(fmt, ...)
  if rank == 0 then print(fmt:format(...)) end
end

-- Tensors: every rank brings its own, all get the sum of them.
local mine = accel.full({ 3 }, 2.0 ^ rank)
dist.all_reduce(mine)
say("%d rank%s over %s; the sum of 2^rank is %g", ranks, ranks == 1 and "" or "s", dist.get_backend(), mine[1]:item())

-- Plain data: tables, strings and numbers of any shape.
for _, who in ipairs(dist.all_gather_object { rank = rank, machine = os.getenv "HOSTNAME" or "?", threads = accel.num_threads() }) do
  say("  rank %d: %d thread%s", who.rank, who.threads, who.threads == 1 and "" or "s")
end

-- Training: the same seed gives all ranks the same data and weights. Each takes its rows of every batch. The wrapper averages
-- gradients, so that all ranks make the same step - the one that a single rank makes with the whole batch.
accel.manual_seed(o.seed)
local batch, features = 64, 16
local rows = batch // ranks
assert(batch % ranks == 0, ("a batch of %d cannot be cut into %d equal parts"):format(batch, ranks))
local truth = accel.randn(features, 1)
local model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(features, 32), nn.Tanh(), nn.Linear(32, 1)))
local optimizer = optim.AdamW(model:parameters(), { lr = 1e-2 })
local loss
for _ = 1, o.steps do
  local x = accel.randn(batch, features)
  local y = x:matmul(truth):tanh()
  x, y = x:narrow(1, rank * rows + 1, rows), y:narrow(1, rank * rows + 1, rows)
  loss = nn.functional.mse_loss(model(x), y)
  loss:backward()
  optimizer:step()
  optimizer:zero_grad()
end
local mean = loss:detach():clone()
dist.all_reduce(mean, { op = "mean" })
say("loss after %d steps: %.5f", o.steps, mean:item())

-- All ranks hold the same weights, to the bit.
local weight = model:state_dict()["0.weight"]
local low, high = weight:clone(), weight:clone()
accel.no_grad(function()
  dist.all_reduce(low, { op = "min" })
  dist.all_reduce(high, { op = "max" })
end)
say("largest difference of a weight between ranks: %g", high:sub(low):abs():max():item())

local calls, bytes = dist.records(), dist.bytes_sent()
local last = calls[#calls]
say("%d collectives so far, %.1f KiB from this rank; the last: %s at %s", last and last.number or 0, bytes / 1024,
  last and last.kind or "none", last and last.site or "?")
