-- accel.onnx.export against ONNX Runtime, where Python has it: layers, ResNet, ViT, BERT, every decoder that has a mapping, with a fixed and a
-- free batch. Logits are within 1e-4 of the largest.
--   accel-run tests/stdlib/onnx/runtime_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local decoders = dofile(here .. "../../support/decoders.lua")
if not os.execute "python3 -c 'import onnxruntime' >/dev/null 2>&1" then
  print "skip: python3 has no package onnxruntime"
  os.exit(77, true)
end
local nn, models = accel.nn, accel.models
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/onnx-"))

accel.manual_seed(1)
local ids = accel.randint(4, 20, { 2, 7 })
local pictures = accel.randn(2, 3, 16, 16)
local mask = accel.tensor { { 1, 1, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 0, 0, 0 } }

local Net = nn.Module:extend "Net" -- ops that the models do not call
function Net:init() self.l = nn.Linear(6, 6) end
function Net:forward(x)
  local y = self.l(x):detach() * 2 - x / 3
  local a, b = table.unpack(y:chunk(2, -1))
  local z = accel.where(a:gt(b), a, b:clamp { min = -0.5, max = 0.5 })
  z = z + a:square():sum(-1, true):sqrt() - b:mean(-1, true):abs()
  z = accel.cat({ z, a:exp():log(), b:leaky_relu(0.2) }, -1):transpose(-1, -2)
  z = z:permute { 1, 3, 2 }:narrow(3, 2, 5):softmax(-1) + accel.arange(5)
  return z, { last = y:select(2, -1), wide = y:unsqueeze(-1):expand { y.shape[1], y.shape[2], 6, 2 }, half = y:to "f16" }
end

local llama = { vocab_size = 20, hidden_size = 8, intermediate_size = 10, num_hidden_layers = 2, num_attention_heads = 4,
  num_key_value_heads = 2, head_dim = 4, max_position_embeddings = 16 }
local bert = { vocab_size = 20, hidden_size = 8, num_hidden_layers = 2, num_attention_heads = 2, intermediate_size = 10,
  max_position_embeddings = 9 }
local cases = {
  mlp = { nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.1), nn.Linear(8, 2), nn.Softmax(-1)), accel.randn(2, 4) },
  ops = { Net(), accel.randn(2, 3, 6) },
  cnn = { nn.Sequential(nn.Conv2d(3, 4, 3, { padding = 1, stride = 2 }), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
    nn.AvgPool2d(2, { padding = 1 }), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)), pictures },
  resnet = { models.ResNetForImageClassification { num_channels = 3, embedding_size = 4, hidden_sizes = { 4, 8 }, depths = { 1, 2 } }, pictures },
  vit = { models.ViTForImageClassification { image_size = 16, patch_size = 8, num_channels = 3, hidden_size = 8, num_hidden_layers = 2,
    num_attention_heads = 2, intermediate_size = 10 }, pictures },
  bert = { models.BertForSequenceClassification(bert), ids, { attention_mask = mask } },
  bert_hidden = { models.BertModel(bert), ids },
  gpt2_mask = { models.GPT2 { vocab_size = 20, n_positions = 9, n_embd = 8, n_layer = 2, n_head = 2 }, ids, { attention_mask = mask } },
}
for name, more in pairs { llama_yarn = { rope_scaling = { rope_type = "yarn", factor = 2.0 } }, llama_tied = { tie_word_embeddings = true } } do
  local c = {}
  for _, set in ipairs { llama, more } do
    for key, value in next, set do c[key] = value end
  end
  cases[name] = { models.Llama(c), ids }
end
local refused = {}
for kind in accel.pairs(decoders.classes) do cases["decoder_" .. kind] = { decoders.model_of(kind), ids } end

local function more_rows(t) return accel.cat({ t, t:flip { 1 }, t:narrow(1, 1, 1) }, 1) end

for name, case in accel.pairs(cases) do
  if not arg[1] or arg[1] == name then
    local model, x, keywords = case[1]:eval(), case[2], case[3]
    local _ <close> = accel.no_grad()
    for _, p in ipairs(model:parameters()) do p:add_(accel.randn_like(p) * 0.1) end
    for _, free in ipairs { false, true } do
      local path = ("%s/%s%s"):format(root, name, free and "_free" or "")
      local ok, why = pcall(accel.onnx.export, model, { x, keywords }, path .. ".onnx", { dynamic_batch = free })
      if not ok then
        assert(tostring(why):find("a mixture of experts does", 1, true), name .. ": " .. tostring(why))
        refused[name] = true
      else
        local given, kept = free and more_rows(x) or x, {}
        kept["in." .. (keywords and "input_1" or "input")] = given
        local k
        if keywords then
          k = {}
          for key, t in pairs(keywords) do
            k[key] = free and more_rows(t) or t
            kept["in." .. key] = k[key]
          end
        end
        local out = table.pack(model(given, k))
        for i = 1, out.n do
          if type(out[i]) == "table" then
            for key, t in pairs(out[i]) do kept["out." .. key] = t end
          else
            kept["out." .. (out.n == 1 and "output" or "output_" .. i)] = out[i]
          end
        end
        assert(accel.save(path .. ".safetensors", kept))
      end
    end
  end
end
local n = 0
for _ in pairs(refused) do n = n + 1 end
assert(n <= 6, "more than the six mixtures are refused")
local status = os.execute(("python3 '%srun_onnx.py' '%s'"):format(here, root))
print(("%d models are refused: they read values to choose experts"):format(n))
assert(status, "ONNX Runtime computes something else")
