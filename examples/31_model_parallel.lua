--- One model over many ranks: tensor, pipeline and data parallelism of the same script, by a mesh.
---
---   accel-run [--num-processes N] examples/31_model_parallel.lua [--tp N] [--pp N] [--dp N] [--sequence-parallel] [--steps N]
---   accel-run preprocess --input a.jsonl --output-prefix a --tokenizer-model DIR --append-eod
---   accel-run --num-processes 2 examples/31_model_parallel.lua --tp 2 --data a_text_document --vocab-size N
---
--- --tp * --pp * --dp is the number of processes. A mesh of ranks divides heads and features (tp), blocks (pp) and the batch (dp).
--- Losses equal one rank's for every mesh, and the checkpoint at the end is whole: any other mesh could continue from it. --data
--- trains with Megatron-LM's options, on its indexed files: MegatronLMPlugin, MegatronLMDummyDataLoader. In Python:
--- examples/torch_native_parallelism/nd_parallel.py, and the page of Megatron-LM.
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
  { "data", "string", nil, "PREFIX", "of indexed files, as accel-run preprocess writes them: train on these" },
  { "split", "string", "90,10,0", "A,B,C", "shares of train, valid and test of --data" },
  { "vocab-size", "int", 32, "N", "token ids are below it" },
  { "seq-length", "int", 16, "N", "tokens of a row" },
}

local ROWS <const>, MICRO_BATCHES <const> = 16, 2 -- of an update, and of a step of the model
local how = {}
if o.data then
  how.megatron_lm_plugin = accel.MegatronLMPlugin {
    tp_degree = o.tp, pp_degree = o.pp, num_micro_batches = MICRO_BATCHES, sequence_parallelism = o.sequence_parallel,
    train_iters = o.steps, eval_iters = 2, eval_interval = o.steps, megatron_dataset_flag = true,
  }
else
  how.parallelism_config = accel.ParallelismConfig {
    tp_size = o.tp, pp_size = o.pp, dp_shard_size = o.dp,
    tp_handler = A.TorchTensorParallelConfig { sequence_parallel = o.sequence_parallel },
    pp_handler = A.PipelineParallelConfig { num_micro_batches = MICRO_BATCHES },
  }
end
local accelerator = accel.Accelerator(how)
if o.tp * o.pp * o.dp ~= accelerator.num_processes then
  io.stderr:write(("31_model_parallel.lua: --tp %d, --pp %d and --dp %d need %d processes, not %d\n"):format(o.tp, o.pp, o.dp,
    o.tp * o.pp * o.dp, accelerator.num_processes))
  os.exit(2, true)
end
accelerator:print(("mesh: tp %d, pp %d, dp %d"):format(o.tp, o.pp, o.dp))

accel.manual_seed(o.seed)
local model = accel.models.GPT2 { vocab_size = o.vocab_size, n_positions = o.seq_length, n_embd = 32, n_layer = 4, n_head = 4 }
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 3e-3 })
local loader, valid
if o.data then
  local sets = A.MegatronLMDummyDataLoader {
    data_path = o.data, splits_string = o.split, seq_length = o.seq_length, micro_batch_size = ROWS // (MICRO_BATCHES * o.dp), seed = o.seed,
  }
  model, optimizer, loader, valid = accelerator:prepare(model, optimizer, sets, sets)
else
  -- Sequences that count up from a random number.
  local first = accel.randint(0, o.vocab_size, { 256, 1 })
  local rows = data.TensorDataset((first + accel.arange(o.seq_length):unsqueeze(1)) % o.vocab_size)
  loader = data.DataLoader(rows, { batch_size = ROWS // o.dp, shuffle = true, seed = o.seed })
  model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
end

--- The loss of a batch: of indexed files labels are one token on already.
local function loss_of(batch)
  if o.data then return model(batch.tokens, { shift_labels = batch.labels }) end
  return model(batch[1], { labels = batch[1] })
end

local step, loss = 0, nil
while step < o.steps do
  for batch in loader() do
    loss = loss_of(batch)
    accelerator:backward(loss)
    if not o.data then accelerator:clip_grad_norm_(model:parameters(), 1) end -- the plugin clips by itself
    optimizer:step()
    optimizer:zero_grad()
    step = step + 1
    if step == o.steps then break end
  end
end
loss = accelerator:reduce(loss:detach(), "mean"):item()
accelerator:print(("step %d: loss %.3f"):format(step, loss))
if valid then
  model:eval()
  local sum, n = 0, 0
  for batch in valid() do
    local _ <close> = accel.no_grad()
    sum, n = sum + accelerator:reduce(loss_of(batch):detach(), "mean"):item(), n + 1
  end
  accelerator:print(("valid: loss %.3f of %d batches"):format(sum / n, n))
end

local state = accelerator:get_state_dict(model)
if accelerator.is_main_process then
  print(("whole: wte %s"):format(table.concat(state["transformer.wte.weight"].shape, " x ")))
end
