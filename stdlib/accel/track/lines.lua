--- Trackers into text files: log_with = "jsonl" and "csv". Found by track/general_tracker.lua.
local accel = require "accel"
local core = require "accel.track.core"
local open_read = require("accel.file.core").open_read
local raise = require "accel.util.raise"
local written = require "accel.track.written"

local M = {}

local function open(self, file, head)
  self:make_folder()
  local writer, message = core.lines(self.folder .. "/" .. file, head)
  if not writer then raise("tracker '%s': %s", self.name, message) end
  self.writer = writer
end

--- A value as JSON takes it: JSON has no NaN and no infinities, these become the strings "NaN", "Infinity", "-Infinity".
local function plain(x)
  local n = written.number(x)
  if n then
    if n - n == 0 then return n end
    return n ~= n and "NaN" or n > 0 and "Infinity" or "-Infinity"
  end
  if type(x) == "table" and getmetatable(x) == nil then
    local out = {}
    for key, value in next, x do out[key] = plain(value) end
    return out
  end
  if type(x) == "string" or type(x) == "boolean" then return x end
  return tostring(x)
end

-- ---- runs that another rank continues (accel.accelerator.elastic_trackers) ----

--- The lines of a run's file after the first n, and the number of all.
local function lines_after(path, n)
  local list, count = {}, 0
  local file, message = open_read(path)
  if not file then raise("tracker: cannot continue %s: %s", path, message) end
  local text = file:read "a"
  file:close()
  for line in text:gmatch "([^\n]*)\n" do
    count = count + 1
    if count > n then list[#list + 1] = line end
  end
  return list, count
end

local function place_of(self, file)
  self:needs_run "place"
  self.writer:flush()
  local _, count = lines_after(self.folder .. "/" .. file, math.huge)
  return count
end

--- Whether the lost process stored this row, of which a rank that is behind it hears later. matches(line) compares the next line.
local function is_stored(self, matches)
  local left = self.stored
  if not left then return false end
  local same = matches(table.remove(left, 1))
  if not same or #left == 0 then self.stored = nil end
  return same
end

local function write_json(self, step, entry)
  local ok, text = pcall(accel.json.encode, entry)
  if not ok then raise("tracker 'jsonl': %s", tostring(text)) end
  self.writer:bytes(step or 0, text .. "\n")
  self:look_at(self.writer)
end

--- Logs into LOGGING_DIR/RUN_NAME/metrics.jsonl: of every call a line, an object with `step`, `time` (seconds since 1970) and the values
--- (accel.track.JsonLinesTracker). A line {"config":{...}} holds the run's configuration. A run of the same name continues in the file.
--- example: require("accel.track.lines").JsonLinesTracker("run", "/tmp/x").name --> "jsonl"
---@class accel.track.JsonLinesTracker: accel.track.Written
local JsonLinesTracker = written.Written:extend "accel.track.JsonLinesTracker"
M.JsonLinesTracker = JsonLinesTracker

JsonLinesTracker.name = "jsonl"

--- Opens the file of the run. init_trackers calls it.
function JsonLinesTracker:start() open(self, "metrics.jsonl") end
--- The underlying writer: the queue of the file.
function JsonLinesTracker:tracker() return self.writer end

--- Writes the run's configuration.
---@param values table
function JsonLinesTracker:store_init_configuration(values)
  self:needs_run "store_init_configuration"
  write_json(self, 0, { config = plain(values), time = os.time() })
end

--- Writes values of a step.
---@param values table<string, any>
---@param step? integer
---@param opts? table has no option
function JsonLinesTracker:log(values, step, opts, ...)
  step = written.placed("tracker 'jsonl': log", step, opts, {}, ...)
  self:needs_run "log"
  local entry = plain(values)
  if entry.step == nil then entry.step = step end
  if is_stored(self, function(line)
    local ok, old = pcall(accel.json.decode, line)
    if not ok or type(old) ~= "table" or old.step ~= entry.step then return false end
    for key in next, entry do if old[key] == nil then return false end end
    return true
  end) then return end
  if entry.time == nil then entry.time = os.time() end
  write_json(self, step, entry)
end

--- Where the run begins, for a rank that continues it: the number of lines before its rows.
---@return integer
function JsonLinesTracker:place() return place_of(self, "metrics.jsonl") end

--- Continues the run of a lost main process.
---@param place integer
---@param kept table
---@return integer lost rows
function JsonLinesTracker:continue_run(place, kept)
  local stored = lines_after(self.folder .. "/metrics.jsonl", place)
  self:start()
  for i = math.max(kept.first, #stored + 1), kept.count do self:log(kept.rows[i].values, kept.rows[i].step) end
  local ahead = kept.count > 0 and table.move(stored, kept.count + 1, #stored, 1, {}) or {}
  self.stored = #ahead > 0 and ahead or nil
  return math.max(0, kept.first - 1 - #stored)
end

local function cell(x)
  x = tostring(x)
  return x:find '[,"\r\n]' and '"' .. x:gsub('"', '""') .. '"' or x
end

--- Logs into LOGGING_DIR/RUN_NAME/metrics.csv: of every value a line with step, time (seconds since 1970), name and value, so that no
--- line depends on which values came before. The run's configuration is written as lines without a step, config/NAME. A run of the
--- same name continues in the file.
--- example: require("accel.track.lines").CsvTracker("run", "/tmp/x").name --> "csv"
---@class accel.track.CsvTracker: accel.track.Written
local CsvTracker = written.Written:extend "accel.track.CsvTracker"
M.CsvTracker = CsvTracker

CsvTracker.name = "csv"

--- Opens the file of the run. init_trackers calls it.
function CsvTracker:start() open(self, "metrics.csv", "step,time,name,value\n") end
--- The underlying writer: the queue of the file.
function CsvTracker:tracker() return self.writer end

local function write_csv(self, prefix, values, step)
  local flat, names = written.flatten(values)
  local begin, stored = ("%s,"):format(step or ""), names[1] ~= nil
  for _, name in ipairs(self.stored and names or {}) do
    stored = stored and is_stored(self, function(line)
      return line:sub(1, #begin) == begin and line:find("," .. cell(prefix .. name) .. ",", 1, true) ~= nil
    end)
    if stored and name == names[#names] then return end
  end
  local now, lines = os.time(), {}
  for i, name in ipairs(names) do
    lines[i] = ("%s,%d,%s,%s\n"):format(step or "", now, cell(prefix .. name), cell(flat[name]))
  end
  self.writer:bytes(step or 0, table.concat(lines))
  self:look_at(self.writer)
end

--- Writes the run's configuration.
---@param values table
function CsvTracker:store_init_configuration(values)
  self:needs_run "store_init_configuration"
  write_csv(self, "config/", values)
end

--- Writes values of a step.
---@param values table<string, any>
---@param step? integer
---@param opts? table has no option
function CsvTracker:log(values, step, opts, ...)
  step = written.placed("tracker 'csv': log", step, opts, {}, ...)
  self:needs_run "log"
  write_csv(self, "", values, step)
end

--- Where the run begins, for a rank that continues it: the number of lines before its rows.
---@return integer
function CsvTracker:place() return place_of(self, "metrics.csv") end

--- Continues the run of a lost main process.
---@param place integer
---@param kept table
---@return integer lost values
function CsvTracker:continue_run(place, kept)
  local stored = lines_after(self.folder .. "/metrics.csv", place)
  self:start()
  local first
  for i = kept.first, kept.count do
    local row = kept.rows[i]
    if row.names > #stored then
      first = first or row.before
      self:log(row.values, row.step)
    end
  end
  local ahead = kept.count > 0 and table.move(stored, kept.names + 1, #stored, 1, {}) or {}
  self.stored = #ahead > 0 and ahead or nil
  return first and math.max(0, first - #stored) or 0
end

return M
