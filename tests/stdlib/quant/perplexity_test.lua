--- What quantisation costs: a GPT-2 is trained on text, its perplexity on the rest is that of the quantised models within the bars (int8
--- 0.5 %, NF4 2 %), their weights take the bytes of the formula within 2 %, and an adapter over NF4 learns what the base did not.
-- tier: slow
--   accel-run tests/stdlib/quant/perplexity_test.lua [LAYERS WIDTH STEPS TEXT]
-- The text is the guides of this tree by default; 12 768 500 tinyshakespeare.txt are GPT-2's 124M shapes.
local accel = require "accel"
local peft = accel.peft

local LAYERS, WIDTH, STEPS = tonumber(arg[1] or 4), tonumber(arg[2] or 256), tonumber(arg[3] or 150)
local T <const>, B <const> = 64, 8
local src = os.getenv "ACCEL_TEST_SRC" or "."

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end
local text = arg[4] and read(arg[4])
if not text then
  local parts = { read(src .. "/README.md"), read(src .. "/CONTRIBUTING.md") }
  for _, name in ipairs(accel.listdir(src .. "/lua/help/guides")) do parts[#parts + 1] = read(src .. "/lua/help/guides/" .. name) end
  text = table.concat(parts)
end
local ids = accel.from_bytes(text, "u8"):to "i64"
local cut = ids:numel() * 9 // 10

accel.manual_seed(1)
math.randomseed(1)
local function batch(from, n)
  local rows = {}
  for i = 1, B do rows[i] = ids:narrow(1, from + math.random(1, n - T), T) end
  return accel.stack(rows, 1)
end
local function perplexity(model)
  model:eval()
  local sum, n = 0, 0
  accel.no_grad(function()
    for at = cut, ids:numel() - B * T, B * T do
      local x = ids:narrow(1, at, B * T):reshape(B, T)
      sum, n = sum + model(x, { labels = x }):item(), n + 1
      if n == 40 then break end
    end
  end)
  return math.exp(sum / n)
end
local function train(model, steps, lr)
  local list = {}
  for _, p in ipairs(model:parameters()) do list[#list + 1] = p.requires_grad and p or nil end
  local optimizer = accel.optim.AdamW(list, { lr = lr })
  model:train()
  for step = 1, steps do
    optimizer.param_groups[1].lr = lr * math.min(1, step / 20) * (1 - 0.9 * step / steps)
    local x = batch(0, cut)
    model(x, { labels = x }):backward()
    accel.nn.utils.clip_grad_norm_(list, 1)
    optimizer:step()
    optimizer:zero_grad()
  end
end

local model = accel.models.GPT2 { vocab_size = 256, n_positions = T, n_embd = WIDTH, n_layer = LAYERS, n_head = WIDTH // 64,
  resid_pdrop = 0, attn_pdrop = 0, embd_pdrop = 0 }
train(model, STEPS, 1e-3)
local whole = perplexity(model)
local dir = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/perplexity-")
assert(model:save_pretrained(dir))
model = nil
print(("f32: perplexity %.4f"):format(whole))

local function quantised(opts)
  opts.torch_dtype, opts.bnb_4bit_compute_dtype = "fp32", "fp32"
  return accel.models.from_pretrained(dir, { quantization_config = accel.BnbQuantizationConfig(opts) })
end
-- bytes of the weights that are quantised, and what their numbers need: int8 has a scale by row, 4 bits one by block of 64
local function bytes(m)
  local resident, needed = 0, 0
  for _, p in ipairs(m:parameters()) do
    local s = p.quant_state
    if s then
      local n, k = s.shape[1], s.shape[2]
      resident = resident + p:numel()
      needed = needed + (s.quant_type == "int8" and n * k + 4 * n or n * k / 2 + n * k / 64 * (s.nested and 1 + 4 / 256 or 4))
    end
  end
  return resident, needed
end
local function four(more)
  local o = { load_in_4bit = true, bnb_4bit_quant_type = "nf4" }
  for key, value in pairs(more or {}) do o[key] = value end
  return o
end
for _, row in ipairs {
  { "int8", { load_in_8bit = true }, 1.005 }, { "nf4", four(), 1.02 },
  { "nf4 double", four { bnb_4bit_use_double_quant = true }, 1.02 },
  -- with the embedding, which is the head
  { "int8, head int8", { load_in_8bit = true, skip_modules = {} }, 1.005 }, { "nf4, head nf4", four { skip_modules = {} }, 1.02 },
  { "nf4, head int8", four { head_quant_type = "int8" }, 1.02 },
} do
  local m = quantised(row[2])
  local p, resident, needed = perplexity(m), bytes(m)
  print(("%s: perplexity %.4f (%+.3f %%), %d bytes, %.4f of the formula"):format(row[1], p, 100 * (p / whole - 1), resident, resident / needed))
  assert(p <= row[3] * whole, row[1])
  assert(resident > 0 and resident <= 1.02 * needed, row[1])
end

local q = peft.prepare_model_for_kbit_training(quantised { load_in_4bit = true, bnb_4bit_quant_type = "nf4" },
  { use_gradient_checkpointing = false })
local adapted = peft.get_peft_model(q, peft.LoraConfig { r = 16, lora_alpha = 32, target_modules = { "c_attn", "c_fc", "c_proj" } })
train(adapted, math.max(100, STEPS * 2 // 5), 1e-3)
local after = perplexity(adapted)
local x = batch(0, cut)
local y = accel.no_grad(function() return adapted(x) end)
local merged = adapted:merge_and_unload():eval()
local off = accel.no_grad(function() return (merged(x) - y):abs():max():item() end) / y:abs():max():item()
print(("QLoRA: perplexity %.4f, merged differs by %.2g"):format(after, off))
assert(after < whole and off < 1e-5)
