--- DeepSpeed's configuration, as it is: a GPT learns sentences under ZeRO, with the optimizer and the schedule of a JSON file.
---
---   accel-run [--num-processes N] examples/27_deepspeed.lua [--deepspeed-config-file FILE] [--mixed-precision WORD] [FILE.csv]
---   accel-run --config_file accelerate.yaml examples/27_deepspeed.lua     with the deepspeed_config of Accelerate
---
--- The script replaces each "auto" of the file: batch sizes come from its loaders, rates from DummyOptim and DummyScheduler, sizes of
--- buckets from the model. If the file has no optimizer (deepspeed/zero3.json) the script makes it. The backward that ends an update
--- clips, steps and advances the schedule, so that optimizer:step(), scheduler:step() and zero_grad(), which other launches need, do
--- nothing. Prints nearly the same numbers on 1, 2 and 4 ranks and at every stage. In Python:
--- examples/by_feature/deepspeed_with_config_support.py.
local accel = require "accel"
local optim, data = accel.optim, accel.data
local here = arg[0]:match "^.*/" or ""

local declared = {
  name = "27_deepspeed.lua", usage = "[options] [FILE.csv]", summary = "Trains a small GPT under a configuration of DeepSpeed.",
  { "deepspeed-config-file", "string", here .. "deepspeed/zero2.json", "FILE", "DeepSpeed's JSON" },
  { "mixed-precision", { "no", "bf16" }, "no", "WORD", "value of bf16.enabled = \"auto\"" },
  { "epochs", "int", 4, "N", "passes over the sentences" },
  { "batch", "int", 16, "N", "sentences a step, over all ranks" },
  { "accumulate", "int", 1, "K", "batches of an update" },
  { "lr", "number", 3e-3, "X", "highest learning rate" },
  { "weight-decay", "number", 0.01, "X", "share of the weights that a step takes off, times the rate" },
  { "warmup", "int", 10, "N", "updates until the highest rate" },
  { "length", "int", 64, "N", "characters of a sentence that are read" },
  { "output-dir", "string", nil, "DIR", "folder of the weights" },
  { "seed", "int", 1, "N", "of weights and order" },
}
local o, files = accel.util.cli(declared)

-- A launch with a deepspeed_config sets everything itself. Otherwise the plugin takes the file.
local plugin
if os.getenv "ACCELERATE_USE_DEEPSPEED" ~= "true" then
  plugin = accel.DeepSpeedPlugin { hf_ds_config = o.deepspeed_config_file }
end
local accelerator = accel.Accelerator {
  deepspeed_plugin = plugin, mixed_precision = o.mixed_precision, split_batches = true, gradient_accumulation_steps = o.accumulate,
}

local sentences, message = data.CSV.open(files[1] or here .. "mrpc/train.csv")
if not sentences then accel.util.cli.fail(declared, message) end
local texts = sentences:column "sentence1"
local vocab = accel.text.CharVocab.from_text(table.concat(texts) .. "\n")
local rows = {}
for i, text in ipairs(texts) do
  local ids = vocab:encode_list(text:sub(1, o.length))
  for k = #ids + 1, o.length do ids[k] = vocab:encode_list "\n"[1] end
  rows[i] = ids
end
local ids = accel.tensor(rows, { dtype = "i64" })
local n_dev = math.max(1, #rows // 8)
local train = data.TensorDataset(ids:narrow(1, 1, #rows - n_dev))
local dev = data.TensorDataset(ids:narrow(1, #rows - n_dev + 1, n_dev))
local train_loader = data.DataLoader(train, { batch_size = o.batch, shuffle = true, drop_last = true, seed = o.seed })
local dev_loader = data.DataLoader(dev, { batch_size = o.batch })

accel.manual_seed(o.seed)
local model = accel.models.GPT2LMHeadModel {
  vocab_size = #vocab, n_positions = o.length, n_embd = 64, n_layer = 2, n_head = 4, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0,
}

-- The script only needs placeholders for parts that the configuration defines.
local config = accelerator.deepspeed_config
local updates = o.epochs * #train_loader // o.accumulate
local optimizer, scheduler
if config.optimizer then
  optimizer = accel.DummyOptim(model:parameters(), { lr = o.lr, weight_decay = o.weight_decay })
else
  optimizer = optim.AdamW(model:parameters(), { lr = o.lr, weight_decay = o.weight_decay })
end
if config.scheduler then
  scheduler = accel.DummyScheduler(optimizer, { total_num_steps = updates, warmup_num_steps = o.warmup })
else
  scheduler = optim.lr_scheduler.get_scheduler("linear", optimizer, { num_warmup_steps = o.warmup, num_training_steps = updates })
end
model, optimizer, scheduler, train_loader, dev_loader = accelerator:prepare(model, optimizer, scheduler, train_loader, dev_loader)

local function perplexity()
  local _ <close> = accel.no_grad()
  local losses = {}
  model:eval()
  for batch in dev_loader() do
    local loss = model(batch[1], { labels = batch[1] })
    losses[#losses + 1] = accelerator:reduce(loss:detach():to "f32", "mean"):item()
  end
  model:train()
  local sum = 0
  for _, loss in ipairs(losses) do sum = sum + loss end
  return math.exp(sum / #losses)
end

accelerator:print(("ZeRO stage %d, updates of %s sentences"):format(config.zero_optimization.stage, config.train_batch_size))
for epoch = 1, o.epochs do
  for batch in train_loader() do
    local _ <close> = accelerator:accumulate(model)
    local loss = model(batch[1], { labels = batch[1] })
    accelerator:backward(loss)
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
  end
  local norm = accelerator.deepspeed_engine_wrapped:get_global_grad_norm()
  accelerator:print(("epoch %d: perplexity %.3f, rate %.5f, norm of the last gradient %.2f"):format(epoch, perplexity(),
    scheduler:get_last_lr()[1], norm))
end
if o.output_dir then
  accelerator:save_model(model, o.output_dir)
  accelerator:print("saved " .. o.output_dir .. "/model.safetensors")
end
