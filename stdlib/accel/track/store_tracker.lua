--- StoreTracker: log_with = "store". Found by track/general_tracker.lua.
local general = require "accel.track.general_tracker"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local Run = require "accel.track.run"
local written = require "accel.track.written"

--- Logs into LOGGING_DIR/runs.db, which `accel-run runs` and `accel-run ui` show. The project is init_trackers' name. Options: `name`,
--- `id`, `resume`, `system`, `alerts`, `group`, `tags`, `notes` of accel.track.Run. get_tracker("store", { unwrap = true }) is the Run.
--- example: require "accel.track.store_tracker" ("run", "/tmp/x").name --> "store"
---@class accel.track.StoreTracker: accel.accelerator.GeneralTracker
local StoreTracker = general.GeneralTracker:extend "accel.track.StoreTracker"

StoreTracker.name = "store"
StoreTracker.requires_logging_directory = true

---@param project_name string
---@param logging_dir string
---@param opts? {name: string?, id: string?, resume: string?, system: boolean?, alerts: table|boolean?,
---   group: string?, tags: string[]?, notes: string?}
function StoreTracker:init(project_name, logging_dir, opts, ...)
  if type(project_name) ~= "string" or project_name == "" then raise "tracker 'store': run_name must be a string" end
  if type(logging_dir) ~= "string" then raise "tracker 'store': logging_dir must be a string" end
  local none = options.none
  self.opts = options("tracker 'store'", opts, { name = none, id = none, resume = none, system = true, alerts = none,
    group = none, tags = none, notes = none }, ...)
  self.opts.project, self.opts.dir = project_name, logging_dir
end

--- Begins the run. init_trackers calls it.
function StoreTracker:start() self.run = Run(self.opts) end

--- The tracker's Run.
function StoreTracker:tracker() return self.run end

local function run_of(self, method)
  return self.run or raise("tracker 'store': %s before start or after finish", method)
end

--- Takes the run's configuration.
---@param values table
function StoreTracker:store_init_configuration(values) run_of(self, "store_init_configuration"):log_config(values) end

--- Takes values of a step.
---@param values table<string, any>
---@param step? integer
---@param opts? table has no option
function StoreTracker:log(values, step, opts, ...)
  step = written.placed("tracker 'store': log", step, opts, {}, ...)
  local run = run_of(self, "log")
  if self.stored then values = self:_unstored(values, step or run.step + 1) end
  run:log(values, step)
  written.Written.look_at(self, run.writer)
end

--- Without the values that the lost main process had stored at this step. The first row that it had not stored ends the comparison.
function StoreTracker:_unstored(values, step)
  local found = false
  local function rest(prefix, t)
    local out = {}
    for key, value in next, t do
      local tag = prefix .. tostring(key)
      if type(value) == "table" and getmetatable(value) == nil then out[key] = rest(tag .. "/", value)
      elseif (self.stored[tag] or math.mininteger) >= step then found = true
      else out[key] = value end
    end
    return out
  end
  local left = rest("", values)
  if not found then self.stored = nil end
  return left
end

--- What a rank needs to continue the run (accel.accelerator.elastic_trackers).
---@return table
function StoreTracker:place()
  local run = run_of(self, "place")
  return { id = run.id, name = run.name, path = run.path }
end

--- Continues the run of a lost main process.
---@param place table
---@param kept table
---@return integer lost rows: it cannot tell
function StoreTracker:continue_run(place, kept)
  local o = self.opts
  o.resume, o.id, o.name, o.dir, o.group, o.tags, o.notes = place.id, nil, place.name, place.path, nil, nil, nil
  local store <close> = setmetatable({}, { __close = function(s) s.store:close() end })
  store.store = require "accel.track.store"(place.path)
  local stored = {}
  for _, sql in ipairs {
    "SELECT tag, last_step AS step FROM series WHERE run=(SELECT id FROM runs WHERE uid=?)",
    "SELECT tag, max(step) AS step FROM records WHERE kind='text' AND run=(SELECT id FROM runs WHERE uid=?) GROUP BY tag",
  } do
    for _, row in ipairs(store.store:rows(sql, place.id) or {}) do stored[row.tag] = math.max(stored[row.tag] or math.mininteger, row.step) end
  end
  self:start()
  for i = kept.first, kept.count do
    self.stored = stored
    self:log(kept.rows[i].values, kept.rows[i].place)
  end
  self.stored, self.run.step = stored, kept.step
  return 0
end

--- Images by name, as accel.track.Run:log_images takes them.
---@param values table<string, any>
---@param step? integer
---@param opts? {dataformats: string?, caption: string?}
function StoreTracker:log_images(values, step, opts, ...) run_of(self, "log_images"):log_images(values, step, opts, ...) end

--- A table of columns and rows.
---@param table_name string
---@param opts {columns: string[], data: any[][], step: integer?}
function StoreTracker:log_table(table_name, opts, ...)
  local o = options("log_table", opts, { columns = options.none, data = options.none, step = options.none }, ...)
  if type(o.columns) ~= "table" or type(o.data) ~= "table" then raise "log_table: columns and data must be tables" end
  run_of(self, "log_table"):log_table(table_name, o.columns, o.data, o.step)
end

--- Ends the run.
function StoreTracker:finish()
  local run = self.run
  self.run = nil
  if not run then return end
  local ok, message = run:finish()
  if not ok then io.stderr:write(("accel: tracker 'store': the end of the run is lost: %s\n"):format(message)) end
end

return StoreTracker
