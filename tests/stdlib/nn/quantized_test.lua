--- Linear4bit and Linear8bitLt: their values, state dicts in bitsandbytes' names, files, copies, the meta device, wrong files.
local accel = require "accel"
local nn = accel.nn

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

accel.manual_seed(1)
local x = accel.randn(4, 128)
local path = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/quantized-") .. "/model.safetensors"

local function net(kind, opts)
  return nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn[kind](64, 10, opts))
end

for kind, opts in pairs {
  Linear4bit = { quant_type = "nf4" }, Linear8bitLt = { threshold = 6 },
} do
  local model = net(kind, opts):eval()
  local want = model(x):detach()
  assert(not model[3].weight.requires_grad and #model:parameters() == 4)

  -- files hold bitsandbytes' entries, which come back as the one tensor
  local state = model:state_dict()
  local second = kind == "Linear4bit" and "2.weight.quant_state.bitsandbytes__nf4" or "2.SCB"
  assert(state[second] and state["2.weight"].shape == (kind == "Linear4bit" and { 320, 1 } or { 10, 64 }))
  accel.save(path, state)
  local other = net(kind, kind == "Linear4bit" and { quant_type = "fp4", compress_statistics = false } or opts)
  other:load_state_dict(accel.load(path))
  assert(accel.equal(other(x):detach(), want), kind .. " of a file")

  -- values are quantised as they come, a quantised tensor is taken as it is
  local plain = nn.Linear(64, 10)
  local layer = nn[kind](64, 10, opts)
  layer:load_state_dict(plain:state_dict())
  local h = accel.randn(2, 64)
  assert((layer(h) - plain(h)):abs():max():item() < 0.2)
  layer:load_state_dict { weight = model[3].weight, bias = model[3].bias }
  assert(accel.equal(layer.weight:dequantize(), model[3].weight:dequantize()))

  -- copies, devices, dtypes: the weight stays quantised
  local copy = model:clone()
  assert(copy[3].weight.quant_state and accel.equal(copy(x):detach(), want))
  assert(model:clone():to("meta")[3].weight.quant_state and model:clone():to("bf16")[3].weight.quant_state)
  assert(nn[kind](64, 10, { device = "meta" }).weight.quant_state.shape == { 10, 64 })
  assert(tostring(layer):find("in_features=64, out_features=10", 1, true), tostring(layer))

  -- gradients pass
  local input = accel.randn(2, 64):requires_grad_()
  layer(input):sum():backward()
  assert(accel.allclose(input.grad, layer:dequantize("f32"):sum(1):expand(2, 64), { rtol = 1e-3, atol = 1e-3 }))

  -- what does not fit is named and changes nothing
  local before = model[3].weight:dequantize()
  fails("has shape %(64, 10%), the module needs %(10, 64%)", function()
    nn[kind](64, 10, opts):load_state_dict { weight = accel.ones(64, 10), bias = accel.ones(10) }
  end)
  local broken = accel.load(path)
  broken[kind == "Linear4bit" and "2.weight.absmax" or "2.SCB"] = nil
  fails(kind == "Linear4bit" and "2.weight.absmax" or "2.SCB", function() model:load_state_dict(broken) end)
  broken = accel.load(path)
  broken["2.weight"] = broken["2.weight"][{ { 1, 5 } }]
  fails("shape", function() model:load_state_dict(broken) end)
  assert(accel.equal(model[3].weight:dequantize(), before))
end

-- embeddings: rows of the dequantised table, saved as the linear layer of the same weight, which may be the same tensor
for _, kind in ipairs { "Embedding8bit", "EmbeddingNF4", "EmbeddingFP4", "Embedding4bit" } do
  local plain = nn.Embedding(12, 64)
  local layer = nn[kind](12, 64, { dtype = "bf16" })
  layer:load_state_dict(plain:state_dict())
  local ids = accel.tensor { { 3, 11 }, { 0, 3 } }
  local rows = layer(ids)
  assert(rows.dtype == "bf16" and accel.equal(rows, layer:dequantize "bf16"[ids]))
  assert((rows - plain(ids)):abs():max():item() < (kind == "Embedding8bit" and 0.03 or 0.9), kind)
  assert(not layer.weight.requires_grad and not rows.requires_grad)
  local linear = kind == "Embedding8bit" and nn.Linear8bitLt(64, 12, { bias = false }) or nn.Linear4bit(64, 12, { bias = false })
  linear:load_state_dict(layer:state_dict()) -- of another quant_type, the tensor itself takes the place
  assert(linear.weight.quant_state.quant_type == layer.weight.quant_state.quant_type)
  assert(accel.equal(linear:dequantize(), layer:dequantize()))
  local again = nn[kind](12, 64, { dtype = "bf16", device = "meta" })
  assert(again.weight.quant_state.shape == { 12, 64 } and again(ids:to "meta").dtype == "bf16")
  assert(tostring(layer):find("12, 64, quant_type=", 1, true), tostring(layer))
  fails("12", layer, accel.tensor { 12 })
end
fails("quant_type must be 'nf4' or 'fp4'", nn.Embedding4bit, 4, 4, { quant_type = "int4" })
for kind, other in pairs { NF4 = "fp4", FP4 = "nf4" } do -- a class that names its type holds it, with dtype third as in bitsandbytes
  local class = nn["Embedding" .. kind]
  fails("Embedding" .. kind .. ": unknown option 'quant_type'", class, 4, 64, { quant_type = other })
  fails("Embedding" .. kind .. ": embedding_dim must be", class, 4, 0)
  local layer = class(4, 64, "bf16", { blocksize = 32 })
  assert(layer.weight.quant_state.quant_type == kind:lower() and layer.quant_type == kind:lower() and layer.blocksize == 32)
  assert(layer(accel.tensor { 1 }).dtype == "bf16")
end

do -- states of files that are not what they say
  local state = nn.Linear4bit(64, 10, { quant_type = "nf4" }):state_dict()
  local key = "weight.quant_state.bitsandbytes__nf4"
  local function with(text)
    local s = {}
    for k, v in pairs(state) do s[k] = v end
    s[key] = accel.from_bytes(text, "u8")
    return s
  end
  local function load(text) nn.Linear4bit(64, 10):load_state_dict(with(text)) end
  fails("not a JSON object", load, "{ broken")
  fails("quant_type is 'fp4'", load, '{"quant_type": "fp4"}')
  fails("dtype 'int8'", load, '{"quant_type": "nf4", "dtype": "int8"}')
  fails("blocksize", load, '{"quant_type": "nf4", "dtype": "float32", "blocksize": "64"}')
  fails("shape has %-1", load, '{"quant_type": "nf4", "dtype": "float32", "blocksize": 64, "shape": [-1, 64]}')
  fails("power of two", load, '{"quant_type": "nf4", "dtype": "float32", "blocksize": 65, "shape": [10, 64]}')
  fails("the weight has 320 elements", load, '{"quant_type": "nf4", "dtype": "float32", "blocksize": 64, "shape": [10, 640]}')
  local map = with '{"quant_type": "nf4", "dtype": "float32", "blocksize": 64, "shape": [10, 64]}'
  map["weight.quant_map"] = accel.ones(16)
  fails("non%-standard values", function() nn.Linear4bit(64, 10):load_state_dict(map) end)
end

fails("quant_type must be 'nf4' or 'fp4'", nn.Linear4bit, 4, 4, { quant_type = "int4" })
fails("has_fp16_weights", nn.Linear8bitLt, 4, 4, { has_fp16_weights = true })
