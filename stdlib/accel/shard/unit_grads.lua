--- Gradients of a flat unit: accumulated by a backward into `grads`, flat as the parameters, in memory that local ranks map. Once
--- they are reduced, the own part's mean becomes the pieces' ->grad. Part of accel.shard.Unit, installed by unit.lua.
---
--- Three dtypes: `grad_dtype`, in which a backward adds up, the wider one of the parameters' and the reduction's. `wire`, in
--- which ranks add up. And the own part's (master), the dtype of the pieces' gradients.
local accel = require "accel"
local deferred = require "accel.nn.deferred"
local flat = require "accel.dist.flat"
local gaps = require "accel.dist.gaps"

local unscoped = accel.unscoped

local RANK <const> = { f64 = 3, f32 = 2, f16 = 1, bf16 = 1 }

--- The dtype that holds the values of both.
local function wider(a, b)
  if a == b then return a end
  local x, y = RANK[a] or 3, RANK[b] or 3
  return x > y and a or y > x and b or "f32"
end

return function(Unit)
  --- Sets the dtypes of gradients: the given one for the reduction, or the parameters'.
  function Unit:set_grad_dtypes(reduce)
    self.wire = reduce or self.dtype
    self.grad_dtype = wider(self.dtype, self.wire)
  end

  --- The gradients of all parameters in the dtype in which ranks add up.
  ---@param t accel.Tensor
  ---@return accel.Tensor
  function Unit:to_wire(t)
    if t.dtype == self.wire then return t end
    return unscoped(function() return flat(self.count, self.wire, self.device):copy_(t) end)
  end

  --- Makes room for the gradients of a backward: parameters accumulate straight into it.
  function Unit:open_grads()
    if self.grads then return self:move_reduced() end
    local _ <close> = accel.no_grad()
    self.grads = unscoped(flat, self.count, self.grad_dtype, self.device)
    self:clear_gaps(self.grads, 0)
    self.views = {}
    for i, p in ipairs(self.params) do
      self.views[i] = unscoped(function()
        local place <close> = self.grads:narrow(1, self.offsets[i] + 1, self.numels[i])
        return place:view(p.shape)
      end)
      p:set_grad_slot_(self.views[i])
    end
  end

  --- Sets the gaps of a flat tensor to zero. from: the start of t in the unit.
  ---@param t accel.Tensor
  ---@param from? integer [the start of the own part]
  function Unit:clear_gaps(t, from)
    for _, gap in ipairs(gaps(t, self.offsets, self.numels, from or self.rank * self.part)) do
      gap:zero_()
      gap:release()
    end
  end

  --- Moves reduced gradients out of `grads` before another backward.
  function Unit:move_reduced()
    if self.reduced_in_place and self:has_reduced() then
      local copy = unscoped(self.reduced.clone, self.reduced)
      self:hand_out(copy, false)
    end
    self.reduced_in_place = false
  end

  --- Whether a piece still has the gradient that was reduced before.
  function Unit:has_reduced()
    if not self.reduced then return false end
    for _, piece in ipairs(self.pieces) do
      if piece and piece.grad ~= nil then return true end
    end
    return false
  end

  --- Gives back the memory of gradients that were reduced, at once: the handles are this unit's own.
  function Unit:close_grads()
    for i, p in ipairs(self.params) do
      p.grad = nil
      p:set_grad_slot_(nil)
      self.views[i]:release()
    end
    self.grads:release()
    self.grads, self.views = nil, nil
  end

  --- Copies parameter i's gradient into its place, or zeros if there is none. Returns whether there was one.
  function Unit:collect(i)
    local p, view = self.params[i], self.views[i]
    local g = p.grad
    if g == nil then
      view:zero_()
    elseif g ~= view then
      view:copy_(g)
    end
    if g == nil then return false end
    g:release() -- this handle
    return true
  end

  --- The pieces' gradients become views of t, as long as the own part. all: also of pieces that have none.
  function Unit:hand_out(t, all)
    self.reduced = t
    for i, piece in ipairs(self.pieces) do
      if piece and (all or piece.grad ~= nil) then piece.grad = self:piece_of(t, i) end
    end
  end

  --- The own part's mean gradient has arrived: it is added to the pieces' gradients, or becomes them.
  ---@param mean accel.Tensor as long as the own part
  ---@param in_place boolean it may stay in its present memory
  ---@param used (fun(i: integer): boolean) whether any rank has a gradient for parameter i
  function Unit:take(mean, in_place, used)
    local _ <close> = accel.no_grad()
    if self:has_reduced() then
      local pieces = {}
      for _, piece in ipairs(self.pieces) do pieces[#pieces + 1] = piece or nil end
      deferred.among(pieces)
      for i, piece in ipairs(self.pieces) do
        if piece and used(i) then
          local new = self:piece_of(mean, i)
          if piece.grad == nil then
            piece.grad = unscoped(new.clone, new)
          else
            piece.grad:add_(new)
          end
        end
      end
      return
    end
    if not in_place then mean = unscoped(mean.clone, mean) end
    self:hand_out(mean, true)
    self.reduced_in_place = in_place
    for i, piece in ipairs(self.pieces) do
      if piece and not used(i) then piece.grad = nil end
    end
  end

  --- Drops all gradients.
  function Unit:drop_grads()
    for i, p in ipairs(self.params) do
      p.grad = nil
      if self.pieces[i] then self.pieces[i].grad = nil end
    end
    self.reduced = nil
  end
end
