--- Which device each part of a model goes to. It uses the names, arguments and results of accelerate.utils.modeling.
--- device_map_placement.lua chooses the devices.
local accel = require "accel"
local check = require "accel.util.check"
local listed = require "accel.util.listed"
local module_sizes = require "accel.nn.module_sizes"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local convert_file_size_to_int = require("accel.util.sizes").convert_file_size_to_int

local M = {}

local HOST_DEVICES <const> = { "mps", "cpu", "disk" }

local function free_bytes(device)
  local stats = accel.mem_stats(device)
  return stats.limit_bytes - stats.live_bytes
end

--- Free bytes of the available devices: { [0] = bytes, ..., cpu = bytes }. With max_memory, its sizes as bytes. GPUs are
--- their numbers, from 0. An unknown key is an error.
--- example: accel.accelerator.get_max_memory { [0] = "1GB", cpu = 5000 } --> { cpu = 5000, [0] = 1000000000 }
---@param max_memory? table<integer|string, integer|string>
---@return table<integer|string, number>
function M.get_max_memory(max_memory, ...)
  check.surplus("get_max_memory", ...)
  local who, out = "get_max_memory", {}
  if max_memory ~= nil and type(max_memory) ~= "table" then
    raise("%s: max_memory must be a table such as { [0] = '10GB', cpu = '30GB' }, got %s", who, check.shown(max_memory))
  end
  if not max_memory then
    for _, name in ipairs(accel.devices()) do
      local index = math.tointeger(tonumber(name:match "^cuda:(%d+)$"))
      if index then out[index] = free_bytes(name) end
    end
    out.cpu = free_bytes "cpu"
    return out
  end
  for key, value in next, max_memory do
    local known = math.type(key) == "integer" and key >= 0
    for _, name in ipairs(HOST_DEVICES) do known = known or key == name end
    if not known then
      raise("%s: device %s is not recognized; devices are integers from 0 for GPUs, 'mps', 'cpu' and 'disk'", who,
        check.shown(key))
    end
    out[key] = type(value) == "string" and convert_file_size_to_int(value) or value
  end
  return out
end

--- The devices of max_memory in the order in which they are filled.
---@param max_memory table<integer|string, number>
---@return (integer|string)[]
function M.devices(max_memory)
  local list = {}
  for key in next, max_memory do
    if math.type(key) == "integer" then list[#list + 1] = key end
  end
  table.sort(list)
  for _, name in ipairs(HOST_DEVICES) do
    if max_memory[name] then list[#list + 1] = name end
  end
  return list
end

--- The leaf names: of parameters and buffers, if sizes holds these, otherwise of the innermost modules.
local function leaves_of(sizes)
  local parents, leaves = {}, {}
  for name in pairs(sizes) do
    local parent = name:match "^(.*)%.[^.]*$"
    if parent then parents[parent] = true end
  end
  for name in pairs(sizes) do
    if name ~= "" and not parents[name] then leaves[#leaves + 1] = name end
  end
  return leaves
end

--- The size of the first module of each class that must not be split, and the largest of them.
local function largest_whole(model, sizes, classes)
  local found, most, modules = {}, 0, model:named_modules()
  for name, size in pairs(sizes) do
    local module = name ~= "" and rawget(modules, name)
    local class = module and module_sizes.class_name(module)
    if class and classes[class] and not found[class] then found[class], most = true, math.max(most, size) end
  end
  return most
end

--- max_memory for infer_auto_device_map that spreads a model evenly over the GPUs: each but the last gets the model's bytes by
--- their number and room for 1.25 times the larger of the largest block that stays whole and the mean layer. low_zero
--- leaves GPU 0 as empty as can be.
--- example: accel.accelerator.get_balanced_memory(accel.nn.Sequential(accel.nn.Linear(3, 4), accel.nn.Linear(4, 5)),
---   { max_memory = { [0] = 300, [1] = 300 } })[0] --> 184
---@param model accel.nn.Module
---@param opts? table
---  max_memory table<integer|string, integer|string>: default the free memory of the devices
---  no_split_module_classes string|string[]: classes of blocks that stay whole
---  dtype string: as if the weights were loaded so
---  special_dtypes table<string, string>: dtypes of single tensors
---  low_zero boolean = false
---@return table<integer|string, number>
function M.get_balanced_memory(model, opts, ...)
  local who = "get_balanced_memory"
  local o = options(who, opts, {
    max_memory = options.none, no_split_module_classes = options.none, dtype = options.none, special_dtypes = options.none,
    low_zero = false,
  }, ...)
  local max_memory, gpus = M.get_max_memory(o.max_memory), {}
  for _, device in ipairs(M.devices(max_memory)) do
    if math.type(device) == "integer" and max_memory[device] > 0 then gpus[#gpus + 1] = device end
  end
  local n = #gpus
  if n == 0 then return max_memory end
  local low_zero = o.low_zero and n > 1
  -- a single GPU without a limit keeps some of its memory for data other than weights
  if n == 1 and o.max_memory == nil then max_memory[gpus[1]] = max_memory[gpus[1]] * 0.9 end
  local sizes = module_sizes.compute_module_sizes(model, { dtype = o.dtype, special_dtypes = o.special_dtypes })
  local total = rawget(sizes, "") or 0
  local whole = largest_whole(model, sizes, module_sizes.class_set(who, o.no_split_module_classes))
  for _, name in ipairs(leaves_of(sizes)) do sizes[name] = nil end
  local layers, sum = leaves_of(sizes), 0
  for _, name in ipairs(layers) do sum = sum + sizes[name] end
  local mean = sum / math.max(#layers, 1) // 1
  local per_gpu = total // (low_zero and n - 1 or n) + 1.25 * math.max(whole, mean) // 1
  for i = 1, n - 1 do
    local device = gpus[i]
    max_memory[device] = math.min(low_zero and device == 0 and max_memory[0] or per_gpu, max_memory[device])
  end
  if low_zero then
    local others = 0
    for i = 1, n - 1 do others = others + (max_memory[i] or 0) end
    max_memory[0] = math.min(math.max(0, total - others), max_memory[0] or 0)
  end
  return max_memory
end

--- Merges entries of one module that go to one device: { ["a.x"] = 0, ["a.y"] = 0, b = 1 } becomes { b = 1, a = 0 }. Changes the
--- map and returns it.
---@param device_map table<string, integer|string>
---@param module_name? string only below this one
---@return table<string, integer|string>
function M.clean_device_map(device_map, module_name, ...)
  check.surplus("clean_device_map", ...)
  module_name = module_name or ""
  local prefix, below, device, alike = module_name == "" and "" or module_name .. ".", {}, nil, true
  for key, value in ordered.iterate(device_map) do
    if key:sub(1, #prefix) == prefix then
      below[#below + 1] = key
      alike, device = alike and (device == nil or device == value), value
    end
  end
  if alike and #below > 1 then
    for _, key in ipairs(below) do device_map[key] = nil end
    device_map[module_name] = device
    return device_map
  end
  local seen = {}
  for _, key in ipairs(below) do
    local child = key ~= module_name and prefix .. key:sub(#prefix + 1):match "^[^.]*"
    if child and child ~= "" and not seen[child] then
      seen[child] = true
      M.clean_device_map(device_map, child)
    end
  end
  return device_map
end

--- Raises unless a map gives every tensor of a model's state a device. Warns of keys that name neither a module nor a tensor.
---@param model accel.nn.Module
---@param device_map table<string, integer|string>
function M.check_device_map(model, device_map)
  local who = "check_device_map"
  if type(device_map) ~= "table" then raise("%s: device_map must be a table, got %s", who, check.shown(device_map)) end
  local modules, own, unknown = model:named_modules(), module_sizes.named_module_tensors(model, { recurse = true }), {}
  for key in ordered.iterate(device_map) do
    if key ~= "" and not rawget(modules, key) and not rawget(own, key) then unknown[#unknown + 1] = key end
  end
  if #unknown > 0 then warn(("%s: these keys are not modules of the model: %s"):format(who, listed(unknown))) end
  if device_map[""] ~= nil then return end
  local left = {}
  for name in pairs(model:state_dict()) do
    local covered, at = device_map[name] ~= nil, 0
    while not covered do
      at = name:find(".", at + 1, true)
      if not at then break end
      covered = device_map[name:sub(1, at - 1)] ~= nil
    end
    if not covered then left[#left + 1] = name end
  end
  if #left > 0 then
    raise("%s: the device_map gives no device for the following parameters: %s", who, table.concat(left, ", "))
  end
end

--- The device of a name in a map: its own, or its nearest parent's.
---@param name string
---@param device_map table<string, integer|string>
---@return integer|string|nil
function M.device_of(name, device_map)
  while device_map[name] == nil and name ~= "" do name = name:match "^(.*)%.[^.]*$" or "" end
  return device_map[name]
end

--- Warns of tied parameters that a map puts on several devices.
---@param tied_params string[][] as find_tied_parameters gives them
---@param device_map table<string, integer|string>
function M.check_tied_parameters_on_same_device(tied_params, device_map)
  for _, group in ipairs(tied_params) do
    local first = M.device_of(group[1], device_map)
    for i = 2, #group do
      local other = M.device_of(group[i], device_map)
      if other ~= first then
        warn(("tied parameters are on different devices: '%s' on %s, '%s' on %s; change the map, or let device_map = \"auto\" "
          .. "make it"):format(group[1], tostring(first), group[i], tostring(other)))
        break
      end
    end
  end
end

--- A map from the names of modules to devices: the GPUs of max_memory in order, then the cpu, then the disk, each filled as
--- far as it goes. Room for the largest layer stays free on the first GPU and on the cpu, so that layers from elsewhere can
--- be fetched. Tied parameters stay together.
--- example: accel.accelerator.infer_auto_device_map(accel.nn.Sequential(accel.nn.Linear(3, 4), accel.nn.Linear(4, 5),
---   accel.nn.Linear(5, 4)), { max_memory = { [0] = 200, [1] = 300 } }) --> { ["0"] = 0, ["1"] = 1, ["2"] = 1 }
---@param model accel.nn.Module
---@param opts? table
---  max_memory table<integer|string, integer|string>: default the free memory of the devices
---  no_split_module_classes string|string[]: classes of blocks that stay whole
---  dtype string: as if the weights were loaded so
---  special_dtypes table<string, string>: dtypes of single tensors
---  clean_result boolean = true: modules whose parts all go to one device stand for them
---  offload_buffers boolean = false: allow buffers of layers outside a GPU to be elsewhere as well
---  fallback_allocation boolean = false: a device that would stay empty gets the first module that fits
---  verbose boolean = false: print the decisions
---@return table<string, integer|string> ordered
function M.infer_auto_device_map(model, opts, ...)
  local o = options("infer_auto_device_map", opts, {
    max_memory = options.none, no_split_module_classes = options.none, dtype = options.none, special_dtypes = options.none,
    clean_result = true, offload_buffers = false, fallback_allocation = false, verbose = false,
  }, ...)
  local max_memory = M.get_max_memory(o.max_memory)
  local map, used, buffers = require "accel.accelerator.device_map_placement"(model, M.devices(max_memory), max_memory, o)
  local outside, fits, gpus = (buffers.cpu or 0) + (buffers.disk or 0), false, false
  for device, most in next, max_memory do
    if math.type(device) == "integer" then
      gpus = true
      fits = fits or most >= outside + (used[device] or 0)
    end
  end
  if outside > 0 and gpus and not fits then
    warn(("infer_auto_device_map: the buffers of offloaded layers need %s bytes, which fit on no GPU beside its weights; "
      .. "offload_buffers = true puts them elsewhere"):format(tostring(math.tointeger(outside) or outside)))
  end
  return o.clean_result and M.clean_device_map(map) or map
end

return M
