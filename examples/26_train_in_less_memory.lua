--- Training in less memory than the model's states need: parameters, gradients and optimizer states stay in files (or in host memory)
--- and are fetched for use. Activations are recomputed.
---
---   accel-run --memory-limit 700M examples/26_train_in_less_memory.lua [--offload nvme|cpu|none] [--folder DIR] [TEXT]
---
--- By default this is GPT-2 124M with AdamW on 4 rows of 64 bytes of TEXT (this script without one): 2 GB of parameters, gradients
--- and moments. --small trains a model of a few layers. --small trains a model of a few layers. The losses are the same for every
--- --offload, bit for bit. In Python: DeepSpeed's ZeRO-Infinity, docs/source/usage_guides/deepspeed.md.
local accel = require "accel"
local models, optim = accel.models, accel.optim

local o, files = accel.util.cli {
  name = "26_train_in_less_memory.lua", usage = "[options] [TEXT]", summary = "Trains GPT-2 with states on disk.",
  { "offload", "string", "nvme", "WHERE", "tier of parameters, gradients and states: nvme (files), cpu (host memory) or none" },
  { "folder", "string", "/tmp", "DIR", "folder of the files" },
  { "steps", "int", 3, "N", "updates" },
  { "batch", "int", 4, "N", "rows a step" },
  { "length", "int", 64, "N", "bytes a row" },
  { "lr", "number", 1e-3, "X", "learning rate" },
  { "clip", "number", 1.0, "X", "norm that gradients are clipped to" },
  { "seed", "int", 1, "N", "of weights and rows" },
  { "small", "flag", false, nil, "a model of 2 layers instead of GPT-2 124M" },
  { "bf16", "flag", false, nil, "compute in bf16" },
}
if o.offload ~= "nvme" and o.offload ~= "cpu" and o.offload ~= "none" then
  accel.util.cli.fail({ name = "26_train_in_less_memory.lua" }, ("option '--offload' must be nvme, cpu or none, got '%s'"):format(o.offload))
end

local where = o.offload ~= "none" and { device = o.offload, nvme_path = o.offload == "nvme" and o.folder or nil } or nil
local accelerator = accel.Accelerator {
  mixed_precision = o.bf16 and "bf16" or "no",
  deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = {
    train_micro_batch_size_per_gpu = o.batch, gradient_accumulation_steps = 1, gradient_clipping = o.clip,
    zero_optimization = {
      stage = 3, offload_param = where, offload_optimizer = where, stage3_param_persistence_threshold = 0, sub_group_size = 1 << 20,
    },
  } },
}

-- Rows are pieces of the text. A byte is a token.
local file = assert(io.open(files[1] or arg[0], "rb"))
local text = file:read "a"
file:close()
local bytes = accel.from_bytes(text, "u8"):to "i64"

accel.manual_seed(o.seed)
local size = o.small and { n_embd = 64, n_layer = 2, n_head = 4, vocab_size = 256 } or { n_embd = 768, n_layer = 12, n_head = 12,
  vocab_size = 50257 }
local net = models.GPT2 {
  n_embd = size.n_embd, n_layer = size.n_layer, n_head = size.n_head, vocab_size = size.vocab_size, n_positions = math.max(o.length, 64),
  resid_pdrop = 0.0, embd_pdrop = 0.0, attn_pdrop = 0.0,
}
net:gradient_checkpointing_enable()
local optimizer = optim.AdamW(net:parameters(), { lr = o.lr, weight_decay = 0.1 })
local parameters = 0
for _, p in ipairs(net:parameters()) do parameters = parameters + p:numel() end
accelerator:print(("%.1f million parameters; %.0f MB of parameters, gradients and moments"):format(parameters / 1e6, parameters * 16 / 1e6))

local model
model, optimizer = accelerator:prepare(net, optimizer)
model:train()
accel.collect()
accel.empty_cache()
accel.reset_peak_memory "cpu"
for step = 1, o.steps do
  local from = accel.clock()
  local rows = {}
  for r = 1, o.batch do
    local at = ((step - 1) * o.batch + r) * 7919 % (bytes:numel() - o.length - 1)
    rows[r] = bytes:narrow(1, at + 1, o.length)
  end
  local ids = accel.stack(rows)
  local loss = model(ids, { labels = ids })
  accelerator:backward(loss)
  optimizer:step()
  optimizer:zero_grad()
  accelerator:print(("step %d  loss %.6f  %.1f s  peak of memory %.0f MB"):format(step, loss:item(), accel.clock() - from,
    accel.mem_stats("cpu").peak_bytes / 1e6))
end
local tier = model.reducer and model.reducer.tier
local stats = tier and tier:stats()
if stats and stats.parameters then
  accelerator:print(("files: %.0f MB; read %.0f MB, written %.0f MB"):format(
    (stats.parameters.used_bytes + stats.optimizer.used_bytes) / 1e6, (stats.parameters.read_bytes + stats.optimizer.read_bytes) / 1e6,
    (stats.parameters.written_bytes + stats.optimizer.written_bytes) / 1e6))
end
