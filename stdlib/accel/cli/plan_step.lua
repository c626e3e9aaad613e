-- The script that accel-run plan simulates with each plan: some updates of a model by AdamW, run by accel-run --dry-run. Its argument
-- is JSON: config (of the model), rows (of one forward of this rank), tokens, accumulate (forwards of an update), clip.
local accel = require "accel"
local o = accel.json.decode(arg[1], { nulls = true })
local kind = o.config.model_type
local pictures, targets = kind == "vit" or kind == "resnet", nil

--- The loss of families without labels: cross entropy of the logits against classes, or against the ids if there are several.
local function loss_of(out, x)
  if not pictures and not targets then return accel.is_tensor(out) and out or out[1] end
  local classes = targets and x or accel.randint(0, 2, { out.shape[1] })
  return accel.cross_entropy(out:reshape(-1, out.shape[out.ndim]), classes:reshape(-1))
end

if kind == "bert" or kind == "t5" then targets = "ids" end
local labelled = not pictures and not targets
local accelerator = accel.Accelerator { gradient_accumulation_steps = o.accumulate,
  megatron_lm_plugin = not labelled and os.getenv "ACCELERATE_USE_MEGATRON_LM" == "true"
    and accel.MegatronLMPlugin { custom_loss_function = loss_of } or nil }
local cls = assert(require "accel.models.auto".class_of(o.config))
local model = cls(o.config)
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-4 })
model, optimizer = accelerator:prepare(model, optimizer)
local parallel = rawget(accelerator, "_parallel")
local cuts = parallel and (parallel.config.cp_size > 1 or parallel.config.sp_size > 1)

--- Arguments of one forward, by the family's inputs.
local function batch()
  if pictures then
    local c, size = o.config, o.config.image_size or 224
    local height, width = size, size
    if type(size) == "table" then height, width = size[1], size[2] end
    return { accel.randn(o.rows, c.num_channels or 3, height, width) }
  end
  local ids = accel.randint(0, 2, { o.rows, o.tokens })
  if cuts then return { ids, { shift_labels = accel.randint(0, 2, { o.rows, o.tokens }) } } end
  if kind == "t5" then return { ids, { decoder_input_ids = ids } } end
  return { ids, labelled and { labels = ids } or {} }
end

for _ = 1, 99 do
  local _ <close> = accelerator:accumulate(model)
  local args = batch()
  if cuts then
    local _ <close> = accelerator:maybe_context_parallel { buffers = { args[1], args[2].shift_labels }, buffer_seq_dims = { 2, 2 } }
    accelerator:backward((model(args[1], args[2])))
  else
    local out = model(table.unpack(args))
    accelerator:backward(accelerator.megatron_lm_plugin and out or loss_of(out, args[1]))
  end
  if accelerator.sync_gradients and not accelerator.megatron_lm_plugin then accelerator:clip_grad_norm_(model:parameters(), 1.0) end
  optimizer:step()
  optimizer:zero_grad()
end
