--- The memory of a reducer's gradients: its buckets, and the order of parameters in them. Part of accel.dist.Reducer,
--- installed by reducer.lua.
local accel = require "accel"
local buckets = require "accel.dist.buckets"
local dist = require "accel.dist"
local flat = require "accel.dist.flat"
local gaps = require "accel.dist.gaps"

return function(Reducer)
  --- Puts the parameters into buckets: the first time into new memory, later into the same. Gradients move along.
  function Reducer:lay_out(lists)
    local _ <close> = accel.no_grad()
    local params, kept = self.params, {}
    local places, kinds = buckets.place(lists, params)
    if not self.flats then
      self.flats = {}
      for kind, k in accel.pairs(kinds) do
        self.flats[kind] = accel.unscoped(flat, k.count, k.dtype, k.device)
        self.flats[kind]:zero_()
      end
      if self.o.world then self:count_in(self.flats) end
    else
      for i, p in ipairs(params) do
        if p.grad == self.views[i] then
          kept[i] = p.grad:clone()
          p.grad = nil
        end
      end
      for _, t in next, self.flats do t:zero_() end
    end
    self.layout, self.buckets = self.layout + 1, {}
    for k, list in ipairs(lists) do
      local place = places[k]
      local b = {
        position = k, n = #lists, list = list, params = {}, views = {}, offsets = place.offsets, scratch = {},
        layout = self.layout, kind = place.kind, offset = place.offset,
        flat = accel.unscoped(accel.narrow, self.flats[place.kind], 1, place.offset + 1, place.count),
      }
      for j, i in ipairs(list) do
        local p = params[i]
        b.params[j] = p
        b.views[j] = accel.unscoped(function()
          return b.flat:narrow(1, place.offsets[j] + 1, p:numel()):view(p.shape)
        end)
        self.views[i], self.bucket_of[i] = b.views[j], b
        if self.o.as_view then p:set_grad_slot_(b.views[j]) end
        if kept[i] then
          b.views[j]:copy_(kept[i])
          p.grad = b.views[j]
        end
      end
      self.buckets[k] = b
    end
  end

  --- Zeroes the bytes between the gradients of a bucket, after a hook may have written to all of it.
  function Reducer:clear_gaps(b)
    if not b.gaps then
      local numels = {}
      for j, p in ipairs(b.params) do numels[j] = p:numel() end
      b.gaps = gaps(b.flat, b.offsets, numels)
    end
    for _, gap in ipairs(b.gaps) do gap:zero_() end
  end

  --- Puts the parameters into buckets in the order in which their gradients came, rank 0's, which the others take
  --- over: then the first buckets are complete first.
  function Reducer:rebuild()
    local order, seen = self.order or {}, {}
    self.order, self.rebuilt = nil, true
    for _, i in ipairs(order) do seen[i] = true end
    for i = self.n, 1, -1 do
      if not seen[i] then order[#order + 1] = i end
    end
    if self.size > 1 then
      local t = accel.tensor(order, { dtype = "i64", device = "cpu" })
      dist.broadcast(t, { group_src = 0, group = self.o.group })
      order = t:tolist()
    end
    local same, at = true, 0
    for _, b in ipairs(self.buckets) do
      for _, i in ipairs(b.list) do
        at = at + 1
        same = same and order[at] == i
      end
    end
    if not same then self:lay_out(buckets.assign(order, self.params, self.o.first, self.o.cap)) end
  end
end
