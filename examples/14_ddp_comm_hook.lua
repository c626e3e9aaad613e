--- Communication hooks: gradients that take fewer bytes on their way between ranks.
---
---   accel-run --num-processes 2 examples/14_ddp_comm_hook.lua [--hook WORD] [--wrapper WORD] [--bytes]
---
--- DistributedDataParallelKwargs names a hook: bf16 and fp16 halve the bytes, int8 and int4 send a quarter or an
--- eighth, power_sgd a product of two thin matrices. Sent values are rounded, so gradients differ with the hook and the
--- number of ranks. On one rank nothing is sent. The output is the same for all of them: every point of an easy set is
--- classified correctly, and all ranks hold the same weights. --bytes adds the bytes sent for a step. In Python:
--- examples/by_feature/ddp_comm_hook.py.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "14_ddp_comm_hook.lua", summary = "Sends compressed gradients.",
  { "hook", { "no", "fp16", "bf16", "power_sgd", "batched_power_sgd", "int8", "int4" }, "bf16", "WORD",
    "how gradients are sent" },
  { "wrapper", { "no", "fp16", "bf16" }, "no", "WORD", "format that the hook is given gradients in" },
  { "rank", "int", 2, "R", "of the matrices of power_sgd" },
  { "bytes", "flag", false, nil, "print the bytes that the main rank sent for a step" },
  { "epochs", "int", 20, "N", "passes over the data" },
  { "seed", "int", 1, "N", "of weights and data" },
}
local o = accel.util.cli(declared)

local power = o.hook:find "power_sgd"
local ddp = accel.accelerator.DistributedDataParallelKwargs {
  comm_hook = o.hook, comm_wrapper = o.wrapper,
  comm_state_option = power and { matrix_approximation_rank = o.rank, start_powerSGD_iter = 2 } or nil,
}
local accelerator = accel.Accelerator { kwargs_handlers = { ddp }, split_batches = true }

-- Four clouds of points, far from each other.
accel.manual_seed(o.seed)
local function clouds(n)
  local labels = accel.randint(0, 4, { n })
  local middles = accel.tensor { { 4, 0 }, { 0, 4 }, { -4, 0 }, { 0, -4 } }
  return data.TensorDataset(middles:index_select(1, labels) + 0.5 * accel.randn(n, 2), labels)
end
local train_loader = data.DataLoader(clouds(512), { batch_size = 64, shuffle = true, seed = o.seed })
local test_loader = data.DataLoader(clouds(256), { batch_size = 64 })
local model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
local optimizer = optim.SGD(model:parameters(), { lr = 0.1 })
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

local steps, sent = 0, 0
for _ = 1, o.epochs do
  for batch in train_loader() do
    local before = accel.dist.bytes_sent()
    accelerator:backward(nn.functional.cross_entropy(model(batch[1]), batch[2])) -- nothing here changes
    steps, sent = steps + 1, sent + accel.dist.bytes_sent() - before
    optimizer:step()
    optimizer:zero_grad()
  end
end

model:eval()
local accuracy = accel.metrics.Accuracy()
for batch in test_loader() do
  accuracy:update(accel.no_grad(function() return model(batch[1]):argmax(2) end), batch[2])
end

--- Whether every weight has the same bits on all ranks.
local function same_everywhere(net)
  local _ <close> = accel.no_grad()
  for _, weights in ipairs(accelerator:gather(net:parameters())) do
    local parts = weights:chunk(accelerator.num_processes, 1)
    for rank = 2, #parts do
      if not accel.equal(parts[1], parts[rank]) then return false end
    end
  end
  return true
end

accelerator:print(("hook %s: test accuracy %.1f %% after %d steps"):format(o.hook,
  100 * accuracy:compute().accuracy, steps))
accelerator:print(("same weights on all ranks: %s"):format(same_everywhere(model) and "yes" or "no"))
if o.bytes then accelerator:print(("bytes sent by the main rank: %.1f KiB a step"):format(sent / steps / 1024)) end
