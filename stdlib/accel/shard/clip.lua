--- Clipping of sharded gradients by their norm, for nn.utils.clip_grad_norm_: the norm covers the whole gradients, and is the
--- same on every rank.
local accel = require "accel"
local core = require "accel.optim.core"
local deferred = require "accel.nn.deferred"
local dist = require "accel.dist"
local owners = require "accel.shard.owners"
local raise = require "accel.util.raise"

local M = {}

local function grads_of(params)
  local grads = {}
  for _, grad in ipairs((core.gradients(params))) do grads[#grads + 1] = grad or nil end
  return grads
end

--- The norm of this rank's gradients, as a number.
local function norm_here(grads, p)
  if #grads == 0 then return 0.0 end
  local step = package.loaded["accel.offload.step"] -- some may have their home in a file
  local norm = step and step.norm(grads, p)
  if norm then return norm end
  local _ <close> = accel.no_grad()
  return accel.clip_grad_norm_(grads, math.huge, { norm_type = p }):item()
end

--- Combines norms of parts to the norm of the whole.
local function join(parts, p)
  local total = 0.0
  for _, x in ipairs(parts) do
    if x ~= x then return x end
    if p == math.huge then total = math.max(total, x)
    else total = total + (p == 0 and x or x ^ p) end
  end
  if p == 0 or p == math.huge then return total end
  return total ^ (1 / p)
end

--- The norm of an engine's gradients: of parts of the ranks that share its units.
local function norm_over(engine, norm, p)
  if dist.get_world_size(engine.o.group) == 1 then return norm end
  local all = accel.zeros(dist.get_world_size(engine.o.group), { dtype = "f64", device = "cpu" })
  dist.all_gather_into_tensor(all, accel.full({ 1 }, norm, { dtype = "f64", device = "cpu" }), { group = engine.o.group })
  return join(all:tolist(), p)
end

--- Gradients whole, in the order of the parameters, clipped as one rank does and cut again: the same bits on any number of
--- ranks, for deterministic = "world".
local function clip_whole(engine, params, max_norm, p)
  local _ <close> = accel.no_grad()
  local whole, list = {}, {}
  for _, unit in ipairs(engine.order) do
    local part = accel.zeros(unit.part, { dtype = unit.master })
    for i, piece in ipairs(unit.pieces) do
      if piece and piece.grad then unit:piece_of(part, i):copy_(piece.grad) end
    end
    local all = accel.empty(unit.count, { dtype = unit.master })
    dist.all_gather_into_tensor(all, part, { group = unit.group })
    whole[unit] = all
  end
  for _, param in ipairs(params) do
    local place = owners.of[param]
    if engine.has[engine.number[param]] > 0 then
      local unit, i = place.unit, place.i
      list[#list + 1] = whole[unit]:narrow(1, unit.offsets[i] + 1, unit.numels[i]):view(param.shape)
    end
  end
  local norm = accel.clip_grad_norm_(list, max_norm, { norm_type = p })
  for unit, all in next, whole do
    local part = unit:part_of(all)
    for i, piece in ipairs(unit.pieces) do
      if piece and piece.grad then piece.grad:copy_(unit:piece_of(part, i)) end
    end
  end
  return norm
end

--- Whether all of these are parameters of the engine, named themselves.
local function all_of(engine, params)
  for _, p in ipairs(params) do
    local place = owners.of[p]
    if not place or place.engine ~= engine then return false end
  end
  return engine.has ~= nil
end

--- As nn.utils.clip_grad_norm_, of parameters some of which are sharded. A collective.
---@param params accel.Tensor[] parameters or pieces
---@param max_norm number
---@param opts? {norm_type: number?, error_if_nonfinite: boolean?}
---@return accel.Tensor
function M.norm(params, max_norm, opts)
  local p, pieces, first = opts and opts.norm_type or 2, owners.pieces(params)
  if first.tier and first.tier.overlap then first.tier.overlap:refuse "clip_grad_norm_" end
  deferred.among(pieces)
  if first.counter and all_of(first, params) then return clip_whole(first, params, max_norm, p) end
  local of, engines, rest, wide = {}, { first }, {}, false
  of[first] = {}
  for _, piece in ipairs(pieces) do
    wide = wide or piece.dtype == "f64"
    local engine = owners.engine_of[piece]
    if not engine then
      rest[#rest + 1] = piece
    else
      if not of[engine] then engines[#engines + 1], of[engine] = engine, {} end
      table.insert(of[engine], piece)
    end
  end
  local norms = { norm_here(grads_of(rest), p) }
  for _, engine in ipairs(engines) do
    norms[#norms + 1] = norm_over(engine, norm_here(grads_of(of[engine]), p), p)
  end
  local norm = join(norms, p)
  if opts and opts.error_if_nonfinite and (norm ~= norm or norm == math.huge) then
    raise("clip_grad_norm_: the norm of the gradients is %s; they were not clipped", tostring(norm))
  end
  local grads = grads_of(pieces)
  local factor = max_norm / (norm + 1e-6) -- NaN propagates, as on one rank
  if #grads > 0 and grads[1].device == "meta" then factor = 0.5 end -- a dry run has no norm, and foretells the memory of clipping
  if #grads > 0 and max_norm < math.huge and not (factor >= 1) then
    local _ <close> = accel.no_grad()
    local at = grads[1].device
    deferred.each(grads, function(list)
      accel.amp_foreach_unscale_(list, accel.zeros({}, { device = at }), accel.full({}, factor, { dtype = "f64", device = at }))
    end)
    core.spend(grads)
  end
  return accel.full({}, norm, { dtype = wide and "f64" or "f32" })
end

return M
