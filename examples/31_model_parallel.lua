--- One model over many ranks: tensor, pipeline and data parallelism of the same script, by a mesh.
---
---   accel-run [--num-processes N] examples/31_model_parallel.lua [--tp N] [--pp N] [--dp N] [--sequence-parallel] [--steps N]
---
--- --tp * --pp * --dp is the number of processes. A mesh of ranks shares out heads and features (tp), blocks (pp) and the batch (dp);
--- losses are those of one rank whatever the mesh, and the checkpoint at the end is whole: any other mesh could go on from it.
--- In Python: examples/torch_native_parallelism/nd_parallel.py.
local accel = require "accel"
local A, data = accel.accelerator, accel.data

local o = accel.util.cli {
  name = "31_model_parallel.lua", summary = "Trains one small GPT on a mesh of ranks.",
  { "tp", "int", 1, "N", "ranks that share heads and features out" },
  { "pp", "int", 1, "N", "ranks that share blocks out" },
  { "dp", "int", 1, "N", "ranks that share the batch out" },
  { "sequence-parallel", "flag", false, nil, "ranks of tp have parts of the sequence between the layers" },
  { "steps", "int", 20, "N", "training steps" },
  { "seed", "int", 1, "N", "of weights and data" },
}

local accelerator = accel.Accelerator {
  parallelism_config = accel.ParallelismConfig {
    tp_size = o.tp, pp_size = o.pp, dp_shard_size = o.dp,
    tp_handler = A.TorchTensorParallelConfig { sequence_parallel = o.sequence_parallel },
    pp_handler = A.PipelineParallelConfig { num_micro_batches = 2 },
  },
}
accelerator:print(("mesh: tp %d, pp %d, dp %d"):format(o.tp, o.pp, o.dp))

accel.manual_seed(o.seed)
local model = accel.models.GPT2 { vocab_size = 32, n_positions = 16, n_embd = 32, n_layer = 4, n_head = 4 }
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 3e-3 })
-- Sequences that count up from a random number, modulo 32.
local first = accel.randint(0, 32, { 256, 1 })
local rows = data.TensorDataset((first + accel.arange(16):unsqueeze(1)) % 32)
local loader = data.DataLoader(rows, { batch_size = 16 // o.dp, shuffle = true, seed = o.seed })
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)

local step, loss = 0, nil
while step < o.steps do
  for batch in loader() do
    loss = model(batch[1], { labels = batch[1] })
    accelerator:backward(loss)
    accelerator:clip_grad_norm_(model:parameters(), 1)
    optimizer:step()
    optimizer:zero_grad()
    step = step + 1
    if step == o.steps then break end
  end
end
loss = accelerator:reduce(loss:detach(), "mean"):item()
accelerator:print(("step %d: loss %.3f"):format(step, loss))

local state = accelerator:get_state_dict(model)
if accelerator.is_main_process then
  print(("whole: wte %s"):format(table.concat(state["transformer.wte.weight"].shape, " x ")))
end
