-- Options of what places models: device maps, offloading, hooks, loading to devices. Each one changes where tensors are, what a model computes,
-- what is written, warns, or raises (support/option_sweep.lua). Devices are the CPU, its memory apart from it, files and meta.
--   accel-run tests/options/accelerator_models_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local A, nn = accel.accelerator, accel.nn

local s = sweep.folder("accelerator", require "option_groups".accelerator "models")

local root = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/models-")
local n = 0
local function folder()
  n = n + 1
  return root .. "/" .. n
end

local Block = nn.Module:extend "Block"
function Block:init(width, more)
  self.up = nn.Linear(4, width)
  self.down = nn.Linear(width, 4)
  self.norm = nn.BatchNorm1d(4)
  self.more = more
end
function Block:forward(o, shift)
  local x = accel.is_tensor(o) and o or o.x
  local y = self.norm(self.down(self.up(x):tanh())) + x
  return shift and y + shift or y
end
local function net()
  accel.manual_seed(1)
  local model = nn.Sequential(Block(8), Block(16), Block(8))
  model.scale = nn.Parameter(accel.full({ 1 }, 2.0))
  return model:eval()
end
local LAYERS <const> = { "0", "1", "2", "scale" }
local function map_of(where)
  local map = {}
  for i, name in ipairs(LAYERS) do map[name] = type(where) == "table" and where[i] or where end
  return map
end

--- Names below a folder.
local function files(dir)
  local list = accel.listdir(dir)
  if list then table.sort(list) end
  return list
end

--- Where all tensors of a model lie, what they hold, and what it computes.
local function placed(model, dir)
  local _ <close> = accel.no_grad()
  local seen, meta = {}, false
  for _, named in ipairs { model:named_parameters(), model:named_buffers() } do
    for name, t in pairs(named) do
      local tier = accel.offload.tier(t)
      seen[#seen + 1] = { name, t.device, t.dtype, tier, t.device ~= "meta" and (tier and t:clone() or t) or nil }
      meta = meta or t.device == "meta"
    end
  end
  local ok, y = pcall(model, accel.arange(8):reshape(2, 4):float())
  return seen, not meta and (ok and y or "error") or nil, dir and files(dir)
end

local HERE <const> = "tests/options/accelerator_models_test.lua"
local NO_WINDOW <const> = "tests/stdlib/accelerator/big_modeling_test.lua"
local VALUES <const> = function()
  local state = {}
  for name, t in pairs(net():state_dict()) do state[name] = t:is_floating_point() and t + 1 or t end
  return { state }
end
local OFFLOAD <const> = { execution_device = { "meta" }, offload_buffers = { true }, preload_module_classes = { { "Block" } },
  state_dict = VALUES, window = { 10 } }
s:recipe("accel.accelerator.cpu_offload", {
  base = function() return { model = net() } end, run = function(call) return placed(call()) end, values = OFFLOAD,
  raises = { window = "cannot hold", execution_device = "meta" },
})
s:recipe("accel.accelerator.disk_offload", {
  base = function() return { model = net(), offload_dir = folder() } end,
  run = function(call, given) return placed(call(), given.offload_dir) end, values = OFFLOAD,
  raises = { window = "cannot hold", execution_device = "meta" },
})
s:recipe({ "accel.accelerator.cpu_offload_with_hook" }, {
  base = function() return { model = net(), execution_device = "cpu" } end,
  run = function(call, given)
    local before, hook = given.before, nil
    given.before = nil
    local model
    model, hook = call()
    model(accel.ones(2, 4))
    local rests = accel.offload.tier(before and before:parameters()[1] or accel.ones(1))
    hook:offload()
    return placed(model), rests
  end,
  values = { execution_device = { "meta" } }, raises = { execution_device = "meta" },
  elsewhere = { prev_module_hook = "tests/stdlib/accelerator/big_modeling_test.lua" },
})
s:recipe("accel.accelerator.CpuOffload", {
  base = function() return { execution_device = "cpu" } end,
  run = function(call) return placed(A.add_hook_to_module(net(), call())) end,
  values = { execution_device = { "meta" } }, raises = { execution_device = "meta" },
  elsewhere = { prev_module_hook = "tests/stdlib/accelerator/big_modeling_test.lua" },
})

local checkpoint = folder()
accel.makedirs(checkpoint)
do
  accel.manual_seed(5)
  local other = nn.Sequential(Block(8), Block(16), Block(8))
  other.scale = nn.Parameter(accel.full({ 1 }, 3.0))
  accel.Accelerator():save_model(other, checkpoint)
end
local MIXED <const> = { "cpu", 0, "disk", 0 }
s:variant("accel.accelerator.dispatch_model", "mixed", {
  base = function() return { model = net(), device_map = map_of(MIXED), offload_dir = folder() } end,
  run = function(call, given)
    local model = call()
    local hooks = 0
    for _, m in ipairs(model:modules()) do hooks = hooks + (rawget(m, "_hf_hook") and 1 or 0) end
    local a, b = placed(model)
    return a, b, hooks, files(given.offload_dir or root .. "/none")
  end,
  values = { main_device = { "meta" }, state_dict = VALUES, offload_buffers = { true }, skip_keys = { "x" }, window = { 10 },
    offload_index = { { ["2.up.weight"] = { safetensors_file = checkpoint .. "/model.safetensors", dtype = "float32" } } },
    preload_module_classes = { { "Block" } }, offload_dir = function() return { folder() } end },
  with = { force_hooks = { device_map = map_of "cpu", offload_dir = sweep.none } },
  raises = { window = "cannot hold", main_device = "meta" },
  elsewhere = { skip_keys = HERE, offload_dir = NO_WINDOW },
})
local one_device = { values = {
    main_device = { "meta" }, state_dict = VALUES, offload_buffers = { true }, skip_keys = { "x" }, window = { 10 },
    offload_index = { {} }, preload_module_classes = { { "Block" } }, offload_dir = { "/none" } } }
one_device.base = function() return { model = net(), device_map = map_of(0) } end
one_device.run = function(call)
  local model = call()
  return placed(model), rawget(model, "_hf_hook") ~= nil
end
one_device.raises = { main_device = "meta" }
s:variant("accel.accelerator.dispatch_model", "one_device", one_device)

-- ---- loading ----
local LOAD <const> = "tests/stdlib/accelerator/load_checkpoint_test.lua"
local loads = {
  device_map = { map_of(MIXED) }, max_memory = { { [0] = 300, cpu = 1e6 } }, no_split_module_classes = { { "Block" } }, dtype = { "bf16" },
  offload_buffers = { true }, skip_keys = { "x" }, force_hooks = { true }, window = { 10 }, strict = { true },
  offload_folder = function() return { folder() } end, keep_in_fp32_modules = { { "up" } }, offload_state_dict = { true },
  preload_module_classes = { { "Block" } }, full_state_dict = { false }, offload_8bit_bnb = { true },
}
local function loading(base, more)
  local recipe = { base = base, values = loads, run = function(call, given)
    local model = given.model
    call()
    local hooks = 0
    for _, m in ipairs(model:modules()) do hooks = hooks + (rawget(m, "_hf_hook") and 1 or 0) end
    local a, b = placed(model)
    return a, b, hooks, given.offload_folder and files(given.offload_folder)
  end }
  for key, value in pairs(more) do recipe[key] = value end
  return recipe
end
local function extra() -- a name that the checkpoint lacks
  local model = net()
  model.more = nn.Linear(1, 1)
  return model
end
s:recipe("accel.accelerator.load_checkpoint_in_model", loading(function() return { model = extra(), checkpoint = checkpoint } end, {
  raises = { strict = "missing", offload_8bit_bnb = "load_and_quantize_model", device_map = "more" },
  with = { keep_in_fp32_modules = { dtype = "bf16" } }, elsewhere = { broadcast_from_rank0 = LOAD },
}))
s:variant("accel.accelerator.load_checkpoint_and_dispatch", "none", loading(function() return { model = extra(), checkpoint = checkpoint } end, {
  raises = { strict = "missing", device_map = "more" }, elsewhere = { broadcast_from_rank0 = LOAD },
}))
s:variant("accel.accelerator.load_checkpoint_and_dispatch", "map", loading(
  function() return { model = net(), checkpoint = checkpoint, device_map = map_of(MIXED), offload_folder = folder() } end, {
  raises = { window = "cannot hold" }, with = { force_hooks = { device_map = map_of "cpu" }, keep_in_fp32_modules = { dtype = "bf16" } },
  elsewhere = { broadcast_from_rank0 = LOAD, strict = LOAD, skip_keys = HERE, max_memory = NO_WINDOW, device_map = HERE,
    offload_folder = HERE },
}))

-- ---- hooks ----
--- What a hook does with an input and an output, as if there were another device than those of the model.
local function moves(hook, given)
  local ok, x = pcall(function()
    hook.single = false
    return (hook:pre_forward(nil, { x = accel.ones(1, { device = "meta" }) }))
  end)
  return ok and x or "moved", given.io_same_device ~= nil and hook:post_forward(nil, { y = accel.ones(1) }) or nil
end
s:recipe("accel.accelerator.AlignDevicesHook", {
  base = function() return { execution_device = "cpu" } end,
  run = function(call, given)
    local hook = call()
    local model = A.add_hook_to_module(net(), hook)
    return { moves(hook, given) }, placed(model)
  end,
  values = { execution_device = { "meta" }, offload = { true }, offload_buffers = { true }, place_submodules = { true }, skip_keys = { "x" },
    weights_map = VALUES, io_same_device = { true }, tied_params_map = { {} } },
  with = { offload_buffers = { offload = true, place_submodules = true }, weights_map = { offload = true, place_submodules = true },
    place_submodules = { offload = true }, io_same_device = { skip_keys = "x" } },
  raises = { execution_device = "meta" },
})
s:recipe("accel.accelerator.add_hook_to_module", {
  base = function()
    local Add = A.ModelHook:extend "Add"
    function Add.post_forward(_, _, y) return y + 1 end
    local model = net()
    A.add_hook_to_module(model, Add())
    return { module = model, hook = Add() }
  end,
  run = function(call) return placed(call()) end, values = { append = { true } },
})
s:recipe("accel.accelerator.remove_hook_from_module", {
  base = function()
    local model = net()
    A.attach_align_device_hook(model, { execution_device = "cpu", offload = true })
    return { module = model }
  end,
  run = function(call) return placed(call()) end, values = { recurse = { true } },
})
s:recipe("accel.accelerator.attach_layerwise_casting_hooks", {
  base = function() return { module = net(), storage_dtype = "bf16", compute_dtype = "f32" } end,
  run = function(call, given)
    call()
    return placed(given.module)
  end,
  values = { skip_modules_pattern = { "up" }, skip_modules_classes = { { nn.Linear } }, non_blocking = { true } },
})
s:recipe("accel.accelerator.align_module_device", {
  base = function() return { module = nn.Linear(2, 2) } end,
  run = function(call, given)
    local value = call(given.module)
    if type(value) ~= "table" then return value end
    local _ <close> = value
    return given.module.weight.device
  end,
  values = { execution_device = { "meta" }, fn = { function() return "called" end } },
})
s:recipe("accel.accelerator.attach_align_device_hook", {
  base = function() return { module = net() } end,
  run = function(call, given)
    call()
    return placed(given.module)
  end,
  values = { execution_device = { "meta" }, offload = { true }, offload_buffers = { true }, weights_map = VALUES, skip_keys = { "x" },
    module_name = { "a" }, preload_module_classes = { { "Block" } }, tied_params_map = { {} } },
  with = { offload_buffers = { offload = true, execution_device = "cpu" }, weights_map = { offload = true, execution_device = "cpu" },
    module_name = { offload = true, execution_device = "cpu", weights_map = VALUES()[1] } },
  raises = { execution_device = "meta", offload = "execution_device", module_name = "a%.0" },
  elsewhere = { skip_keys = HERE },
})
s:recipe("accel.accelerator.attach_execution_device_hook", {
  base = function() return { module = net(), execution_device = "cpu" } end,
  run = function(call, given)
    call()
    return moves(given.module[1].up._hf_hook, given)
  end,
  values = { skip_keys = { "x" } },
})
s:recipe("accel.accelerator.init_empty_weights", {
  run = function(call)
    local made = call()
    if type(made) == "string" then return made end
    local _ <close> = made
    return placed(nn.BatchNorm1d(2))
  end,
  values = { fn = { function() return "called" end }, include_buffers = { true } },
})
s:recipe("accel.accelerator.init_on_device", {
  base = function() return { device = "meta" } end,
  run = function(call)
    local made = call()
    if type(made) == "string" then return made end
    local _ <close> = made
    return placed(nn.BatchNorm1d(2))
  end,
  values = { fn = { function() return "called" end }, include_buffers = { true } },
})

-- ---- sizes and maps ----
s:recipe({ "accel.accelerator.compute_module_sizes", "accel.accelerator.compute_module_total_buffer_size" }, {
  base = function() return { model = net() } end,
  values = { dtype = { "bf16" }, special_dtypes = { { ["0.up.weight"] = "f64", ["0.norm.running_mean"] = "f64" } }, buffers_only = { true } },
})
s:recipe("accel.accelerator.get_balanced_memory", {
  base = function() return { model = net(), max_memory = { [0] = 1500, [1] = 1500, cpu = 1e6 } } end,
  values = { max_memory = { { [0] = 1200, [1] = 600 } }, no_split_module_classes = { "Block" }, dtype = { "bf16" }, low_zero = { true },
    special_dtypes = { { ["0.up.weight"] = "bf16" } } },
})
s:recipe("accel.accelerator.infer_auto_device_map", {
  base = function() return { model = net(), max_memory = { [0] = 700, [1] = 700, cpu = 1e6 } } end,
  run = function(call)
    local said, was = {}, print
    print = function(...) said[#said + 1] = table.concat { ... } end -- luacheck: ignore 121
    local ok, map = pcall(call)
    print = was -- luacheck: ignore 121
    if not ok then error(map, 0) end
    return map, #said
  end,
  values = { max_memory = { { [0] = 1200, cpu = 1e6 } }, no_split_module_classes = { "Block" }, dtype = { "bf16" }, clean_result = { false },
    special_dtypes = { { ["0.up.weight"] = "bf16", ["1.up.weight"] = "bf16" } } },
  elsewhere = { offload_buffers = "tests/stdlib/accelerator/device_map_test.lua",
    fallback_allocation = "tests/stdlib/accelerator/device_map_test.lua" },
})
s:recipe("accel.accelerator.get_max_memory", { values = { max_memory = { { [0] = "1GB" } } } })
s:recipe("accel.accelerator.get_max_layer_size", {
  base = function()
    local model, list = net(), {}
    for name, child in pairs(model:named_children()) do list[#list + 1] = { name, child } end
    return { modules = list, module_sizes = A.compute_module_sizes(model) }
  end,
  values = { no_split_module_classes = { "Block" } },
})
s:recipe("accel.accelerator.clean_device_map", {
  base = function() return { device_map = { ["a.x"] = 0, ["a.y"] = 0, b = 1 } } end, values = { module_name = { "b" } },
})
s:recipe("accel.accelerator.named_module_tensors", {
  base = function()
    local module = nn.BatchNorm1d(2)
    module.inner = nn.Linear(1, 1)
    module:register_buffer("passing", accel.ones(1), false)
    return { module = module }
  end,
  values = { include_buffers = { false }, recurse = { true }, remove_non_persistent = { true } },
})
s:recipe("accel.accelerator.set_module_tensor_to_device", {
  base = function() return { module = nn.Linear(2, 1), tensor_name = "weight", device = "cpu" } end,
  run = function(call, given)
    call()
    return given.module.weight
  end,
  values = { value = { accel.full({ 1, 2 }, 7.0) }, dtype = { "bf16" } },
})

-- ---- weights in a folder ----
s:recipe("accel.accelerator.offload_weight", {
  base = function()
    local dir = folder()
    accel.makedirs(dir)
    return { weight = accel.ones(2), weight_name = "w", offload_folder = dir }
  end,
  run = function(call, given) return call(), given.index end,
  elsewhere = { index = HERE }, -- a table that the function fills: it has no other options
})
local stored = folder()
accel.makedirs(stored)
local index = A.offload_weight(accel.arange(4):float(), "w", stored, {})
A.save_offload_index(index, stored)
s:recipe("accel.accelerator.load_offloaded_weight", {
  base = function() return { weight_file = stored .. "/w.dat", dtype = "float32", shape = { 4 } } end,
  values = { dtype = { "int32" }, shape = { { 2, 2 } } }, passes_on = true, -- an entry of an index, which holds more
})
s:recipe("accel.accelerator.OffloadedWeightsLoader", {
  base = function() return { state_dict = { a = accel.ones(1) }, save_folder = stored } end,
  run = function(call)
    local loader = call()
    local out = {}
    for _, key in ipairs { "a", "b", "w" } do
      local ok, t = pcall(loader.get, loader, key)
      out[#out + 1] = ok and t or "none"
    end
    return out
  end,
  values = { state_dict = function() return { { b = accel.ones(2) } } end, save_folder = { root }, device = { "meta" },
    index = { { b = { dtype = "float32", shape = { 1 } } } } }, raises = { save_folder = "index.json" },
})
s:recipe("accel.accelerator.send_to_device", {
  base = function() return { data = { a = accel.ones(1), b = accel.ones(1) }, device = "meta" } end,
  values = { skip_keys = { "a" }, non_blocking = { true } },
})

s:finish()
