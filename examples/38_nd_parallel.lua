--- One Llama on a mesh of up to four dimensions: data parallelism with whole copies, with sharded parameters (FSDP), tensor and
--- context parallelism, with checkpoints on the way and a whole model at the end.
---
---   accel-run [--num-processes N] examples/38_nd_parallel.lua [--dp-replicate-size N] [--dp-shard-size N] [--tp-size N] [--cp-size N]
---     [--model-name DIR] [--sequence-length N] [--num-steps N] [--save-dir DIR] [--checkpoint-frequency N] [--resume DIR]
---
--- The product of the sizes is the number of processes. --model-name is a folder in Hugging Face's format. Without one a small Llama begins
--- from random weights. Losses equal one rank's on every mesh, and a checkpoint of one mesh continues on any other: --resume. In Python:
--- examples/torch_native_parallelism/nd_parallel.py.
local accel = require "accel"
local A, data = accel.accelerator, accel.data

local declared = {
  name = "38_nd_parallel.lua", summary = "Trains one Llama on a mesh of ranks.",
  { "dp-replicate-size", "int", 1, "N", "ranks with whole copies of the model" },
  { "dp-shard-size", "int", 1, "N", "ranks that shard parameters, gradients and states" },
  { "tp-size", "int", 1, "N", "ranks that share heads and features out" },
  { "cp-size", "int", 1, "N", "ranks that share every sequence out" },
  { "sequence-length", "int", 32, "N", "tokens of a sequence" },
  { "num-steps", "int", 20, "N", "training steps" },
  { "save-dir", "string", nil, "DIR", "checkpoints, and at the end the model" },
  { "checkpoint-frequency", "int", 10, "N", "steps between checkpoints" },
  { "resume", "string", nil, "DIR", "a checkpoint to continue from" },
  { "model-name", "string", nil, "DIR", "a folder with a Llama" },
  { "mixed-precision", "string", "no", "NAME", "no, bf16 or fp16" },
  { "speed", "flag", false, nil, "tell the tokens per second" },
  { "async-tp", "flag", false, nil, "sum over ranks of tp in parallel with products" },
}
local o = accel.util.cli(declared)
for _, name in ipairs { "sequence_length", "num_steps", "checkpoint_frequency" } do
  if o[name] < 1 then accel.util.cli.fail(declared, ("--%s must be 1 or more"):format(name:gsub("_", "-"))) end
end
local other = o.save_dir and not o.resume and accel.ckpt.other_run(o.save_dir, "^checkpoint%-%d+$")
if other then
  accel.util.refuse("%s is a checkpoint of another run; to continue it give --resume, to keep both another --save-dir", other)
end

accel.accelerator.set_seed(42)
local config = accel.ParallelismConfig {
  dp_replicate_size = o.dp_replicate_size, dp_shard_size = o.dp_shard_size, tp_size = o.tp_size, cp_size = o.cp_size,
  tp_handler = o.tp_size > 1 and A.TorchTensorParallelConfig { enable_async_tp = o.async_tp } or nil,
}
local sharded = config.dp_shard_size > 1 or config.cp_size > 1
local accelerator = accel.Accelerator {
  parallelism_config = config, mixed_precision = o.mixed_precision,
  fsdp_plugin = sharded and accel.FullyShardedDataParallelPlugin {
    fsdp_version = 2, auto_wrap_policy = "TRANSFORMER_BASED_WRAP", transformer_cls_names_to_wrap = { "LlamaDecoderLayer" },
    state_dict_type = "SHARDED_STATE_DICT",
  } or nil,
}
accelerator:print(("mesh: %s"):format(accelerator.torch_device_mesh))

-- The model, and sequences that count up from a random number ---------------------------------------

local ROWS <const> = 8 -- of an update, over all data ranks
local model = o.model_name and assert(accel.models.LlamaForCausalLM.from_pretrained(o.model_name)) or accel.models.Llama {
  vocab_size = 64, hidden_size = 32, intermediate_size = 64, num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 4,
  max_position_embeddings = o.sequence_length,
}
local V = model.config.vocab_size
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 3e-3 })
local first = accel.randint(0, V, { ROWS * math.max(o.num_steps, 1), 1 })
local tokens = (first + accel.arange(o.sequence_length + 1):unsqueeze(1)) % V
-- labels are shifted here, while sequences are whole: the next token of a part's last one is on another rank
local loader = data.DataLoader(data.TensorDataset(tokens:narrow(2, 1, o.sequence_length):contiguous(),
  tokens:narrow(2, 2, o.sequence_length):contiguous()), { batch_size = ROWS // config.data_parallel_size, shuffle = true, seed = 42 })
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)

-- Training -----------------------------------------------------------------------------------------

local function update(ids, labels)
  local loss = model(ids, { shift_labels = labels })
  accelerator:backward(loss)
  accelerator:clip_grad_norm_(model:parameters(), 1)
  optimizer:step()
  optimizer:zero_grad()
  return loss:detach()
end

local function step_of(ids, labels)
  if config.cp_size == 1 then return update(ids, labels) end
  local _ <close> = accelerator:maybe_context_parallel { buffers = { ids, labels }, buffer_seq_dims = { 2, 2 },
    no_restore_buffers = { ids, labels } }
  return update(ids, labels)
end

local done = { step = 0, state_dict = function(self) return { step = self.step } end,
  load_state_dict = function(self, s) self.step = s.step end }
accelerator:register_for_checkpointing(done)
if o.resume then
  accelerator:load_state(o.resume)
  accelerator:print(("continues after step %d"):format(done.step))
end

local began, seen = accel.clock(), 0
for batch in loader() do
  if done.step == o.num_steps then break end
  local loss = step_of(batch[1], batch[2])
  done.step, seen = done.step + 1, seen + ROWS * o.sequence_length
  -- the mean over the ranks of data and context. Those of tp have the same
  local mean = accelerator:reduce(loss, "mean"):item()
  if done.step % 5 == 0 or done.step == o.num_steps then accelerator:print(("step %d: loss %.3f"):format(done.step, mean)) end
  if o.save_dir and done.step % o.checkpoint_frequency == 0 and done.step < o.num_steps then
    accelerator:save_state(("%s/checkpoint-%d"):format(o.save_dir, done.step))
  end
end
if o.speed then accelerator:print(("%.0f tokens/s of %d ranks"):format(seen / (accel.clock() - began), accelerator.num_processes)) end

if o.save_dir then
  accelerator:wait_for_everyone()
  accelerator:save_model(model, o.save_dir .. "/model")
  accelerator:print(("model: %s/model"):format(o.save_dir))
end
accelerator:end_training()
