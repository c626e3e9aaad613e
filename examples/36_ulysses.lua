--- Long sequences: every rank has a part of each sequence, and in attention some heads of the whole of it (Ulysses). Masks, position
--- ids and losses that leave prompts out, over sequences of different lengths.
---
---   accel-run [--num-processes N] examples/36_ulysses.lua [--sp-size N] [--dp-shard-size N] [--sequence-length N] [--variable]
---
--- --sp-size * --dp-shard-size is the number of processes. Ranks of sp read the same rows. The loss of a step is the mean over the tokens
--- that count, wherever they are: it is the same on every number of ranks. In Python:
--- examples/alst_ulysses_sequence_parallelism/sp-alst.py.
local accel = require "accel"
local A, data = accel.accelerator, accel.data

local declared = {
  name = "36_ulysses.lua", summary = "Trains a small Llama on sequences that ranks share out.",
  { "sp-size", "int", 1, "N", "ranks that share every sequence; divides the heads (4)" },
  { "dp-shard-size", "int", 1, "N", "ranks that share the batch out" },
  { "sequence-length", "int", 64, "N", "tokens of the longest sequence" },
  { "variable", "flag", false, nil, "batches of different lengths" },
  { "steps", "int", 12, "N", "training steps" },
}
local o = accel.util.cli(declared)
if o.sequence_length % (2 * o.sp_size) ~= 0 then
  accel.util.cli.fail(declared, ("--sequence-length %d must divide by 2 x --sp-size %d"):format(o.sequence_length, o.sp_size))
end

accel.accelerator.set_seed(42)
local accelerator = accel.Accelerator {
  parallelism_config = accel.ParallelismConfig {
    sp_size = o.sp_size, dp_shard_size = o.dp_shard_size,
    sp_handler = o.sp_size > 1 and A.DeepSpeedSequenceParallelConfig { sp_attn_implementation = "sdpa" } or nil,
  },
}
local sp = accelerator.torch_device_mesh:axis "sp"

local ROWS <const>, V <const>, IGNORED <const> = 4, 64, -100
local model = accel.models.Llama { vocab_size = V, hidden_size = 32, intermediate_size = 64, num_hidden_layers = 2,
  num_attention_heads = 4, num_key_value_heads = 4, max_position_embeddings = o.sequence_length }
local optimizer = accel.optim.Adam(model:parameters(), { lr = 3e-3 })
local first = accel.randint(0, V, { ROWS * o.steps, 1 })
local loader = data.DataLoader(data.TensorDataset((first + accel.arange(o.sequence_length + 1):unsqueeze(1)) % V),
  { batch_size = ROWS // o.dp_shard_size })
accelerator:print(("loader: %d batches"):format(#loader))
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
accelerator:print(("prepared: %d batches"):format(#loader))

--- Mean loss over the counted tokens, of all ranks of the world. Data parallelism averages its gradient.
local function loss_of(ids, labels)
  local logits = model(ids)
  local losses = accel.cross_entropy(logits:reshape(-1, V), labels:reshape(-1), { reduction = "sum", ignore_index = IGNORED })
  local good = labels:ne(IGNORED):sum():to "f32"
  local all = accelerator:reduce(good, "sum")
  local loss = losses / all * accelerator.num_processes
  return loss, all
end

local step, loss = 0, nil
for batch in loader() do
  step = step + 1
  -- every other batch is half as long, if lengths differ
  local length = o.variable and step % 2 == 0 and o.sequence_length // 2 or o.sequence_length
  local ids = batch[1]:narrow(2, 1, length):contiguous()
  local labels = batch[1]:narrow(2, 2, length):contiguous()
  labels:narrow(2, 1, length // 4):fill_(IGNORED) -- the prompt
  local function update()
    local good
    loss, good = loss_of(ids, labels)
    accelerator:backward(loss)
    return good
  end
  local good = o.sp_size == 1 and update() or accelerator:maybe_context_parallel({ buffers = { ids, labels }, buffer_seq_dims = { 2, 2 },
    no_restore_buffers = { ids, labels } }, update)
  optimizer:step()
  optimizer:zero_grad()
  local mean = accelerator:reduce(loss:detach(), "mean"):item()
  if step % 4 == 0 or step == 1 then
    accelerator:print(("batch %d: %d tokens, %d count: loss %.3f"):format(step, length, math.tointeger(good:item()), mean))
  end
end
accelerator:print(("%d ranks of sp have %d of %d positions each"):format(sp.size, o.sequence_length // sp.size, o.sequence_length))
accelerator:end_training()
