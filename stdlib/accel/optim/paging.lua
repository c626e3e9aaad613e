--- States of optimizers that are away between steps (blockwise.lua): their home is host memory or a file, and a step brings them to the
--- parameters' device, some parameters at a time, so that never more than a budget of bytes is there.
---
--- The tiers of accel.offload do the rest: a step's order is known from the previous step, so that the next states are fetched while
--- the device computes, and written ones move home when their room is needed.
local accel = require "accel"
local creation = require "accel.offload.creation"
local class = require "accel.util.class"
local raise = require "accel.util.raise"
local Tiers = require "accel.offload.tiers"

local unscoped = accel.unscoped
local SMALLEST <const> = 100000 -- elements of a parameter whose states are paged, as in bitsandbytes
local BUDGET <const> = 64 << 20

---@class accel.optim.Paging
---@field budget integer bytes of states that may be on the device
local Paging = class("accel.optim.Paging")

--- Takes the options of paging out of an optimizer's: the others, and these.
---@param who string
---@param opts table?
---@return table? others
---@return {folder: string?, budget: integer?} own
function Paging.options(who, opts)
  if type(opts) ~= "table" then return opts, {} end
  local others, own = {}, {}
  for key, value in next, opts do others[key] = value end
  own.folder, own.budget, others.page_folder, others.page_budget = opts.page_folder, opts.page_budget, nil, nil
  if own.folder ~= nil and (type(own.folder) ~= "string" or own.folder == "") then
    raise("%s: page_folder is the folder for the file of states, got %s", who, tostring(own.folder))
  end
  if own.budget ~= nil and (math.type(own.budget) ~= "integer" or own.budget < 1) then
    raise("%s: page_budget must be a positive number of bytes, got %s", who, tostring(own.budget))
  end
  return others, own
end

--- Whether states on a device are paged: on the CPU and on meta, paging needs a folder. Without one it warns once.
---@param who string
---@param device string
---@param own {folder: string?, budget: integer?, told: boolean?}
---@return boolean
function Paging.pages(who, device, own)
  if own.folder or device ~= "cpu" and device ~= "meta" then return true end
  if not own.told then warn(("%s: states on %s are not paged; give page_folder, a folder for their file"):format(who, device)) end
  own.told = true
  return false
end

function Paging:init(who, device, own)
  local phantom = device == "meta"
  self.budget = own.budget or BUDGET
  self.tiers = Tiers { budget = self.budget, phantom = phantom }
  self.store = own.folder and creation.file_in(who, "states", own.folder, phantom) or nil
  if self.store and not phantom then self.tiers.files = { [own.folder] = self.store } end -- counted in stats
end

--- Zeros with a home outside the device, or in its memory if the parameter is small.
---@param shape integer[]
---@param dtype string
---@param device string
---@return accel.Tensor
function Paging:zeros(shape, dtype, device)
  local n = 1
  for _, d in ipairs(shape) do n = n * d end
  if n < SMALLEST then return accel.zeros(shape, { dtype = dtype, device = device }) end
  if self.store then return self.tiers:in_file(device, self.store, shape, dtype) end
  return self.tiers:in_host(device, shape, dtype):zero_()
end

--- Bytes of the states of a parameter that are paged.
local function bytes_of(step_group, states, i)
  local bytes = 0
  for s = 1, states do
    local t = step_group["state" .. s][i]
    if t:numel() >= SMALLEST then bytes = bytes + t:numel() * t:element_size() end
  end
  return bytes
end

--- Ranges {first, last} of a step group's parameters: half the budget each, so that the next states come while these are in use.
function Paging:batches(step_group, states)
  local out, first, sum = {}, 1, 0
  for i = 1, #step_group.params do
    local bytes = bytes_of(step_group, states, i)
    if i > first and sum + bytes > self.budget // 2 then
      out[#out + 1] = { first, i - 1 }
      first, sum = i, 0
    end
    sum = sum + bytes
  end
  out[#out + 1] = { first, #step_group.params }
  return out
end

--- Calls step(part, grads, number, drawn) for each batch of a step group, with numbers of the step that count as one: number is the step's,
--- drawn the elements, in whole blocks, of the parameters before.
---@param step_group table
---@param grads accel.Tensor[]
---@param states integer
---@param block integer
---@param step fun(part: table, grads: accel.Tensor[], number: accel.Tensor, drawn: integer)
function Paging:each(step_group, grads, states, block, step)
  local list = self:batches(step_group, states)
  local start, random, drawn = step_group.step, accel.get_rng_state(), 0
  local before = #list > 1 and unscoped(start.clone, start) or nil
  for k, range in ipairs(list) do
    local part, some = {}, table.move(grads, range[1], range[2], 1, {})
    for _, name in ipairs { "params", "state1", "absmax1", "state2", "absmax2", "state3", "absmax3" } do
      if step_group[name] then part[name] = table.move(step_group[name], range[1], range[2], 1, {}) end
    end
    if k > 1 then accel.set_rng_state(random) end
    local number = k == #list and start or before:clone()
    step(part, some, number, drawn)
    for _, p in ipairs(part.params) do drawn = drawn + (p:numel() + block - 1) // block * block end
  end
end

--- A step begins: fetches the first states it uses.
function Paging:pass() self.tiers:pass() end

--- Bytes moved, waits and present bytes on the device, as in accel.offload's Tiers.
---@return table
function Paging:stats() return self.tiers:stats() end

return Paging
