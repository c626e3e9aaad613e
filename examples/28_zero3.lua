--- ZeRO stage 3: a model that no rank has whole, from its first parameter to the file of its weights.
---
---   accel-run [--num-processes N] examples/28_zero3.lua [--width N] [--layers N] [--plus-plus] [--output-dir DIR]
---
--- zero3_init_flag creates the model in parts: each parameter is cut over the ranks as soon as it has its first values. While it
--- trains, a block is gathered before its forward and its backward, and given back. GatheredParameters looks at single parameters.
--- The checkpoint is written in shards. `accel-run merge-weights` makes one file from it, as zero_to_fp32.py does, and so does
--- accelerator:save_model, which gathers. With --plus-plus (ZeRO++) machines send parameters in 8 bits and gradients in 4. In
--- Python: examples/by_feature/deepspeed_with_config_support.py with zero_stage3_config.json.
local accel = require "accel"

local declared = {
  name = "28_zero3.lua", usage = "[options]", summary = "Creates, trains and saves a model in parts.",
  { "width", "int", 128, "N", "numbers of a state" },
  { "layers", "int", 4, "N", "transformer blocks" },
  { "steps", "int", 30, "N", "updates" },
  { "batch", "int", 8, "N", "sequences a step, over all ranks" },
  { "plus-plus", "flag", false, nil, "send fewer bits between machines" },
  { "output-dir", "string", "zero3", "DIR", "folder of the checkpoint and the weights" },
}
local o = accel.util.cli(declared)
local other = accel.ckpt.other_run(o.output_dir .. "/state")
if other then accel.util.refuse("%s is a checkpoint of another run; give another --output-dir", other) end

local accelerator = accel.Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = {
  zero_optimization = {
    stage = 3, stage3_param_persistence_threshold = "auto", stage3_gather_16bit_weights_on_model_save = true,
    zero_quantized_weights = o.plus_plus, zero_quantized_gradients = o.plus_plus,
  },
  optimizer = { type = "AdamW", params = { lr = 3e-3 } }, gradient_clipping = 1.0,
} } }
local P = accelerator.num_processes
if o.batch % P ~= 0 then accel.util.cli.fail(declared, ("--batch %d cannot be cut into %d equal parts"):format(o.batch, P)) end

accel.manual_seed(1)
local model = accel.models.GPT2LMHeadModel { -- in parts: see zero3_init_flag
  vocab_size = 64, n_positions = 32, n_embd = o.width, n_layer = o.layers, n_head = 4, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0,
}
local n = 0
for _, p in ipairs(model:parameters()) do n = n + p:numel() end
collectgarbage()
accelerator:print(("%.2f million parameters; this rank holds %.0f %% of their bytes"):format(n / 1e6,
  100 * accel.mem_stats("cpu").live_bytes / (4 * n)))

local optimizer = accel.DummyOptim(model:parameters())
model, optimizer = accelerator:prepare(model, optimizer)

--- Sequences that count up by different steps.
local function batch(step)
  local first = accelerator.process_index * (o.batch // P)
  local rows = {}
  for i = 1, o.batch // P do
    local random = accel.util.Random(step * o.batch + first + i)
    local x, by = random:below(64), 1 + random:below(4)
    rows[i] = {}
    for t = 1, 32 do rows[i][t] = (x + by * t) % 64 end
  end
  return accel.tensor(rows, { dtype = "i64" })
end

local sent = accel.dist.bytes_sent()
for step = 1, o.steps do
  local x = batch(step)
  local loss = model(x, { labels = x })
  accelerator:backward(loss)
  optimizer:step()
  optimizer:zero_grad()
  if step % 10 == 0 then
    accelerator:print(("step %d: loss %.4f"):format(step, accelerator:reduce(loss:detach(), "mean"):item()))
  end
end
sent = (accel.dist.bytes_sent() - sent) / o.steps
accelerator:print(("%.2f bytes a parameter and step went to other ranks"):format(sent / n))

-- One parameter, whole on every rank until the block ends.
local embedding = model.transformer.wte.weight
accel.deepspeed.GatheredParameters(embedding, function()
  accelerator:print(("norm of the embedding: %.3f"):format(embedding:detach():pow(2):sum():sqrt():item()))
end)

accelerator:save_state(o.output_dir .. "/state")
accelerator:save_model(model, o.output_dir)
accelerator:print(("accel-run merge-weights %s/state %s/merged"):format(o.output_dir, o.output_dir))
