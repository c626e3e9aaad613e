--- Hooks of modules, as in accelerate.hooks: functions that run before and after a module's forward, which keeps its
--- name.
---
--- Weights that are offloaded need no hook to come: their bytes are fetched when an op asks for them, and the next layers'
--- while one computes (accel.offload). Hooks move inputs to the device of a module, and mark the beginning of a pass.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local core = require "accel.offload.core"
local module_tensors = require "accel.accelerator.module_tensors"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local parameter = require "accel.nn.parameter"
local raise = require "accel.util.raise"

local M = {}

--- The base class of hooks. A subclass overrides the methods it needs.
--- example: local Twice = accel.accelerator.ModelHook:extend "Twice" function Twice:post_forward(_, y) return y * 2 end
---   local m = accel.nn.Identity() accel.accelerator.add_hook_to_module(m, Twice()) return m(accel.ones(1)) --> { 2 }
---@class accel.accelerator.ModelHook
---@field no_grad boolean whether forward runs without gradients
local ModelHook = class("accel.accelerator.ModelHook")
ModelHook.no_grad = false
M.ModelHook = ModelHook

--- Called when the hook is added. Returns the module.
---@param module accel.nn.Module
function ModelHook:init_hook(module) return module end -- luacheck: ignore self
--- Called with the arguments of forward. Returns the arguments for forward.
function ModelHook:pre_forward(_, ...) return ... end -- luacheck: ignore self
--- Called with the results of forward. Returns the results of the call.
function ModelHook:post_forward(_, ...) return ... end -- luacheck: ignore self
--- Called when the hook is removed. Returns the module.
---@param module accel.nn.Module
function ModelHook:detach_hook(module) return module end -- luacheck: ignore self

--- Several hooks in a row, in the order given, before and after forward.
--- example: local S = accel.accelerator.SequentialHook(accel.accelerator.ModelHook(), accel.accelerator.ModelHook())
---   return #S.hooks --> 2
---@class accel.accelerator.SequentialHook : accel.accelerator.ModelHook
local SequentialHook = ModelHook:extend "accel.accelerator.SequentialHook"
M.SequentialHook = SequentialHook

function SequentialHook:init(...) self.hooks = { ... } end

---@param module accel.nn.Module
function SequentialHook:init_hook(module)
  for _, hook in ipairs(self.hooks) do module = hook:init_hook(module) end
  return module
end

local function through(hooks, method, i, module, ...)
  if i > #hooks then return ... end
  return through(hooks, method, i + 1, module, hooks[i][method](hooks[i], module, ...))
end

---@param module accel.nn.Module
function SequentialHook:pre_forward(module, ...) return through(self.hooks, "pre_forward", 1, module, ...) end
function SequentialHook:post_forward(module, ...) return through(self.hooks, "post_forward", 1, module, ...) end

---@param module accel.nn.Module
function SequentialHook:detach_hook(module)
  for _, hook in ipairs(self.hooks) do module = hook:detach_hook(module) end
  return module
end

local ADDED <const> = { "to", "double", "float", "half", "bfloat16" } -- of dispatch_model

local function run(module, hook, ...)
  if not hook.no_grad then return module._old_forward(module, ...) end
  local _ <close> = accel.no_grad()
  return module._old_forward(module, ...)
end

--- Adds a hook to a module, replacing an existing one, or with append, after it. Returns the module.
---@param module accel.nn.Module
---@param hook accel.accelerator.ModelHook
---@param append? boolean default false
---@return accel.nn.Module
function M.add_hook_to_module(module, hook, append, ...)
  check.surplus("add_hook_to_module", ...)
  module_tensors._check_module("add_hook_to_module", module)
  if not class.isinstance(hook, ModelHook) then
    raise("add_hook_to_module: a hook is an instance of a class below accel.accelerator.ModelHook")
  end
  local old = rawget(module, "_hf_hook")
  if append and old then
    M.remove_hook_from_module(module)
    hook = SequentialHook(old, hook)
  end
  if not rawget(module, "_old_forward") then
    rawset(module, "_own_forward", rawget(module, "forward") or false)
    rawset(module, "_old_forward", module.forward)
  end
  module = hook:init_hook(module)
  rawset(module, "_hf_hook", hook)
  rawset(module, "forward", function(self, ...)
    local now = self._hf_hook
    return now:post_forward(self, run(self, now, now:pre_forward(self, ...)))
  end)
  return module
end

--- Removes the hook of a module, and with recurse its submodules' hooks. Offloaded tensors return to their former
--- device.
---@param module accel.nn.Module
---@param recurse? boolean default false
---@return accel.nn.Module
function M.remove_hook_from_module(module, recurse, ...)
  check.surplus("remove_hook_from_module", ...)
  module_tensors._check_module("remove_hook_from_module", module)
  local hook = rawget(module, "_hf_hook")
  if hook then
    hook:detach_hook(module)
    rawset(module, "_hf_hook", nil)
  end
  if rawget(module, "_old_forward") then
    rawset(module, "forward", module._own_forward or nil)
    rawset(module, "_old_forward", nil)
    rawset(module, "_own_forward", nil)
  end
  for _, name in ipairs(ADDED) do
    if type(rawget(module, name)) == "function" then rawset(module, name, nil) end
  end
  if recurse then
    for _, child in ipairs(module:children()) do M.remove_hook_from_module(child, true) end
  end
  return module
end

--- Removes the hooks of a module and of all below.
---@param module accel.nn.Module
function M.remove_hook_from_submodules(module) M.remove_hook_from_module(module, true) end

-- Devices ----------------------------------------------------------------------------------------

--- Moves the inputs of a module to its device, and with io_same_device its outputs to the device of the inputs. With offload,
--- the module's own weights (with place_submodules all submodules' weights) stay in host memory, or in weights_map, and are
--- on execution_device during use.
--- example: local m = accel.nn.Linear(2, 1)
---   accel.accelerator.add_hook_to_module(m, accel.accelerator.AlignDevicesHook { execution_device = "cpu", offload = true })
---   return accel.offload.tier(m.weight), m(accel.ones(1, 2)).shape --> "host", { 1, 1 }
---@class accel.accelerator.AlignDevicesHook : accel.accelerator.ModelHook
local AlignDevicesHook = ModelHook:extend "accel.accelerator.AlignDevicesHook"
M.AlignDevicesHook = AlignDevicesHook

local declared <const> = {
  execution_device = options.none, offload = false, io_same_device = false, weights_map = options.none,
  offload_buffers = false, place_submodules = false, skip_keys = options.none, tied_params_map = options.none,
}

---@param o? table
---  execution_device integer|string: the device on which the module computes
---  offload boolean = false: weights are moved back after the forward
---  io_same_device boolean = false: outputs go to the device of the inputs
---  weights_map any: an OffloadedWeightsLoader, PrefixedDataset or table with the values of the weights
---  offload_buffers boolean = false: offload buffers as well
---  place_submodules boolean = false: include submodules
---  skip_keys string|string[]: names of inputs that are not moved
---  tied_params_map table: without effect, because tied weights are one tensor, which is on a device once
function AlignDevicesHook:init(o)
  o = options("AlignDevicesHook", o, declared)
  no_effect("accel.accelerator.AlignDevicesHook", o)
  for key in next, declared do self[key] = o[key] end
  if self.execution_device ~= nil then
    self.execution_device = module_tensors._device_name("AlignDevicesHook", self.execution_device)
  end
end

function AlignDevicesHook:__tostring()
  return ("AlignDevicesHook(execution_device=%s, offload=%s, io_same_device=%s, offload_buffers=%s, place_submodules=%s)")
    :format(tostring(self.execution_device), tostring(self.offload), tostring(self.io_same_device),
      tostring(self.offload_buffers), tostring(self.place_submodules))
end

local function value_of(map, name)
  if map == nil then return nil end
  return class.of(map) and map.get and map:get(name) or (not class.of(map) and map[name]) or nil
end

--- Tensors that have no home elsewhere are given one in host memory.
local function take_away(self, module)
  self.tiers = self.tiers or require "accel.offload.tiers" {}
  self.original_devices = {}
  module_tensors._replace(module, function(name, t, kind)
    local buffer = kind ~= "parameter"
    if core.tier(t) then return nil end
    local value = value_of(self.weights_map, name) or t
    self.original_devices[name] = t.device
    if buffer and not self.offload_buffers then return value.device ~= "meta" and value:to(self.execution_device) or nil end
    if value.device == "meta" then raise("AlignDevicesHook: '%s' has no values: its weights_map lacks it", name) end
    local new = self.tiers:in_host(self.execution_device, t.shape, t.dtype)
    core.home(new):copy_(value:to("cpu"))
    return new
  end, nil, self.place_submodules)
end

---@param module accel.nn.Module
function AlignDevicesHook:init_hook(module)
  if self.placed then return module end
  if self.offload then
    if self.execution_device == nil then raise "AlignDevicesHook: offload = true needs an execution_device" end
    take_away(self, module)
  elseif self.execution_device ~= nil then
    module_tensors._replace(module, function(_, t)
      return t.device ~= self.execution_device and t:to(self.execution_device) or nil
    end, nil, self.place_submodules)
  end
  return module
end

--- Arguments on a device. Returns them unchanged if all are there already.
local function moved(device, skip_keys, ...)
  local operations = require "accel.accelerator.operations"
  local args = table.pack(...)
  for i = 1, args.n do
    if args[i] ~= nil then args[i] = operations.send_to_device(args[i], device, { skip_keys = skip_keys }) end
  end
  return table.unpack(args, 1, args.n)
end

--- Whether tensors may be elsewhere at all: with one device there is nothing to move.
local function one_device(self)
  if self.single == nil then self.single = #accel.devices() <= 2 end -- the CPU and meta
  return self.single
end

function AlignDevicesHook:pre_forward(_, ...)
  if self.begins and self.tiers then self.tiers:pass(true) end
  if self.execution_device == nil or one_device(self) then return ... end
  if self.io_same_device then
    local operations = require "accel.accelerator.operations"
    self.input_device = operations.find_device { ... }
  end
  return moved(self.execution_device, self.skip_keys, ...)
end

function AlignDevicesHook:post_forward(_, ...)
  if not self.io_same_device or not self.input_device or one_device(self) then return ... end
  return moved(self.input_device, self.skip_keys, ...)
end

-- The restored form of an offloaded tensor: modules that share it share that.
local restored = setmetatable({}, { __mode = "k" })

---@param module accel.nn.Module
function AlignDevicesHook:detach_hook(module)
  if not self.offload then return module end
  module_tensors._replace(module, function(name, t, kind)
    if not core.tier(t) then return nil end
    if not restored[t] then
      local device = self.original_devices and self.original_devices[name] or "cpu"
      local new = t:detach():clone()
      if device ~= "meta" then new = new:to(device) end
      restored[t] = kind == "parameter" and parameter(new, t.requires_grad) or new
    end
    return restored[t]
  end, nil, self.place_submodules)
  return module
end

--- A hook of this kind on every submodule with its own tensors, with its device.
---@param module accel.nn.Module
---@param opts table options of AlignDevicesHook. execution_device and offload may be tables by module name.
---  module_name, preload_module_classes (without effect: weights come when they are used, whoever uses them)
function M.attach_align_device_hook(module, opts, ...)
  check.surplus("attach_align_device_hook", ...)
  local o = options("attach_align_device_hook", opts, {
    execution_device = options.none, offload = false, weights_map = options.none, offload_buffers = false,
    module_name = "", skip_keys = options.none, preload_module_classes = options.none, tied_params_map = options.none,
  })
  no_effect("accel.accelerator.attach_align_device_hook", o)
  local prefix = o.module_name == "" and "" or o.module_name .. "."
  for name, child in pairs(module:named_modules()) do
    local direct = false
    for _, _, kind in child:_fields() do direct = direct or kind ~= "module" end
    if direct then
      local map = o.weights_map
      if map then
        map = require("accel.accelerator.offload_folder").PrefixedDataset(map, prefix .. (name == "" and "" or name .. "."))
      end
      M.add_hook_to_module(child, AlignDevicesHook {
        execution_device = o.execution_device, offload = o.offload, weights_map = map, offload_buffers = o.offload_buffers,
        skip_keys = o.skip_keys,
      }, true)
    end
  end
end

--- A hook on every submodule that computes on this device: inputs are moved there, weights are not moved.
---@param module accel.nn.Module
---@param execution_device integer|string
---@param opts? {skip_keys: string|string[]|nil}
function M.attach_execution_device_hook(module, execution_device, opts, ...)
  check.surplus("attach_execution_device_hook", ...)
  local o = options("attach_execution_device_hook", opts, { skip_keys = options.none })
  for _, child in pairs(module:named_modules()) do
    if not rawget(child, "_hf_hook") and next(child:state_dict()) ~= nil then
      local hook = AlignDevicesHook { execution_device = execution_device, skip_keys = o.skip_keys }
      hook.placed = true
      M.add_hook_to_module(child, hook)
    end
  end
end

-- A model at a time -------------------------------------------------------------------------------

--- A model that stays in host memory and moves to a device with its first forward. The model before it then leaves the
--- device.
--- example: local m = accel.nn.Linear(2, 1)
---   accel.accelerator.add_hook_to_module(m, accel.accelerator.CpuOffload { execution_device = "cpu" })
---   return accel.offload.tier(m.weight) --> "host"
---@class accel.accelerator.CpuOffload : accel.accelerator.ModelHook
local CpuOffload = ModelHook:extend "accel.accelerator.CpuOffload"
M.CpuOffload = CpuOffload

---@param o? {execution_device: (integer|string)?, prev_module_hook: accel.accelerator.UserCpuOffloadHook?}
function CpuOffload:init(o)
  o = options("CpuOffload", o, { execution_device = options.none, prev_module_hook = options.none })
  self.execution_device = module_tensors._device_name("CpuOffload", o.execution_device == nil and 0 or o.execution_device)
  self.prev_module_hook = o.prev_module_hook
  self.align = AlignDevicesHook {
    execution_device = self.execution_device, offload = true, place_submodules = true, offload_buffers = true,
    io_same_device = false,
  }
end

---@param module accel.nn.Module
function CpuOffload:init_hook(module) return self.align:init_hook(module) end

---@param module accel.nn.Module
function CpuOffload:pre_forward(module, ...)
  if self.prev_module_hook then self.prev_module_hook:offload() end
  return self.align:pre_forward(module, ...)
end

---@param module accel.nn.Module
function CpuOffload:detach_hook(module) return self.align:detach_hook(module) end

--- The second result of cpu_offload_with_hook.
--- example: local m, hook = accel.accelerator.cpu_offload_with_hook(accel.nn.Linear(2, 1), { execution_device = "cpu" }) m(accel.ones(1, 2))
---   hook:offload() return accel.offload.is_resident(m.weight) --> false
---@class accel.accelerator.UserCpuOffloadHook
local UserCpuOffloadHook = class("accel.accelerator.UserCpuOffloadHook")
M.UserCpuOffloadHook = UserCpuOffloadHook

---@param model accel.nn.Module
---@param hook accel.accelerator.CpuOffload
function UserCpuOffloadHook:init(model, hook) self.model, self.hook = model, hook end

--- The model leaves the device now.
function UserCpuOffloadHook:offload()
  if self.hook.align.tiers then self.hook.align.tiers:empty() end
end

--- Removes the hook. The model's tensors are ordinary CPU tensors again.
function UserCpuOffloadHook:remove() M.remove_hook_from_module(self.model) end

-- Dtypes -----------------------------------------------------------------------------------------

--- A layer whose weights are stored in one dtype and computed with in another.
--- example: local m = accel.nn.Linear(2, 1)
---   accel.accelerator.add_hook_to_module(m, accel.accelerator.LayerwiseCastingHook("bf16", "f32")) return m.weight.dtype --> "bf16"
---@class accel.accelerator.LayerwiseCastingHook : accel.accelerator.ModelHook
local LayerwiseCastingHook = ModelHook:extend "accel.accelerator.LayerwiseCastingHook"
M.LayerwiseCastingHook = LayerwiseCastingHook

---@param storage_dtype string dtype of the weights between calls
---@param compute_dtype string dtype of the computation
---@param non_blocking? boolean without effect, because a device always keeps the order of its work [false]
function LayerwiseCastingHook:init(storage_dtype, compute_dtype, non_blocking)
  no_effect("accel.accelerator.LayerwiseCastingHook", { non_blocking = non_blocking })
  self.storage_dtype, self.compute_dtype = storage_dtype, compute_dtype
end

local function cast(module, dtype)
  module_tensors._replace(module, function(_, t)
    return require("accel.util.tensors").is_floating(t.dtype) and t.dtype ~= dtype and t:to(dtype) or nil
  end)
end

---@param module accel.nn.Module
function LayerwiseCastingHook:init_hook(module)
  cast(module, self.storage_dtype)
  return module
end

--- The stored values stay. Computation uses copies of them.
---@param module accel.nn.Module
function LayerwiseCastingHook:pre_forward(module, ...)
  self.stored = {}
  module_tensors._each(module, function(_, t, _, owner, field) self.stored[#self.stored + 1] = { owner, field, t } end)
  cast(module, self.compute_dtype)
  return ...
end

function LayerwiseCastingHook:post_forward(_, ...)
  for _, place in ipairs(self.stored or {}) do
    rawset(rawget(place[1], place[2]) == nil and place[1]._tensors or place[1], place[2], place[3])
  end
  self.stored = nil
  return ...
end

return M
