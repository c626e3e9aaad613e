--- Trackers of an elastic job: if the main process is lost, the rank that is main then continues their runs, without a row lost or doubled.
--- For that every rank keeps the last rows that the script logged, so all ranks call accelerator:log. Rows of an update wait until it counts.
---
--- A tracker takes part if its class has
---   place(self) -> plain data       the main process, once the run has begun: what another rank needs to continue it
---   continue_run(self, place, kept) another rank, in the place of start. kept: { rows =, count =, names = }, the last rows and the
---       numbers of rows and of values that this rank has logged so far. It writes rows that the run does not have. Rows that the run has
---       already and this rank logs later must be left out. Returns the number of rows that nobody has any more
--- Others raise when the main process is lost, and a warning tells so at the start.
local accel = require "accel"
local dist = require "accel.dist"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local written = require "accel.track.written"

local M = {}

local UPDATES <const>, SECONDS <const> = 8, 5 -- rows that are older than both are stored

local function can_continue(tracker) return not tracker.main_process_only or tracker.continue_run ~= nil end

--- init_trackers. Afterwards all ranks know where the runs are.
local function init_trackers(self, method, accelerator, ...)
  local args = table.pack(...)
  local kept = { rows = {}, first = 1, count = 0, names = 0, step = 0, waiting = {} }
  local main
  local function start()
    accelerator._trackers.running = {}
    method(accelerator, table.unpack(args, 1, args.n))
    main = accelerator.is_main_process
  end
  start()
  for _, entry in ipairs(accelerator.log_with) do
    if not can_continue(entry) then
      accelerator:_warn(("init_trackers: no other rank can continue the run of tracker '%s', so this elastic job ends if its main process is lost;"
        .. " the trackers tensorboard, store, jsonl and csv can be continued"):format(entry.name))
    end
  end
  kept.places = self.transaction:repeat_call(function()
    if accelerator.is_main_process and not main then start() end
    local places = {}
    for i, tracker in ipairs(main and accelerator.trackers or {}) do
      places[i] = tracker.main_process_only and tracker.continue_run and tracker:place() or false
    end
    return dist.all_gather_object(places)[1]
  end)
  self.tracked = kept
end

--- A row that counts.
local function write(self, accelerator, row)
  local kept = self.tracked
  local flat = written.plain(row.values)
  local _, names = written.flatten(flat)
  kept.count, kept.names, kept.step = kept.count + 1, kept.names + #names, row.step or kept.step + 1
  kept.rows[kept.count] = {
    values = flat, step = row.step, place = kept.step, before = kept.names - #names, names = kept.names, update = accelerator.step,
    time = accel.clock(),
  }
  while kept.first < kept.count do
    local oldest = kept.rows[kept.first]
    if oldest.update > accelerator.step - UPDATES or accel.clock() - oldest.time < SECONDS then break end
    kept.rows[kept.first], kept.first = nil, kept.first + 1
  end
  row.method(accelerator, row.values, row.step, row.kwargs)
end

--- log. A row of an update waits until that counts.
local function log(self, method, accelerator, values, step, kwargs, ...)
  if type(step) == "table" and kwargs == nil then
    local o = options("log", step, { step = options.none, log_kwargs = options.none })
    step, kwargs = o.step, o.log_kwargs
  end
  if not self.tracked or type(values) ~= "table" or step ~= nil and not math.tointeger(step) or select("#", ...) > 0 then
    return method(accelerator, values, step, kwargs, ...) -- which raises, or has no tracker
  end
  local row = { values = values, step = step and math.tointeger(step), kwargs = kwargs, method = method }
  local loader = accelerator.gradient_state.active_dataloader
  if not self:leads(loader) then return write(self, accelerator, row) end
  self:open(loader)
  local state = self.transaction.state
  if state == "open" then table.insert(self.tracked.waiting, row)
  elseif state ~= "void" then write(self, accelerator, row) end
end

--- end_training. A main process that is lost inside is replaced by one that ends the runs.
local function end_training(self, method, accelerator)
  M.settle(self, true)
  self.transaction:repeat_call(function() method(accelerator) end)
  self.tracked = nil
end

--- The update counts, or begins again.
---@param elastic accel.accelerator.Elastic
---@param counts boolean
function M.settle(elastic, counts)
  local kept = elastic.tracked
  if not kept or #kept.waiting == 0 then return end
  local waiting = kept.waiting
  kept.waiting = {}
  for _, row in ipairs(counts and waiting or {}) do write(elastic, elastic.accelerator[1], row) end
end

--- This rank is the main process now.
---@param elastic accel.accelerator.Elastic
function M.take_over(elastic)
  local accelerator, kept = elastic.accelerator[1], elastic.tracked
  if not kept then return end -- no run began, or all have ended
  local running = {}
  for i, entry in ipairs(accelerator.log_with) do
    if not can_continue(entry) then
      raise("Accelerator: the main process was lost, and no other rank can continue the run of tracker '%s'; use tensorboard, store, jsonl or csv",
        entry.name)
    end
    running[i] = accelerator:_made_tracker(i)
    if entry.main_process_only then
      local lost = running[i]:continue_run(kept.places[i], kept)
      if lost > 0 then
        io.stderr:write(("accel: tracker '%s': %d rows or values were lost with the main process, which had not stored them for %d s"
          .. "\n"):format(entry.name, lost, SECONDS))
      end
    else
      running[i] = accelerator.trackers[i]
    end
  end
  accelerator._trackers.running = running
end

--- Gives the accelerator the methods of an elastic job.
---@param elastic accel.accelerator.Elastic
---@param accelerator accel.Accelerator
function M.install(elastic, accelerator)
  if #accelerator.log_with == 0 then return end
  for name, fn in next, { init_trackers = init_trackers, log = log, end_training = end_training } do
    local method = accelerator[name]
    rawset(accelerator, name, function(self, ...)
      if self ~= accelerator then return method(self, ...) end
      return fn(elastic, method, self, ...)
    end)
  end
end

return M
