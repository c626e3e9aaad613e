-- Side of the benches of offloading: with --disk how fast tensors come from and go to a file; else a Llama in bf16 whose checkpoint lies in
-- a folder (made here with --make): loading and dispatching; a forward of 8 tokens and the tokens that follow with all weights in memory, in
-- host memory, and on disk; cold: the first forward after the files were dropped from the page cache.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { folder = "", make = false, disk = false, width = 1536, layers = 18, vocab = 8192 }
if o.quick then o.width, o.layers, o.vocab = 128, 4, 256 end
local clock, core = accel.clock, require "accel.offload.core"
local config = {
  vocab_size = o.vocab, hidden_size = o.width, intermediate_size = o.width * 8 // 3 // 64 * 64, num_hidden_layers = o.layers,
  num_attention_heads = o.width // 64, num_key_value_heads = o.width // 64, max_position_embeddings = 256, rms_norm_eps = 1e-6,
  tie_word_embeddings = false,
}
local dir = o.folder .. "/llama"

if o.make then
  accel.manual_seed(1)
  local model = accel.models.Llama(config, { dtype = "bf16" })
  assert(model:save_pretrained(dir, { max_shard_size = "100MB" }))
  side.finish {}
  return
end

local function empty() return accel.init_empty_weights(function() return accel.models.Llama(config, { dtype = "bf16" }) end):eval() end
local function dispatched(opts)
  local model = empty()
  accel.load_checkpoint_and_dispatch(model, dir, opts)
  return model
end

local figures, bytes = {}, 0
for _, p in ipairs(empty():parameters()) do bytes = bytes + p:numel() * 2 end
figures.bytes = bytes

-- A tier of files: pieces of 32 MB to their homes and back.
if o.disk then
  local n, count = o.quick and 2 or 24, 16 << 20
  local store = assert(core.create(o.folder .. "/tier", 0, false))
  local window, homes = core.window("cpu", 0, 0), {}
  local memory = { core.pages({ count }, "bf16"), core.pages({ count }, "bf16") }
  for i = 1, n do homes[i] = window:tensor(store, { count }, "bf16") end
  local function all(write)
    local t, under_way = clock(), {}
    for i, home in ipairs(homes) do
      if under_way[i % 2] then under_way[i % 2]:wait() end
      under_way[i % 2] = core.move(write, home, 0, memory[i % 2 + 1])
    end
    for _, transfer in accel.pairs(under_way) do transfer:wait() end
    return n * count * 2 / (clock() - t) / 1e9
  end
  all(true) -- the file's blocks are written once before
  figures.write = side.median { all(true), all(true), all(true) }
  figures.read = side.median { all(false), all(false), all(false) }
  side.finish(figures)
  return
end

local ids = accel.arange(8):reshape(1, 8):to "i64"
local function forward(model)
  local _ <close> = accel.no_grad()
  local t = clock()
  local logits = model(ids)
  return clock() - t, logits
end
--- Seconds of a token that follows the prompt, the median of several.
local function token(model)
  local last, steps = nil, {}
  local out = model:generate(ids, { max_new_tokens = o.quick and 2 or 8, eos_token_id = false, do_sample = false, on_token = function()
    local now = clock()
    if last then steps[#steps + 1] = now - last end
    last = now
  end })
  figures.ids = table.concat(out[1], " ")
  return side.median(steps)
end
local function measure(name, model)
  forward(model)
  figures[name .. "_s"] = side.median { (forward(model)), (forward(model)), (forward(model)) }
  figures[name .. "_token_ms"] = token(model) * 1e3
end

local function load_time()
  local t = clock()
  local model = dispatched { device_map = { [""] = "cpu" } }
  return clock() - t, model
end
load_time()
local times, model = {}, nil
for i = 1, 3 do times[i], model = load_time() end
figures.load = bytes / side.median(times) / 1e9
measure("memory", model)
local _, logits = forward(model)
figures.mean = logits:to("f32"):abs():mean():item()
accel.cpu_offload(model)
measure("host", model)
model, logits = nil, nil -- luacheck: ignore
accel.collect()

--- The files leave the page cache, which a map of them would prevent.
local function dropped()
  for _, name in ipairs(accel.listdir(dir)) do
    local path = ("'%s/%s'"):format(dir, name)
    os.execute(("sync %s && dd if=%s iflag=nocache count=0 2>/dev/null"):format(path, path))
  end
end
local cold = {}
for i = 1, 3 do
  model = nil
  accel.collect()
  dropped()
  model = dispatched { device_map = { [""] = "disk" } }
  cold[i] = forward(model)
end
figures.cold_s = side.median(cold)
measure("disk", model)
side.finish(figures)
