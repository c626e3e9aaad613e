--- PartialState and AcceleratorState: who this process is, once per Lua state. Made by Accelerator. A script without
--- training can make a PartialState. Every PartialState() is a view of the same facts, and AcceleratorState adds
--- precision and the Accelerator's configuration. Nothing is copied: distributed_type, plugins and mesh belong to the
--- Accelerator made last, and accelerator.state reads its own Accelerator.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local dist = require "accel.dist"
local environment = require "accel.accelerator.environment"
local nearest = require "accel.util.nearest"
local options = require "accel.util.options"
local plugins = require "accel.deepspeed.plugins"
local processes = require "accel.accelerator.processes"
local raise = require "accel.util.raise"

local M = {}

-- The facts. Empty: not made yet, or reset. Views hold nothing themselves, so that they stay valid when a state is reset and made
-- again. precise: mixed_precision, set by a script, and `values`, the settings of the Accelerator made last. origins: the sources of
-- the device and the precision, for an Accelerator's configuration.
local shared, precise, origins = {}, {}, {}

local PRECISIONS <const> = { "no", "fp16", "bf16", "fp8" }

-- Names that a state knows but that may be nil.
local optional = {
  deepspeed_plugin = true, fsdp_plugin = true, megatron_lm_plugin = true, torch_tp_plugin = true, dynamo_plugin = true,
  parallelism_config = true, device_mesh = true,
}

local facts = {
  "device", "backend", "distributed_type", "num_processes", "process_index", "local_process_index", "debug",
  "fork_launched", "num_nodes",
}
local known = { mixed_precision = true }
for _, name in ipairs(facts) do known[name] = true end

--- The settings of a view's Accelerator: its own while they are the process's, otherwise the last Accelerator's.
local function settings(view)
  local own = view and rawget(view, "_own")
  return own and own.of == precise and own or precise.last or {}
end

--- How ranks work together. This is the state's word, or the one of the plugin that splits models.
local function distributed_type(view)
  if plugins.any() then return "DEEPSPEED" end
  local own = settings(view).values or {}
  if own.megatron_lm_plugin then return "MEGATRON_LM" end
  return own.fsdp_plugin and shared.distributed_type ~= "NO" and "FSDP" or shared.distributed_type
end

local computed = {
  distributed_type = distributed_type,
  is_main_process = function() return shared.process_index == 0 end,
  is_local_main_process = function() return shared.local_process_index == 0 end,
  is_last_process = function() return shared.process_index == shared.num_processes - 1 end,
  use_distributed = function() return shared.num_processes > 1 end,
  multi_device = function(view) return shared.num_processes > 1 and distributed_type(view) == "MULTI_GPU" end,
}

local function missing(who, key)
  if optional[key] then return nil end
  if known[key] or computed[key] then
    raise("%s has no '%s' after its reset; make an Accelerator or a PartialState again", who, key)
  end
  require("accel.util.absent").refuse(who .. ":", key)
  local names = { "initialized" }
  for _, set in ipairs { known, computed } do
    for name in next, set do names[#names + 1] = name end
  end
  local near = type(key) == "string" and nearest(key, names)
  raise("%s has no attribute '%s'%s", who, tostring(key), near and ("; did you mean '%s'?"):format(near) or "")
end

--- The device that work happens on, which is the one that new tensors go to: with cpu, or by ACCELERATE_TORCH_DEVICE
--- ("cuda", of several, is the GPU of this local rank), that becomes another one.
---@param cpu boolean?
---@return string
local function choose_device(cpu)
  local name = cpu and "cpu" or environment.get "ACCELERATE_TORCH_DEVICE"
  origins.device = cpu and (environment.parse_flag_from_env "ACCELERATE_USE_CPU" and "ACCELERATE_USE_CPU" or "argument")
    or name and "ACCELERATE_TORCH_DEVICE" or "default"
  if name == nil then return accel.get_default_device() end
  local kind = accel.features().devices[name] -- a name without a number
  local own = kind and kind.count > 1 and ("%s:%d"):format(name, dist.get_local_rank() % kind.count) or name
  if not pcall(accel.set_default_device, own) then
    raise("ACCELERATE_TORCH_DEVICE=%s: this build has no such device; choose from %s", name,
      table.concat(accel.devices(), ", "))
  end
  return accel.get_default_device()
end

local function join(who, o)
  if o.init_method ~= nil and o.init_method ~= "env://" then
    raise("%s: init_method must be 'env://'; accel-run sets the rendezvous", who)
  end
  if o.timeout ~= nil then check.number(who, "timeout", o.timeout, 0) end
  local backend = o.backend
  if backend ~= nil and not (dist.is_initialized() and dist.get_backend() == backend) then
    dist.init_process_group(backend, { timeout = o.timeout })
  elseif o.timeout then
    dist.set_timeout(o.timeout)
  end
end

local function fill(who, o)
  join(who, o)
  local cpu = o.cpu or environment.parse_flag_from_env "ACCELERATE_USE_CPU"
  local n, device = dist.get_world_size(), choose_device(cpu)
  local now = {
    device = device, backend = dist.get_backend(), num_processes = n, process_index = dist.get_rank(),
    local_process_index = dist.get_local_rank(), num_nodes = dist.get_num_nodes(),
    debug = environment.parse_flag_from_env "ACCELERATE_DEBUG_MODE", fork_launched = false,
    distributed_type = n == 1 and "NO" or device == "cpu" and "MULTI_CPU" or "MULTI_GPU",
  }
  origins.num_processes = n > 1 and "launcher" or "default"
  for key, value in next, now do shared[key] = value end
end

local function refuse_cpu(who, cpu)
  if cpu and shared.device ~= "cpu" then
    raise("%s: device '%s' is in use already and cannot become 'cpu'; set cpu = true on the first one",
      who, shared.device)
  end
end

local function cpu_and_options(cpu, opts)
  if type(cpu) == "table" and opts == nil then return nil, cpu end
  return cpu, opts
end

-- ---- PartialState ----

--- The process and its world: device, backend, distributed_type ("NO", "MULTI_CPU", "MULTI_GPU"), num_processes,
--- process_index, local_process_index, is_main_process, is_local_main_process, is_last_process, use_distributed, debug. It
--- shares the methods of process control with Accelerator. Reading anything after _reset_state() raises. With an
--- Accelerator that shares models out, distributed_type is its word: "FSDP", "DEEPSPEED" or "MEGATRON_LM".
--- example: local s = accel.PartialState() return s.num_processes, s.is_main_process, s.distributed_type
---   --> 1, true, "NO"
---@class accel.accelerator.PartialState
---@field device string
---@field backend string
---@field distributed_type "NO"|"MULTI_CPU"|"MULTI_GPU"|"FSDP"|"DEEPSPEED"|"MEGATRON_LM"
---@field num_processes integer
---@field process_index integer
---@field local_process_index integer
---@field is_main_process boolean
---@field is_local_main_process boolean
---@field is_last_process boolean
---@field use_distributed boolean
---@field debug boolean
---@field initialized boolean
local PartialState = class("accel.accelerator.PartialState")
M.PartialState = PartialState

---@param cpu? boolean stay on the CPU, where new tensors are then created
---@param opts? {cpu: boolean?, backend: string?, init_method: string?, timeout: number?}
function PartialState:init(cpu, opts) -- luacheck: ignore self
  cpu, opts = cpu_and_options(cpu, opts)
  local o = options("PartialState", opts, {
    cpu = false, backend = options.none, init_method = options.none, timeout = options.none,
  })
  o.cpu = cpu or o.cpu
  if next(shared) == nil then return fill("PartialState", o) end
  join("PartialState", o)
  refuse_cpu("PartialState", o.cpu)
end

function PartialState.__index(self, key)
  local value = PartialState[key]
  if value ~= nil then return value end
  if key == "initialized" then return next(shared) ~= nil end
  if next(shared) ~= nil and computed[key] then return computed[key](self) end
  value = shared[key]
  if value ~= nil then return value end
  return missing("PartialState", key)
end

function PartialState.__newindex(_, key, value) shared[key] = value end

--- Clears the facts. The process stays in its world of ranks.
function PartialState._reset_state() shared = {} end

--- Detects the device again. New tensors are created there.
function PartialState:set_device() shared.device = choose_device(false) end -- luacheck: ignore self

--- Leaves the world of ranks, or lets a group go.
---@param group? any
function PartialState:destroy_process_group(group, ...) -- luacheck: ignore self
  check.surplus("destroy_process_group", ...)
  if group ~= nil or dist.is_initialized() then dist.destroy_process_group(group) end
end

local function describe(view)
  return ("process %d of %d, local process %d, device=%s, distributed_type=%s, backend=%s"):format(
    shared.process_index, shared.num_processes, shared.local_process_index, shared.device, distributed_type(view),
    shared.backend)
end

function PartialState.__tostring(self)
  return ("PartialState(%s)"):format(next(shared) and describe(self) or "reset")
end

-- ---- AcceleratorState ----

--- PartialState's facts, mixed_precision, and the plugins and mesh of the Accelerator: fsdp_plugin, deepspeed_plugin,
--- deepspeed_plugins, megatron_lm_plugin, dynamo_plugin, parallelism_config, device_mesh, is_fsdp2. Made by Accelerator { ... }.
--- Afterwards AcceleratorState() is a view of the Accelerator made last, and accelerator.state of its own Accelerator. Asking for
--- another precision or device than the first Accelerator's raises.
--- example: local _ = accel.Accelerator {} return accel.AcceleratorState().mixed_precision --> "no"
---@class accel.accelerator.AcceleratorState : accel.accelerator.PartialState
---@field mixed_precision "no"|"fp16"|"bf16"|"fp8"
local AcceleratorState = class("accel.accelerator.AcceleratorState", PartialState)
M.AcceleratorState = AcceleratorState

local function precision(given)
  if given == nil then
    local word = environment.word("ACCELERATE_MIXED_PRECISION", PRECISIONS)
    return word or "no", word and "ACCELERATE_MIXED_PRECISION" or "default"
  end
  local word = type(given) == "string" and given:lower() or given
  return check.word("Accelerator", "mixed_precision", word, PRECISIONS), "argument"
end

---@param mixed_precision? string
---@param opts? table mixed_precision, cpu, init_handler (an InitProcessGroupKwargs), _from_accelerator
function AcceleratorState:init(mixed_precision, opts) -- luacheck: ignore self
  if type(mixed_precision) == "table" and opts == nil then mixed_precision, opts = nil, mixed_precision end
  local o = options("AcceleratorState", opts, {
    mixed_precision = options.none, cpu = false, init_handler = options.none, _from_accelerator = false,
  })
  local given = mixed_precision == nil and o.mixed_precision or mixed_precision
  local wanted, origin = nil, nil
  if given ~= nil or precise.mixed_precision == nil then wanted, origin = precision(given) end
  if precise.mixed_precision == nil and not o._from_accelerator then
    raise "AcceleratorState: there is no Accelerator yet; make one, accel.Accelerator {}, first"
  end
  if next(shared) == nil then
    local join_options = o.init_handler and o.init_handler:to_kwargs() or {}
    join_options.cpu = o.cpu
    fill("Accelerator", join_options)
    -- the host creates no state, so that its first collective informs a rank that stays there alone
    if shared.distributed_type == "MULTI_GPU" then dist.init_process_group(nil, { device_id = shared.device }) end
  else
    refuse_cpu("Accelerator", o.cpu)
    if o.init_handler then join("Accelerator", o.init_handler:to_kwargs()) end
  end
  if precise.mixed_precision == nil then
    precise.mixed_precision = wanted
  end
  origins.mixed_precision = origin or "first Accelerator"
  if wanted and wanted ~= precise.mixed_precision then
    raise("Accelerator: mixed_precision is '%s' since the first Accelerator, and cannot become '%s'; reset it by "
      .. "accel.AcceleratorState._reset_state()", precise.mixed_precision, wanted)
  end
end

--- The Accelerator's configuration, by name. nil for options that were not set.
local configured = {}
for _, name in ipairs { "fsdp_plugin", "megatron_lm_plugin", "dynamo_plugin", "parallelism_config" } do
  configured[name] = function(own) return own.values and own.values[name] end
end
function configured.device_mesh(own) return own.mesh and own.mesh[1] end
function configured.is_fsdp2(own)
  local plugin = own.values and own.values.fsdp_plugin
  return plugin ~= nil and plugin.fsdp_version == 2
end

function AcceleratorState.__index(self, key)
  local value = rawget(AcceleratorState, key)
  if value ~= nil then return value end
  if key == "initialized" then return precise.mixed_precision ~= nil end
  if key == "deepspeed_plugin" then return plugins.active() end
  if key == "deepspeed_plugins" then return plugins.all() end
  if key == "mixed_precision" and plugins.any() and precise.mixed_precision ~= "fp8" then return plugins.active():precision() end
  if key == "mixed_precision" then
    value = precise.mixed_precision
    if value == nil then return missing("AcceleratorState", key) end
    return value
  end
  local set = precise.set and precise.set[key] -- by a script
  if set ~= nil then return set end
  if configured[key] then return configured[key](settings(self)) end
  return PartialState.__index(self, key)
end

--- The configuration of the Accelerator whose state is `view`. That Accelerator becomes the last one.
---@param view accel.accelerator.AcceleratorState
---@param values table<string, any> its settings by name
---@param mesh accel.parallel.DeviceMesh?
function M.bind(view, values, mesh)
  -- the mesh is let go with its Accelerator
  local own = { of = precise, values = values, mesh = setmetatable({ mesh }, { __mode = "v" }) }
  rawset(view, "_own", own)
  precise.last = own
end

function AcceleratorState.__newindex(_, key, value)
  if key == "mixed_precision" then
    precise.mixed_precision = value
  elseif known[key] then
    shared[key] = value
  else
    precise.set = precise.set or {}
    precise.set[key] = value
  end
end

--- Clears the precision. With true, PartialState's facts as well.
---@param reset_partial_state? boolean
function AcceleratorState._reset_state(reset_partial_state)
  precise = {}
  plugins.reset()
  local parallelism = package.loaded["accel.accelerator.parallelism"]
  if parallelism then parallelism.reset() end
  if reset_partial_state then PartialState._reset_state() end
end

--- The DeepSpeed plugin of a name. See deepspeed_plugins of the Accelerator.
---@param name string
---@return accel.accelerator.DeepSpeedPlugin
function AcceleratorState.get_deepspeed_plugin(_, name) return plugins.get(name) end

--- Makes the DeepSpeed plugin of a name the active one: models that are prepared from now on follow it.
---@param name string
function AcceleratorState.select_deepspeed_plugin(_, name) plugins.select(name) end

function AcceleratorState.__tostring(self)
  return ("AcceleratorState(%s)"):format(precise.mixed_precision and next(shared)
    and describe(self) .. ", mixed_precision=" .. self.mixed_precision or "reset")
end

--- Ranks were lost: the numbers of this process and of all are others now.
function M.refresh()
  if next(shared) == nil then return end
  shared.num_processes, shared.process_index, shared.local_process_index = dist.get_world_size(), dist.get_rank(), dist.get_local_rank()
end

--- A fact of PartialState. nil after a reset.
---@param key string
---@return any
function M.fact(key) return shared[key] end

--- The source of a fact in an Accelerator's configuration.
---@param key string "device", "mixed_precision" or "num_processes"
---@return string
function M.origin(key) return origins[key] end

--- A PartialState that does not begin one: for questions whether there is a state.
M.view = setmetatable({}, PartialState)

for name, method in next, processes do PartialState[name] = method end

return M
