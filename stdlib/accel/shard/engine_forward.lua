--- When units are gathered whose parameters are cut and lie on several machines or processes without common memory. Part of
--- accel.shard.Engine, installed by engine.lua.
local accel = require "accel"

local function nothing() end

return function(Engine)
  --- Whether a backward is running.
  function Engine.in_backward() return (pcall(accel.queue_callback, nothing)) end

  --- Units gather before the forward of their module and reshard after it. A module that uses a tied parameter of
  --- another unit gathers that one as well.
  function Engine:add_module_hooks(model, units)
    local weak = setmetatable({ self }, { __mode = "v" })
    local at_of = {}
    for _, handle in ipairs(self.module_handles or {}) do handle:remove() end
    local handles = {}
    self.module_handles = handles
    for at, u in ipairs(units) do
      for _, p in ipairs(u.params) do at_of[p] = at end
    end
    for at, u in ipairs(units) do
      local needs, seen = { at }, { [at] = true }
      for _, p in accel.pairs(u.elsewhere) do
        local other = at_of[p]
        if other and not seen[other] then needs[#needs + 1], seen[other] = other, true end
      end
      table.sort(needs)
      handles[#handles + 1] = u.module:register_forward_pre_hook(function()
        if weak[1] then weak[1]:enter(needs) end
      end, { prepend = true })
      handles[#handles + 1] = u.module:register_forward_hook(function()
        if weak[1] then weak[1]:leave(needs, u.module == model) end
      end)
    end
  end

  function Engine:enter(needs)
    for _, at in ipairs(needs) do
      self.active[at] = (self.active[at] or 0) + 1
      for _, unit in ipairs(self.units_of[at]) do unit:gather() end
    end
    if (self.o.forward_prefetch or (self.tier and self.tier.parameters)) and not self.in_backward() then self:prefetch_forward(needs[1]) end
  end

  --- Begins to bring the unit that came next in the first forward. That order is learnt in the meantime.
  function Engine:prefetch_forward(at)
    local after = self.forward_after
    if not after then
      self.forward_after, self.forward_last = {}, at
    elseif not self.forward_learnt then
      after[self.forward_last] = after[self.forward_last] or at
      self.forward_last = at
    elseif after[at] and after[at] ~= at then
      for _, unit in ipairs(self.units_of[after[at]]) do unit:start_gather() end
    end
  end

  --- After a unit's forward. The root stays gathered for the backward, which begins with it. Without gradients nothing
  --- stays gathered.
  function Engine:leave(needs, root)
    for _, at in ipairs(needs) do self.active[at] = math.max(0, (self.active[at] or 0) - 1) end
    if root then self.forward_learnt = self.forward_after ~= nil end
    if self.in_backward() then return end -- computed again: the backward needs it next
    if accel.is_grad_enabled() and (root or not self.o.reshard) then return end
    for _, at in ipairs(needs) do
      for _, unit in ipairs(self.active[at] == 0 and self.units_of[at] or {}) do unit:reshard() end
    end
  end

  --- An op of a backward asks for a unit. All of its module come, since ranks may ask for different ones of a mixture of experts.
  --- The next ones in the order of backwards begin to come: one, or as many as the option zero.prefetch has elements.
  function Engine:gather_in_backward(unit)
    local siblings = self.units_of[unit.module_at]
    for _, sibling in ipairs(#siblings > 1 and siblings or {}) do sibling:start_gather() end
    for _, sibling in ipairs(siblings) do sibling:gather() end
    if self.o.backward_prefetch ~= "BACKWARD_PRE" then return end
    local zero, ahead, count = self.o.zero, siblings.next, 0
    local most = zero and zero.prefetch
    while ahead and (most == nil or most > 0) do
      count = count + ahead.count
      ahead:start_gather()
      if most == nil or count >= most then break end
      ahead = ahead.follows
    end
  end

  --- All units free their gathered parameters.
  function Engine:reshard()
    for _, unit in ipairs(self.units) do unit:reshard() end
  end
end
