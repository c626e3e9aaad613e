-- Every decoder family: loaded in NF4 and int8 it computes what a plain model of the dequantised weights computes, and these are within the
-- format's step of the saved ones; an adapter on its default layers has the gradient of finite differences, a step changes it alone, and
-- merged it computes the same; GGUF has the names and keys of llama.cpp's lists and reads back, or the error gives the reason.
-- tier: sampled
--   accel-run tests/stdlib/models/decoders_test.lua [FAMILY]
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local decoders = dofile(here .. "../../support/decoders.lua")
local sample = dofile(here .. "../../support/sample.lua")
local Quantized = require "accel.nn.quantized"
local Conv1D = require "accel.models.conv1d"
local class = accel.util.class
local models, peft = accel.models, accel.peft
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/decoders-"))

local known
do
  local file <close> = assert(io.open(here .. "../../reference/gguf/names.json", "rb"))
  known = accel.json.decode(file:read "a")
end

local ids = accel.randint(4, decoders.vocabulary, { 2, 12 }, { generator = accel.Generator(5) })

local function logits(model)
  local _ <close> = accel.no_grad()
  return model(ids)
end
local function off(a, b) return (a:to "f64" - b:to "f64"):abs():max():item() end
local function size(t) return t:abs():max():item() end

--- A model whose weights are all far from their initial values, so that each part counts.
local function spread(kind, more)
  local model = decoders.model_of(kind, more):eval()
  local _ <close> = accel.no_grad()
  for _, p in ipairs(model:parameters()) do p:add_(accel.randn_like(p) * 0.1) end
  return model
end

-- Half the largest distance of two values of the format, as a share of the largest magnitude of the block or row.
local FORMATS <const> = {
  nf4 = { { load_in_4bit = true, bnb_4bit_quant_type = "nf4", bnb_4bit_compute_dtype = "fp32" }, (1 - 0.6961928) / 2 },
  int8 = { { load_in_8bit = true, torch_dtype = "fp32" }, 0.5 / 127 + 0x1p-11 }, -- rounded to f16 before
}

local function quantised(kind, format, model, folder)
  local config, step = table.unpack(FORMATS[format])
  local q = models.from_pretrained(folder, { quantization_config = accel.BnbQuantizationConfig(config) }):eval()
  local plain, packed, linears = models.from_pretrained(folder):eval(), 0, 0
  local plain_modules = {}
  for name, module in pairs(plain:named_modules()) do plain_modules[name] = module end
  for _, module in pairs(model:named_modules()) do
    local of = class.of(module)
    if of == accel.nn.Linear or of == Conv1D then linears = linears + 1 end
  end
  local _ <close> = accel.no_grad()
  for name, module in pairs(q:named_modules()) do
    if class.isinstance(module, Quantized) and module.in_features then
      packed = packed + 1
      local values, twin = module:dequantize "f32", plain_modules[name]
      local saved = class.of(twin) == Conv1D and twin.weight:t() or twin.weight
      local most = size(saved)
      assert(off(values, saved) <= most * step * 1.01, ("%s %s: %g of %g"):format(format, name, off(values, saved), most))
      twin.weight:detach():copy_(class.of(twin) == Conv1D and values:t() or values)
      if format == "int8" then -- inputs are rounded to 8 bits of their row as well, which may change the choice of experts: layer by layer
        local x = accel.randn(3, module.in_features)
        local most_x = x:abs():amax(2):unsqueeze(2)
        local room = most_x * (0.5 / 127 + 0x1p-10) * values:abs():sum(2) + 1e-5
        assert(((module(x) - twin(x)):abs() - room):amax():item() <= 0, ("int8 %s: its product is off"):format(name))
      end
    end
  end
  -- heads stay whole, and so do the linear layers that a family keeps in f32 (routers)
  assert(packed >= 4 and packed < linears + 1, ("%s: %d of %d linear layers"):format(format, packed, linears))
  local want, got = logits(plain), logits(q)
  assert(format == "int8" or off(got, want) <= 1e-4 * math.max(1, size(want)), ("%s: %g of %g"):format(kind, off(got, want), size(want)))
  assert(got:isfinite():all():item())
  assert(off(want, logits(model)) > 1e-6, format .. " changes nothing")
end

local function adapter(kind)
  local model = spread(kind):double()
  local before = {}
  for name, t in pairs(model:state_dict()) do before[name] = t:clone() end
  local base = logits(model)
  local found, adapted = pcall(peft.get_peft_model, model, peft.LoraConfig { r = 2, task_type = "CAUSAL_LM" })
  if not found then -- PEFT has default layers for some families only
    assert(tostring(adapted):find('there is no default for ' .. kind .. '; give it, such as "all-linear"', 1, true), tostring(adapted))
    adapted = peft.get_peft_model(model, peft.LoraConfig { r = 2, task_type = "CAUSAL_LM", target_modules = "all-linear" })
  end
  assert(off(logits(adapted), base) == 0) -- B is zero
  local trained, along = {}, {}
  for _, p in ipairs(adapted:parameters()) do
    if p.requires_grad then trained[#trained + 1], along[#along + 1] = p, accel.randn_like(p) end
  end
  assert(#trained >= 4)
  local function move(by)
    local _ <close> = accel.no_grad()
    for i, p in ipairs(trained) do p:add_(along[i] * by) end
  end
  move(0.05)
  local function loss() return adapted(ids, { labels = ids }) end
  loss():backward()
  local slope = 0
  for i, p in ipairs(trained) do slope = slope + (p.grad * along[i]):sum():item() end
  local eps = 1e-6
  move(eps)
  local high = loss():item()
  move(-2 * eps)
  local low = loss():item()
  move(eps)
  local want = (high - low) / (2 * eps)
  assert(math.abs(slope - want) <= 1e-5 * math.max(1, math.abs(want)), ("%s: slope %.9g, by differences %.9g"):format(kind, slope, want))
  local optimizer = accel.optim.SGD(trained, { lr = 1e-3 })
  local first = loss():item()
  optimizer:step()
  assert(loss():item() < first, "the step does not lower the loss")
  for name, t in pairs(adapted:state_dict()) do
    local own = name:gsub("^base_model%.model%.", ""):gsub("%.base_layer%.", ".")
    if before[own] then assert(accel.equal(t, before[own]), own) end
  end
  local apart = logits(adapted)
  local merged = logits(adapted:merge_and_unload())
  assert(off(merged, apart) <= 1e-9 * math.max(1, size(apart)), ("%s merged: %g"):format(kind, off(merged, apart)))
end

--- Names of tensors and keys are llama.cpp's, and the file gives the model back. Or the reason why the family is refused.
local function gguf(kind)
  local path = root .. "/" .. kind .. ".gguf"
  -- windows and layers without positions that llama.cpp fixes are tested in gguf_folders_test.lua
  local model = spread(kind, { sliding_window = 64, window_size = 64, attention_bias = kind == "glm4" or nil, num_hidden_layers = 4,
    head_dim = 8, query_pre_attn_scalar = 8, hidden_activation = "gelu_pytorch_tanh", intermediate_size = 64, norm_topk_prob = kind == "qwen3_moe" })
  local ok, why = pcall(models.gguf.save, model, path, { type = "F32" })
  if not ok then
    why = tostring(why):match "^[^\n]*"
    assert(why:find("gguf.save: " .. decoders.classes[kind] .. " is not written: ", 1, true), why)
    return why:match "is not written: (.*)$"
  end
  local info = assert(models.gguf.info(path))
  local arch = info.metadata["general.architecture"]
  local names, keys = {}, {}
  for _, name in ipairs(known.tensors[arch]) do names[name] = true end
  for _, key in ipairs(known.keys) do keys[key:gsub("{arch}", arch)] = true end
  for _, t in ipairs(info.tensors) do
    local name = t.name:gsub("^blk%.%d+", "blk.{bid}"):gsub("%.%a+$", "")
    assert(names[name], ("%s: llama.cpp's %s has no tensor %s"):format(kind, arch, t.name))
  end
  for key in pairs(info.metadata) do assert(keys[key], ("%s: llama.cpp has no key %s"):format(kind, key)) end
  local again, extra = models.gguf.load(path)
  assert(again, tostring(extra))
  local want = logits(model)
  assert(off(logits(again:eval()), want) <= 1e-5 * math.max(1, size(want)), kind)
end

local take, done, refused = sample.one_of(12), 0, {}
for kind in accel.pairs(decoders.classes) do
  if arg[1] == kind or not arg[1] and take() then
    local model, folder = spread(kind), root .. "/" .. kind
    assert(model:save_pretrained(folder))
    quantised(kind, "nf4", model, folder)
    quantised(kind, "int8", model, folder)
    adapter(kind)
    refused[#refused + 1] = gguf(kind)
    done = done + 1
  end
end
for _, why in ipairs(refused) do print("no GGUF: " .. why) end
print(("%d decoders"):format(done))
assert(done > 0)
