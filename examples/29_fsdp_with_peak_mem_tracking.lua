--- Sharding with FSDP's options, and its savings: memory is measured around training and evaluation of every epoch.
---
---   accel-run --num-processes 4 examples/29_fsdp_with_peak_mem_tracking.lua [--strategy NAME] [--precision bf16] [DIR]
---   accel-run --num-processes 4 examples/29_fsdp_with_peak_mem_tracking.lua --strategy none      # copies on every rank
---
--- A rank holds a part of the parameters, gradients and states of AdamW. Blocks are gathered one after the other while they
--- compute. Training is the same for every sharding. The figures of memory are rank 0's and the sum over all ranks (on one
--- machine parameters exist once for all of them, distributed over the ranks' memory). In Python:
--- examples/by_feature/fsdp_with_peak_mem_tracking.py.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "29_fsdp_with_peak_mem_tracking.lua", usage = "[options] [DIR]", summary = "Trains on digits in parts, and measures memory.",
  { "strategy", "string", "FULL_SHARD", "NAME", "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD; none: data parallelism" },
  { "precision", "string", "fp32", "NAME", "bf16: gather and compute in bf16, with parts in f32" },
  { "blocks", "int", 4, "N", "blocks of the model" },
  { "width", "int", 128, "N", "numbers between them" },
  { "epochs", "int", 3, "N", "passes over the data" },
  { "batch", "int", 64, "N", "pictures a step, over all ranks" },
  { "lr", "number", 2e-3, "X", "learning rate" },
  { "seed", "int", 1, "N", "of weights and order" },
  { "output-dir", "string", nil, "DIR", "write the trained model into this folder" },
}
local o, dirs = accel.util.cli(declared)

local Block = nn.Module:extend "Block"
function Block:init(width)
  self.norm = nn.LayerNorm(width)
  self.up = nn.Linear(width, 2 * width)
  self.down = nn.Linear(2 * width, width)
end
function Block:forward(x) return x + self.down(self.up(self.norm(x)):gelu()) end

local plugin = o.strategy ~= "none" and accel.FullyShardedDataParallelPlugin {
  sharding_strategy = o.strategy, auto_wrap_policy = "TRANSFORMER_BASED_WRAP", transformer_cls_names_to_wrap = { "Block" },
  mixed_precision_policy = o.precision == "bf16" and { param_dtype = "bf16", reduce_dtype = "f32", buffer_dtype = "f32" } or nil,
} or nil
local accelerator = accel.Accelerator { split_batches = true, fsdp_plugin = plugin }

local dir = dirs[1] or (arg[0]:match "^.*/" or "") .. "digits"
local function open(part)
  local set, message = data.IDX.open(("%s/%s-images-idx3-ubyte"):format(dir, part),
    ("%s/%s-labels-idx1-ubyte"):format(dir, part), { scale = 16 })
  return set or accel.util.cli.fail(declared, message)
end
local train, test = open "train", open "test"

accel.manual_seed(o.seed)
local blocks = {}
for i = 1, o.blocks do blocks[i] = Block(o.width) end
local n_pixels = train.images:numel() // #train.labels
local model = nn.Sequential(nn.Flatten(), nn.Linear(n_pixels, o.width), nn.Sequential(table.unpack(blocks)), nn.Linear(o.width, 10))
local optimizer = optim.AdamW(model:parameters(), { lr = o.lr })
local loader = data.DataLoader(train, { batch_size = o.batch, shuffle = true, drop_last = true, seed = o.seed })
local test_loader = data.DataLoader(test, { batch_size = o.batch })
model, optimizer, loader, test_loader = accelerator:prepare(model, optimizer, loader, test_loader)

--- The memory that f adds to tensors, and its peak, in KB: of this rank, and summed over ranks.
local function traced(what, f, ...)
  accelerator:wait_for_everyone()
  collectgarbage()
  accel.reset_peak_memory "cpu"
  local began = accel.mem_stats("cpu").live_bytes
  local result = f(...)
  local peak = accel.mem_stats("cpu").peak_bytes
  collectgarbage()
  local figures = accel.tensor({ began, accel.mem_stats("cpu").live_bytes - began, peak - began, peak }, { dtype = "f64" })
  local all = accelerator:reduce(figures, "sum"):tolist()
  local own = figures:tolist()
  accelerator:print(("  %-10s before %8.0f KB, kept %+8.0f KB, peak %+8.0f KB, in all %8.0f KB; over ranks %8.0f KB"):format(what,
    own[1] / 1024, own[2] / 1024, own[3] / 1024, own[4] / 1024, all[4] / 1024))
  return result
end

local function train_epoch()
  model:train()
  local total, n = 0, 0
  for batch in loader() do
    local loss = nn.functional.cross_entropy(model(batch[1]):float(), batch[2])
    accelerator:backward(loss)
    accelerator:clip_grad_norm_(model:parameters(), 1)
    optimizer:step()
    optimizer:zero_grad()
    total, n = total + loss:item(), n + 1
  end
  return total / n
end

local function evaluate()
  model:eval()
  local accuracy = accel.metrics.Accuracy()
  for batch in test_loader() do
    local said = accel.no_grad(function() return model(batch[1]):argmax(2) end)
    accuracy:update(accelerator:gather_for_metrics(said), accelerator:gather_for_metrics(batch[2]))
  end
  return accuracy:compute().accuracy
end

local accuracy
for epoch = 1, o.epochs do
  accelerator:print(("epoch %d"):format(epoch))
  traced("train", train_epoch)
  accuracy = traced("evaluate", evaluate)
end
accelerator:print(("test accuracy: %.1f %%"):format(100 * accuracy))
if o.output_dir then accelerator:save_model(model, o.output_dir) end -- whole, by the main process. All ranks must call it
accelerator:end_training()
