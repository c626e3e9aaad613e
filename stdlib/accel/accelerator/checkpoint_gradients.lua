--- Gradients of an update that was incomplete when a state was saved. Every rank has its own sums. They are stored as
--- logical tensors of shape (ranks, ...), ranks being those that write a checkpoint, of which each writes its row, so that
--- another number of ranks shares them out. Gradients that a sharded model has already averaged over ranks (backwards
--- outside no_sync) are stored as `reduced.<name>`, in the ranges that ranks hold. Used by checkpoint_content.lua and
--- checkpoint_load.lua.
local accel = require "accel"
local dist = require "accel.dist"
local model_part = require "accel.ckpt.model"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local writing = require "accel.ckpt.write"

local M = {}

local WEIGHT <const>, COUNTS <const>, REDUCED <const> = "update.weight", "update.counts", "reduced."

--- How labels weight the micro-steps of an update so far: three numbers, the same on all ranks. nil if the update has no label
--- counts.
local function counts_of(accelerator)
  local update = accelerator._update
  if not update.joined then return nil end
  local function number(x) return accel.is_tensor(x) and x:item() or x end
  return { number(update.total), update.steps, number(update.first or 1) }
end

local function sharded() return package.loaded["accel.shard.owners"] and require "accel.shard.checkpoint" end

--- The position of a parameter that is sharded over ranks, or nil.
local function place_of(p) return sharded() and package.loaded["accel.shard.owners"].of[p] end

--- This rank's part of a sharded parameter's gradient, averaged over ranks, or nil.
local function piece_of(p)
  local place = place_of(p)
  return place and place.unit.pieces[place.i] or nil
end

--- Parameters of prepared models by name, each once: name -> { parameter, reducer or nil, position in it }.
local function parameters(accelerator)
  local out = ordered()
  for m, model in ipairs(accelerator._prepared.models) do
    local reducer, position = rawget(model, "reducer"), {}
    for i, p in ipairs(reducer and reducer.params or {}) do position[p] = i end
    for name, p in accelerator:unwrap_model(model):named_parameters() do
      if p.requires_grad then out[("%d.%s"):format(m - 1, name)] = { p, reducer, position[p] } end
    end
  end
  return out
end

--- Whether an update is under way: backwards came whose gradients no step has used.
---@param accelerator accel.Accelerator
---@return boolean
function M.pending(accelerator)
  local update = accelerator._update
  return not update.closed and update.n > 0
end

--- Rows of one tensor in the whole.
local function row(name, t, ranks, rank)
  local shape, offsets = { ranks }, { rank }
  for d, n in ipairs(t.shape) do shape[d + 1], offsets[d + 1] = n, 0 end
  return { name = name, tensor = t:detach():contiguous():unsqueeze(1), shape = shape, offsets = offsets }
end

--- The entries of this rank. A collective during an update.
---@param accelerator accel.Accelerator
---@return table[]
function M.entries(accelerator)
  local list, rank, ranks = {}, writing.parts(accelerator)
  if accelerator._prepared:counts_micro_batches() then
    raise 'save_state: deterministic = "world" cannot save inside an update; save when accelerator.sync_gradients is true'
  end
  local all, present = parameters(accelerator), {}
  for name, entry in ordered.iterate(all) do
    local p = entry[1]
    local piece = piece_of(p)
    present[name] = p.grad ~= nil or nil
    if piece and piece.grad ~= nil then sharded().add_state(list, accelerator, place_of(p), REDUCED .. name, piece.grad:detach()) end
  end
  for _, names in ipairs(accelerator.num_processes > 1 and dist.all_gather_object(present) or {}) do
    for name in next, names do present[name] = true end
  end
  for name, entry in ordered.iterate(all) do
    if present[name] then list[#list + 1] = row(name, entry[1].grad or accel.zeros_like(entry[1]), ranks, rank) end
  end
  local update = accelerator._update
  local weight = update.weighted and update.sums[update.n] or 0
  list[#list + 1] = row(WEIGHT, accel.full({}, weight, { dtype = "f64", device = "cpu" }), ranks, rank)
  local counts = counts_of(accelerator)
  if counts then list[#list + 1] = row(COUNTS, accel.tensor(counts, { dtype = "f64", device = "cpu" }), ranks, rank) end
  return list
end

--- A gradient of 16 bits whose parameter is held in f32 now.
local function widened(grad, p)
  return model_part.widens(grad.dtype, p.dtype) and accel.unscoped(grad.to, grad, p.dtype) or grad
end

--- Reads the gradients that this rank continues with. On as many ranks as before it reads its own row, else the rows of ranks k with
--- k mod ranks = rank, scaled so that their mean over ranks stays the same. All ranks have the same COUNTS and read the first row of them.
---@param accelerator accel.Accelerator
---@param stored {name: string, shape: integer[], dtype: string}[]
---@param read fun(name: string, tensor: accel.Tensor, offsets: integer[]?)
---@param weighted boolean
---@return table<string, accel.Tensor>
function M.read(accelerator, stored, read, weighted)
  local all, out, rank, ranks = parameters(accelerator), {}, writing.parts(accelerator)
  for _, s in ipairs(stored) do
    local reduced = s.name:sub(1, #REDUCED) == REDUCED
    local own = reduced and s.name:sub(#REDUCED + 1) or s.name
    local entry, n = all[own], s.shape[1]
    local like, sum
    if s.name == COUNTS then
      local first = accel.empty({ 1, 3 }, { dtype = "f64", device = "cpu" })
      read(s.name, first, { 0, 0 })
      out[s.name] = first:squeeze(1)
      goto continue
    end
    if s.name ~= WEIGHT and not entry then raise("a gradient is stored of '%s', which is not a parameter here", own) end
    if reduced then
      local place = place_of(entry[1])
      if not place then
        out[s.name] = accel.empty(entry[1].shape, { dtype = s.dtype, device = entry[1].device })
        read(s.name, out[s.name])
      elseif piece_of(entry[1]) then
        out[s.name] = sharded().read_state(place, s, read)
      end
      goto continue
    end
    like = entry and entry[1] or accel.zeros({}, { dtype = "f64", device = "cpu" })
    for k = rank, n - 1, n == ranks and n or ranks do
      local shape, offsets = { 1 }, { k }
      for d, extent in ipairs(like.shape) do shape[d + 1], offsets[d + 1] = extent, 0 end
      local part = accel.empty(shape, { dtype = s.dtype, device = like.device })
      read(s.name, part, offsets)
      part = widened(part, like)
      sum = sum and sum + part or part
    end
    if not sum then sum = accel.zeros({ 1, table.unpack(like.shape) }, { dtype = like.dtype, device = like.device }) end
    if n ~= ranks and s.name ~= WEIGHT and not weighted then sum = sum * (ranks / n) end
    out[s.name] = sum:squeeze(1)
    ::continue::
  end
  return out
end

--- Gives parameters the gradients of an update under way.
---@param accelerator accel.Accelerator
---@param gradients table<string, accel.Tensor>
---@param weighted boolean
function M.set(accelerator, gradients, weighted)
  local _ <close> = accel.no_grad()
  local update = accelerator._update
  for name, entry in ordered.iterate(parameters(accelerator)) do
    local grad, reduced, p, reducer, i = gradients[name], gradients[REDUCED .. name], entry[1], entry[2], entry[3]
    local place, piece = place_of(p), piece_of(p)
    if reduced and place then
      reduced = widened(reduced, piece)
      piece.grad, place.unit.reduced, reduced = reduced, reduced, nil
    elseif reduced then
      grad = grad and grad + reduced or reduced
    end
    if grad and i then -- the reducer's buffer of sums
      if place then place.unit:open_grads() end
      local view = place and place.unit.views[place.i] or reducer.views[i]
      view:copy_(grad)
      p.grad = view
    elseif grad then
      p.grad = accel.unscoped(grad.clone, grad)
    end
  end
  local counts = gradients[COUNTS]
  update:begin(weighted, accelerator.gradient_state, counts)
  update:add(weighted and gradients[WEIGHT]:item() or nil)
  if counts and update.joined then
    local list = counts:tolist()
    update.total, update.steps, update.first = list[1], math.tointeger(list[2]), accel.full({}, list[3], { dtype = "f64" })
  end
end

return M
