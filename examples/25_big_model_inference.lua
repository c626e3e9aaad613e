--- Big models: a Llama that does not fit into the memory it may use generates text all the same. Its layers go to the memory with
--- room (device memory, host memory, disk) and are fetched while others compute.
---
---   accel-run --memory-limit 300M examples/25_big_model_inference.lua [--memory SIZE] [--host SIZE] [DIR]
---
--- DIR receives a checkpoint of about 1 GB in bf16, cut into files like models on the Hub. The script makes it layer by layer if it
--- is missing. Without DIR it is made here and removed at the end. --layers and --width make a smaller one. With --compare the
--- tokens are compared with the whole model's in memory. In Python: docs/source/usage_guides/big_modeling.md.
local accel = require "accel"
local models = accel.models

local o, dirs = accel.util.cli {
  name = "25_big_model_inference.lua", usage = "[options] [DIR]",
  summary = "Generates with a Llama in bf16 whose weights are spread over memory, host memory and disk.",
  { "memory", "string", "200MB", "SIZE", "memory of the device for weights that stay, and those that come and go" },
  { "host", "string", "0MB", "SIZE", "additional host memory; the rest stays in its file" },
  { "layers", "int", 18, "N", "layers of the model" },
  { "width", "int", 1536, "N", "its hidden size" },
  { "tokens", "int", 8, "N", "tokens to generate" },
  { "seed", "int", 1, "N", "of the weights" },
  { "compare", "flag", false, nil, "load the whole model as well and compare" },
}
local dir = dirs[1] or assert(accel.mkdtemp "./big-llama-")
local _ <close> = setmetatable({}, { __close = function()
  if dirs[1] then return end
  for _, name in ipairs(accel.listdir(dir) or {}) do os.remove(dir .. "/" .. name) end
  os.remove(dir)
end })
local config = {
  vocab_size = 8192, hidden_size = o.width, intermediate_size = o.width * 8 // 3 // 64 * 64, num_hidden_layers = o.layers,
  num_attention_heads = o.width // 64, num_key_value_heads = o.width // 64 // (o.width >= 256 and 2 or 1),
  max_position_embeddings = 256,
}

--- The checkpoint, one file a layer, with an index: never more than a layer of it is in memory.
local function make_checkpoint()
  assert(accel.makedirs(dir))
  local model = accel.init_empty_weights({ include_buffers = true }, function() return models.Llama(config, { dtype = "bf16" }) end)
  accel.manual_seed(o.seed)
  local map, file, part, bytes, total = {}, 0, {}, 0, 0
  local function write()
    file = file + 1
    local name = ("model-%05d.safetensors"):format(file)
    assert(accel.save(dir .. "/" .. name, part))
    for key in next, part do map[key] = name end
    part, bytes = {}, 0
  end
  for name, t in pairs(model:state_dict()) do
    local value = #t.shape == 1 and accel.ones(t.shape) or accel.randn(t.shape) * 0.02
    part[name] = value:to "bf16"
    bytes, total = bytes + t:numel() * 2, total + t:numel() * 2
    if bytes > 32e6 then write() end
  end
  if bytes > 0 then write() end
  assert(accel.write_file(dir .. "/model.safetensors.index.json",
    accel.json.encode({ metadata = { total_size = total }, weight_map = map }, { pretty = true })))
  print(("made %s: %d files, %.0f MB%s"):format(dir, file, total / 1e6, dirs[1] and "" or ", removed at the end; give DIR to keep them"))
end

if not io.open(dir .. "/model.safetensors.index.json") then make_checkpoint() end
accel.collect()
accel.empty_cache()
accel.reset_peak_memory("cpu")

-- A model without memory, and its weights from the files to the memory with room. 0 is the first GPU, or without one
-- the memory of the CPU's pool, which --memory-limit bounds.
local model = accel.init_empty_weights(function() return models.Llama(config, { dtype = "bf16" }) end):eval()
local from = accel.clock()
accel.load_checkpoint_and_dispatch(model, dir, {
  device_map = "auto", max_memory = { [0] = o.memory, cpu = o.host }, no_split_module_classes = { "LlamaDecoderLayer" },
  dtype = "bf16",
})
local count = {}
for _, device in pairs(model.hf_device_map) do count[tostring(device)] = (count[tostring(device)] or 0) + 1 end
print(("dispatched in %.2f s: modules on device 0: %d, on the cpu: %d, on disk: %d"):format(accel.clock() - from, count["0"] or 0,
  count.cpu or 0, count.disk or 0))

local prompt = accel.tensor({ { 1, 42, 7, 99, 1234 % config.vocab_size } }, { dtype = "i64" })
local function generate(m)
  local _ <close> = accel.no_grad()
  return m:generate(prompt, { max_new_tokens = o.tokens, do_sample = false })
end
from = accel.clock()
local ids = generate(model)
local spent = accel.clock() - from
local stats = accel.offload.stats(model) or { files = { read_bytes = 0, mapped_bytes = 0 }, hidden = 0 } -- all of it had room
local text = table.concat(ids[1], " ")
print("tokens: " .. text)
print(("%.2f s a token; %.0f MB used as the page cache has them, %.0f MB read from disk, %.0f MB from host memory, %.0f %% of that time hidden")
  :format(spent / o.tokens, stats.files.mapped_bytes / 1e6, stats.files.read_bytes / 1e6, (stats.host and stats.host.read_bytes or 0) / 1e6,
    stats.hidden * 100))
print(("peak of device memory: %.1f MB"):format(accel.mem_stats("cpu").peak_bytes / 1e6))

if o.compare then
  local whole = accel.init_empty_weights(function() return models.Llama(config, { dtype = "bf16" }) end):eval()
  accel.load_checkpoint_and_dispatch(whole, dir, { device_map = { [""] = "cpu" }, dtype = "bf16" })
  print("the same tokens as from memory: " .. tostring(table.concat(generate(whole)[1], " ") == text))
end
