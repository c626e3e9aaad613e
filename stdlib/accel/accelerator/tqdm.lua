--- tqdm(x): progress over a loop or a number of steps, shown on the first process of every machine only, by
--- accel.util.Progress. The loop itself runs on every rank.
---
---   for batch in tqdm(loader, { desc = "train" }) do ... end
---   local bar <close> = tqdm(1000)
---   bar:update(1) bar:set_postfix { loss = loss:item() }
local Progress = require "accel.util.progress"
local check = require "accel.util.check"
local class = require "accel.util.class"
local loop = require "accel.util.loop"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"

local none <const> = options.none

local declared = {
  main_process_only = true, total = none, desc = "", unit = "it", disable = false, out = none, interactive = none,
  every = 10, width = none, utf8 = none,
}

---@class accel.accelerator.Bar
---@field n number steps done
---@field total number? steps there are
local Bar = class("accel.accelerator.Bar")

function Bar:init(o, total, step)
  self.n, self.total, self.step = 0, total, step
  if o.disable or (o.main_process_only and not require("accel.accelerator.state").PartialState().is_local_main_process)
  then return end
  self.progress = Progress {
    label = o.desc, unit = o.unit, out = o.out, interactive = o.interactive, every = o.every, width = o.width,
    utf8 = o.utf8,
  }
end

local function show(self, force)
  local progress = self.progress
  if not progress or not (force or progress:due()) then return end
  progress:update(self.total and self.total > 0 and self.n / self.total or 0, self.n, self.figures)
end

--- Counts steps.
---@param n? number 1
function Bar:update(n)
  self.n = self.n + (n or 1)
  show(self)
end

--- Values next to the bar, by name.
---@param figures table<string, any>
function Bar:set_postfix(figures)
  self.figures = {}
  for name, value in ordered.iterate(figures) do self.figures[#self.figures + 1] = { name, value } end
end

--- A separate line above the bar.
---@param text string
function Bar:write(text)
  if self.progress then self.progress:log(text) end
end

--- Ends the bar, and the loop below it.
function Bar:close(failure)
  local closing = self.closing
  self.closing = nil
  if closing ~= nil then
    local meta = debug.getmetatable(closing)
    if meta and meta.__close then meta.__close(closing, failure) end
  end
  if not self.progress then return end
  show(self, true)
  self.progress:finish()
  self.progress = nil
end

Bar.__close = Bar.close

--- A step is done when the next one is asked for.
local function counted(self, first, ...)
  self.control = first
  if self.begun then self:update(1) end
  self.begun = true
  if first == nil then
    self.total = self.total or self.n
    self:close()
    return nil
  end
  return first, ...
end

--- The next values of the loop below.
function Bar.__call(self)
  if not self.step then raise "tqdm: this bar counts by hand, it is not a loop" end
  return counted(self, self.step(self.state, self.control))
end

local function is_options(x)
  if type(x) ~= "table" or getmetatable(x) ~= nil or next(x) == nil then return false end
  for key in next, x do
    if declared[key] == nil then return false end
  end
  return true
end

local function length(x)
  local meta = debug.getmetatable(x)
  if type(meta) ~= "table" or not meta.__len then return nil end
  local ok, n = pcall(function() return #x end)
  return ok and n or nil
end

--- A bar over x: a loader, or any callable that begins a pass; a list, whose items it visits; an iterator function with
--- its arguments for `for`; a number, for 1 .. n in a loop, or for steps that bar:update counts. Options, last:
--- main_process_only, total, desc, unit, disable, and those of accel.util.Progress.
--- example: local n = 0 for x in accel.accelerator.tqdm({ 5, 6 }, { disable = true }) do n = n + x end return n --> 11
---@param x any
---@param ... any
---@return accel.accelerator.Bar
---@return any ...
return function(x, ...)
  if type(x) == "boolean" then
    raise "tqdm: main_process_only is an option now: tqdm(loader, { main_process_only = true })"
  end
  local n, given = select("#", ...), nil
  local rest = { ... }
  if n > 0 and (is_options(rest[n]) or type(x) ~= "function") then
    given = rest[n]
    if type(given) == "boolean" then raise "tqdm: options must be a table, { main_process_only = true }" end
    rest[n] = nil
  end
  local o = options("tqdm", given, declared)
  local total, step, state, control, closing = o.total, nil, nil, nil, nil
  if type(x) == "number" then
    total = total or check.count("tqdm", "x", x)
    step = function(_, i) if (i or 0) < x then return (i or 0) + 1 end end
  elseif type(x) == "function" then
    step, state, control, closing = x, rest[1], rest[2], rest[3]
  elseif type(x) == "table" and (debug.getmetatable(x) or {}).__call then
    total = total or length(x)
    step, state, control, closing = x()
  elseif type(x) == "table" then
    local i, item = 0, class.of(x) and x.get or function(list, k) return list[k] end
    total = total or #x
    step = function()
      i = i + 1
      if i <= total then return item(x, i) end
    end
  elseif x ~= nil then
    raise("tqdm: expected loader, list, iterator or number, got %s", check.shown(x))
  end
  local bar = Bar(o, total, step)
  bar.state, bar.control, bar.closing = state, control, closing
  if step then loop.drive(step, bar) end
  return loop.iterator(bar, function(failure) bar:close(failure) end)
end
