--- Which engine holds a parameter, and the pieces that stand in for parameters in optimizers: asked by optim.Optimizer, nn.utils
--- and the Accelerator, which need not know the engine. Loaded with the first engine, so that models without sharding pay
--- nothing: layers below check accel.nn.divided.
local accel = require "accel"
local core = require "accel.optim.core"
local raise = require "accel.util.raise"

local M = {}

require "accel.nn.divided".owners = M

M.of = setmetatable({}, { __mode = "k" }) -- parameter -> its place {engine, unit, i}
M.engine_of = setmetatable({}, { __mode = "k" }) -- piece -> its engine
M.version = 0 -- rises with every engine

--- Replaces the sharded parameters of a list by their pieces. Those without a piece on this rank are left out. Returns
--- the list as it was and nothing else when none is sharded.
---@param params accel.Tensor[]
---@return accel.Tensor[] list
---@return accel.shard.Engine? engine
function M.pieces(params)
  local out, engine = {}, nil
  for _, p in ipairs(params) do
    local place, piece = M.of[p], p
    engine = engine or M.engine_of[p]
    if place then
      engine = place.engine
      piece = place.unit.pieces[place.i]
      if piece == nil then piece = p end
    end
    if piece then out[#out + 1] = piece end
  end
  if not engine then return params end
  return out, engine
end

local Sharding = {}
Sharding.__index = Sharding

--- Before a step of the optimizer, on all ranks.
function Sharding:before()
  for _, engine in ipairs(self.engines) do engine:before_step() end
end

--- The tier of the optimizer's states. nil: next to the pieces.
---@return accel.offload.Training?
function Sharding:tier()
  for _, engine in ipairs(self.engines) do
    if engine.tier then return engine.tier end
  end
end

--- After it.
function Sharding:after()
  for _, engine in ipairs(self.engines) do engine:after_step() end
end

local function add(list, engine, optimizer)
  for _, e in ipairs(list) do
    if e == engine then return end
  end
  list[#list + 1] = engine
  engine:register(optimizer)
end

--- Drops gradients that are not reduced so far.
function Sharding:zero() core.zero(self.params) end

--- The reason why an optimizer cannot update shards. nil if it can.
---@param optimizer accel.optim.Optimizer
---@return string?
function M.needs_whole(optimizer)
  if optimizer.elementwise ~= false or optimizer.update_whole then return nil end
  local name = getmetatable(optimizer).__name:match "[^.]*$"
  return ("%s: its rule needs whole tensors, and parameters are sharded; define part_dtypes, parts_of and update_whole"
    .. " (accel.shard.whole), use an optimizer whose rule goes element by element, or leave these parameters out of the sharding"
    .. " (ignored_modules)"):format(name)
end

--- A tensor of the shape of a piece's whole parameter, uninitialised, in its owners' dtype. The tensor itself if it is not a
--- piece.
---@param piece accel.Tensor
---@return accel.Tensor
function M.like_whole(piece)
  local engine = M.engine_of[piece]
  if not engine then return piece end
  return accel.empty(engine.piece_of[piece].shape, { dtype = piece.dtype, device = piece.device })
end

--- Moves an optimizer's state of a parameter to its piece.
local function cut_state(state, p, place)
  local first, count = place.unit:range(place.i)
  local cut = {}
  for name, t in next, state do
    cut[name] = t
    if accel.is_tensor(t) and t:numel() == p:numel() and t.ndim > 0 then
      cut[name] = accel.unscoped(function() return t:reshape(-1):narrow(1, first + 1, count):clone() end)
    end
  end
  return cut
end

local function has_sharded(params)
  for _, p in ipairs(params) do
    if M.of[p] then return true end
  end
  return false
end

--- Replaces sharded parameters in the groups of an optimizer by pieces, which it updates from now on. Its existing
--- states are sharded. No effect if no parameter is sharded. Called by the optimizer when there are new engines.
---@param optimizer accel.optim.Optimizer
function M.adopt(optimizer)
  optimizer._owners_seen = M.version
  local sharding, before = optimizer._sharding, nil
  for g, group in ipairs(optimizer.param_groups) do
    if has_sharded(group.params) then
      local problem = M.needs_whole(optimizer)
      if problem then raise("%s", problem) end
      before = before or optimizer:state_dict()
      sharding = sharding or setmetatable({ engines = {}, params = {}, whole = setmetatable({}, { __mode = "k" }) }, Sharding)
      local saved, kept = before.param_groups[g], {}
      sharding.whole[group] = sharding.whole[group] or table.move(group.params, 1, #group.params, 1, {})
      for i, p in ipairs(group.params) do
        local place, at, piece = M.of[p], saved.params[i], p
        if place then
          add(sharding.engines, place.engine, optimizer)
          sharding.params[#sharding.params + 1] = p
          piece = place.unit.pieces[place.i]
          if piece == nil then piece = p end
        end
        if piece then
          kept[#kept + 1] = at
          if before.state[at] and place and not optimizer.whole_states then
            before.state[at] = cut_state(before.state[at], p, place)
          end
        end
      end
      saved.params, group.params = kept, M.pieces(group.params)
      optimizer._private[group].pending = table.move(group.params, 1, #group.params, 1, {})
    end
  end
  if not before then return end
  optimizer._sharding = sharding
  if next(before.state) ~= nil then optimizer:load_state_dict(before) end
end

--- An engine has cut parameters anew: an optimizer steps on the new pieces. States of parameters whose units stayed are kept.
---@param optimizer accel.optim.Optimizer
---@param entries table<accel.Tensor, table> states of the new pieces, by parameter
function M.follow(optimizer, entries)
  local sharding, saved, fresh = optimizer._sharding, optimizer:state_dict(), 0
  sharding.params = {}
  for g, group in ipairs(optimizer.param_groups) do fresh = fresh + #saved.param_groups[g].params + #group.params end
  for g, group in ipairs(optimizer.param_groups) do
    local index, params, kept = {}, {}, {}
    for k, piece in ipairs(group.params) do index[piece] = saved.param_groups[g].params[k] end
    sharding.whole[group] = sharding.whole[group] or table.move(group.params, 1, #group.params, 1, {})
    for _, p in ipairs(sharding.whole[group]) do
      local place, piece = M.of[p], p
      if place then
        piece = place.unit.pieces[place.i]
        sharding.params[#sharding.params + 1] = p
      end
      if piece then
        local at = index[piece]
        if not at then at, fresh = fresh, fresh + 1 end
        local plain = place and index[p] and saved.state[index[p]] -- it lay in no unit before
        if entries[p] then saved.state[at] = entries[p]
        elseif plain then saved.state[at] = optimizer.whole_states and plain or cut_state(plain, p, place) end
        params[#params + 1], kept[#kept + 1] = piece, at
      end
    end
    group.params, saved.param_groups[g].params = params, kept
  end
  optimizer:load_state_dict(saved, { assign = true })
end

--- nn.utils.clip_grad_norm_ of sharded parameters.
---@param params accel.Tensor[]
---@param max_norm number
---@param opts table
---@return accel.Tensor
function M.clip_grad_norm(params, max_norm, opts) return require "accel.shard.clip".norm(params, max_norm, opts) end

return M
