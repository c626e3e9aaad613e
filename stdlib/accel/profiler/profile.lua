--- Profile: records stretches of a run by a schedule. Names and behaviour follow torch.profiler.profile.
local accel = require "accel.core"
local tracing = require "accel.profiler.tracing"
local check = require "accel.util.check"
local class = require "accel.util.class"
local core = require "accel.profiler.core"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local schedules = require "accel.profiler.schedule"
local spans = require "accel.util.spans"
local unwritten = require "accel.util.unwritten"

local action = schedules.ProfilerAction
local M = {}

--- A stretch of a run that is looked at: `local prof <close> = accel.profiler.profile { ... }` begins it. With a schedule,
--- call prof:step() at the end of every step.
--- example: local p = accel.profiler.Profile { record_shapes = true } p:start() accel.ones(2):exp() p:stop()
---   return p:key_averages { group_by_input_shape = true }:find("exp").input_shapes --> "[[2]]"
---@class accel.profiler.Profile
---@field step_num integer steps so far
local Profile = class("accel.profiler.Profile")
M.Profile = Profile

local DEFAULTS <const> = { activities = options.none, schedule = options.none, on_trace_ready = options.none, record_shapes = false,
  profile_memory = false, with_stack = false, with_flops = false, with_modules = false }

local function only_cpu()
  for _, device in ipairs(accel.devices()) do
    if device ~= "cpu" and device ~= "meta" then return false end
  end
  return true
end

--- Options: see accel.profiler.profile.
---@param opts? table options by name
function Profile:init(opts, ...)
  local o = options("profile", opts, DEFAULTS, ...)
  for _, name in ipairs { "schedule", "on_trace_ready" } do
    if o[name] ~= nil then check.callable("profile", name, o[name]) end
  end
  for i, name in ipairs(o.activities or {}) do
    check.word("profile", ("activities[%d]"):format(i), name, { "cpu", "cuda", "xpu", "mtia", "hpu" })
    if name ~= "cpu" then
      self.device_times = true
      if only_cpu() then no_effect.once("profile", "activities", "for '" .. name .. "': the CPU is the only device here") end
    end
  end
  self.o, self.metadata, self.step_num = o, {}, 0
  self.schedule = o.schedule or function() return action.RECORD end
  self.action = action.NONE
end

local function recorder(self)
  local o = self.o
  if o.with_stack then require "accel.autograd.core" end -- it gives lines to the core
  return core.new { shapes = o.record_shapes, memory = o.profile_memory, sites = o.with_stack, flops = o.with_flops,
    sync = self.device_times or false, max_spans = self.max_spans }
end

local recording -- the profile that records, for whom another one may make room

local function begin_trace(self)
  if spans.whole then
    self._open = require "accel.profiler.window"(spans.whole)
    return tracing(true, self.o.with_modules)
  end
  self._open = recorder(self)
  if recording and recording.whole and recording ~= self then recording.whole.yield() end
  self._open:start()
  recording = self
  tracing(true, self.o.with_modules)
end

local function end_trace(self)
  local open = self._open
  self._open = nil
  if not open then return nil end
  if recording == self then recording = nil end
  open:stop()
  tracing(spans.whole ~= false, false)
  return open
end

local function keep(self)
  self._recorder = end_trace(self)
  self._events, self._averages = nil, nil
  if self._recorder and self.o.on_trace_ready then self.o.on_trace_ready(self) end
end

--- From the old state to the new one. now nil: the profile ends.
local function transit(self, now)
  local was = self.action
  self.action = now or action.NONE
  local recorded = was == action.RECORD or was == action.RECORD_AND_SAVE
  local records = now == action.RECORD or now == action.RECORD_AND_SAVE
  if was == action.WARMUP and now == action.WARMUP then return end
  if was == action.WARMUP then
    end_trace(self) -- data of a warm-up is dropped
  elseif was == action.RECORD_AND_SAVE or recorded and now == nil then
    keep(self)
  elseif recorded and not records then
    end_trace(self) -- a schedule that stops before its last step: nothing was to be kept
  elseif recorded then
    return -- it continues
  end
  if now == action.WARMUP or records then begin_trace(self) end
end

local function begin_step(self)
  if self.o.schedule and self._open then self._step = spans.begin(spans.STEP, ("ProfilerStep#%d"):format(self.step_num)) end
end

local function end_step(self)
  if self._step then spans.finish(self._step) end
  self._step = nil
end

--- Begins. accel.profiler.profile does so by itself.
function Profile:start()
  check.object(self, "prof", "start")
  if self._started then raise "profile: it was started already" end
  self._started = true
  transit(self, self.schedule(self.step_num))
  begin_step(self)
end

--- Ends: the current recording is kept, and on_trace_ready is called with it. Only the first call has an effect.
--- Closing it does the same.
function Profile:stop()
  check.object(self, "prof", "stop")
  if not self._started or self._stopped then return end
  self._stopped = true
  end_step(self)
  transit(self, nil)
  if self._after then self._after() end
end

--- The next step begins: the schedule decides whether to record it.
function Profile:step()
  check.object(self, "prof", "step")
  if not self._started or self._stopped then raise "profile: step() outside of start() and stop()" end
  end_step(self)
  self.step_num = self.step_num + 1
  transit(self, self.schedule(self.step_num))
  begin_step(self)
end

function Profile.__close(self, failure)
  if failure == nil then return self:stop() end
  -- the error that ends the block is the one to hear of
  self._stopped = true
  end_trace(self)
end

local function recorded(self, method)
  check.object(self, "prof", method)
  if self._recorder then return self._recorder end
  if self._open then raise("%s: the profile is still recording; call it after the end, or in on_trace_ready", method) end
  raise("%s: nothing was recorded%s", method, self.o.schedule and "; did the schedule reach its active steps?" or "")
end

function Profile:_times() return recorded(self, "times"):times() end

--- The spans of the last recording, in the order of their beginning (collectives last): name, kind, start and stop in
--- nanoseconds, parent, thread, flops, memory, shapes, dtypes, site.
---@return accel.profiler.Event[]
function Profile:events()
  local r = recorded(self, "events")
  self._events = self._events or require "accel.profiler.events"(r)
  return self._events
end

--- The recording, summed by name. With group_by_input_shape by name and shapes, with group_by_stack_n above 0 by name and
--- line. See accel.profiler.Averages.
---@param opts? {group_by_input_shape: boolean?, group_by_stack_n: integer?}
---@return accel.profiler.Averages
function Profile:key_averages(opts, ...)
  local o = options("key_averages", opts, { group_by_input_shape = false, group_by_stack_n = 0 }, ...)
  if o.group_by_input_shape and not self.o.record_shapes then
    no_effect.once("key_averages", "group_by_input_shape", "without record_shapes = true of the profile")
  end
  if check.count("key_averages", "group_by_stack_n", o.group_by_stack_n) > 0 and not self.o.with_stack then
    no_effect.once("key_averages", "group_by_stack_n", "without with_stack = true of the profile")
  end
  return require "accel.profiler.averages"(self:events(), o, self.o)
end

--- Collectives of this rank in the last recording: their number (count), their time in seconds (total), the part of it that overlapped
--- with the script's work (hidden, share = hidden / total), and the bytes sent. Collectives that were not started with async_op hide
--- nothing.
---@return {count: integer, total: number, hidden: number, share: number, sent: integer}
function Profile:communication() return require "accel.profiler.communication"(self:events()) end

--- Writes the trace of this rank in Chrome's format, for ui.perfetto.dev, chrome://tracing or TensorBoard. Times use the
--- machine's monotonic clock, the same for all ranks (clock_offset corrects it between machines), so that traces of several
--- ranks fit together. With add = true it is added to the file, which may contain other ranks' traces of this job. Returns
--- true. If the file cannot be written, it returns nil, message, code.
---@param path string
---@param opts? {add: boolean?, clock_offset: integer?}
function Profile:export_chrome_trace(path, opts, ...)
  recorded(self, "export_chrome_trace")
  if type(path) ~= "string" then raise("export_chrome_trace: the path must be a string, got %s", check.shown(path)) end
  local o = options("export_chrome_trace", opts, { add = false, clock_offset = 0 }, ...)
  if unwritten.leaves_state(path) then return true end
  return require "accel.profiler.trace".write(self, path, o)
end

--- Bytes of the pools over time, by category (parameters, gradients, states, activations, temporaries, others), one table
--- per device: { device =, peak = point, points = { point, ... }, events = n }. A point has ns, total and the categories.
--- Needs profile_memory. most: maximum number of points (1,000), always including the peak.
---@param most? integer
---@return table[]
function Profile:memory_timeline(most, ...)
  check.surplus("memory_timeline", ...)
  local r, out = recorded(self, "memory_timeline"), {}
  if not self.o.profile_memory then raise "memory_timeline: the profile was made without profile_memory = true" end
  for i = 1, math.huge do
    local device, peak, points, events = r:memory(i, most or 1000)
    if not device then break end
    out[i] = { device = device, peak = peak, points = points, events = events }
  end
  return out
end

--- Writes the memory timeline of a device (the one with the greatest peak unless named) as JSON:
--- [times in ns, [[bytes of each category], ...]], in the order of `categories`, as torch's export_memory_timeline does.
---@param path string
---@param device? string
function Profile:export_memory_timeline(path, device, ...)
  check.surplus("export_memory_timeline", ...)
  local chosen
  for _, d in ipairs(self:memory_timeline(100000)) do
    if device == nil and (not chosen or d.peak.total > chosen.peak.total) or d.device == device then chosen = d end
  end
  if not chosen then raise("export_memory_timeline: no device '%s' was recorded", device) end
  return require "accel.profiler.trace".write_memory(chosen, path)
end

--- Puts a text into the head of traces.
---@param key string
---@param value any
function Profile:add_metadata(key, value) self.metadata[key] = tostring(value) end

--- Puts a value, given as JSON, into the head of traces.
---@param key string
---@param text string JSON
function Profile:add_metadata_json(key, text) self.metadata[key] = require "accel".json.decode(text) end

--- Begins to record, by these options:
---   activities      {"cpu"} and, to have the times of kernels in the spans of their ops, {"cpu", "cuda"}: every op then waits for
---                   its device. Where there is none, it warns
---   schedule        accel.profiler.schedule { ... }. Without one everything until the end is recorded
---   on_trace_ready  fn(prof), called when a recording is complete
---   record_shapes, with_flops, with_modules, with_stack (the line of the script), profile_memory: booleans
--- Given a function, it is recorded: profile(opts, fn, ...), or profile(fn, ...), returns the profile and the results of fn.
--- example: local p = accel.profiler.profile { with_flops = true } accel.ones(4, 8):matmul(accel.ones(8, 2)) p:stop()
---   return p:key_averages():find("matmul").flops --> 128
---@param opts? table
---@param fn? fun(prof: accel.profiler.Profile, ...)
---@return accel.profiler.Profile
function M.profile(opts, fn, ...)
  if type(opts) == "function" then return M.profile(nil, opts, fn, ...) end
  local prof = Profile(opts)
  prof:start()
  if fn == nil then return prof end
  check.callable("profile", "fn", fn)
  local function run(...)
    local _ <close> = prof
    return fn(prof, ...)
  end
  return prof, run(...)
end

return M
