--- The data that ranks store and load of sharded models and of optimizers that update their pieces, for
--- accel.accelerator.checkpoint_content and checkpoint_load. A rank holds ranges of logical tensors. Files name ranges of
--- them, so that any number of ranks, with any sharding or none, can continue from any other's files.
---
--- Three forms of a model, as state_dict_type has them:
---   SHARDED_STATE_DICT   each rank writes its ranges. Nothing is gathered
---   FULL_STATE_DICT      the first part writes whole tensors into one file. It holds one copy of the model and one unit
---   LOCAL_STATE_DICT     each rank writes its part of every unit unchanged. Ranks that load it must shard equally
local accel = require "accel"
local core = require "accel.shard.core"
local dist = require "accel.dist"
local owners = require "accel.shard.owners"
local raise = require "accel.util.raise"
local summon = require "accel.shard.summon"
local writing = require "accel.ckpt.write"

local M = {}

local WHOLE <const> = 1 << 16 -- bytes below which ranks that hold the same do not share a tensor out

--- The engine that shards a model, or nil.
---@param model accel.nn.Module
---@return accel.shard.Engine?
function M.engine(model)
  local engine = rawget(model, "reducer")
  return engine and engine.units and engine or nil
end

--- The boxes that elements [from, from + count) of a tensor of this shape are, as views of t, which holds them.
---@param t accel.Tensor flat
---@param shape integer[]
---@param from integer
---@param count integer
---@return {tensor: accel.Tensor, offsets: integer[]}[]
function M.boxes(t, shape, from, count)
  local list = {}
  for k, box in ipairs(core.boxes(shape, from, count)) do
    list[k] = { tensor = t:narrow(1, box.at + 1, box.count):view(box.shape), offsets = box.offsets }
  end
  return list
end

--- Which of the ranks that hold the same of a unit this one is, and how many they are, of those that write one checkpoint.
local function share_of(accelerator, engine, unit)
  local replicas = engine.o.replicas
  if accelerator.project_configuration.save_on_each_node then
    local part, parts = writing.parts(accelerator)
    if unit.size == 1 then return part, parts end
    if unit.size == parts and dist.get_rank(engine.o.group) == part then return 0, 1 end
    raise("save_state: save_on_each_node: parameters are sharded over several machines, so no machine has them all; use"
      .. " HYBRID_SHARD")
  end
  if not replicas then return 0, 1 end
  return dist.get_rank(replicas), dist.get_world_size(replicas)
end

--- Adds the entries for this rank's part of a flat tensor that holds elements [from, from + count).
local function add_range(list, accelerator, place, name, t, from, count)
  local p = place.unit.params[place.i]
  local k, n = share_of(accelerator, place.engine, place.unit)
  local first, last = count * k // n, count * (k + 1) // n
  if n > 1 and count * t:element_size() < WHOLE then
    local writes = (place.unit.at + place.i) % n == k
    first, last = 0, writes and count or 0
  end
  if first == last then return end
  for _, box in ipairs(M.boxes(t:narrow(1, first + 1, last - first), p.shape, from + first, last - first)) do
    list[#list + 1] = { name = name, tensor = box.tensor, shape = p.shape, offsets = box.offsets }
  end
end

-- ---- models ----

--- Names and tensors of a model's state, each tensor under its first name, and the further names of tied ones.
---@param module accel.nn.Module
---@return {name: string, tensor: accel.Tensor}[] list
---@return table<string, string> tied
function M.named(module)
  local list, tied, first = {}, {}, {}
  local function add(name, t)
    if first[t] then tied[name] = first[t]
    else
      first[t], list[#list + 1] = name, { name = name, tensor = t }
    end
  end
  local function is_quantised(below)
    for _, t, kind in below:_fields() do
      if kind == "parameter" and t.quant_state then return true end
    end
  end
  summon.visit(module, function(name, t)
    if not t.quant_state then add(name, t) end
  end, nil, nil, function(below, prefix)
    if not is_quantised(below) then return end
    local entries = require "accel.util.ordered"() -- as its state dict has them
    below:_extend_state(entries, prefix)
    for name, t in pairs(entries) do add(name, t) end
  end)
  return list, tied
end

local function flat_name(unit) return ("%s_flat_param.%d"):format(unit.name == "" and "" or unit.name .. ".", unit.at - 1) end

local add_state = {}

--- A tensor that lies in no unit, in the dtype that it had before it was wrapped.
local function plain(engine, t)
  local was = engine.buffer_dtypes and engine.buffer_dtypes[t]
  return was and t:to(was) or t:detach()
end

function add_state.SHARDED_STATE_DICT(list, accelerator, engine, named)
  for _, entry in ipairs(named) do
    local place = owners.of[entry.tensor]
    if place then
      local unit = place.unit
      local from, count = unit:range(place.i)
      if from then add_range(list, accelerator, place, entry.name, unit:piece_of(unit.own, place.i), from, count) end
    else
      list[#list + 1] = { name = entry.name, tensor = plain(engine, entry.tensor), owner = 0 }
    end
  end
end

function add_state.FULL_STATE_DICT(list, accelerator, engine, named, module, adapter)
  local first = writing.parts(accelerator) == 0
  if adapter then
    local _ <close> = accel.no_grad()
    local whole = summon.tensors(engine, first, adapter)
    for _, entry in ipairs(first and named or {}) do
      list[#list + 1] = { name = entry.name, tensor = whole[entry.tensor] or plain(engine, entry.tensor), owner = 0 }
    end
    return
  end
  local state = summon.state(engine, module, first)
  for _, entry in ipairs(first and named or {}) do
    list[#list + 1] = { name = entry.name, tensor = state[entry.name], owner = 0 }
  end
end

function add_state.LOCAL_STATE_DICT(list, accelerator, engine, named, _, adapter)
  if adapter then
    raise "save_state: adapter_only: LOCAL_STATE_DICT has no names; save with state_dict_type SHARDED_STATE_DICT or FULL_STATE_DICT"
  end
  for _, unit in ipairs(engine.units) do
    if share_of(accelerator, engine, unit) == 0 then
      list[#list + 1] = { name = flat_name(unit), tensor = unit.own, shape = { unit.count }, offsets = { unit.rank * unit.part } }
    end
  end
  for _, entry in ipairs(named) do
    if not owners.of[entry.tensor] then
      list[#list + 1] = { name = entry.name, tensor = plain(engine, entry.tensor), owner = 0 }
    end
  end
end

--- From the tensors of a model an adapter's, by its names.
local function of_adapter(named, adapter)
  if not adapter then return named end
  local list = {}
  for _, entry in ipairs(named) do
    local name = adapter[entry.tensor]
    if name then list[#list + 1] = { name = name, tensor = entry.tensor } end
  end
  return list
end

--- How a model's parts are written: the plugin's state_dict_type.
---@param accelerator accel.Accelerator
---@return string
function M.form(accelerator)
  local plugin = accelerator.fsdp_plugin
  return plugin and plugin.state_dict_type or "SHARDED_STATE_DICT"
end

--- This rank's data of a sharded model, as entries of accel.ckpt.share. A collective.
---@param accelerator accel.Accelerator
---@param model accel.nn.Module prepared
---@param engine accel.shard.Engine
---@param adapter? table<accel.Tensor, string> of adapter_only.names: of these parameters alone, by these names
---@return {entries: table[], metadata: table<string, string>, whole: boolean} whole: one part writes all of it
function M.model(accelerator, model, engine, adapter)
  local module, form = accelerator:unwrap_model(model), M.form(accelerator)
  local named, tied = M.named(module)
  local metadata, list = { format = "pt" }, {}
  for alias, name in next, adapter and {} or tied do metadata[alias] = name end
  add_state[form](list, accelerator, engine, of_adapter(named, adapter), module, adapter)
  return { entries = list, metadata = metadata, whole = form == "FULL_STATE_DICT" }
end

--- The sharding of a model, for the record of a checkpoint in LOCAL_STATE_DICT. nil for the other forms.
---@param accelerator accel.Accelerator
---@param engine accel.shard.Engine
---@return {ranks: integer, units: string[]}?
function M.cut(accelerator, engine)
  if M.form(accelerator) ~= "LOCAL_STATE_DICT" then return nil end
  local units = {}
  for i, unit in ipairs(engine.units) do
    units[i] = ("%s: %s, %d elements of %s"):format(flat_name(unit), table.concat(unit.names, " "), unit.count, unit.own.dtype)
  end
  return { ranks = dist.get_world_size(engine.o.group), units = units }
end

--- Raises unless a model is cut here as the stored one was.
local function check_cut(object, stored, engine)
  local advice = "save with state_dict_type SHARDED_STATE_DICT or FULL_STATE_DICT to continue with another sharding"
  if not engine then
    raise("%s: it was saved with LOCAL_STATE_DICT, in shards of %d ranks, but the model is not sharded; %s", object, stored.ranks, advice)
  end
  local here = { ranks = dist.get_world_size(engine.o.group), units = {} }
  if here.ranks ~= stored.ranks then
    raise("%s: it was saved with LOCAL_STATE_DICT, sharded over %d ranks, but now there are %d; %s", object, stored.ranks, here.ranks, advice)
  end
  for i = 1, math.max(#engine.units, #stored.units) do
    local unit, was = engine.units[i], stored.units[i]
    local is = unit and ("%s: %s, %d elements of %s"):format(flat_name(unit), table.concat(unit.names, " "), unit.count,
      unit.own.dtype)
    if is ~= was then
      raise("%s: it was saved with LOCAL_STATE_DICT, and unit %d is sharded differently: stored as '%s', now '%s'; %s", object,
        i - 1, tostring(was), tostring(is), advice)
    end
  end
end

local function like(t, dtype) return accel.empty(t.shape, { dtype = dtype or t.dtype, device = "meta" }) end

--- The data to read into a model, prepared: the form of each stored tensor, by name (meta tensors), and this rank's parts of
--- them, with the memory for their values.
---@param accelerator accel.Accelerator
---@param model accel.nn.Module
---@param object string
---@param cut table? of the record: stored as LOCAL_STATE_DICT
---@param adapter? table<accel.Tensor, string> of adapter_only.names
---@return table<string, accel.Tensor> expected
---@return {name: string, target: accel.Tensor, offsets: integer[]?}[] targets
function M.targets(accelerator, model, object, cut, adapter)
  local engine = M.engine(model)
  if cut then check_cut(object, cut, engine) end
  local expected, targets = require "accel.util.ordered"(), {}
  for _, unit in ipairs(cut and engine.units or {}) do
    expected[flat_name(unit)] = accel.empty(unit.count, { dtype = unit.own.dtype, device = "meta" })
    targets[#targets + 1] = { name = flat_name(unit), target = unit.own, offsets = { unit.rank * unit.part } }
  end
  for _, entry in ipairs(of_adapter((M.named(accelerator:unwrap_model(model))), adapter)) do
    local place = engine and owners.of[entry.tensor]
    if not place then
      local was = engine and engine.buffer_dtypes and engine.buffer_dtypes[entry.tensor]
      expected[entry.name] = like(entry.tensor, was)
      targets[#targets + 1] = { name = entry.name, target = entry.tensor:detach(), dtype = was }
    elseif not cut then
      local unit = place.unit
      local from, count = unit:range(place.i)
      expected[entry.name] = like(entry.tensor, unit.own.dtype)
      local piece = from and unit:piece_of(unit.own, place.i)
      for _, box in ipairs(from and M.boxes(piece, entry.tensor.shape, from, count) or {}) do
        targets[#targets + 1] = { name = entry.name, target = box.tensor, offsets = box.offsets }
      end
    end
  end
  return expected, targets
end

-- ---- optimizers ----

--- The parameters of an optimizer's groups on all ranks, with sharded ones as whole parameters. nil if none is sharded.
---@param optimizer table
---@return accel.Tensor[][]?
function M.parameters(optimizer)
  local sharding = optimizer._sharding
  if not sharding then return nil end
  local groups = {}
  for g, group in ipairs(optimizer.param_groups) do groups[g] = sharding.whole[group] or group.params end
  return groups
end

--- The position of a piece's parameter. nil for other tensors.
---@param t accel.Tensor
---@return table? place
function M.place_of(t)
  local engine = owners.engine_of[t]
  local p = engine and engine.piece_of[t]
  return p and owners.of[p]
end

--- Adds this rank's part of a state tensor of a piece: its range of a logical tensor of the parameter's size if it is as
--- long as the piece. Otherwise the rank that holds the parameter's first element writes all of it.
---@param list table[] entries
---@param accelerator accel.Accelerator
---@param place table of M.place_of
---@param name string
---@param t accel.Tensor
function M.add_state(list, accelerator, place, name, t)
  local from, count = place.unit:range(place.i)
  if t.ndim == 1 and t:numel() == count then return add_range(list, accelerator, place, name, t, from, count) end
  if from == 0 and share_of(accelerator, place.engine, place.unit) == 0 then
    list[#list + 1] = { name = name, tensor = t, owner = writing.parts(accelerator) }
  end
end

--- A state tensor for a piece from a stored one: the piece's range of it if it has the parameter's size, otherwise all.
---@param place table
---@param s {name: string, dtype: string, shape: integer[]} stored
---@param read fun(name: string, tensor: accel.Tensor, offsets: integer[]?)
---@param whole boolean? the optimizer keeps whole states of parameters that it has a part of
---@return accel.Tensor
function M.read_state(place, s, read, whole)
  local unit, p = place.unit, place.unit.params[place.i]
  local same = not whole and #s.shape == p.ndim
  for d, n in ipairs(p.shape) do same = same and s.shape[d] == n end
  local device = unit.own.device
  if not same then
    local t = accel.unscoped(accel.empty, s.shape, { dtype = s.dtype, device = device })
    read(s.name, t)
    return t
  end
  local from, count = unit:range(place.i)
  local t = accel.unscoped(accel.empty, count, { dtype = s.dtype, device = device })
  for _, box in ipairs(M.boxes(t, p.shape, from, count)) do read(s.name, box.tensor, box.offsets) end
  return t
end

--- The plain states of parameters, of all ranks: each knows those that it holds a part of. A collective.
---@param states table<string, any> by parameter
---@return table<string, any>
function M.merge(states)
  local all = {}
  for _, part in ipairs(dist.all_gather_object(states, { max_bytes = math.maxinteger })) do
    for name, entry in next, part do
      if all[name] == nil then all[name] = entry end
    end
  end
  return all
end

return M
