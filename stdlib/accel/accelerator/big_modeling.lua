--- Models that do not fit on one device: created without memory, loaded to the devices with room, fetched while they compute.
--- It uses the names and arguments of accelerate.big_modeling.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local device_maps = require "accel.accelerator.device_map"
local environment = require "accel.accelerator.environment"
local folder = require "accel.accelerator.offload_folder"
local listed = require "accel.util.listed"
local model_hooks = require "accel.accelerator.model_hooks"
local model_placement = require "accel.accelerator.model_placement"
local module_tensors = require "accel.accelerator.module_tensors"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local parameter = require "accel.nn.parameter"
local raise = require "accel.util.raise"

local M = {}

-- Empty models -------------------------------------------------------------------------------------

--- accel.empty as the layers call it for their parameters, before these get values: straight on a device, so that there is never memory
--- for them elsewhere.
local function empty_on(device, plain)
  return function(...)
    local args = table.pack(...)
    while args.n > 0 and args[args.n] == nil do args.n = args.n - 1 end
    local last = args[args.n]
    if type(last) == "table" and last[1] == nil and (next(last) ~= nil or args.n > 1) then
      if last.device == nil then
        args[args.n] = { device = device }
        for key, value in next, last do args[args.n][key] = value end
      end
    else
      args.n = args.n + 1
      args[args.n] = { device = device }
    end
    return plain(table.unpack(args, 1, args.n))
  end
end

--- A block in which parameters of new modules are created on a device. With include_buffers this covers all new tensors. Also
--- with a function.
---@param device string
---@param opts? {include_buffers: boolean?}
---@param fn? function
---@return any
function M.init_on_device(device, opts, fn)
  if type(opts) == "function" then opts, fn = nil, opts end
  local o = options("init_on_device", opts, { include_buffers = environment.parse_flag_from_env "ACCELERATE_INIT_INCLUDE_BUFFERS" })
  device = device == "meta" and "meta" or module_tensors._device_name("init_on_device", device)
  local block
  if o.include_buffers then
    block = accel.device(device)
  else
    local before, plain = parameter.device, accel.empty
    parameter.device = device
    rawset(accel, "empty", empty_on(device, plain))
    block = setmetatable({}, { __close = function()
      parameter.device = before
      rawset(accel, "empty", plain)
    end })
  end
  if not fn then return block end
  local _ <close> = block
  return fn()
end

--- A block in which parameters of new modules take no memory: they are on the meta device. Buffers are real unless include_buffers
--- (or ACCELERATE_INIT_INCLUDE_BUFFERS) is set. Also with a function.
--- example: local _ <close> = accel.accelerator.init_empty_weights() local m = accel.nn.Linear(100000, 100000)
---   return m.weight.device --> "meta"
---@param opts? {include_buffers: boolean?}
---@param fn? function
---@return any
function M.init_empty_weights(opts, fn) return M.init_on_device("meta", opts, fn) end

local ONE_DEVICE <const> = "if the whole model is on one device: nothing is fetched or moved"

-- Whole models -------------------------------------------------------------------------------------

local function one_tier(tier, offload_buffers)
  return function(_, kind) return (kind == "parameter" or offload_buffers) and tier or nil end
end

--- The device on which a model computes: the given one, or the device of its first parameter. A meta parameter counts
--- as CPU.
local function execution_device(who, model, given)
  if given ~= nil then return module_tensors._device_name(who, given) end
  local first = model:parameters()[1]
  local device = first and first.device or "cpu"
  return module_tensors._device_name(who, device == "meta" and "cpu" or device)
end

-- Options that execution_device by position may stand before: cpu_offload(model, "cuda:0", { offload_buffers = true }).
local function device_first(who, opts, more, ...)
  if math.type(opts) ~= "integer" and type(opts) ~= "string" then
    check.surplus(who, more, ...)
    return opts
  end
  check.surplus(who, ...)
  if more ~= nil and type(more) ~= "table" then raise("%s: options must be a table, got %s", who, check.shown(more)) end
  local o = { execution_device = opts }
  for key, value in next, more or {} do
    if key == "execution_device" then raise("%s: execution_device is given by position and as an option", who) end
    o[key] = value
  end
  return o
end

--- All weights of a model in host memory, on execution_device while they are used and before, as far as there is room.
---@param model accel.nn.Module
---@param opts? table|integer|string options, or execution_device, which options may follow
---  execution_device integer|string: default the device of the model's first parameter
---  offload_buffers boolean = false: offload buffers as well
---  state_dict table<string, accel.Tensor>: values in place of the model's
---  preload_module_classes string[]: without effect, because weights are fetched on use by any module
---  window integer|string: bytes of the device that weights may take at a time (default: room for the two largest layers)
---@return accel.nn.Module
function M.cpu_offload(model, opts, ...)
  local who = "cpu_offload"
  opts = device_first(who, opts, ...)
  module_tensors._check_module(who, model)
  local o = options(who, opts, {
    execution_device = options.none, offload_buffers = false, state_dict = options.none, preload_module_classes = options.none,
    window = options.none,
  })
  no_effect("accel.accelerator.cpu_offload", o)
  model_placement.check_values(who, model, o.state_dict)
  local device = execution_device(who, model, o.execution_device)
  model_placement.place(model, {
    who = who, main = device, exec_of = function() return device end, tier_of = one_tier("host", o.offload_buffers),
    state_dict = o.state_dict, offload_buffers = o.offload_buffers, window = o.window,
  })
  return model
end

--- A model that rests in host memory, comes to execution_device with its first forward and stays until hook:offload(), or until
--- the model whose prev_module_hook it is begins: for several models that take turns.
---@param model accel.nn.Module
---@param opts? {execution_device: (integer|string)?, prev_module_hook: accel.accelerator.UserCpuOffloadHook?} or execution_device, which
---  options may follow
---@return accel.nn.Module model
---@return accel.accelerator.UserCpuOffloadHook hook with offload() and remove()
function M.cpu_offload_with_hook(model, opts, ...)
  opts = device_first("cpu_offload_with_hook", opts, ...)
  module_tensors._check_module("cpu_offload_with_hook", model)
  local hook = model_hooks.CpuOffload(opts)
  model_hooks.add_hook_to_module(model, hook, true)
  return model, model_hooks.UserCpuOffloadHook(model, hook)
end

--- All weights of a model in a folder, on execution_device while they are used and before. A folder with an index.json is
--- used as it is, a new one is written.
---@param model accel.nn.Module
---@param offload_dir string
---@param opts? table|integer|string as cpu_offload's, without state_dict
---@return accel.nn.Module
function M.disk_offload(model, offload_dir, opts, ...)
  local who = "disk_offload"
  opts = device_first(who, opts, ...)
  module_tensors._check_module(who, model)
  if type(offload_dir) ~= "string" then raise("%s: offload_dir must be a folder, got %s", who, check.shown(offload_dir)) end
  local o = options(who, opts, {
    execution_device = options.none, offload_buffers = false, preload_module_classes = options.none, window = options.none,
  })
  no_effect("accel.accelerator.disk_offload", o)
  local device = execution_device(who, model, o.execution_device)
  local index, message, code = folder._read_index(offload_dir)
  if not index and code ~= "not_found" then raise("%s: %s", who, message) end
  model_placement.place(model, {
    who = who, main = device, exec_of = function() return device end, tier_of = one_tier("disk", o.offload_buffers),
    folder = offload_dir, index = index, offload_buffers = o.offload_buffers, window = o.window,
  })
  return model
end

-- Device maps --------------------------------------------------------------------------------------

--- The devices of a map in accel's names, the main one, and all entries elsewhere: map of names -> { device, tier }.
local function read_map(who, device_map, main_device)
  local gpus, seen, out = {}, {}, {}
  for _, where in ordered.iterate(device_map) do
    if where ~= "cpu" and where ~= "disk" and not seen[where] then gpus[#gpus + 1], seen[where] = where, true end
  end
  local main = main_device
  if main == nil then main = gpus[1] == nil and "cpu" or gpus[1] end
  local host_is_home = main == "cpu" -- else modules in host memory compute on the main device
  local name = module_tensors._device_name(who, main)
  for key, where in ordered.iterate(device_map) do
    if where == "disk" then out[key] = { device = name, tier = "disk" }
    elseif where == "cpu" then out[key] = { device = name, tier = not host_is_home and "host" or nil }
    else out[key] = { device = module_tensors._device_name(who, where) } end
  end
  return out, name
end
M._read_map = read_map

local function below(device_map, tier)
  local names = {}
  for name, where in ordered.iterate(device_map) do
    if where == tier then names[#names + 1] = name == "" and "the model" or name end
  end
  return names
end

local function dispatch(model, device_map, opts, tiers, ...)
  local who = "dispatch_model"
  module_tensors._check_module(who, model)
  local o = options(who, opts, {
    main_device = options.none, state_dict = options.none, offload_dir = options.none, offload_index = options.none,
    offload_buffers = false, skip_keys = options.none, preload_module_classes = options.none, force_hooks = false,
    window = options.none,
  }, ...)
  no_effect("accel.accelerator.dispatch_model", o)
  device_maps.check_device_map(model, device_map)
  local map, main = read_map(who, device_map, o.main_device)
  local devices, n = {}, 0
  for _, where in ordered.iterate(device_map) do
    if not devices[where] then devices[where], n = true, n + 1 end
  end
  if devices.disk and not o.offload_dir and not o.offload_index then
    raise("%s: give an offload_dir: the map puts these on disk: %s", who, table.concat(below(device_map, "disk"), ", "))
  end
  if n > 1 or devices.disk or o.force_hooks then
    local index = o.offload_index
    if not index and devices.disk then
      local message, code
      index, message, code = folder._read_index(o.offload_dir)
      if not index and code ~= "not_found" then raise("%s: %s", who, message) end
    end
    device_maps.check_tied_parameters_on_same_device(require("accel.nn.module_sizes").find_tied_parameters(model), device_map)
    local function at(name) return device_maps.device_of(name, map) or { device = main } end
    model_placement.place(model, {
      who = who, main = main, exec_of = function(name) return at(name).device end,
      tier_of = function(name, kind) return (kind == "parameter" or o.offload_buffers) and at(name).tier or nil end,
      state_dict = o.state_dict, folder = devices.disk and o.offload_dir or nil, index = index, offload_buffers = o.offload_buffers,
      skip_keys = o.skip_keys, window = o.window, tiers = tiers,
    })
  else
    if not tiers then -- of load_checkpoint_and_dispatch, which gets a folder in case memory does not suffice
      no_effect.given(who, o, { "state_dict", "offload_dir", "offload_index", "offload_buffers", "skip_keys", "window" }, ONE_DEVICE)
    end
    model:to(main)
  end
  local shown = ordered()
  for name, where in ordered.iterate(device_map) do shown[name] = where end
  model.hf_device_map = shown
  return model
end

--- Puts the parts of a model on the devices of a map: GPUs by number, "cpu", "disk". Parts on the cpu or on disk compute on the main
--- device, and their weights are fetched before use. Inputs follow from device to device. Outputs end on the device of the inputs.
--- Without a GPU, 0 is the CPU's memory, and "cpu" is separate host memory.
--- example: local m = accel.nn.Sequential(accel.nn.Linear(2, 2), accel.nn.Linear(2, 1))
---   accel.accelerator.dispatch_model(m, { ["0"] = "cpu", ["1"] = "disk" }, { offload_dir = accel.mkdtemp "/tmp/example-" })
---   return m.hf_device_map["1"], accel.offload.tier(m[2].weight) --> "disk", "file"
---@param model accel.nn.Module
---@param device_map table<string, integer|string>
---@param opts? table
---  main_device integer|string: default the map's first that is not "cpu" or "disk"
---  state_dict table<string, accel.Tensor>: values of parts on the cpu, in place of the model's
---  offload_dir string: the folder for parts on disk, written unless it has an index.json
---  offload_index table<string, table>: the index in place of the folder's
---  offload_buffers boolean = false: offload the buffers of offloaded parts as well
---  skip_keys string|string[]: names of inputs that are not moved
---  preload_module_classes string[]: without effect, because weights are fetched on use by any module
---  force_hooks boolean = false: add hooks even if the whole model is on one device
---  window integer|string: bytes of the main device for fetched weights (default: room for the two largest layers)
---@return accel.nn.Module
function M.dispatch_model(model, device_map, opts, ...) return dispatch(model, device_map, opts, nil, ...) end

local NAMED <const> = { auto = true, balanced = true, balanced_low_0 = true, sequential = true }

--- Loads a checkpoint into a model, usually one without weights, and dispatches it. Every tensor goes straight from its file to its
--- device or tier. Parts on disk stay in their safetensors files.
---@param model accel.nn.Module
---@param checkpoint string as load_checkpoint_in_model's
---@param opts? table
---  device_map string|table<string, integer|string>: "auto" (as "balanced"), "balanced_low_0", "sequential" or a map. none: only load
---  max_memory table<integer|string, integer|string>: default the free memory of the devices
---  no_split_module_classes string[]: classes of blocks that stay whole
---  offload_folder string: for parts on disk that are not in a safetensors file
---  offload_buffers boolean = false
---  dtype string: of floating weights
---  offload_state_dict boolean: without effect, because nothing is collected before it is placed
---  skip_keys, preload_module_classes, force_hooks, window: as dispatch_model's
---  strict, full_state_dict, broadcast_from_rank0, keep_in_fp32_modules: as load_checkpoint_in_model's
---@return accel.nn.Module
function M.load_checkpoint_and_dispatch(model, checkpoint, opts, ...)
  local who = "load_checkpoint_and_dispatch"
  module_tensors._check_module(who, model)
  local o = options(who, opts, {
    device_map = options.none, max_memory = options.none, no_split_module_classes = options.none, offload_folder = options.none,
    offload_buffers = false, dtype = options.none, offload_state_dict = options.none, skip_keys = options.none,
    preload_module_classes = options.none, force_hooks = false, window = options.none, strict = false, full_state_dict = true,
    broadcast_from_rank0 = false, keep_in_fp32_modules = options.none,
  }, ...)
  no_effect("accel.accelerator.load_checkpoint_and_dispatch", { full_state_dict = not o.full_state_dict,
    preload_module_classes = o.preload_module_classes, offload_state_dict = o.offload_state_dict })
  require("accel.accelerator.load_checkpoint")._unused(who, o)
  local map, max_memory = o.device_map, o.max_memory
  if type(map) == "string" then
    if not NAMED[map] then
      raise("%s: unknown device_map '%s'; give 'auto', 'balanced', 'balanced_low_0', 'sequential' or a map", who, map)
    end
    local classes = o.no_split_module_classes or rawget(class.of(model), "_no_split_modules")
    if map ~= "sequential" then
      max_memory = device_maps.get_balanced_memory(model, {
        max_memory = max_memory, no_split_module_classes = classes, dtype = o.dtype, low_zero = map == "balanced_low_0",
      })
    end
    map = device_maps.infer_auto_device_map(model, {
      max_memory = max_memory, no_split_module_classes = classes, dtype = o.dtype, offload_buffers = o.offload_buffers,
    })
  elseif map then
    no_effect.given(who, o, { "no_split_module_classes" }, "with a device_map that is a table: it places every block")
  end
  local load = { strict = o.strict, dtype = o.dtype,
    broadcast_from_rank0 = o.broadcast_from_rank0, keep_in_fp32_modules = o.keep_in_fp32_modules }
  local loader = require("accel.accelerator.load_checkpoint")
  if not map then
    no_effect.given(who, o, { "max_memory", "no_split_module_classes", "offload_folder", "offload_buffers", "skip_keys", "force_hooks", "window" },
      "without a device_map: the model stays on its device")
    loader.load_checkpoint_in_model(model, checkpoint, load)
    return model
  end
  load.device_map, load.offload_folder, load.offload_buffers = map, o.offload_folder, o.offload_buffers
  local window = o.window
  if window == nil and o.max_memory then window = M._room(model, map, o) end
  local tiers, index = loader._dispatching(who, model, checkpoint, load, window)
  return dispatch(model, map, {
    offload_dir = o.offload_folder, offload_index = index, offload_buffers = o.offload_buffers, skip_keys = o.skip_keys,
    force_hooks = o.force_hooks,
  }, tiers)
end

--- The part of max_memory on the main device that the map leaves free. nil if it is less than a layer needs.
function M._room(model, map, o)
  local who = "load_checkpoint_and_dispatch"
  local places, main = read_map(who, map)
  local most = device_maps.get_max_memory(o.max_memory)
  local limit, there, largest = nil, 0, 0
  for key, bytes in next, most do
    local fine, name = pcall(module_tensors._device_name, who, key)
    if key ~= "disk" and fine and name == main and (limit == nil or math.type(key) == "integer") then limit = bytes end
  end
  local seen, width = {}, o.dtype and require("accel.nn.module_sizes").dtype_byte_size(o.dtype)
  module_tensors._each(model, function(name, t, kind)
    local at = device_maps.device_of(name, places)
    if seen[t] or not at then return end
    seen[t] = true
    local bytes = t:numel() * math.min(width or 8, t:element_size())
    if not at.tier or (kind ~= "parameter" and not o.offload_buffers) then there = there + bytes else largest = math.max(largest, bytes) end
  end)
  local layer = model_placement.largest_layer(model, function(name)
    local at = device_maps.device_of(name, places)
    return at ~= nil and at.tier ~= nil
  end)
  local room = limit and math.floor(limit - there)
  return room and room >= math.max(layer, largest) and room or nil
end

--- Stores the weights of convolutions and linear layers in one dtype and computes with them in another, converted for each forward: less
--- memory for weights that are used seldom.
--- example: local m = accel.nn.Sequential(accel.nn.Linear(2, 2)) accel.accelerator.attach_layerwise_casting_hooks(m, "bf16", "f32")
---   return m[1].weight.dtype, m(accel.ones(1, 2)).dtype --> "bf16", "f32"
---@param module accel.nn.Module
---@param storage_dtype string
---@param compute_dtype string
---@param opts? table
---  skip_modules_pattern string|string[]: Lua patterns. Modules with a matching name are skipped
---  skip_modules_classes table[]: classes that are left alone
---  non_blocking boolean = false: without effect, because a device always keeps the order of its work
function M.attach_layerwise_casting_hooks(module, storage_dtype, compute_dtype, opts, ...)
  check.surplus("attach_layerwise_casting_hooks", ...)
  local who = "attach_layerwise_casting_hooks"
  module_tensors._check_module(who, module)
  local o = options(who, opts, { skip_modules_pattern = options.none, skip_modules_classes = {}, non_blocking = false })
  no_effect("accel.accelerator.attach_layerwise_casting_hooks", o)
  local patterns = type(o.skip_modules_pattern) == "string" and { o.skip_modules_pattern } or o.skip_modules_pattern or {}
  local probe = accel.empty(0, { dtype = storage_dtype, device = "cpu" })
  storage_dtype, compute_dtype = probe.dtype, accel.empty(0, { dtype = compute_dtype, device = "cpu" }).dtype
  local nn, n = accel.nn, 0
  local kinds = { nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d }
  local function among(x, classes)
    for _, cls in ipairs(classes) do
      if class.isinstance(x, cls) then return true end
    end
    return false
  end
  local function visit(m, name)
    local skip = among(m, o.skip_modules_classes)
    for _, pattern in ipairs(patterns) do skip = skip or name:find(pattern) ~= nil end
    if skip then return end
    if among(m, kinds) then
      model_hooks.add_hook_to_module(m, model_hooks.LayerwiseCastingHook(storage_dtype, compute_dtype), true)
      n = n + 1
      return
    end
    for key, child in pairs(m:named_children()) do visit(child, name == "" and key or name .. "." .. key) end
  end
  visit(module, "")
  if n == 0 then warn(("%s: no layer of the model is cast: %s"):format(who, listed(patterns))) end
end

return M
