--- nn.Trained(module, ignored): the parameters that a model had when ranks began to share it, to compare with those that it has
--- now. Wrappers of nn.parallel and the Accelerator ask before every forward that learns.
---
--- A comparison without a change costs a few table accesses per field of the tree and one pass in C over the flags: assignments over
--- raw fields pass no metamethod, so that no counter could see them all. Only if a field or a flag differs is the tree walked and
--- compared by identity, name, requires_grad, shape, dtype and device.
local divided = require "accel.nn.divided"
local class = require "accel.util.class"
local core = require "accel.optim.core"
local dist = require "accel.dist"
local parameter = require "accel.nn.parameter"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local verify = require "accel.dist.verify"

---@class accel.nn.Trained
---@field entries {name: string, p: accel.Tensor, learns: boolean, shape: string, kind: string}[] in the order of registration
local Trained = class("accel.nn.Trained")

-- Parameters that a shared model has had, as keys. A module that is replaced leaves its own in optimizers.
Trained.held = setmetatable({}, { __mode = "k" })

---@param module accel.nn.Module
---@param ignored? table<accel.Tensor, any> keys: parameters that are not compared
function Trained:init(module, ignored)
  self.module, self.ignored = module, setmetatable({}, { __mode = "k" })
  for p in next, ignored or {} do self.ignored[p] = true end
  self:take()
end

--- Notes the locations of the tree's parameters and modules. Fields that hold false are places that a module or a parameter may
--- take without being seen.
local function note_fields(self)
  local fields, orders, n = {}, {}, 0
  for _, module in ipairs(self.module:modules()) do
    module = module:_itself()
    orders[#orders + 1], orders[#orders + 2] = module._order, #module._order
    local kept = rawget(module, "_tensors")
    for key, value in next, module do
      if value == false or type(value) == "table" and module._kinds[key] == "module" then
        fields[n + 1], fields[n + 2], fields[n + 3], n = module, key, value, n + 3
      end
    end
    for key, value in next, kept or {} do
      if module._kinds[key] == "parameter" then fields[n + 1], fields[n + 2], fields[n + 3], n = kept, key, value, n + 3 end
    end
  end
  self.fields, self.orders = fields, orders
end

local function entries_of(self)
  local list = {}
  for name, p in pairs(self.module:named_parameters()) do
    if not self.ignored[p] then
      local kind = ("%s on %s"):format(p.dtype, p.device)
      list[#list + 1] = { name = name, p = p, learns = p.requires_grad, shape = tensors.shape_string(p), kind = kind }
    end
  end
  return list
end

--- Takes the parameters that the model has now as those to compare with.
function Trained:take()
  self.entries, self.conversions = entries_of(self), parameter.conversions
  note_fields(self)
  self.learning, self.frozen = {}, {}
  for _, e in ipairs(self.entries) do
    local list = e.learns and self.learning or self.frozen
    list[#list + 1] = e.p
    Trained.held[e.p] = true
  end
end

local function touched(self)
  if self.conversions ~= parameter.conversions then return true end
  local fields, orders = self.fields, self.orders
  for i = 1, #fields, 3 do
    if fields[i][fields[i + 1]] ~= fields[i + 2] then return true end
  end
  for i = 1, #orders, 2 do
    if #orders[i] ~= orders[i + 1] then return true end
  end
  return core.other(self.learning, true) ~= nil or core.other(self.frozen, false) ~= nil
end

--- Whether a module converted or moved a parameter. Units of sharded models choose the dtypes of theirs, and Module:to leaves these alone.
local function converted(was, is)
  local owners = divided.owners
  return was.kind ~= is.kind and not (owners and owners.of[is.p])
end

--- The difference between a parameter and its notes.
local function difference(was, is)
  if not was then return ("'%s' is new"):format(is.name) end
  if was.name ~= is.name then return ("'%s' is called '%s' now"):format(was.name, is.name) end
  if was.learns ~= is.learns then return ("'%s' %s"):format(is.name, is.learns and "learns now" or "is frozen now") end
  if was.shape ~= is.shape then return ("'%s' has shape %s, it had %s"):format(is.name, is.shape, was.shape) end
  if converted(was, is) then return ("'%s' is %s now, it was %s"):format(is.name, is.kind, was.kind) end
end

--- Changes since `take`, one line per parameter, or nil. The field `others` of the list: not flags alone, there are other parameters or
--- names.
---@return {others: boolean, [integer]: string}?
function Trained:changes()
  if not touched(self) then return nil end
  local before, lines = {}, {}
  for _, e in ipairs(self.entries) do before[e.p] = e end
  local now = entries_of(self)
  lines.others = false
  for _, e in ipairs(now) do
    local was = before[e.p]
    lines[#lines + 1] = difference(was, e)
    lines.others = lines.others or not was or was.name ~= e.name or was.shape ~= e.shape or converted(was, e)
    before[e.p] = nil
  end
  for _, e in ipairs(self.entries) do
    if before[e.p] then lines[#lines + 1], lines.others = ("'%s' is gone"):format(e.name), true end
  end
  if #lines > 0 then return lines end
  note_fields(self) -- of other modules only
  self.conversions = parameter.conversions
end

local SHOWN <const> = 8

--- The parameters as ranks have to agree on them, one line each.
---@return string[]
function Trained:lines()
  local lines = {}
  for i, e in ipairs(self.entries) do
    lines[i] = ("'%s' %s %s%s"):format(e.name, e.p.dtype, e.shape, e.learns and "" or " frozen")
  end
  return lines
end

--- Takes the model's present parameters. Returns the new ones.
---@return accel.Tensor[]
function Trained:renew()
  local known, fresh = {}, {}
  for _, e in ipairs(self.entries) do known[e.p] = true end
  self:take()
  for _, e in ipairs(self.entries) do fresh[#fresh + 1] = not known[e.p] and e.p or nil end
  return fresh
end

--- Some of the lines of `changes`, for messages.
---@param lines string[]
---@return string
function Trained.shown(lines)
  local text = table.concat(lines, ", ", 1, math.min(#lines, SHOWN))
  return #lines > SHOWN and ("%s ... (%d in all)"):format(text, #lines) or text
end

--- Compares the changes of all ranks. Only ranks with a change call this collective. If others have none, the descriptor of their
--- next collective differs, and its error is raised with the names.
---@param who string
---@param changes string[]
---@param lines string[] the parameters, as the ranks have to agree on them
---@param group any
function Trained.agree(who, changes, lines, group)
  local ok, message = pcall(verify, who, "parameter", lines, "change them alike on all of them, before the same forward", group)
  if ok then return end
  raise("%s: the trained parameters changed on rank %d: %s; every rank must make the same change before the same forward (%s)", who,
    dist.get_rank(), Trained.shown(changes), tostring(message))
end

return Trained
