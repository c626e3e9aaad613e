-- What accel-run plan plays with each plan: some updates of a model by AdamW, as a script of accel-run --dry-run. Its argument is JSON:
-- config (of the model), rows (of one forward of this rank), tokens, accumulate (forwards of an update), clip.
local accel = require "accel"
local o = accel.json.decode(arg[1])
local accelerator = accel.Accelerator { gradient_accumulation_steps = o.accumulate }
local cls = assert(require "accel.models.auto".class_of(o.config))
local model = cls(o.config)
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-4 })
model, optimizer = accelerator:prepare(model, optimizer)
local parallel = rawget(accelerator, "_parallel")
local cuts = parallel and (parallel.config.cp_size > 1 or parallel.config.sp_size > 1)

--- Arguments of one forward, by what the family reads.
local function batch()
  local kind = o.config.model_type
  if kind == "vit" or kind == "resnet" then
    local c, size = o.config, o.config.image_size or 224
    return { accel.randn(o.rows, c.num_channels or 3, size, size), { labels = accel.randint(0, 2, { o.rows }) } }
  end
  local ids = accel.randint(0, 2, { o.rows, o.tokens })
  if cuts then return { ids, { shift_labels = accel.randint(0, 2, { o.rows, o.tokens }) } } end
  return { ids, { labels = kind == "t5" and accel.randint(0, 2, { o.rows, o.tokens }) or ids } }
end

for _ = 1, 99 do
  local _ <close> = accelerator:accumulate(model)
  local args = batch()
  if cuts then
    local _ <close> = accelerator:maybe_context_parallel { buffers = { args[1], args[2].shift_labels }, buffer_seq_dims = { 2, 2 } }
    accelerator:backward(model(args[1], args[2]))
  else
    local loss = model(args[1], args[2])
    accelerator:backward(accel.is_tensor(loss) and loss:numel() == 1 and loss or loss:float():mean())
  end
  if accelerator.sync_gradients and not accelerator.megatron_lm_plugin then accelerator:clip_grad_norm_(model:parameters(), 1.0) end
  optimizer:step()
  optimizer:zero_grad()
end
