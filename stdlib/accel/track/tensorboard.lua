--- TensorBoardTracker: log_with = "tensorboard". Found by track/general_tracker.lua and as accel.accelerator.TensorBoardTracker.
local accel = require "accel"
local SummaryWriter = require "accel.track.summary_writer"
local options = require "accel.util.options"
local stored_events = require "accel.track.stored_events"
local summary = require "accel.track.summary"
local written = require "accel.track.written"

--- Logs into event files of LOGGING_DIR/RUN_NAME, which `tensorboard --logdir LOGGING_DIR` shows: numbers as scalars, strings as
--- texts, tables of numbers as scalars of one chart. The run's configuration goes to TensorBoard's HParams and into a file
--- hparams.yml of a folder named by the time. get_tracker("tensorboard", { unwrap = true }) is its SummaryWriter.
--- example: accel.accelerator.TensorBoardTracker("run", "/tmp/x").name --> "tensorboard"
---@class accel.accelerator.TensorBoardTracker: accel.track.Written
local TensorBoardTracker = written.Written:extend "accel.accelerator.TensorBoardTracker"

TensorBoardTracker.name = "tensorboard"

---@param run_name string
---@param logging_dir string
---@param opts? {max_queue: integer?, flush_secs: number?} SummaryWriter's
function TensorBoardTracker:init(run_name, logging_dir, opts, ...)
  written.Written.init(self, run_name, logging_dir)
  self.opts = options("tracker 'tensorboard'", opts, { max_queue = options.none, flush_secs = options.none }, ...)
end

--- Opens the file of the run. init_trackers calls it.
function TensorBoardTracker:start()
  self.before = stored_events.files(self.folder)
  self.writer = SummaryWriter(self.folder, self.opts)
end

--- What a rank needs to continue the run (accel.accelerator.elastic_trackers): the files that are older than it.
---@return table
function TensorBoardTracker:place()
  self:needs_run "place"
  return self.before
end

--- Continues the run of a lost main process, in a file of its own. Rows without a step cannot be compared, so they are written again.
---@param place table
---@param kept table
---@return integer lost rows: it cannot tell
function TensorBoardTracker:continue_run(place, kept)
  local stored = stored_events.steps(self.folder, place)
  self:start()
  for i = kept.first, kept.count do
    self.stored = stored
    self:log(kept.rows[i].values, kept.rows[i].step)
  end
  self.stored = stored
  return 0
end

--- Without the values that the lost main process had stored at this step. The first row that it had not stored ends the comparison.
function TensorBoardTracker:_unstored(values, step)
  local found, left = false, {}
  local function is_stored(folder, tag)
    local last = step and self.stored[folder .. "\n" .. tag]
    found = found or last ~= nil and last >= step
    return last ~= nil and last >= step
  end
  for key, value in next, values do
    local tag = tostring(key)
    if type(value) == "table" and getmetatable(value) == nil then
      local rest = {}
      for name, x in next, value do
        local folder = ("%s/%s_%s"):format(self.folder, tag:gsub("/", "_"), (tostring(name):gsub("/", "_")))
        if not is_stored(folder, tag) then rest[name] = x end
      end
      left[key] = next(rest) ~= nil and rest or nil
    elseif not is_stored(self.folder, type(value) == "string" and tag .. "/text_summary" or tag) then
      left[key] = value
    end
  end
  if not found then self.stored = nil end
  return left
end

--- The tracker's SummaryWriter.
function TensorBoardTracker:tracker() return self.writer end

--- Writes the run's configuration.
---@param values table
function TensorBoardTracker:store_init_configuration(values)
  self:needs_run "store_init_configuration"
  local flat, names = written.flatten(values)
  self.has_session = true
  self.writer.writer:bytes(0, summary.experiment(flat, names, {}, os.time()))
  self.writer.writer:bytes(0, summary.session_start(flat, names, os.time()))
  local folder = ("%s/%d"):format(self.folder, os.time())
  local ok, message = accel.makedirs(folder)
  if ok then ok, message = accel.write_file(folder .. "/hparams.yml", require("accel.config.write").yaml(flat)) end
  if not ok then
    io.stderr:write(("accel: tracker 'tensorboard': hparams.yml is not written: %s\n"):format(tostring(message)))
  end
end

--- Numbers and tensors of one element as scalars, strings as texts, tables of numbers as scalars of one chart. Other values are
--- left out.
---@param values table<string, any>
---@param step? integer 0
---@param opts? {walltime: number?} seconds since 1970 (default: now)
function TensorBoardTracker:log(values, step, opts, ...)
  self:needs_run "log"
  local writer, o = self.writer, nil
  step, o = written.placed("tracker 'tensorboard': log", step, opts, { walltime = options.none }, ...)
  local time = o.walltime
  if self.stored then values = self:_unstored(values, step) end
  for key, value in accel.pairs(values) do
    local x = written.number(value)
    if x then writer:add_scalar(tostring(key), x, step, time)
    elseif type(value) == "string" then writer:add_text(tostring(key), value, step, time)
    elseif type(value) == "table" and getmetatable(value) == nil then writer:add_scalars(tostring(key), value, step, time) end
  end
  self:look_at(writer.writer)
end

--- Images by name: tensors of one or several (floats of 0 to 1 or u8, CHW, NCHW, HW or in dataformats), bytes of PNG or JPEG files,
--- or lists of them.
---@param values table<string, any>
---@param step? integer 0
---@param opts? {dataformats: string?, walltime: number?}
function TensorBoardTracker:log_images(values, step, opts, ...)
  self:needs_run "log_images"
  for name, value in accel.pairs(values) do self.writer:add_images(tostring(name), value, step, opts, ...) end
  self:look_at(self.writer.writer)
end

--- Ends the run: writes the rest and closes its files.
function TensorBoardTracker:finish()
  if self.writer and self.has_session then self.writer.writer:bytes(0, summary.session_end(true, os.time())) end
  written.Written.finish(self)
end

return TensorBoardTracker
