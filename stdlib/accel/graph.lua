--- accel.graph(fn): a training step that the device records once and replays by one call. The first calls run fn unchanged. One of them
--- searches for obstacles to recording. Then fn runs while the device records (ops/core/capture.h), and from there on a call copies the batch
--- into the tensors that the recorded step reads and starts all of its kernels at once. Changing values are in device memory. This module
--- and capture.c update the host's part: counters of generators, optimizers and step boundaries, gradients, versions.
local accel = require "accel.core"
local check = require "accel.util.check"
local class = require "accel.util.class"
local core = require "accel.graph.core"
local is_module = require("accel.nn.module").is_module
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local recording = require "accel.util.recording"
local tensors = require "accel.util.tensors"

--- The result of accel.graph. Call it like the function.
---@class accel.Graph
---@field reason string? why the function runs unrecorded from now on. nil: it does not, or this is not known yet
---@field recorded integer how many times it was recorded
---@field replays integer calls that were replays
local Graph = class "accel.Graph"

local declared <const> = { warmup = 2, shapes = 8 }
local RECORDINGS <const> = 4 -- of one set of shapes: a function that needs more would never stop

---@param fn function
---@param opts? table
function Graph:init(fn, opts)
  local o = options("graph", opts, declared)
  if is_module(fn) then raise "graph: takes the function of a whole step (forward, backward, optimizer), not a model" end
  if type(fn) ~= "function" then raise("graph: expected a function, got %s", check.shown(fn)) end
  self.fn, self.warmup = fn, math.max(check.positive("graph", "warmup", o.warmup), 2)
  self.shapes = check.positive("graph", "shapes", o.shapes)
  self.entries, self.n_entries, self.recorded, self.replays = {}, 0, 0, 0
end

-- ---- arguments and results ----

-- Numbers of objects, which neither look alike, as two models do, nor come again, as addresses do.
local numbers, last_number = setmetatable({}, { __mode = "k" }), 0

--- A value other than a tensor, unique for each value.
local function word(value)
  local kind = type(value)
  if kind == "nil" or kind == "boolean" then return tostring(value) end
  if kind == "number" or kind == "string" then return ("%q"):format(value) end
  if not numbers[value] then
    last_number = last_number + 1
    numbers[value] = last_number
  end
  return kind .. " " .. numbers[value]
end

--- Adds everything that distinguishes one call from the previous one to `key`, and tensors to `list`, in one order.
local function describe(value, key, list)
  if tensors.is_tensor(value) then
    list[#list + 1] = value
    key[#key + 1] = ("%s %s %s%s"):format(value.dtype, value.device, table.concat(value.shape, ","), value.requires_grad and " grad" or "")
  elseif type(value) == "table" and getmetatable(value) == nil then
    key[#key + 1] = "{"
    for name, each in accel.pairs(value) do
      key[#key + 1] = word(name)
      describe(each, key, list)
    end
    key[#key + 1] = "}"
  else
    key[#key + 1] = word(value)
  end
end

--- value with its tensors replaced by fn(tensor), in the order of describe.
local function map(value, fn)
  if tensors.is_tensor(value) then return fn(value) end
  if type(value) ~= "table" or getmetatable(value) ~= nil then return value end
  local out = {}
  for name, each in accel.pairs(value) do out[name] = map(each, fn) end
  return out
end

local function described(...)
  local key, list = {}, {}
  for i = 1, select("#", ...) do describe((select(i, ...)), key, list) end
  key[#key + 1] = ("%s %s %s"):format(accel.is_grad_enabled(), accel.is_autocast_enabled(), accel.get_autocast_dtype())
  return table.concat(key, ";"), list
end

-- ---- optimizers ----

--- The optimizer's part of a recorded step: its states, its trained parameters, and options, all but the learning rate, which is in
--- device memory.
local function options_of(optimizer)
  local words = {}
  for _, group in ipairs(optimizer.param_groups) do
    words[#words + 1] = word(optimizer._private[group]) -- load_state_dict brings other states
    for _, p in ipairs(group.params) do words[#words + 1] = p.requires_grad and "learns" or "-" end
    for name, value in accel.pairs(group) do
      if name ~= "lr" and name ~= "params" and name ~= "initial_lr" then
        if tensors.is_tensor(value) then words[#words + 1] = word(value) else describe(value, words, {}) end
      end
    end
  end
  return table.concat(words, ";")
end

--- The learning rates as they are now, on the device, so that none is put there inside of a run.
local function refresh(stepped)
  for object in next, stepped do
    if object._refresh_lr then object:_refresh_lr() end
  end
end

local function all_options(stepped)
  local words = {}
  for object in next, stepped do
    if object._refresh_lr then words[object] = options_of(object) end
  end
  return words
end

local function same_options(a, b)
  for object, words in next, a do
    if b[object] ~= words then return false end
  end
  return true
end

-- ---- runs ----

--- fn(...) with its steps counted in `stepped`. `ended` ends it in any case. Returns pcall's results.
local function run(fn, stepped, ...)
  local outer = recording.running
  recording.running = stepped
  local got = table.pack(pcall(fn, ...))
  recording.running = outer
  return got
end

local function fall_back(self, reason)
  self.reason = reason
  for _, entry in next, self.entries do
    if entry.capture then entry.capture:close() end
  end
  self.entries = {}
  warn(("graph: the function runs as it is: %s"):format(reason))
end

--- Raises a run's error, or returns its results.
local function results(got)
  if not got[1] then error(got[2], 0) end
  return table.unpack(got, 2, got.n)
end

--- An unrecorded run. watched: the capture observes it. list: the tensors among the arguments.
local function run_plainly(self, entry, watched, list, ...)
  local stepped = {}
  if watched then
    refresh(entry.stepped)
    entry.capture:begin(false)
  end
  local got = run(self.fn, stepped, ...)
  entry.stepped = stepped
  if watched then
    entry.capture:finish(got[1])
    if got[1] then
      local why = entry.capture:why()
      local leaves = entry.capture:counts()
      if not why and next(stepped) and leaves == 0 then why = "an optimizer steps by gradients that come from outside" end
      for _, t in ipairs(list) do
        if not why and entry.capture:wrote(t) then why = "an argument is written in place" end
      end
      if why then fall_back(self, why .. ", inside of it") end
    end
  end
  return results(got)
end

--- Copies for the caller: the step's own are written again by the next replay.
local function copies(entry)
  local out = entry.results
  local _ <close> = accel.no_grad()
  local own = {}
  for i = 1, out.n do
    own[i] = map(out[i], function(t) return t:detach():clone() end)
  end
  return table.unpack(own, 1, out.n)
end

local function record(self, entry, list, ...)
  local statics, at = {}, 0
  for i, t in ipairs(list) do statics[i] = accel.zeros_like(t) end
  local args = table.pack(...)
  for i = 1, args.n do
    args[i] = map(args[i], function() at = at + 1 return statics[at] end)
  end
  refresh(entry.stepped)
  entry.options = all_options(entry.stepped)
  local stepped = {}
  entry.capture:begin(true)
  local got = run(self.fn, stepped, table.unpack(args, 1, args.n))
  local ended, failure = pcall(entry.capture.finish, entry.capture, got[1])
  local why = entry.capture:why() or not ended and tostring(failure) or nil
  if not got[1] and not why then error(got[2], 0) end
  if why then
    for object, n in next, stepped do
      if object._count_steps then object:_count_steps(-n) end
    end
    fall_back(self, why)
    return false
  end
  entry.stepped, entry.statics, entry.again = stepped, statics, nil
  entry.results = table.pack(table.unpack(got, 2, got.n))
  self.recorded, entry.recordings = self.recorded + 1, (entry.recordings or 0) + 1
  return true
end

local function fill(entry, list)
  local _ <close> = accel.no_grad()
  for i, static in ipairs(entry.statics) do static:copy_(list[i]) end
end

local function replay(self, entry, list)
  refresh(entry.stepped)
  fill(entry, list)
  entry.capture:replay()
  for object, n in next, entry.stepped do
    if object._count_steps then object:_count_steps(n) end
  end
  local _, steps = entry.capture:counts()
  for _ = 1, steps do accel.step() end
  entry.capture:settle()
  self.replays = self.replays + 1
end

--- The device and tensors to record a step on, or nil and the reason.
local function open(list)
  local device = list[1] and list[1].device or accel.get_default_device()
  for _, t in ipairs(list) do
    if t.device ~= device then return nil, ("arguments are on %s and on %s"):format(device, t.device) end
    if t.requires_grad then return nil, "an argument requires gradients" end
  end
  return core.open(device)
end

local function entry_of(self, key, list)
  local entry = self.entries[key]
  if entry then return entry end
  if self.n_entries == self.shapes then
    fall_back(self, ("fn got more than %d sets of argument shapes; pad batches to one shape, or raise `shapes`"):format(self.shapes))
    return nil
  end
  local capture, why = open(list)
  if not capture then
    fall_back(self, why)
    return nil
  end
  entry = { capture = capture, calls = 0, stepped = {} }
  self.entries[key], self.n_entries = entry, self.n_entries + 1
  return entry
end

function Graph:__call(...)
  if self.reason or recording.running then return self.fn(...) end
  local key, list = described(...)
  local entry = entry_of(self, key, list)
  if not entry then return self.fn(...) end
  entry.calls = entry.calls + 1
  if entry.calls <= self.warmup then return run_plainly(self, entry, entry.calls == self.warmup, list, ...) end
  local changed = "an optimizer's states, parameters or options"
  if entry.recordings and not entry.again and not same_options(entry.options, all_options(entry.stepped)) then
    -- states that this step makes are made by a call that is not recorded: a replay would make them again
    entry.again = true
    if entry.recordings < RECORDINGS then return run_plainly(self, entry, true, list, ...) end
  end
  local differs = entry.recordings and (entry.again and changed or entry.capture:differs()) or nil
  if not entry.recordings or differs then
    if (entry.recordings or 0) == RECORDINGS then
      fall_back(self, ("%s changed from call to call, %d times"):format(differs, RECORDINGS))
      return self.fn(...)
    end
    if not accel.unscoped(record, self, entry, list, ...) then return self.fn(...) end
    fill(entry, list)
    entry.capture:replay()
    entry.capture:settle()
  else
    replay(self, entry, list)
  end
  return copies(entry)
end

function Graph.__tostring(self)
  if self.reason then return ("Graph(as it is: %s)"):format(self.reason) end
  return ("Graph(recorded=%d, replays=%d)"):format(self.recorded, self.replays)
end

--- A training step - forward, backward, optimizer - that a GPU records and replays. Called as fn is, with the same results. The first two
--- calls run fn unchanged, and the third records it. From then on a call copies its tensors into the recorded ones, starts the recorded
--- kernels at once, and returns copies of fn's results. Equal to fn without it, bit for bit, as long as fn does the same every time:
---
--- - Shapes, dtypes and values of other arguments are part of the recording. Another set of them is recorded separately (up to
---   `shapes`).
--- - Random numbers (dropout), learning rates (a scheduler that steps outside), step counts and loss scales (GradScaler, skipped
---   steps) advance as they do without it, since they are in device memory.
--- - Tensors that fn reads besides its arguments must stay the same ones. You may write them in place, but not replace them (an
---   optimizer's load_state_dict, and parameters of it that start or stop learning, need another recording).
--- - Host decisions of fn, such as train() or eval() and the script's numbers, are fixed when it is recorded. A tensor made from
---   such numbers (accel.tensor, arange) has the same values in every replay.
---
--- If recording is impossible, fn runs unrecorded from then on, and one warning and `reason` give the cause: a CPU device, values that fn
--- reads on the host (item()), arguments that it writes to, CPU tensors that it copies, gradients that the Accelerator accumulates over
--- calls, schedulers that step inside, communication between ranks, offloaded weights, a running profiler. Memory of a recorded step is
--- kept for it as long as the graph lives.
--- example: local w = accel.ones(2, { requires_grad = true }) local opt = accel.optim.SGD({ w }, { lr = 0.5 })
---   local step = accel.graph(function(x) local loss = (w * x):sum() loss:backward() opt:step() opt:zero_grad() return loss end)
---   return step(accel.ones(2)) --> 2
---@param fn function
---@param opts? table
---  warmup integer = 2: calls that run fn as it is first, at least 2
---  shapes integer = 8: sets of shapes that are recorded. With more of them fn runs unrecorded
---@return accel.Graph
local function graph(fn, opts) return Graph(fn, opts) end

return { graph = graph, Graph = Graph }
