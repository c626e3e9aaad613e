--- Folders that are broken or meant to harm: every one is refused by nil, message, code, and soon.
local accel = require "accel"
local models = accel.models

local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/hostile"

local function write(path, text)
  local f = assert(io.open(path, "wb"))
  f:write(text)
  f:close()
end

local tiny = {
  model_type = "llama", architectures = { "LlamaForCausalLM" }, vocab_size = 12, hidden_size = 8,
  intermediate_size = 12, num_hidden_layers = 2, num_attention_heads = 2, max_position_embeddings = 16,
}
assert(models.Llama(tiny):save_pretrained(tmp .. "/good"))
local good = assert(accel.load(tmp .. "/good/model.safetensors"))
local n = 0

--- A folder of these files: text, or tensors.
local function folder(list)
  n = n + 1
  local dir = ("%s/%d"):format(tmp, n)
  assert(accel.makedirs(dir))
  for _, old in ipairs { -- of an earlier run
    "config.json", "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "a.safetensors",
    "b.safetensors",
  } do
    os.remove(dir .. "/" .. old)
  end
  for name, content in next, list do
    if type(content) == "string" then
      write(dir .. "/" .. name, content)
    else
      assert(accel.save(dir .. "/" .. name, content))
    end
  end
  return dir
end

local function refuses(pattern, code, dir, opts)
  local started = os.clock()
  local model, message, got = models.from_pretrained(dir, opts)
  assert(model == nil, dir .. ": expected nil with " .. pattern)
  assert(message:find(pattern), ("message %q has no %q"):format(message, pattern))
  assert(got == code, ("code %s, wanted %s: %s"):format(tostring(got), code, message))
  assert(os.clock() - started < 20, pattern)
end

local function config(more)
  local c = {}
  for _, t in ipairs { tiny, more or {} } do
    for key, value in next, t do c[key] = value end
  end
  return accel.json.encode(c)
end

-- config.json
refuses("nowhere: no such folder, and nothing is downloaded", "not_found", tmp .. "/nowhere")
refuses("config.json: is a folder, not a file", "io", (function()
  local dir = folder {}
  assert(accel.makedirs(dir .. "/config.json"))
  return dir
end)())
for _, text in ipairs {
  "", "{", "[]", "[1]", "3", "null", '"llama"', '{"a":1,"a":2}', "\xff\xfe", ("["):rep(100000), ('{"a":'):rep(1000),
} do
  refuses("config.json: ", "format", folder { ["config.json"] = text })
end
refuses("config.json: JSON: duplicate key \"a\"", "format", folder { ["config.json"] = '{"a":1,"a":2}' })
refuses("accel has no model with model_type nil", "unsupported", folder { ["config.json"] = "{}" })
refuses("accel has no model with model_type 'lamma'; did you mean 'llama'", "unsupported",
  folder { ["config.json"] = '{"model_type":"lamma"}' })
refuses("accel has no model with model_type 3", "unsupported",
  folder { ["config.json"] = '{"model_type":3,"architectures":7}' })
for _, case in ipairs {
  { { vocab_size = "12" }, "vocab_size must be a positive integer" },
  { { hidden_size = -8 }, "hidden_size must be a positive integer" },
  { { hidden_size = 1e300 }, "hidden_size must be a positive integer" },
  { { num_hidden_layers = 1000000000 }, "num_hidden_layers must be an integer in 1 .. 4096" },
  { { num_attention_heads = 0 }, "num_attention_heads must be" },
  { { head_dim = 7 }, "head_dim 7 is odd" },
  { { rms_norm_eps = {} }, "rms_norm_eps must be a number" },
  { { architectures = 3 }, "architectures must be a table" },
  { { rope_scaling = 5 }, "rope_scaling must be a table" },
  { { rope_scaling = { rope_type = "su" } }, "rope_type 'su' is not supported", "unsupported" },
  { { hidden_act = "silo" }, "hidden_act names no activation function: 'silo'; did you mean 'silu'%?", "unsupported" },
  { { pruned_heads = { ["0"] = { 1 } } }, "pruned_heads a table is not supported: expected no pruned heads", "unsupported" },
  { { hidden_size = accel.json.null }, "hidden_size must not be null" },
  { { pad_token_id = 12 }, "pad_token_id 12 is outside of the vocabulary of 12" },
  { { torch_dtype = 7 }, "torch_dtype must be a string" },
} do
  refuses("config.json: " .. case[2], case[3] or "format",
    folder { ["config.json"] = config(case[1]), ["model.safetensors"] = good })
end

-- Sizes that no file backs: nothing of that size is allocated.
for _, case in ipairs {
  { { vocab_size = 2147483647, hidden_size = 2147483644 }, "more elements than can be counted" },
  { { num_hidden_layers = 4096 }, "config.json: declares 4096 blocks .layers times experts., but the files of the model hold 21 tensors" },
  { { num_hidden_layers = 60 }, "does not fit LlamaForCausalLM: missing 'model.layers.2.self_attn" },
  { { intermediate_size = 2147483647 }, "does not fit LlamaForCausalLM: 'model.layers.0.mlp" },
  { { num_attention_heads = 1, head_dim = 2147483646 }, "does not fit LlamaForCausalLM: 'model.layers.0.self_attn" },
} do
  refuses(case[2], "format", folder { ["config.json"] = config(case[1]), ["model.safetensors"] = good })
end

do -- a model that is made from such a configuration
  local function raises(pattern, class, more)
    local began, before = os.clock(), collectgarbage "count"
    local ok, message = pcall(class, accel.json.decode(config(more)))
    assert(not ok and tostring(message.message or message):find(pattern), tostring(message))
    assert(os.clock() - began < 1 and collectgarbage "count" - before < 16384, pattern)
  end
  raises("declares 16777216 blocks", models.MixtralForCausalLM, { model_type = "mixtral", architectures = { "MixtralForCausalLM" },
    num_hidden_layers = 4096, num_local_experts = 4096, num_key_value_heads = 2 })
  raises("declares %d+%.%d GiB of parameters, more than the %d+%.%d GiB of this machine; use device = \"meta\"", models.LlamaForCausalLM,
    { vocab_size = 2147483647, hidden_size = 1024 })
  assert(models.LlamaForCausalLM(accel.json.decode(config { vocab_size = 2147483647, hidden_size = 1024 }), { device = "meta" }))
end

-- weights
refuses("neither model.safetensors nor model.safetensors.index.json is there, nor pytorch_model.bin$", "not_found",
  folder { ["config.json"] = config() })
refuses("pytorch_model.bin: not a torch.save file that can be read: rule format at byte 0", "parse",
  folder { ["config.json"] = config(), ["pytorch_model.bin"] = "x" })
refuses("not a valid safetensors file", "parse",
  folder { ["config.json"] = config(), ["model.safetensors"] = ("x"):rep(64) })
refuses("missing 'model.embed_tokens.weight', .* %(%d+ in all%)", "format",
  folder { ["config.json"] = config(), ["model.safetensors"] = { other = accel.ones(2) } })

local function without(name, value)
  local state = {}
  for key, t in next, good do state[key] = t end
  state[name] = value
  return state
end
refuses("missing 'model.norm.weight'$", "format",
  folder { ["config.json"] = config(), ["model.safetensors"] = without "model.norm.weight" })
refuses("'model.norm.weight' has shape %(3%), the model needs %(8%)$", "format",
  folder { ["config.json"] = config(), ["model.safetensors"] = without("model.norm.weight", accel.ones(3)) })

--- A safetensors file by hand: one tensor of a dtype that no tensor here has.
local function raw(name, dtype, bytes)
  local header = ('{"%s":{"dtype":"%s","shape":[%d],"data_offsets":[0,%d]}}'):format(name, dtype, 8, bytes)
  header = header .. (" "):rep(-#header % 8)
  return string.pack("<I8", #header) .. header .. ("\0"):rep(bytes)
end
local part = without "model.norm.weight"
local function index(map) return accel.json.encode { metadata = {}, weight_map = map } end
local map = { ["model.norm.weight"] = "b.safetensors" }
for key in next, part do map[key] = "a.safetensors" end
refuses("'model.norm.weight' is c64, which no parameter can be", "format", folder {
  ["config.json"] = config(), ["a.safetensors"] = part, ["b.safetensors"] = raw("model.norm.weight", "C64", 64),
  ["model.safetensors.index.json"] = index(map),
})

-- indices
local function indexed(text, more)
  local list = { ["config.json"] = config(), ["a.safetensors"] = part, ["model.safetensors.index.json"] = text }
  for key, value in next, more or {} do list[key] = value end
  return folder(list)
end
for _, text in ipairs { "{", "{}", '{"weight_map":3}', '{"weight_map":{}}', '{"weight_map":[]}' } do
  refuses("index.json: ", "format", indexed(text))
end
for _, file in ipairs {
  "../a.safetensors", "/etc/passwd", "a/b.safetensors", ".safetensors", "a.txt", "a\\b.safetensors", "",
  "a\0.safetensors",
} do
  refuses("is not the name of a weights file", "format", indexed(index { x = file }))
end
refuses("is not the name of a weights file", "format", indexed '{"weight_map":{"x":7}}')
refuses("b.safetensors", "not_found", indexed(index(map)))
refuses("the index places 'model.norm.weight' in b.safetensors, which lacks it", "format",
  indexed(index(map), { ["b.safetensors"] = { x = accel.ones(1) } }))
refuses("'lm_head.weight' is in a.safetensors and in b.safetensors", "format",
  indexed(index(map), {
    ["b.safetensors"] = { ["model.norm.weight"] = accel.ones(8), ["lm_head.weight"] = accel.ones(12, 8) },
  }))
assert(models.from_pretrained(indexed(index(map), { ["b.safetensors"] = { ["model.norm.weight"] = accel.ones(8) } })))
