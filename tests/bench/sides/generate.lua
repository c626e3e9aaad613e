-- Side of the bench of decoding: greedy ids of one prompt. With --make FOLDER it writes the model that all sides load, with --gguf TYPE that
-- of --data as llama.cpp's file, and ends. --quant int8 | nf4: all linear layers so, the head and an embedding that is tied to it, too.
-- ms is the median time of a token behind the first, prompt_ms the time to the first.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { family = "gpt2", layers = 12, width = 768, heads = 12, vocab = 50257, inner = 3072, dtype = "f32", prompt = 64,
  tokens = 48, data = "", make = "", gguf = "", quant = "" }

if o.make ~= "" then
  accel.manual_seed(1)
  local model
  if o.gguf ~= "" then
    model = assert(accel.models.from_pretrained(o.data .. "/model"))
    assert(accel.models.gguf.save(model, o.make .. "/model.gguf", { type = o.gguf }))
    return
  end
  if o.family == "gpt2" then
    model = accel.models.GPT2({ vocab_size = o.vocab, n_positions = 1024, n_embd = o.width, n_layer = o.layers, n_head = o.heads,
      n_inner = o.inner }, { dtype = o.dtype })
  else
    model = accel.models.Llama({ vocab_size = o.vocab, hidden_size = o.width, intermediate_size = o.inner, num_hidden_layers = o.layers,
      num_attention_heads = o.heads, num_key_value_heads = o.heads // 8, max_position_embeddings = 1024 }, { dtype = o.dtype })
  end
  assert(model:save_pretrained(o.make .. "/model"))
  return
end

local quantised
if o.quant ~= "" then
  quantised = accel.quant.BnbQuantizationConfig {
    load_in_8bit = o.quant == "int8", load_in_4bit = o.quant == "nf4", bnb_4bit_quant_type = o.quant == "nf4" and "nf4" or nil,
    bnb_4bit_compute_dtype = o.dtype, torch_dtype = o.dtype, skip_modules = {},
  }
end
local model = assert(accel.models.from_pretrained(o.data .. "/model", { quantization_config = quantised }))
local bytes, prompt = 0, {}
for name, p in accel.pairs(model:named_parameters()) do
  -- of positions, and of tokens where no head is tied to them, one row is read
  local one = name:find("wpe.", 1, true) or name:find("embed_tokens.", 1, true)
  bytes = bytes + p:numel() * p:element_size() // (one and p.shape[1] or 1)
end
for i = 1, o.prompt do prompt[i] = i * 37 % o.vocab end
local clock = accel.clock
local function run(n)
  local times, began = {}, clock()
  local ids = model:generate(prompt, { max_new_tokens = n, eos_token_id = false, do_sample = false, on_token = function()
    times[#times + 1] = clock()
  end })
  local steps = {}
  for i = 2, #times do steps[#steps + 1] = times[i] - times[i - 1] end
  return ids, times[1] - began, steps
end
run(4)
local ids, first, steps = run(o.tokens)
local ms = side.median(steps) * 1e3
side.finish { ms = ms, prompt_ms = first * 1e3, gb = bytes / ms / 1e6, ids = table.concat(ids, " ") }
