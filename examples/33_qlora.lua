--- QLoRA: a language model in 4 bits whose adapter alone learns.
---
---   accel-run examples/33_qlora.lua [--steps N] [--rank N] [--out DIR] [TEXT]
---
--- Trains a small GPT-2 on the characters of TEXT (default: this script), writes it as a folder, reads it back with NF4 weights, and
--- trains a LoRA adapter on the second half of the text. Prints the loss of the second half before and after, and the memory in use,
--- and writes the adapter as PEFT's folder. In Python: accelerate with bitsandbytes and peft.
local accel = require "accel"
local peft = accel.peft

local declared = {
  name = "33_qlora.lua", usage = "[options] [TEXT]", summary = "Trains an adapter of a model in 4 bits.",
  { "steps", "int", 60, "N", "updates of the base, and of the adapter" },
  { "rank", "int", 8, "N", "of the adapter" },
  { "out", "string", nil, "DIR", "folder for the adapter (default: a temporary one)" },
}
local o, words = accel.util.cli(declared)
if o.steps < 1 then accel.util.cli.fail(declared, ("option '--steps' must be positive, got %d"):format(o.steps)) end

accel.manual_seed(1)
local path = words[1] or arg[0]
local file = io.open(path, "rb")
if not file then
  io.stderr:write(path, ": cannot be read\n")
  os.exit(1)
end
local bytes = file:read "a"
file:close()

local T <const>, B <const> = 32, 8
local ids = accel.from_bytes(bytes, "u8"):to "i64":remainder(128)
local half = ids:numel() // 2
if half < T + 1 then
  io.stderr:write(path, ": the text is too short\n")
  os.exit(1)
end
local function batch(from)
  local rows = {}
  for i = 1, B do rows[i] = ids:narrow(1, from + math.random(0, half - T - 1) + 1, T) end
  return accel.stack(rows, 1)
end
local function loss_of(model, from)
  math.randomseed(7)
  local sum = 0
  model:eval()
  accel.no_grad(function()
    for _ = 1, 8 do
      local x = batch(from)
      sum = sum + model(x, { labels = x }):item()
    end
  end)
  model:train()
  return sum / 8
end
local function train(model, lr, from)
  local list = {}
  for _, p in ipairs(model:parameters()) do list[#list + 1] = p.requires_grad and p or nil end
  local optimizer = accel.optim.AdamW8bit(list, { lr = lr })
  model:train()
  for _ = 1, o.steps do
    local x = batch(from)
    model(x, { labels = x }):backward()
    optimizer:step()
    optimizer:zero_grad()
  end
end
local function megabytes(model)
  local n = 0
  for _, p in ipairs(model:parameters()) do n = n + p:numel() * p:element_size() end
  return n / 1e6
end

local base = accel.models.GPT2 { vocab_size = 128, n_positions = T, n_embd = 128, n_layer = 2, n_head = 4, resid_pdrop = 0, attn_pdrop = 0,
  embd_pdrop = 0 }
train(base, 3e-3, 0)
local dir = accel.mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/accel-qlora-")
assert(base:save_pretrained(dir))

local config = accel.BnbQuantizationConfig {
  load_in_4bit = true, bnb_4bit_quant_type = "nf4", bnb_4bit_use_double_quant = true, bnb_4bit_compute_dtype = "fp32",
}
local model = assert(accel.models.from_pretrained(dir, { quantization_config = config }))
print(("weights: %.2f MB in f32, %.2f MB in 4 bits"):format(megabytes(base), megabytes(model)))
model = peft.prepare_model_for_kbit_training(model)
model = peft.get_peft_model(model, peft.LoraConfig { r = o.rank, lora_alpha = 2 * o.rank, target_modules = { "c_attn", "c_fc", "c_proj" } })
model:print_trainable_parameters()

print(("loss of the second half, unquantised base: %.4f"):format(loss_of(base, half)))
print(("in 4 bits: %.4f"):format(loss_of(model, half)))
train(model, 2e-3, half)
print(("with the adapter: %.4f"):format(loss_of(model, half)))
local out = o.out or dir .. "/adapter"
assert(model:save_pretrained(out))
print("adapter in " .. out)
