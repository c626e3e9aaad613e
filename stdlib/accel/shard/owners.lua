--- Which engine holds a parameter, and the pieces that stand in for parameters in optimizers: asked by optim.Optimizer, nn.utils
--- and the Accelerator, which need not know the engine. Loaded with the first engine, so that models which are not sharded pay
--- nothing: others look into package.loaded.
local accel = require "accel"
local core = require "accel.optim.core"
local raise = require "accel.util.raise"

local M = {}

M.of = setmetatable({}, { __mode = "k" }) -- parameter -> its place {engine, unit, i}
M.engine_of = setmetatable({}, { __mode = "k" }) -- piece -> its engine
M.version = 0 -- rises with every engine

--- The parameters of a list that are sharded are replaced by their pieces; those of which this rank has nothing are left
--- out. Returns the list as it was and nothing else when none is sharded.
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

--- Where states of the optimizer go; nil: where the pieces are.
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

local function add(list, engine)
  for _, e in ipairs(list) do
    if e == engine then return end
  end
  list[#list + 1] = engine
end

--- Drops gradients that are not reduced so far.
function Sharding:zero() core.zero(self.params) end

local function refuse_whole(optimizer)
  if optimizer.elementwise == false and not optimizer.update_whole then
    local name = getmetatable(optimizer).__name:match "[^.]*$"
    raise("%s: its rule needs whole tensors, and parameters are sharded; define part_dtypes, parts_of and update_whole"
      .. " (accel.shard.whole), use an optimizer whose rule goes element by element, or leave these parameters out of the sharding"
      .. " (ignored_modules)", name)
  end
end

--- A tensor as the whole parameter that a piece is of, uninitialised, as its owners keep it; the tensor itself for what is no
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

--- Puts pieces in the place of sharded parameters in the groups of an optimizer, which steps on them from now on; states
--- that it has are cut. Nothing where no parameter is sharded. Called by the optimizer when there are new engines.
---@param optimizer accel.optim.Optimizer
function M.adopt(optimizer)
  optimizer._owners_seen = M.version
  local sharding, before = optimizer._sharding, nil
  for g, group in ipairs(optimizer.param_groups) do
    if has_sharded(group.params) then
      refuse_whole(optimizer)
      before = before or optimizer:state_dict()
      sharding = sharding or setmetatable({ engines = {}, params = {}, whole = setmetatable({}, { __mode = "k" }) }, Sharding)
      local saved, kept = before.param_groups[g], {}
      sharding.whole[group] = sharding.whole[group] or table.move(group.params, 1, #group.params, 1, {})
      for i, p in ipairs(group.params) do
        local place, at, piece = M.of[p], saved.params[i], p
        if place then
          add(sharding.engines, place.engine)
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

return M
