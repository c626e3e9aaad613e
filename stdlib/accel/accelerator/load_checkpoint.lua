--- load_checkpoint_in_model of accelerate.utils: weights of files into a model that is there.
local check = require "accel.util.check"
local listed = require "accel.util.listed"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local WHO <const> = "load_checkpoint_in_model"

local load

--- The source of each tensor of the model: name -> tensor, and lists of all mismatches for one message.
local function match(model, entries, strict)
  local own, wanted, missing, unexpected, wrong = model:state_dict(), {}, {}, {}, {}
  for name, t in pairs(own) do
    local entry = rawget(entries, name)
    if entry then
      wanted[#wanted + 1] = { name = name, t = t }
      if not tensors.same_shape(entry, t) then
        wrong[#wrong + 1] = ("'%s' has shape %s, the model needs %s"):format(name, tensors.shape_string(entry),
          tensors.shape_string(t))
      end
    elseif t:numel() > 0 then
      missing[#missing + 1] = name
    end
  end
  for name in pairs(entries) do
    if rawget(own, name) == nil then unexpected[#unexpected + 1] = name end
  end
  -- a tied weight is in the file under one of its names
  local filled, still = {}, {}
  for _, w in ipairs(wanted) do filled[w.t:data_ptr()] = true end
  for _, name in ipairs(missing) do
    if own[name].device == "meta" or not filled[own[name]:data_ptr()] then still[#still + 1] = name end
  end
  if strict then
    if #still > 0 then table.insert(wrong, 1, "missing " .. listed(still)) end
    if #unexpected > 0 then table.insert(wrong, 1, "unexpected " .. listed(unexpected)) end
  end
  return wanted, still, unexpected, wrong
end

--- Converts floating parameters and buffers to dtype, or to f32 if a part of their name is listed.
local function convert(model, dtype, keep_in_fp32)
  local kept = {}
  for _, named in ipairs { model:named_parameters(), model:named_buffers() } do
    for name, t in pairs(named) do
      for _, part in ipairs(keep_in_fp32) do kept[t] = kept[t] or name:find(part, 1, true) ~= nil end
    end
  end
  model:_map_tensors(function(t)
    if not tensors.is_floating(t.dtype) then return t end
    return t:to(kept[t] and "f32" or dtype)
  end)
end

--- Weights of a file or folder into a model: a safetensors file, a .bin or .pt of PyTorch, an index (*.index.json), or a folder with
--- pytorch_model.bin, model.safetensors or one index. Values are read straight into the model's memory. Names and shapes of all files are
--- compared first, and checksums if files have them, so that a mismatch leaves the model unchanged. A file that is not there or damaged is
--- an error. Tensors that the model lacks are a warning, with strict = true an error, as are those that the files lack.
--- example: local a, b = accel.nn.Linear(2, 1), accel.nn.Linear(2, 1) local dir = accel.mkdtemp "/tmp/example-"
---   accel.Accelerator():save_model(a, dir) accel.accelerator.load_checkpoint_in_model(b, dir)
---   return b.weight:eq(a.weight):all():item() --> true
---@param model accel.nn.Module
---@param checkpoint string
---@param opts? table
---  strict boolean = false: raise if names differ
---  dtype string: floating parameters and buffers become of this dtype (default: they keep the model's)
---  keep_in_fp32_modules string[]: parts of names whose tensors stay f32 regardless of dtype
---  full_state_dict boolean = true: without effect, because files hold whole tensors
---  broadcast_from_rank0 boolean = false: the main process reads, the others get its values
---  device_map table<string, integer|string>: the devices of tensors, including meta tensors. Tensors on disk stay on the meta
---    device in the model, and dispatch_model finds it in offload_folder
---  offload_folder string: receives the tensors on disk, or their position in an existing safetensors file
---  offload_state_dict boolean: without effect, because tensors are placed one by one
---  offload_buffers boolean = false: offload the buffers of offloaded parts as well
---  offload_8bit_bnb boolean = false: true is an error. load_and_quantize_model loads weights in 8 bits
---@return {missing_keys: string[], unexpected_keys: string[]}
function M.load_checkpoint_in_model(model, checkpoint, opts, ...)
  check.surplus("load_checkpoint_in_model", ...)
  local Module = require "accel.nn.module"
  if not Module.is_module(model) then raise("%s: %s", WHO, Module.not_a_module(model)) end
  if type(checkpoint) ~= "string" or checkpoint == "" then
    raise("%s: checkpoint must be the path of a file or folder, got %s", WHO, check.shown(checkpoint))
  end
  local o = options(WHO, opts, {
    strict = false, dtype = options.none, keep_in_fp32_modules = {}, full_state_dict = true, broadcast_from_rank0 = false,
    device_map = options.none, offload_folder = options.none, offload_state_dict = options.none, offload_buffers = false,
    offload_8bit_bnb = false,
  })
  no_effect("accel.accelerator." .. WHO, { full_state_dict = not o.full_state_dict, offload_state_dict = o.offload_state_dict })
  if o.offload_8bit_bnb then raise("%s: offload_8bit_bnb: accel.quant.load_and_quantize_model loads and offloads weights of bitsandbytes", WHO) end
  M._unused(WHO, o)
  if not o.device_map then
    no_effect.given(WHO, o, { "offload_folder", "offload_buffers" }, "without a device_map: tensors stay on their device")
  end
  return (load(WHO, model, checkpoint, o))
end

--- Warns of options of load_checkpoint_in_model, or of load_checkpoint_and_dispatch, without effect.
function M._unused(who, o)
  if o.dtype or not o.keep_in_fp32_modules or #o.keep_in_fp32_modules == 0 then return end
  no_effect.once(who, "keep_in_fp32_modules", "without dtype: tensors keep the dtype of the model")
end

--- Reports the names that the model and the files do not share.
local function tell(who, checkpoint, missing, unexpected)
  if #unexpected > 0 then
    warn(("%s: %s has keys that the model lacks: %s"):format(who, checkpoint, listed(unexpected)))
  end
  if #missing > 0 then warn(("%s: %s lacks %s, which keeps its values"):format(who, checkpoint, listed(missing))) end
  return { missing_keys = missing, unexpected_keys = unexpected }
end

--- For load_checkpoint_and_dispatch: loads straight to the tiers. Returns the tiers, and the index of tensors on disk.
---@param who string
---@param model accel.nn.Module
---@param checkpoint string
---@param o table
---@param window integer|string|nil
function M._dispatching(who, model, checkpoint, o, window)
  o.keep_in_fp32_modules = o.keep_in_fp32_modules or {}
  local _, tiers, index = load(who, model, checkpoint, o, { window = window })
  return tiers, index
end

--- Loads. Returns load_checkpoint_in_model's results, and with a device_map tiers and index.
function load(who, model, checkpoint, o, direct)
  local dist = require "accel.dist"
  local reads = not o.broadcast_from_rank0 or dist.get_rank() == 0
  local source <close>, message = require("accel.ckpt.weights").open(checkpoint)
  if not source then raise("%s: %s", who, message) end
  local wanted, missing, unexpected, wrong = match(model, source.entries, o.strict)
  if #wrong > 0 then raise("%s: %s does not fit the model: %s", who, checkpoint, table.concat(wrong, "; ")) end
  if o.device_map then
    local tiers, index = require("accel.accelerator.load_dispatched").load(who, model, source, o, direct)
    return tell(who, checkpoint, missing, unexpected), tiers, index
  end
  if reads then
    local ok, why = source:verify()
    if not ok then raise("%s: %s", who, why) end
  end
  if o.dtype then
    convert(model, o.dtype, o.keep_in_fp32_modules)
    wanted = match(model, source.entries, o.strict)
  end
  for _, w in ipairs(wanted) do
    if reads then
      local ok, why = source:read(w.name, w.t)
      if not ok then raise("%s: %s", who, why) end
    end
    if o.broadcast_from_rank0 and dist.get_world_size() > 1 then dist.broadcast(w.t, 0) end
  end
  return tell(who, checkpoint, missing, unexpected)
end

return M
