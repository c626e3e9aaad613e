--- The data that ranks store and load of models split over a mesh, and of their optimizers, for
--- accel.accelerator.checkpoint_content and checkpoint_load: ranges of whole tensors, so that any other mesh, or one rank, can
--- continue from them. Further sharding by FullyShardedDataParallel is a range of this rank's part (accel.shard).
local accel = require "accel"
local dist = require "accel.dist"
local holders = require "accel.parallel.holders"
local ordered = require "accel.util.ordered"
local placements = require "accel.parallel.placements"
local raise = require "accel.util.raise"
local same_sizes = require("accel.util.tensors").same_sizes
local shard = require "accel.shard.checkpoint"
local writing = require "accel.ckpt.write"

local M = {}

--- The mesh of an Accelerator that splits models, or nil.
---@param accelerator accel.Accelerator
---@return accel.accelerator.Parallelism?
function M.mesh(accelerator)
  local parallel = accelerator._parallel
  return parallel and parallel:is_model_parallel() and parallel or nil
end

local function place_of(t)
  local owners = package.loaded["accel.shard.owners"]
  return owners and owners.of[t]
end

--- The shape of the whole of which a parameter is this rank's part.
local function whole_shape(t)
  local shape, p = table.move(t.shape, 1, t.ndim, 1, {}), placements.of[t]
  if p then shape[p.dim] = p.whole end
  return shape
end

--- Ranges of this rank's part of a parameter as ranges of the whole. If the part has several pieces, one range may cover several.
---@param t accel.Tensor the parameter
---@param boxes {tensor: accel.Tensor, offsets: integer[]}[]
---@return {tensor: accel.Tensor, offsets: integer[]}[]
local function in_whole(t, boxes)
  local p = placements.of[t]
  if not p then return boxes end
  local first, count = placements.range(p, p.axis.rank)
  local piece, out = p.whole // p.pieces, {}
  for _, box in ipairs(boxes) do
    local at, left, done = box.offsets[p.dim], box.tensor.shape[p.dim], 0
    while left > 0 do
      local k, inside = at // count, at % count
      local n = math.min(left, count - inside)
      local offsets = table.move(box.offsets, 1, #box.offsets, 1, {})
      offsets[p.dim] = k * piece + first + inside
      out[#out + 1] = { tensor = box.tensor:narrow(p.dim, done + 1, n), offsets = offsets }
      at, left, done = at + n, left - n, done + n
    end
  end
  return out
end

--- All of t, or this rank's range of it, as ranges of the whole. values is a tensor like t, or like its range.
local function boxes_of(t, values, place)
  if place then
    local from, count = place.unit:range(place.i)
    return from and in_whole(t, shard.boxes(values, t.shape, from, count)) or {}
  end
  local zeros = {}
  for d = 1, t.ndim do zeros[d] = 0 end
  return in_whole(t, { { tensor = values, offsets = zeros } })
end

local function held(t, place)
  if place then return place.unit:piece_of(place.unit.own, place.i) end
  return t:detach()
end

--- This rank's data of a model, as entries of accel.ckpt.share.
---@param accelerator accel.Accelerator
---@param model accel.nn.Module prepared
---@return {entries: table[], metadata: table<string, string>}
function M.model(accelerator, model)
  local parallel, list, metadata = M.mesh(accelerator), {}, { format = "pt" }
  if accelerator.project_configuration.save_on_each_node then
    raise "save_state: save_on_each_node: a model that is shared out over ranks is written once, by all of them"
  end
  local named, tied = shard.named(accelerator:unwrap_model(model))
  for alias, name in next, tied do metadata[alias] = name end
  for _, entry in ipairs(named) do
    local t, place = entry.tensor, place_of(entry.tensor)
    if t.device ~= "meta" and holders.speaks(parallel, t, place ~= nil) then
      local values = held(t, place)
      for _, box in ipairs(values and boxes_of(t, values, place) or {}) do
        list[#list + 1] = { name = entry.name, tensor = box.tensor, shape = whole_shape(t), offsets = box.offsets }
      end
    end
  end
  return { entries = list, metadata = metadata }
end

--- The data to read into a model. See accel.shard.checkpoint.targets.
---@param accelerator accel.Accelerator
---@param model accel.nn.Module prepared
---@return table<string, accel.Tensor> expected
---@return {name: string, target: accel.Tensor, offsets: integer[]?}[] targets
function M.targets(accelerator, model)
  local expected, targets = ordered(), {}
  for _, entry in ipairs((shard.named(accelerator:unwrap_model(model)))) do
    local t, place = entry.tensor, place_of(entry.tensor)
    expected[entry.name] = accel.empty(whole_shape(t), { dtype = t.dtype, device = "meta" })
    local values = t.device ~= "meta" and held(t, place)
    for _, box in ipairs(values and boxes_of(t, values, place) or {}) do
      targets[#targets + 1] = { name = entry.name, target = box.tensor, offsets = box.offsets }
    end
  end
  return expected, targets
end

--- The parameters of an optimizer's groups on all ranks together. nil if they are this rank's alone.
---@param optimizer table
---@return accel.Tensor[][]?
function M.parameters(optimizer) return optimizer._whole_groups end

--- Adds this rank's part of a state tensor of a parameter, or of a piece of one.
---@param list table[] entries
---@param accelerator accel.Accelerator
---@param name string
---@param t accel.Tensor
---@param p accel.Tensor the optimizer's parameter
function M.add_state(list, accelerator, name, t, p)
  local place = shard.place_of(p)
  local param = place and place.unit.params[place.i] or p
  if not holders.speaks(M.mesh(accelerator), param, place ~= nil) then return end
  if same_sizes(t.shape, p.shape) and p.ndim > 0 then
    for _, box in ipairs(boxes_of(param, t, place)) do
      list[#list + 1] = { name = name, tensor = box.tensor, shape = whole_shape(param), offsets = box.offsets }
    end
    return
  end
  local cut, first = placements.of[param], true
  if cut and cut.axis.rank > 0 then first = false end
  if place and place.unit:range(place.i) ~= 0 then first = false end
  if first then list[#list + 1] = { name = name, tensor = t, owner = (writing.parts(accelerator)) } end
end

--- A state tensor for a parameter, or a piece of one, from a stored one.
---@param p accel.Tensor
---@param s {name: string, dtype: string, shape: integer[]} stored
---@param read fun(name: string, tensor: accel.Tensor, offsets: integer[]?)
---@return accel.Tensor
function M.read_state(p, s, read)
  local place = shard.place_of(p)
  local param = place and place.unit.params[place.i] or p
  local fits = same_sizes(s.shape, whole_shape(param)) and param.ndim > 0
  local t = accel.unscoped(accel.empty, fits and p.shape or s.shape, { dtype = s.dtype, device = p.device })
  if not fits then
    read(s.name, t)
    return t
  end
  for _, box in ipairs(boxes_of(param, t, place)) do
    if box.tensor:is_contiguous() then
      read(s.name, box.tensor, box.offsets)
    else
      local copy = accel.empty(box.tensor.shape, { dtype = s.dtype, device = p.device })
      read(s.name, copy, box.offsets)
      box.tensor:copy_(copy)
    end
  end
  return t
end

--- Whole copies of a model's state by name, in the order of the model, on the ranks that keep it. An empty table on others. A
--- collective.
---@param accelerator accel.Accelerator
---@param model accel.nn.Module prepared
---@param keep boolean
---@return table<string, accel.Tensor>
function M.state(accelerator, model, keep)
  local _ <close> = accel.no_grad()
  local parallel, out, module = M.mesh(accelerator), ordered(), accelerator:unwrap_model(model)
  local engine, gathered = shard.engine(model), nil
  if engine and engine:gathers() then gathered = require("accel.shard.summon").state(engine, module, true, nil, true) end
  local whole = {}
  --- The value of the one rank of an axis that has it, on all of them. nil if none has it.
  local function shared(value, t, axis)
    if axis.size == 1 then return value end
    local has = dist.all_gather_object({ value ~= nil }, { group = axis.group })
    for from, entry in ipairs(has) do
      if entry[1] then
        value = value or accel.empty(whole_shape(t), { dtype = t.dtype })
        dist.broadcast(value, { group_src = from - 1, group = axis.group })
        return value
      end
    end
  end
  require("accel.shard.summon").visit(module, function(name, t)
    if whole[t] then
      if keep then out[name] = whole[t] end
      return
    end
    local value, p = nil, placements.of[t]
    if t.device ~= "meta" then
      value = gathered and gathered[name] or t:detach()
      value = p and placements.join(p, value) or value:clone()
    end
    if placements.experts[t] then value = shared(value, t, placements.experts[t]) end
    value = shared(value, t, parallel:axis "pp")
    whole[t] = keep and value or t
    if keep then out[name] = value end
  end)
  return keep and out or ordered()
end

return M
