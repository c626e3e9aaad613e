--- Reads checkpoints that DeepSpeed itself wrote, like zero_to_fp32.py: it joins the ranks' parts of the optimizer's fp32 masters to whole
--- parameters, with buffers and frozen parameters. accel-run merge-weights uses it, and accelerator:load_state also reads the other
--- optimizer states (deepspeed_state.lua).
---
--- Stage 0: the model's file has whole parameters (deepspeed_stage0.lua reads the optimizer). Stage 0: the model's file has whole
--- parameters (deepspeed_stage0.lua reads the optimizer). Stages 1 and 2: a rank's file has one flat tensor for each parameter group, and
--- the concatenation over all ranks gives the group's parameters. Stage 3: every parameter is cut into equal parts, and a rank's flat
--- tensors are the concatenation of its parts.
local accel = require "accel"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local stage0 = require "accel.ckpt.deepspeed_stage0"
local open_read = require("accel.file.core").open_read

local count = tensors.count
local M = {}

local OPTIM <const> = "^[bf16_]*zero_pp_rank_(%d+)_mp_rank_(%d+)_optim_states%.pt$"
local MODEL <const>, MODEL3 <const> = "mp_rank_00_model_states.pt", "zero_pp_rank_%d_mp_rank_00_model_states.pt"

local function names_in(dir)
  local set = {}
  for _, name in ipairs(accel.listdir(dir) or {}) do set[name] = true end
  return set
end

--- The folder of a step: the one that `latest` names, in the folder of a run.
local function step_folder(dir)
  local file <close> = open_read(dir .. "/latest")
  local tag = file and file:read(256)
  tag = tag and tag:match "^%s*([%w._-]+)%s*$"
  return tag and dir .. "/" .. tag or dir
end

--- Whether DeepSpeed wrote a folder, of a run or of one step.
---@param dir string
---@return boolean
function M.is(dir)
  local names = names_in(step_folder(dir))
  if names[MODEL] or names[MODEL3:format(0)] then return true end
  for name in next, names do
    if name:find(OPTIM) then return true end
  end
  return false
end

local function load(dir, name)
  local t, message = accel.device("cpu", accel.load, dir .. "/" .. name)
  if not t then raise("%s", message) end
  return t
end

--- The parts of all ranks, in their order: {stage, groups = {[rank + 1] = flat tensors}, paddings}. nil at stage 0.
local function parts_of(dir, names)
  local files, world = {}, 0
  for name in next, names do
    local rank, model = name:match(OPTIM)
    if rank then
      if tonumber(model) ~= 0 then raise("%s: %s is of tensor parallelism, whose parts are not put together", dir, name) end
      files[tonumber(rank)], world = name, world + 1
    end
  end
  if world == 0 then return nil end
  local out = { groups = {}, world = world, optimizers = {} }
  for rank = 0, world - 1 do
    if not files[rank] then raise("%s: it has files of %d ranks, but none of rank %d", dir, world, rank) end
    local state = load(dir, files[rank]).optimizer_state_dict
    if type(state) ~= "table" then raise("%s/%s has no optimizer_state_dict", dir, files[rank]) end
    local stage = state.zero_stage
    out.stage = type(stage) == "table" and stage[1] or stage
    local groups = state.fp32_flat_groups or state.single_partition_of_fp32_groups
    if type(groups) ~= "table" then raise("%s/%s has no fp32 masters of ZeRO", dir, files[rank]) end
    out.groups[rank + 1] = accel.is_tensor(groups) and { groups } or groups
    out.optimizers[rank + 1] = state.base_optimizer_state or state.optimizer_state_dict or {}
    out.scaler = out.scaler or state.loss_scaler
    out.paddings = rank == 0 and state.param_alignment_paddings or out.paddings
  end
  return out
end

local function view(flat, shape) return flat:narrow(1, 1, count(shape)):view(table.move(shape, 1, #shape, 1, {})) end

--- Readers of parameters at stages 1 and 2, by name. groups: flat tensors of the ranks, the masters or another state.
local function of_groups(parts, shapes, groups, readers)
  for g, group in ipairs(shapes) do
    local whole, at, k = nil, 0, 0
    local function flat()
      if not whole then
        local list = {}
        for r = 1, parts.world do list[r] = groups[r][g] end
        whole = accel.cat(list, 1)
      end
      return whole
    end
    for name, shape in ordered.iterate(group) do
      local from = at
      k = k + 1
      readers[name] = { shape = shape, read = function() return view(flat():narrow(1, from + 1, count(shape)), shape) end }
      at = at + count(shape) + (parts.paddings and parts.paddings[g] and parts.paddings[g][k] or 0)
    end
  end
end

--- Readers at stage 3. A rank's flat tensors are read as one, regardless of their boundaries.
local function of_parts(parts, shapes, groups, readers)
  local flats = {}
  local function flat(rank)
    flats[rank] = flats[rank] or (#groups[rank] == 1 and groups[rank][1] or accel.cat(groups[rank], 1))
    return flats[rank]
  end
  local at = 0
  for _, group in ipairs(shapes) do
    for name, shape in ordered.iterate(group) do
      local from, each = at, (count(shape) + parts.world - 1) // parts.world
      readers[name] = { shape = shape, read = function()
        local list = {}
        for r = 1, parts.world do list[r] = flat(r):narrow(1, from + 1, each) end
        return view(accel.cat(list, 1), shape)
      end }
      at = at + each
    end
  end
end

--- Readers of frozen parameters: whole, or in parts of all ranks.
local function of_frozen(parts, models, readers)
  for name, shape in ordered.iterate(models[1].frozen_param_shapes or {}) do
    readers[name] = { shape = shape, read = function()
      if parts.stage ~= 3 then return models[1].frozen_param_fragments[name]:to "f32" end
      local list = {}
      for r, model in ipairs(models) do list[r] = model.frozen_param_fragments[name]:reshape(-1) end
      return view(accel.cat(list, 1), shape):to "f32"
    end }
  end
end

local function opened(dir)
  dir = step_folder(dir)
  local names = names_in(dir)
  local parts, models, readers = parts_of(dir, names), {}, {}
  if parts and parts.stage == 3 then
    for r = 1, parts.world do models[r] = load(dir, MODEL3:format(r - 1)) end
  else
    models[1] = load(dir, MODEL)
  end
  local model = models[1]
  if parts then
    local make = parts.stage == 3 and of_parts or of_groups
    make(parts, model.param_shapes, parts.groups, readers)
    of_frozen(parts, models, readers)
  end
  local state, kept = ordered(), {}
  local first = {} -- of tensors at one address: stage 0 names no tied ones
  for name, t in ordered.iterate(model.module) do
    local source = type(model.shared_params) == "table" and model.shared_params[name] or name
    if not parts and count(t.shape) > 0 then
      local at = ("%x %s %s"):format(t:data_ptr(), t.dtype, table.concat(t.shape, ","))
      first[at] = first[at] or name
      source = first[at]
    end
    local reader = readers[source]
    if not reader then
      reader = { shape = t.shape, dtype = t:is_floating_point() and "f32" or t.dtype, read = function()
        return t:is_floating_point() and t:to "f32" or t
      end }
      readers[source] = reader
    end
    kept[source] = kept[source] or accel.empty(reader.shape, { dtype = reader.dtype or "f32", device = "meta" })
    state[name], readers[name] = kept[source], reader
  end
  return state, function(name) return readers[name].read() end, function() end, { parts = parts, model = model }
end

--- Lists by rank and group of one state of the optimizers. nil if some have none.
local function flats_of(parts, key)
  local list = {}
  for r, optimizer in ipairs(parts.optimizers) do
    list[r] = {}
    for g in ipairs(parts.groups[r]) do
      local state = optimizer.state and (optimizer.state[g - 1] or optimizer.state[tostring(g - 1)])
      if not state or not accel.is_tensor(state[key]) or state[key].ndim == 0 then return nil end
      list[r][g] = state[key]
    end
  end
  return list
end

--- Optimizer states other than the masters: { groups = { {names =, options =}, ... }, states = { [key] = readers by parameter }, step =,
--- scale = (nil: none), model = the file of the model }. For stage 0 also deepspeed_stage0.lua's fields: masters, steps = by parameter.
---@param dir string
---@param own string[][] names of the parameters of the optimizer here, by group
---@return table
function M.optimizer(dir, own)
  local whole, _, _, found = opened(dir)
  local parts, model = found.parts, found.model
  if not parts then
    local shapes = {}
    for name, t in ordered.iterate(whole) do shapes[name] = t.shape end
    return stage0.optimizer(model, own, shapes)
  end
  local first = parts.optimizers[1]
  local state = first.state and (first.state[0] or first.state["0"]) or {}
  local out = { groups = {}, states = {}, step = accel.is_tensor(state.step) and state.step:item() or state.step or model.global_steps,
    scale = type(parts.scaler) == "table" and parts.scaler.cur_scale or nil, model = model }
  for g, shapes in ipairs(model.param_shapes) do
    local names = {}
    for name in ordered.iterate(shapes) do names[#names + 1] = name end
    out.groups[g] = { names = names, options = first.param_groups and first.param_groups[g] or {} }
  end
  for key, value in accel.pairs(state) do
    local flats = accel.is_tensor(value) and value.ndim > 0 and flats_of(parts, key)
    if flats then
      out.states[key] = {}
      local make = parts.stage == 3 and of_parts or of_groups
      make(parts, model.param_shapes, flats, out.states[key])
    end
  end
  return out
end

--- Opens a checkpoint of DeepSpeed. Returns meta tensors by name, in the model's order, tied ones the same tensor; a reader; a function
--- that closes it. nil and a message if its parts cannot be joined.
---@param dir string
---@return table<string, accel.Tensor>? state
---@return (fun(name: string): accel.Tensor)|string read
---@return fun()? close
function M.open(dir)
  local ok, state, read, close = pcall(opened, dir)
  if not ok then return nil, (tostring(state):gsub("^[^\n]-:%d+: ", "")) end
  return state, read, close
end

return M
