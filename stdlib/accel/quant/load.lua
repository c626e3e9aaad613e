--- load_and_quantize_model of accelerate.utils: a model in 4 or 8 bits, straight from its files. Each tensor is read, quantised if
--- its layer is, and placed before the next one is read, so that memory holds the quantised model and one tensor.
local accel = require "accel"
local Config = require "accel.quant.config"
local check = require "accel.util.check"
local class = require "accel.util.class"
local device_maps = require "accel.accelerator.device_map"
local listed = require "accel.util.listed"
local module_tensors = require "accel.accelerator.module_tensors"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local replace = require "accel.quant.replace"
local states = require "accel.nn.quant_state"
local tensors = require "accel.util.tensors"

local WHO <const> = "load_and_quantize_model"
local NAMED <const> = { auto = true, balanced = true, balanced_low_0 = true, sequential = true }

local M = {}

local function contains(name, parts)
  for _, part in ipairs(parts) do
    if name:find(part, 1, true) then return true end
  end
  return false
end

--- The map with devices for all parts. Raises if a 4-bit layer would be on the CPU or on disk although there is an
--- accelerator.
local function map_of(model, config, o)
  local map = o.device_map
  if map == nil then
    local first = "cpu"
    for _, device in ipairs(accel.devices()) do
      if device:find "^cuda" then first = 0 break end
    end
    return { [""] = first }
  end
  if type(map) == "string" then
    if not NAMED[map] then
      raise("%s: if passing a string for device_map, please choose 'auto', 'balanced', 'balanced_low_0' or 'sequential', not '%s'", WHO, map)
    end
    local special = {}
    for name in pairs(model:named_parameters()) do
      if contains(name, config.keep_in_fp32_modules) then special[name] = "f32"
      elseif contains(name, config.skip_modules) then special[name] = config.torch_dtype end
    end
    local memory = o.max_memory
    local with = { no_split_module_classes = o.no_split_module_classes, special_dtypes = special, dtype = config.torch_dtype }
    if map ~= "sequential" then
      memory = device_maps.get_balanced_memory(model, { max_memory = memory, low_zero = map == "balanced_low_0",
        no_split_module_classes = with.no_split_module_classes, special_dtypes = special, dtype = with.dtype })
    end
    with.max_memory = memory
    map = device_maps.infer_auto_device_map(model, with)
  end
  if type(map) ~= "table" then raise("%s: device_map must be a map or one of its names, got %s", WHO, check.shown(map)) end
  local kept = {}
  for _, list in ipairs { config.skip_modules, config.keep_in_fp32_modules } do
    for _, name in ipairs(list) do kept[name] = true end
  end
  local several = next(map, (next(map))) ~= nil
  for name, where in pairs(map) do
    if (where == "disk" or where == "cpu" and several) and not kept[name] and config.load_in_4bit then
      raise("%s: some modules are dispatched on the CPU or the disk ('%s' on %s). Make sure you have enough GPU memory to fit the quantized"
        .. " model. If you want to dispatch the model on the CPU or the disk while keeping these modules in `torch_dtype`, you need to pass a"
        .. " custom `device_map` to load_and_quantize_model", WHO, name, where)
    end
  end
  return map
end

--- The layer that keeps a weight of this name quantised, or nil.
local function layers_of(model)
  local Quantized, out = require "accel.nn.quantized", {}
  for name, module in pairs(model:named_modules()) do
    if class.isinstance(module, Quantized) then out[name == "" and "weight" or name .. ".weight"] = module end
  end
  return out
end

local function dtype_for(config, name, t)
  if not tensors.is_floating(t.dtype) then return t.dtype end
  return contains(name, config.keep_in_fp32_modules) and "f32" or config.torch_dtype
end

--- Warns of listed names that the model does not have. Lists of files come from other versions of a model.
local function warn_absent(model, config)
  for _, field in ipairs(config._absent_ok and {} or { "skip_modules", "keep_in_fp32_modules" }) do
    local absent = {}
    for _, part in ipairs(config[field] or {}) do
      local found = false
      for name in pairs(model:named_modules()) do found = found or ("." .. name .. "."):find(part, 1, true) ~= nil end
      for name in pairs(model:named_parameters()) do found = found or name:find(part, 1, true) ~= nil end
      if not found then absent[#absent + 1] = part end
    end
    if #absent > 0 then warn(("%s: %s: the model has no module called %s"):format(WHO, field, table.concat(absent, ", "))) end
  end
end

--- The list with all names of tensors tied to a listed one, and of biases next to a listed weight: a layer has one dtype. (BERT's
--- decoder has the embeddings' weight, and a bias that is the head's.)
local function with_tied(model, list)
  local out = table.move(list, 1, #list, 1, {})
  local groups = #list > 0 and require("accel.nn.module_sizes").find_tied_parameters(model) or {}
  local function join_ties()
    for _, group in ipairs(groups) do
      local named = false
      for _, name in ipairs(group) do named = named or contains(name, out) end
      for _, name in ipairs(named and group or {}) do
        if not contains(name, out) then out[#out + 1] = name end
      end
    end
  end
  join_ties()
  for name, module in pairs(#groups > 0 and model:named_modules() or {}) do
    local prefix = name == "" and "" or name .. "."
    if tensors.is_tensor(module.weight) and tensors.is_tensor(module.bias) and contains(prefix .. "weight", out)
      and not contains(prefix .. "bias", out) then
      out[#out + 1] = prefix .. "bias"
    end
  end
  join_ties()
  return out
end

--- A function that converts floating tensors to this dtype, including those in a table. Scalars, which are losses, are
--- unchanged.
local function caster(dtype)
  local function one(t)
    if tensors.is_tensor(t) and tensors.is_floating(t.dtype) and #t.shape > 0 then return t:to(dtype) end
    return t
  end
  return function(value)
    if type(value) ~= "table" or getmetatable(value) then return one(value) end
    local out = {}
    for key, v in next, value do out[key] = one(v) end
    return out
  end
end

--- Modules with parameters in keep_in_fp32_modules, or tied to them, in a model of another dtype: inputs become f32, outputs the model's
--- dtype, as the layers around them expect. A module of several layers gets its input as it is, since these cast theirs. Norms need no
--- conversion: they accept f32 weights with a 16-bit input, and return 16 bits.
local function cast_around(model, config)
  if config.torch_dtype == "f32" then return end
  local wide, narrow, class_name = caster "f32", caster(config.torch_dtype), require("accel.nn.module_sizes").class_name
  local function before(_, args)
    local out = { n = args.n }
    for i = 1, args.n do out[i] = wide(args[i]) end
    return out
  end
  local function behind(_, _, ...)
    local out = table.pack(...)
    for i = 1, out.n do out[i] = narrow(out[i]) end
    return table.unpack(out, 1, out.n)
  end
  for _, module in pairs(model:named_modules()) do
    local kept, leaf = false, true
    for _, t, kind in module:_fields() do
      if kind == "module" then leaf = false
      elseif kind == "parameter" and t.dtype == "f32" and not t.quant_state then kept = true end
    end
    if kept and not class_name(module):find "Norm" then
      local copied = { copied = true } -- copies of the model compute the same
      if leaf or class.isinstance(module, accel.nn.MultiheadAttention) then module:register_forward_pre_hook(before, copied) end
      module:register_forward_hook(behind, copied)
    end
  end
end

--- Own names by the files' names: Hugging Face's files may leave the base model's prefix out.
local function namer(model)
  if not model.resolve then return function(key) return key end end
  local slots = model:_slots()
  return function(key)
    local owner = states.owner(key)
    local base = owner or key
    local name = model:resolve(slots, base)
    if not name then return name end
    if not owner then return name end
    local last = key:match "%.([^.]+)$" or key
    if last == "SCB" or last == "weight_format" then return (name:gsub("weight$", last)) end
    return name .. key:sub(#owner + 1)
  end
end

--- Fills the model from the files: own name -> tensor that takes its place.
local function read_all(model, config, source, device_of)
  local layers, name_of = layers_of(model), namer(model)
  local own, key_of, unexpected = {}, {}, {}
  module_tensors._each(model, function(name, t) own[name] = t end)
  for key in pairs(source.entries) do
    local name = name_of(key)
    if name then key_of[name] = key end
    local owner = name and states.owner(name)
    if name == nil or name and not own[owner and layers[owner] and owner or name] then unexpected[#unexpected + 1] = key end
  end
  local function get(name)
    local value, message = source:get(key_of[name])
    if not value then raise("%s: %s", WHO, message) end
    return value
  end
  local function quantised(name, layer, device)
    local value = get(name)
    if tensors.is_floating(value.dtype) then
      if layer.transposed then value = value:t():contiguous() end
      local shape = layer.weight.quant_state.shape
      if value.shape ~= shape then
        raise("%s: '%s' has shape %s, the model needs %s", WHO, key_of[name], tostring(value.shape), tostring(shape))
      end
      if value.dtype == "f64" then value = value:to "f32" end
      return layer:quantize(value:to(device))
    end
    local state = { [name] = value }
    for other in next, key_of do
      if states.owner(other) == name then state[other] = get(other) end
    end
    local q = states._from(name, state, { device = device, dtype = config.torch_dtype })
    if not q then raise("%s: '%s' is %s and no weight of bitsandbytes", WHO, key_of[name], value.dtype) end
    if q.quant_state.shape ~= layer.weight.quant_state.shape then
      raise("%s: '%s' has values of shape %s, the model needs %s", WHO, key_of[name], tostring(q.quant_state.shape),
        tostring(layer.weight.quant_state.shape))
    end
    return q
  end
  local by_tensor = {}
  for name, t in accel.pairs(own) do
    if key_of[name] and not by_tensor[t] then
      local device, layer = device_of(name), layers[name]
      local value
      if layer then
        value = quantised(name, layer, device)
      else
        value = get(name)
        if not tensors.same_shape(value, t) then
          raise("%s: '%s' has shape %s, the model needs %s", WHO, key_of[name], tensors.shape_string(value), tensors.shape_string(t))
        end
        value = value:to(dtype_for(config, name, value)):to(device)
      end
      by_tensor[t] = value
    end
  end
  local missing = {}
  for name, t in accel.pairs(own) do
    if not by_tensor[t] and t.device == "meta" then missing[#missing + 1] = name end
  end
  return by_tensor, missing, unexpected
end

--- A model with values: its layers are quantised in place, the rest is converted.
local function quantise_loaded(model, config, keys, heads)
  warn(("%s: it is not recommended to quantize a loaded model; make it under init_empty_weights and give weights_location"):format(WHO))
  local _ <close> = accel.no_grad()
  replace.replace_with_bnb_layers(model, config, keys, heads)
  module_tensors._replace(model, function(name, t)
    if t.quant_state or not tensors.is_floating(t.dtype) then return nil end
    return t:to(dtype_for(config, name, t))
  end)
  cast_around(model, config)
  return model
end

--- A model whose linear layers have 4 or 8 bits a weight. A model on the meta device (init_empty_weights) gets its weights from
--- weights_location, values or bitsandbytes' format, one tensor at a time. A model with values is quantised in place. Parts that a map puts
--- on "cpu" or "disk" are offloaded if there is a GPU. 8 bits can be offloaded. With 4 bits only modules in skip_modules can. Without a GPU
--- the model is on the CPU.
--- example: local a = accel.nn.Sequential(accel.nn.Linear(64, 8), accel.nn.Linear(8, 2)) local dir = accel.mkdtemp "/tmp/example-"
---   accel.Accelerator():save_model(a, dir)
---   local b = accel.accelerator.init_empty_weights(function() return accel.nn.Sequential(accel.nn.Linear(64, 8), accel.nn.Linear(8, 2)) end)
---   accel.quant.load_and_quantize_model(b, accel.quant.BnbQuantizationConfig { load_in_8bit = true }, { weights_location = dir })
---   return b[1].weight.quant_state.shape, b[2].weight.dtype --> { 8, 64 }, "f16"
---@param model accel.nn.Module
---@param bnb_quantization_config accel.quant.BnbQuantizationConfig
---@param opts? table
---  weights_location string: a file, an index or a folder, as load_checkpoint_in_model's
---  device_map string|table<string, integer|string>: a map, "auto", "balanced", "balanced_low_0" or "sequential". Default one device
---  no_split_module_classes string[]: classes of blocks that stay whole
---  max_memory table<integer|string, integer|string>: default the free memory of the devices
---  offload_folder string: for parts on disk
---  offload_state_dict boolean = false: without effect, because nothing is collected before it is placed
---@return accel.nn.Module
function M.load_and_quantize_model(model, bnb_quantization_config, opts, ...)
  module_tensors._check_module(WHO, model)
  local config = bnb_quantization_config
  if not class.isinstance(config, Config) then
    raise("%s: expected a BnbQuantizationConfig, got %s", WHO, check.shown(config))
  end
  local o = options(WHO, opts, {
    weights_location = options.none, device_map = options.none, no_split_module_classes = options.none, max_memory = options.none,
    offload_folder = options.none, offload_state_dict = false,
  }, ...)
  no_effect("accel.quant.load_and_quantize_model", o)
  warn_absent(model, config)
  local keys, heads = {}, config.head_quant_type and replace.get_keys_to_not_convert(model) or nil
  config.skip_modules = config.skip_modules or heads and {} or replace.get_keys_to_not_convert(model)
  config.keep_in_fp32_modules = with_tied(model, config.keep_in_fp32_modules or {})
  if config.load_in_4bit and type(o.device_map) == "table" and next(o.device_map, (next(o.device_map))) ~= nil then
    for name, where in accel.pairs(o.device_map) do
      if where == "cpu" or where == "disk" then config.skip_modules[#config.skip_modules + 1] = name end
    end
  end
  for _, list in ipairs { config.skip_modules, config.keep_in_fp32_modules } do table.move(list, 1, #list, #keys + 1, keys) end
  model.is_loaded_in_4bit, model.is_loaded_in_8bit = config.load_in_4bit, config.load_in_8bit
  local first = model:parameters()[1]
  if first and first.device ~= "meta" then
    no_effect.given(WHO, o, { "weights_location", "device_map", "no_split_module_classes", "max_memory", "offload_folder" },
      "on a model that has weights: it is quantised in place")
  end
  if first and first.device ~= "meta" then return quantise_loaded(model, config, keys, heads) end
  if o.weights_location == nil then
    raise("%s: weights_location needs to be the folder path containing the weights of the model, but we found none", WHO)
  end
  replace.replace_with_bnb_layers(model, config, keys, heads)
  local map = map_of(model, config, o)
  device_maps.check_device_map(model, map)
  local source <close>, message = require("accel.ckpt.weights").open(o.weights_location)
  if not source then raise("%s: %s", WHO, message) end
  local places, main = require("accel.accelerator.big_modeling")._read_map(WHO, map)
  local _ <close> = accel.no_grad()
  local filled, missing, unexpected = read_all(model, config, source, function(name)
    local at = device_maps.device_of(name, places) or { device = main }
    return at.tier and "cpu" or at.device
  end)
  if model._fill then -- tensors that Hugging Face's files leave out: computed tables, untrained heads
    local fresh = {}
    model:_fill(function(t, at)
      if filled[t] then return filled[t] end
      if t.device ~= "meta" then return t end
      if t.quant_state then raise("%s: %s has no '%s'", WHO, o.weights_location, at.name) end
      if at.kind == "parameter" then fresh[#fresh + 1] = at.name end
      return model:_initial(t, at, dtype_for(config, at.name, t), main)
    end)
    missing = fresh
  else
    module_tensors._replace(model, function(_, t) return filled[t] end)
    if #missing > 0 then raise("%s: %s lacks %s, which have no values", WHO, o.weights_location, listed(missing)) end
  end
  for _, p in ipairs(model:parameters()) do
    if p.quant_state then p.requires_grad = false end
  end
  if #unexpected > 0 then warn(("%s: %s has keys that the model lacks: %s"):format(WHO, o.weights_location, listed(unexpected))) end
  if model._fill and #missing > 0 then
    warn(("%s: %s has no %s: initial values, to be trained"):format(WHO, o.weights_location, listed(missing)))
  end
  cast_around(model, config)
  return require("accel.accelerator.big_modeling").dispatch_model(model, map, { offload_dir = o.offload_folder })
end

return M
