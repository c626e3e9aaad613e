--- Inference of a model that ranks hold together: each has some of its blocks, and parts of the batch pass from one to the next.
---
---   accel-run [--num-processes N] examples/37_pipeline_inference.lua [--model gpt2|llama|bert|t5] [--split auto|NAME,NAME,...]
---     [--num-chunks N] [--gather-output] [--batch N] [--length N] [--times N]
---
--- prepare_pippy keeps the model's own forward: nothing is traced, and every rank keeps the blocks between two split points alone. The last rank
--- has the output, or, with --gather-output, all have it. In Python: examples/inference/pippy/.
local accel = require "accel"
local models, A = accel.models, accel.accelerator

local declared = {
  name = "37_pipeline_inference.lua", summary = "Runs a model whose blocks are on different ranks.",
  { "model", "string", "gpt2", "NAME", "gpt2, llama, bert or t5" },
  { "split", "string", "auto", "NAMES", "auto, or the blocks at which ranks begin" },
  { "num-chunks", "int", nil, "N", "parts of the batch [the number of ranks]" },
  { "gather-output", "flag", false, nil, "all ranks get the output" },
  { "batch", "int", 5, "N", "rows" },
  { "length", "int", 16, "N", "tokens of a row" },
  { "times", "int", 0, "N", "tell the time of a batch, the mean of so many" },
}
local o = accel.util.cli(declared)

accel.accelerator.set_seed(42)
local V <const>, H <const> = 64, 32
local makers = {
  gpt2 = function() return models.GPT2 { vocab_size = V, n_positions = o.length, n_embd = H, n_layer = 4, n_head = 4 } end,
  llama = function()
    return models.Llama { vocab_size = V, hidden_size = H, intermediate_size = 64, num_hidden_layers = 4, num_attention_heads = 4,
      num_key_value_heads = 4, max_position_embeddings = o.length }
  end,
  bert = function()
    return models.BertForMaskedLM { vocab_size = V, hidden_size = H, intermediate_size = 64, num_hidden_layers = 4,
      num_attention_heads = 4, max_position_embeddings = o.length }
  end,
  t5 = function()
    return models.T5ForConditionalGeneration { vocab_size = V, d_model = H, d_kv = 8, d_ff = 64, num_layers = 2, num_heads = 4 }
  end,
}
if not makers[o.model] then accel.util.cli.fail(declared, ("--model must be gpt2, llama, bert or t5, got %s"):format(o.model)) end

local model = makers[o.model]():eval()
local ids = accel.randint(0, V, { o.batch, o.length })
local inputs = o.model == "t5" and { ids, { decoder_input_ids = ids } } or { ids }
local whole = accel.no_grad(function() return model(table.unpack(inputs)) end) -- the result of one rank with the whole model

local split = o.split
if split ~= "auto" then
  split = {}
  for name in o.split:gmatch "[^,]+" do split[#split + 1] = name end
end
local state = A.PartialState()
local pipeline = A.prepare_pippy(model, { split_points = split, num_chunks = o.num_chunks, gather_output = o.gather_output })

local function run() return accel.no_grad(function() return pipeline(table.unpack(inputs)) end) end

local output = run()
if state.is_last_process then
  print(("%s: output %s"):format(o.model, table.concat(output.shape, " x ")))
  print(("equal to the whole model's: %s"):format(accel.allclose(output, whole, { atol = 1e-5 }) and "yes" or "no"))
end
local have = A.gather_object { output ~= nil and 1 or 0 }
local blocks = A.gather_object { #pipeline:parameters() }
if state.is_last_process then
  local n = 0
  for _, x in ipairs(have) do n = n + x end
  print(("ranks with the output: %d of %d"):format(n, state.num_processes))
  print(("tensors of parameters on each rank: %s"):format(table.concat(blocks, ", ")))
end
if o.times > 0 then
  state:wait_for_everyone()
  local began = accel.clock()
  for _ = 1, o.times do run() end
  state:wait_for_everyone()
  if state.is_last_process then print(("a batch takes %.2f ms"):format((accel.clock() - began) / o.times * 1e3)) end
end
