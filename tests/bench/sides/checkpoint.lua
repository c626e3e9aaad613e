-- Side of the bench of checkpoints: weights and both moments of a sixth of GPT-2 124M are saved (accel.ckpt, accel.save), and loaded into tensors
-- that are there; then steps of a loop with and without an asynchronous save every tenth.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { folder = "", width = 768, layers = 2, vocab = 8384, step_ms = 170 }
if o.quick then o.width, o.layers, o.vocab, o.step_ms = 64, 2, 512, 5 end
local clock, ckpt = accel.clock, accel.ckpt

local shapes, bytes = { wte = { o.vocab, o.width }, wpe = { 1024, o.width } }, 0
for i = 0, o.layers - 1 do
  local h = "h." .. i .. "."
  shapes[h .. "attn.c_attn.weight"], shapes[h .. "attn.c_proj.weight"] = { o.width, 3 * o.width }, { o.width, o.width }
  shapes[h .. "mlp.c_fc.weight"], shapes[h .. "mlp.c_proj.weight"] = { o.width, 4 * o.width }, { 4 * o.width, o.width }
  shapes[h .. "ln.weight"], shapes[h .. "ln.bias"] = { o.width }, { o.width }
end
local objects = { model = {}, optimizer = {} }
for name, shape in accel.pairs(shapes) do
  for _, what in ipairs { "", ".exp_avg", ".exp_avg_sq" } do
    local t = accel.randn(shape)
    bytes = bytes + t:numel() * 4
    table.insert(objects[what == "" and "model" or "optimizer"], { name = name .. what, tensor = t })
  end
end

local function gb(seconds) return bytes / seconds / 1e9 end
local function median_of(n, f)
  local v = {}
  for i = 1, n do v[i] = f(i) end
  return side.median(v)
end

local function start(path, opts)
  local s = assert(ckpt.create(path, { replace = true }))
  for _, name in ipairs { "model", "optimizer" } do s:add_tensors(name .. ".safetensors", objects[name]) end
  s:start(opts)
  return s
end

local figures, path = { bytes = bytes }, o.folder .. "/accel/step-1"
figures.save = median_of(3, function()
  local t = clock()
  assert(start(path, { state = { step = 1 } }):wait())
  return gb(clock() - t)
end)

local function load()
  local t = clock()
  local c <close> = assert(ckpt.open(path))
  for name, list in accel.pairs(objects) do
    for _, item in ipairs(list) do assert(c:read(name, item.name, item.tensor)) end
  end
  return gb(clock() - t)
end
figures.load = load() -- what was written past the page cache is not in it
figures.load_warm = median_of(3, load)
figures.verify = (function()
  local c <close> = assert(ckpt.open(path))
  local t = clock()
  assert(c:verify())
  return gb(clock() - t)
end)()

do
  local all = {}
  for _, list in accel.pairs(objects) do
    for _, item in ipairs(list) do all[item.name] = item.tensor end
  end
  figures.save_file = median_of(3, function()
    local t = clock()
    assert(accel.save(o.folder .. "/accel.safetensors", all))
    return gb(clock() - t)
  end)
  accel.load(o.folder .. "/accel.safetensors")
  figures.load_file = median_of(3, function()
    local t = clock()
    assert(accel.load(o.folder .. "/accel.safetensors"))
    return gb(clock() - t)
  end)
  os.remove(o.folder .. "/accel.safetensors")
end

-- The loop: products that take step_ms, and every tenth step a save, in the same order without.
local x = accel.randn(512, 512)
local function work(n) for _ = 1, n do x:matmul(x) end end
local n = 1
repeat
  n = n * 2
  local t = clock()
  work(n)
until clock() - t > o.step_ms / 1e3
local last
local function steps(saving)
  local t, stalled = clock(), 0
  for i = 1, 10 do
    work(n)
    if saving and i % 10 == 1 then
      local s = clock()
      last = start(path, { state = { step = i }, asynchronous = true })
      stalled = stalled + clock() - s
    end
  end
  return clock() - t, stalled
end
steps(true) -- the memory of the copy is made once
assert(last:wait())
local without = steps(false)
local with, stalled = steps(true)
assert(last:wait())
figures.stall_ms = stalled * 1e3
figures.stall = 100 * stalled / with
figures.slower = 100 * (with / without - 1)
figures.step_ms = without / 10 * 1e3
figures.copy_mb = ckpt.memory() / 1e6
os.execute("rm -rf '" .. o.folder .. "/accel'")
side.finish(figures)
