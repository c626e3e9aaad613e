--- The order in which a rank gathers its units, and the lines. On a mismatch, one line lists each rank's unit and line. Used by
--- accel.shard.engine, whose backward compares the sums at its end.
local caller = require "accel.util.caller"
local dist = require "accel.dist"
local raise = require "accel.util.raise"

local M = {}

--- Gathers that are remembered, from the beginning of a step.
local MOST <const> = 4096

---@class accel.shard.Order
---@field sum integer of all that were gathered, in their order
local Order = {}
Order.__index = Order

---@return accel.shard.Order
function M.new() return setmetatable({ sum = 0, n = 0, units = {}, lines = {} }, Order) end

--- The innermost line of the script that runs.
local function line_here()
  local info = caller()
  return info and ("%s:%d"):format(info.short_src:match "[^/]*$", info.currentline) or "?"
end

--- A unit is gathered.
---@param unit accel.shard.Unit
function Order:note(unit)
  self.sum = (self.sum * 31 + unit.at) & 0x3fffffff
  if self.n == MOST then return end
  self.n = self.n + 1
  self.units[self.n], self.lines[self.n] = unit.at, line_here()
end

--- A step is over.
function Order:reset() self.sum, self.n = 0, 0 end

--- Raises on a mismatch, on all ranks, with the first unit that differs, and the lines that needed it.
---@param engine accel.shard.Engine
function Order:differs(engine)
  local own = { units = table.move(self.units, 1, self.n, 1, {}), lines = table.move(self.lines, 1, self.n, 1, {}) }
  self:reset()
  local all, where = dist.all_gather_object(own, { group = engine.o.group }), ""
  local function shown(rank, i)
    local unit = engine.units[all[rank].units[i]]
    if not unit then return ("rank %d nothing more"):format(rank - 1) end
    return ("rank %d gathered '%s' (%s)"):format(rank - 1, unit.name, all[rank].lines[i])
  end
  for i = 1, MOST do
    local other
    for rank = 2, #all do
      if all[rank].units[i] ~= all[1].units[i] then other = other or rank end
    end
    if other then
      where = (" (%d. of the step: %s, %s)"):format(i, shown(1, i), shown(other, i))
      break
    end
    if not all[1].units[i] then break end
  end
  raise("%s: ranks gathered different units since the step before, so that each got bytes of another's%s: with cut parameters all ranks run"
    .. " the same modules in the same order", engine.who, where)
end

return M
