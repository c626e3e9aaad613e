--- load_checkpoint_in_model of accelerate.utils: weights of files into a model that is there.
local check = require "accel.util.check"
local listed = require "accel.util.listed"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local WHO <const> = "load_checkpoint_in_model"
local NOT_YET <const> = { "device_map", "offload_folder", "offload_state_dict", "offload_buffers", "offload_8bit_bnb" }

--- Which tensors of the model come from where: name -> tensor, and what is wrong as lists for one message.
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

--- Makes floating parameters and buffers dtype, f32 where a part of their name says so.
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

--- Weights of a file or folder into a model: a safetensors file, a .bin or .pt of PyTorch, an index (*.index.json), or a folder
--- with pytorch_model.bin, model.safetensors or one index. Values are read straight into the model's memory; names and shapes
--- of all files are compared first, and checksums where files have them, so that what does not fit leaves the model as it was. A file that is
--- not there or damaged is an error. Tensors that the model lacks are a warning, with strict = true an error, as are those that the files lack.
--- example: local a, b = accel.nn.Linear(2, 1), accel.nn.Linear(2, 1) local dir = accel.mkdtemp "/tmp/example-"
---   accel.Accelerator():save_model(a, dir) accel.accelerator.load_checkpoint_in_model(b, dir)
---   return b.weight:eq(a.weight):all():item() --> true
---@param model accel.nn.Module
---@param checkpoint string
---@param opts? table
---  strict boolean = false: an error where names differ
---  dtype string: floating parameters and buffers become of this dtype (default: they keep the model's)
---  keep_in_fp32_modules string[]: parts of names whose tensors stay f32 whatever dtype says
---  full_state_dict boolean = true: accepted; files hold whole tensors
---  broadcast_from_rank0 boolean = false: the main process reads, the others get its values
---  device_map any: not in this build, as offload_folder, offload_state_dict, offload_buffers, offload_8bit_bnb
---@return {missing_keys: string[], unexpected_keys: string[]}
function M.load_checkpoint_in_model(model, checkpoint, opts)
  local Module, dist = require "accel.nn.module", require "accel.dist"
  if not Module.is_module(model) then raise("%s: %s", WHO, Module.not_a_module(model)) end
  if type(checkpoint) ~= "string" or checkpoint == "" then
    raise("%s: checkpoint must be the path of a file or folder, got %s", WHO, check.shown(checkpoint))
  end
  local declared = {
    strict = false, dtype = options.none, keep_in_fp32_modules = {}, full_state_dict = true, broadcast_from_rank0 = false,
  }
  for _, key in ipairs(NOT_YET) do declared[key] = options.none end
  local o = options(WHO, opts, declared)
  for _, key in ipairs(NOT_YET) do
    if o[key] then raise("%s: %s is not there yet; the model is loaded where it lies", WHO, key) end
  end
  local reads = not o.broadcast_from_rank0 or dist.get_rank() == 0
  local source <close>, message = require("accel.ckpt.weights").open(checkpoint)
  if not source then raise("%s: %s", WHO, message) end
  local wanted, missing, unexpected, wrong = match(model, source.entries, o.strict)
  if #wrong > 0 then raise("%s: %s does not fit the model: %s", WHO, checkpoint, table.concat(wrong, "; ")) end
  if reads then
    local ok, why = source:verify()
    if not ok then raise("%s: %s", WHO, why) end
  end
  if o.dtype then
    convert(model, o.dtype, o.keep_in_fp32_modules)
    wanted = match(model, source.entries, o.strict)
  end
  for _, w in ipairs(wanted) do
    if reads then
      local ok, why = source:read(w.name, w.t)
      if not ok then raise("%s: %s", WHO, why) end
    end
    if o.broadcast_from_rank0 and dist.get_world_size() > 1 then dist.broadcast(w.t, 0) end
  end
  if #unexpected > 0 then
    warn(("%s: %s holds what the model does not have: %s"):format(WHO, checkpoint, listed(unexpected)))
  end
  if #missing > 0 then warn(("%s: %s lacks %s, which keeps its values"):format(WHO, checkpoint, listed(missing))) end
  return { missing_keys = missing, unexpected_keys = unexpected }
end

return M
