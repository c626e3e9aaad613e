-- Models in tiers: what a model computes is the same bit for bit wherever its weights lie; memory of the device stays within the
-- map; hooks, folders, tied weights, several names for one file; misuse leaves the model as it was.
-- tier: every change, memory
local accel = require "accel"
local A, nn = accel.accelerator, accel.nn

local ROOT = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local function folder(name)
  local dir = ROOT .. "/" .. name
  for _, file in ipairs(accel.listdir(dir) or {}) do os.remove(dir .. "/" .. file) end
  assert(accel.makedirs(dir))
  return dir
end

local function fails(part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok, "expected an error with: " .. part)
  err = tostring(err)
  assert(err:find(part, 1, true), err)
  assert(not err:gsub("\nstack traceback.*", ""):find "\n", err)
end

local warned = {}
local warn_was = warn
function warn(...) warned[#warned + 1] = table.concat { ... } end -- luacheck: ignore

local Net = nn.Module:extend "Net" -- a tied weight, a buffer, a weight that is used without its module
function Net:init()
  self.embed = nn.Embedding(50, 32)
  self.blocks = nn.ModuleList()
  for i = 1, 4 do self.blocks[i] = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) end
  self.norm = nn.BatchNorm1d(32)
  self.gate = nn.Linear(32, 32)
  self.head = nn.Linear(32, 50, { bias = false })
  self.head.weight = self.embed.weight
end
function Net:forward(ids)
  local x = self.embed(ids)
  for _, block in ipairs(self.blocks) do x = x + block(x) end
  x = accel.linear(self.norm(x), self.gate.weight, self.gate.bias)
  return self.head(x)
end

accel.manual_seed(3)
local reference = Net():eval()
local ids = accel.randint(0, 50, { 7 })
local want
do
  local _ <close> = accel.no_grad()
  want = reference(ids)
end
local function same(model, note)
  local _ <close> = accel.no_grad()
  for _ = 1, 3 do assert(accel.equal(model(ids), want), note or "another result") end
end
local function copy() return reference:clone():eval() end
local function empty()
  local _ <close> = A.init_empty_weights()
  return Net():eval()
end
local function tier(t) return (accel.offload.tier(t)) end

-- ---- empty models ----
do
  local m = empty()
  assert(m.embed.weight.device == "meta" and m.gate.bias.device == "meta" and m.norm.running_mean.device == "cpu")
  assert(nn.Linear(2, 2).weight.device == "cpu")
  A.init_empty_weights(function() -- all forms of accel.empty
    for _, t in ipairs { accel.empty(2), accel.empty({ 2 }), accel.empty(2, {}), accel.empty(2, nil), accel.empty(2, { dtype = "f64" }) } do
      assert(t.device == "meta" and t.shape[1] == 2)
    end
    assert(accel.empty(2, { device = "cpu" }).device == "cpu" and accel.empty({}).device == "meta")
  end)
  local b = A.init_empty_weights({ include_buffers = true }, function() return nn.BatchNorm1d(3) end)
  assert(b.running_mean.device == "meta" and b.weight.device == "meta")
  pcall(A.init_empty_weights, function() error "out of it" end)
  assert(nn.Linear(2, 2).weight.device == "cpu")
  local before = accel.mem_stats("cpu").live_bytes
  local huge = A.init_empty_weights(function() return nn.Linear(100000, 100000) end)
  assert(huge.weight:numel() == 10 ^ 10 and accel.mem_stats("cpu").live_bytes - before < 10000)
  assert(A.init_on_device("cpu", nil, function() return nn.Linear(1, 1) end).weight.device == "cpu")
  fails("device 9 does not exist; choose from cpu", A.init_on_device, 9)
end

-- ---- whole models ----
do
  local m = copy()
  local names = {}
  for name in pairs(m:state_dict()) do names[#names + 1] = name end
  assert(A.cpu_offload(m) == m)
  same(m, "cpu_offload")
  assert(tier(m.gate.weight) == "host" and m.gate.weight.device == "cpu" and tier(m.norm.running_mean) == nil)
  assert(rawequal(m.head.weight, m.embed.weight)) -- tied weights have one home
  assert(A.has_offloaded_params(m.gate) and not A.has_offloaded_params(nn.Linear(1, 1)))
  local i = 0
  for name, t in pairs(m:state_dict()) do
    i = i + 1
    assert(name == names[i] and accel.equal(t, reference:state_dict()[name]))
  end
  local stats = accel.offload.stats(m)
  local total = 0
  for _, p in ipairs(m:parameters()) do total = total + p:numel() * 4 end
  assert(stats.host.used_bytes >= total and stats.host.used_bytes < total + 64 * 40)
  assert(stats.windows.cpu.peak_bytes <= stats.windows.cpu.budget_bytes and stats.windows.cpu.budget_bytes == 2 * 4 * 32 * (64 + 2)
    or stats.windows.cpu.budget_bytes < total / 2)
  -- host memory is the CPU's: nothing is moved, and it counts as the device's only while it is resident
  assert(stats.host.read_bytes == 0 and stats.host.written_bytes == 0 and stats.windows.cpu.misses == 0 and stats.windows.cpu.evicted > 0)
  fails("cannot be moved", m.to, m, "f64")
  fails("cannot be moved", m.half, m)
  A.remove_hook_from_submodules(m)
  same(m, "hooks removed")
  assert(tier(m.gate.weight) == nil and rawequal(m.head.weight, m.embed.weight) and m._hf_hook == nil)
  m:to "f64"
end

do -- buffers, a window of one's own, values of a state_dict
  local m = A.cpu_offload(copy(), { offload_buffers = true, window = 20000 })
  same(m)
  assert(tier(m.norm.running_mean) == "host" and accel.offload.stats(m).windows.cpu.budget_bytes == 20000)
  fails("cannot hold the largest layer", A.cpu_offload, copy(), { window = 1000 })
  fails("unknown option 'windw'", A.cpu_offload, copy(), { windw = 1 })
  fails("on the meta device", A.cpu_offload, empty())
  local e = A.cpu_offload(empty(), { state_dict = reference:state_dict() })
  same(e, "state_dict")
end

local dir = folder "disk"
do
  local m = copy()
  A.disk_offload(m, dir)
  same(m, "disk_offload")
  assert(tier(m.blocks[2][1].weight) == "file")
  local index = accel.json.decode(io.open(dir .. "/index.json"):read "a")
  assert(index["blocks.0.0.weight"].dtype == "float32" and index["blocks.0.0.weight"].shape[1] == 64)
  assert(index["embed.weight"] and not index["head.weight"]) -- once
  local file = io.open(dir .. "/gate.weight.dat", "rb")
  assert(file:read "a" == reference.gate.weight:to_bytes())
  file:close()
  local e = A.disk_offload(empty(), dir) -- as it is
  same(e, "a folder that is there")
  local loader = A.OffloadedWeightsLoader { save_folder = dir, state_dict = { own = accel.ones(1) } }
  assert(accel.equal(loader:get "gate.weight", reference.gate.weight:detach()) and loader:keys()[1] == "own" and loader:get "x" == nil)
  assert(accel.equal(A.PrefixedDataset(loader, "gate."):get "bias", reference.gate.bias:detach()))
  -- a folder of another model
  local Other = Net:extend "Other"
  function Other:init()
    Net.init(self)
    self.gate = nn.Linear(16, 32)
  end
  local other = A.init_empty_weights(function() return Other() end)
  fails("is this the folder of another model?", A.disk_offload, other, dir)
  assert(other.embed.weight.device == "meta" and rawget(other, "_hf_hook") == nil) -- nothing half dispatched
  -- a file that was cut, and one that is cut meanwhile
  local cut = folder "cut"
  A.offload_state_dict(cut, reference:state_dict())
  A.offload_weight(accel.ones(3), "gate.bias", cut)
  fails("gate.bias.dat", A.disk_offload, empty(), cut)
  A.offload_weight(reference.gate.bias, "gate.bias", cut)
  local running = A.disk_offload(empty(), cut)
  same(running)
  running._hf_hook.tiers:empty()
  A.offload_weight(accel.ones(3), "gate.bias", cut) -- another file: the model keeps the one that it opened
  same(running, "after a replacement")
  A.offload_weight(reference.gate.bias, "gate.bias", cut)
  local again = A.disk_offload(empty(), cut)
  again._hf_hook.tiers:empty()
  local function write(bytes) assert(assert(io.open(cut .. "/gate.bias.dat", "wb")):write(bytes):close()) end
  write(accel.ones(3):to_bytes())
  fails("gate.bias.dat: ends before", again, ids)
  write(reference.gate.bias:detach():to_bytes())
  same(again, "after an error")
  fails("cannot make the folder", A.disk_offload, copy(), "/proc/nowhere/x")
end

do -- training through tiers: gradients and steps are those of a model in memory
  local a, b = copy():train(), A.cpu_offload(copy():train())
  local function steps(m)
    local optimizer, losses = accel.optim.AdamW(m:parameters(), { lr = 0.01 }), {}
    for _ = 1, 4 do
      optimizer:zero_grad()
      local loss = nn.functional.cross_entropy(m(ids), ids)
      loss:backward()
      optimizer:step()
      losses[#losses + 1] = loss:item()
    end
    return losses
  end
  local x, y = steps(a), steps(b)
  for i = 1, 4 do assert(x[i] == y[i], i) end
  for name, t in pairs(a:state_dict()) do assert(accel.equal(t, b:state_dict()[name]), name) end
end

-- ---- models that take turns ----
do
  local a, hook_a = A.cpu_offload_with_hook(copy())
  local b, hook_b = A.cpu_offload_with_hook(copy(), { prev_module_hook = hook_a })
  same(a)
  local tiers = hook_a.hook.align.tiers
  assert(tiers:stats().windows.cpu.resident_bytes > 0)
  same(b)
  assert(tiers:stats().windows.cpu.resident_bytes == 0)
  hook_b:offload()
  assert(hook_b.hook.align.tiers:stats().windows.cpu.resident_bytes == 0)
  same(b)
  hook_b:remove()
  same(b)
  assert(tier(b.gate.weight) == nil)
end

-- ---- device maps ----
local map = { embed = 0, blocks = 0, ["blocks.2"] = "cpu", ["blocks.3"] = "disk", norm = "cpu", gate = "disk", head = 0 }
do
  local off = folder "maps"
  local m = A.dispatch_model(copy(), map, { offload_dir = off })
  same(m, "dispatch_model")
  assert(tier(m.blocks[1][1].weight) == nil and tier(m.blocks[3][1].weight) == "host" and tier(m.blocks[4][1].weight) == "file")
  assert(tier(m.gate.weight) == "file" and m.hf_device_map["blocks.3"] == "disk")
  assert(rawequal(m.head.weight, m.embed.weight))
  local r = A.dispatch_model(copy(), { [""] = "cpu" })
  assert(rawget(r, "_hf_hook") == nil and r.hf_device_map[""] == "cpu") -- one device: moved, no hooks
  same(r)
  local forced = A.dispatch_model(copy(), { [""] = "cpu" }, { force_hooks = true })
  same(forced)
  warned = {}
  forced:to "cpu"
  assert(#warned == 1 and warned[1]:find "dispatched")
  -- misuse
  local function refused(part, ...)
    local fresh = copy()
    fails(part, A.dispatch_model, fresh, ...)
    assert(rawget(fresh, "_hf_hook") == nil and tier(fresh.gate.weight) == nil)
    same(fresh)
  end
  refused("gives no device for the following parameters: gate.weight, gate.bias",
    { embed = 0, blocks = 0, norm = 0, head = 0 })
  refused("give an offload_dir: the map puts these on disk: gate", { embed = 0, blocks = 0, norm = 0, head = 0, gate = "disk" })
  refused("device 7 does not exist; choose from cpu, meta and 'disk'", { [""] = 0, gate = 7 })
  refused("device 'tpu' does not exist", { [""] = "tpu" })
  warned = {}
  A.dispatch_model(copy(), { [""] = "cpu", gaet = "cpu" })
  assert(warned[1]:find "not modules of the model: 'gaet'" or warned[1]:find "gaet", warned[1])
end

-- ---- checkpoints ----
do
  local ckpt = folder "ckpt"
  local accelerator = accel.Accelerator()
  accelerator:save_model(reference, ckpt, { max_shard_size = "20KB" })
  local single = folder "single"
  accel.save(single .. "/model.safetensors", reference:state_dict())
  for _, at in ipairs { ckpt, single, ckpt .. "/model.safetensors.index.json", single .. "/model.safetensors" } do
    for _, where in ipairs { { [""] = "disk" }, { [""] = "cpu" }, map } do
      local m = empty()
      A.load_checkpoint_and_dispatch(m, at, { device_map = where })
      same(m, "load_checkpoint_and_dispatch of " .. at)
      if where[""] == "disk" then
        assert(tier(m.gate.weight) == "file" and tier(m.norm.running_mean) == nil)
        local stats = accel.offload.stats(m).files
        assert(stats.written_bytes == 0)
      end
    end
  end
  -- what does not fit stays in its file: nothing is read at loading
  local m = empty()
  A.load_checkpoint_and_dispatch(m, ckpt, { device_map = { [""] = "disk" } })
  assert(accel.offload.stats(m).files.read_bytes == 0)
  -- another dtype has to be written; a folder is asked for
  fails("give an offload_folder", A.load_checkpoint_and_dispatch, empty(), ckpt, { device_map = { [""] = "disk" }, dtype = "bf16" })
  local half = A.load_checkpoint_and_dispatch(empty(), ckpt, { device_map = { [""] = "disk" }, dtype = "bf16",
    offload_folder = folder "half" })
  assert(half.gate.weight.dtype == "bf16")
  -- in two steps, as the reference does
  local off, two = folder "two", empty()
  A.load_checkpoint_in_model(two, ckpt, { device_map = map, offload_folder = off })
  assert(two.gate.weight.device == "meta" and two.blocks[3][1].weight.device == "cpu")
  A.dispatch_model(two, map, { offload_dir = off })
  same(two, "load, then dispatch")
  -- "auto" within sizes; memory of the device is what was said
  local auto = empty()
  A.load_checkpoint_and_dispatch(auto, ckpt, { device_map = "auto", max_memory = { [0] = 40000, cpu = 70000 } })
  same(auto, "auto")
  local kinds, resident, seen = {}, 0, {}
  for _, p in ipairs(auto:parameters()) do
    kinds[tier(p) or "resident"] = true
    if not tier(p) and not seen[p] then resident, seen[p] = resident + p:numel() * 4, true end
  end
  assert(kinds.resident and kinds.host, "nothing was offloaded")
  local window = accel.offload.stats(auto).windows.cpu
  assert(resident + window.peak_bytes <= 40000, resident + window.peak_bytes)
  fails("unknown device_map 'atuo'", A.load_checkpoint_and_dispatch, empty(), ckpt, { device_map = "atuo" })
  fails("no such file or folder", A.load_checkpoint_and_dispatch, empty(), ckpt .. "x", { device_map = "auto" })
  -- a damaged file: the model stays as it was
  local broken = folder "broken"
  local bytes = io.open(single .. "/model.safetensors", "rb"):read "a"
  io.open(broken .. "/model.safetensors", "wb"):write(bytes:sub(1, -100)):close()
  local e = empty()
  fails("model.safetensors", A.load_checkpoint_and_dispatch, e, broken, { device_map = { [""] = "cpu" } })
  assert(e.gate.weight.device == "meta")
end

-- ---- hooks ----
do
  local order = {}
  local Note = A.ModelHook:extend "Note"
  function Note:init(name) self.name = name end
  function Note:init_hook(m)
    order[#order + 1] = "init " .. self.name
    return m
  end
  function Note:pre_forward(_, x)
    order[#order + 1] = "pre " .. self.name
    return x + 1
  end
  function Note:post_forward(_, y)
    order[#order + 1] = "post " .. self.name
    return y * 2
  end
  function Note:detach_hook(m)
    order[#order + 1] = "detach " .. self.name
    return m
  end
  local m = nn.Linear(2, 2)
  local x = accel.randn(3, 2)
  local plain, shifted = m(x), m(x + 1)
  A.add_hook_to_module(m, Note "a")
  assert(accel.equal(m(x), shifted * 2))
  A.add_hook_to_module(m, Note "b") -- in its place
  assert(accel.equal(m(x), shifted * 2))
  A.add_hook_to_module(m, Note "c", true)
  assert(accel.equal(m(x), m._old_forward(m, x + 1 + 1) * 2 * 2))
  assert(tostring(getmetatable(m._hf_hook).__name):find "SequentialHook")
  A.remove_hook_from_module(m)
  assert(accel.equal(m(x), plain) and rawget(m, "forward") == nil and rawget(m, "_old_forward") == nil)
  assert(table.concat(order, ","):find "init a,pre a,post a,init b,pre b,post b,detach b,init b,init c,pre b,pre c,post b,post c")
  local Free = A.ModelHook:extend "Free"
  Free.no_grad = true
  A.add_hook_to_module(m, Free())
  assert(not m(x).requires_grad)
  A.remove_hook_from_module(m)
  assert(m(x).requires_grad)
  fails("is an instance of a class below", A.add_hook_to_module, m, {})

  local hook = A.AlignDevicesHook { execution_device = 0, offload = true }
  A.add_hook_to_module(m, hook)
  assert(tier(m.weight) == "host" and accel.equal(m(x), plain))
  A.remove_hook_from_module(m)
  assert(tier(m.weight) == nil and accel.equal(m(x), plain))
  local seq = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
  local before = seq(x)
  A.attach_align_device_hook(seq, { execution_device = 0, offload = true })
  assert(tier(seq[1].weight) == "host" and accel.equal(seq(x), before))
  A.remove_hook_from_submodules(seq)
  A.attach_execution_device_hook(seq, 0)
  assert(tier(seq[1].weight) == nil and seq[1]._hf_hook and accel.equal(seq(x), before))
end

-- ---- dtypes layer by layer ----
do
  local m = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8))
  local x = accel.randn(2, 8)
  local rounded = m:clone()
  local _ <close> = accel.no_grad()
  for _, i in ipairs { 1, 3 } do
    for _, p in ipairs(rounded[i]:parameters()) do p:copy_(p:to("bf16"):to "f32") end
  end
  local expected = rounded(x)
  A.attach_layerwise_casting_hooks(m, "bf16", "f32", { skip_modules_pattern = { "^3$" } })
  assert(m[1].weight.dtype == "bf16" and m[2].weight.dtype == "f32" and m[4].weight.dtype == "f32")
  assert(accel.equal(m(x), expected) and accel.equal(m(x), expected) and m[1].weight.dtype == "bf16")
end

-- ---- tensors by name ----
do
  local m = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3))
  A.set_module_tensor_to_device(m, "0.weight", "meta")
  assert(m[1].weight.device == "meta")
  fails("give its value", A.set_module_tensor_to_device, m, "0.weight", "cpu")
  fails("has shape (3, 2)", A.set_module_tensor_to_device, m, "0.weight", "cpu", { value = accel.ones(2) })
  fails("no parameter and no buffer 'wieght'", A.set_module_tensor_to_device, m, "0.wieght", "cpu")
  A.set_module_tensor_to_device(m, "0.weight", 0, { value = accel.ones(3, 2), dtype = "bf16" })
  assert(m[1].weight.dtype == "bf16" and m[1].weight.device == "cpu")
  A.retie_parameters(m, { { "0.bias", "1.bias" } })
  assert(rawequal(m[1].bias, m[2].bias))
  assert(select(3, A.id_tensor_storage(accel.ones(4))) == 16)
  A.align_module_device(m[1], "meta", function() assert(m[1].weight.device == "meta") end)
  assert(m[1].weight.device == "cpu")
  local at = A.extract_submodules_state_dict({ ["a.1"] = 1, ["a.10"] = 2, ["a.2"] = 3 }, { "a.1", "a.2" })
  assert(at["a.1"] == 1 and at["a.2"] == 3 and at["a.10"] == nil)
end

warn = warn_was -- luacheck: ignore
accel.collect()
