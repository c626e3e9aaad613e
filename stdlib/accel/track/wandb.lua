--- WandBTracker: log_with = "wandb". Found by track/general_tracker.lua.
local accel = require "accel"
local core = require "accel.track.core"
local dist = require "accel.dist"
local environment = require "accel.track.environment"
local image = require "accel.track.image"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local records = require "accel.track.wandb_records"
local written = require "accel.track.written"

local none <const> = options.none
local DECLARED <const> = { dir = none, name = none, entity = none, group = none, job_type = none, tags = none, notes = none, id = none,
  resume = none, mode = none, config = none, project = none, save_code = none, reinit = none }
local MODES <const> = { offline = true, online = true, disabled = true }

--- Writes an offline run of W&B, DIR/wandb/offline-run-TIME-ID, which `wandb sync` sends. With mode = "online" (or WANDB_MODE) that
--- program, if installed, runs at the end. "disabled" writes nothing. "disabled" writes nothing. Options are wandb.init's: dir (WANDB_DIR,
--- the folder of the run is made in its wandb/), project (init_trackers' name), name, entity, group, job_type, tags, notes, id, resume,
--- mode, config. Each except config has its variable (WANDB_NAME, WANDB_ENTITY, WANDB_RUN_GROUP, ...). It runs on every rank, as
--- Accelerate's does.
--- example: require("accel.track.wandb").name --> "wandb"
---@class accel.track.WandBTracker: accel.track.Written
local WandBTracker = written.Written:extend "accel.track.WandBTracker"

WandBTracker.name = "wandb"
WandBTracker.requires_logging_directory = false
WandBTracker.main_process_only = false

---@param run_name string the project
---@param opts? table
function WandBTracker:init(run_name, opts, ...)
  if type(run_name) ~= "string" or run_name == "" then raise("tracker 'wandb': run_name must be a string") end
  local o = options("tracker 'wandb'", opts, DECLARED, ...)
  local function of(value, variable) return value or os.getenv(variable) end
  local mode = of(o.mode, "WANDB_MODE") or "offline"
  if mode == "dryrun" then mode = "offline" end
  if not MODES[mode] then raise("tracker 'wandb': mode must be offline, online or disabled, got '%s'", mode) end
  no_effect("accel.track.WandBTracker", o)
  if o.config ~= nil and type(o.config) ~= "table" then raise("tracker 'wandb': config must be a table") end
  local tags, rank = o.tags, dist.get_rank()
  if not tags and os.getenv "WANDB_TAGS" then
    tags = {}
    for tag in os.getenv "WANDB_TAGS":gmatch "[^,]+" do tags[#tags + 1] = tag end
  end
  local id = of(o.id, "WANDB_RUN_ID")
  if id and (rank > 0 or not id:find "^[%w_-]+$") then
    if rank == 0 then raise("tracker 'wandb': an id is letters, digits, - and _, got '%s'", id) end
    id = id .. "-rank" .. rank
  end
  local name = of(o.name, "WANDB_NAME")
  self.mode, self.run_name, self.step, self.num, self.given = mode, run_name, -1, 0, o.config
  self.id = id or environment.random_id(8)
  self.about = { id = self.id, project = of(o.project, "WANDB_PROJECT") or run_name, entity = of(o.entity, "WANDB_ENTITY"),
    group = of(o.group, "WANDB_RUN_GROUP"), job_type = of(o.job_type, "WANDB_JOB_TYPE"), notes = of(o.notes, "WANDB_NOTES"), tags = tags,
    name = name and rank > 0 and name .. "-rank" .. rank or name, resume = of(o.resume, "WANDB_RESUME") ~= nil and o.resume ~= false }
  self.folder = ("%s/wandb/offline-run-%s-%s"):format(of(o.dir, "WANDB_DIR") or ".", os.date "%Y%m%d_%H%M%S", self.id)
end

--- Writes a record: make(number, ...), of accel.track.wandb_records.
local function put(self, make, ...)
  self.num = self.num + 1
  self.writer:bytes(0, make(self.num, ...))
end

local function texts(values)
  local out = {}
  for key, x in accel.pairs(values) do out[tostring(key)] = records.json(written.plain(x)) end
  return out
end

--- Opens the log of the run. init_trackers calls it.
function WandBTracker:start()
  if self.mode == "disabled" then return end
  local ok, message = accel.makedirs(self.folder .. "/files")
  local writer
  if ok then writer, message = core.wandb(("%s/run-%s.wandb"):format(self.folder, self.id)) end
  if not writer then raise("tracker 'wandb': %s", message) end
  self.writer, self.started = writer, core.now()
  local about, git = self.about, environment.git(environment.folder())
  about.host, about.started, about.commit, about.config = environment.host(), self.started, git and git.revision, texts(self.given or {})
  put(self, records.header, "accel " .. accel._VERSION)
  put(self, records.run, about)
end

--- Itself: get_tracker("wandb", { unwrap = true }) corresponds to wandb.run, with log, folder and id.
function WandBTracker:tracker() return self end

--- Takes the run's configuration.
---@param values table
function WandBTracker:store_init_configuration(values)
  if self.mode == "disabled" then return end
  self:needs_run "store_init_configuration"
  put(self, records.config, texts(values))
end

--- The row of a step is written once the step is over: all values logged to one step are one row, as in W&B.
local function close_row(self)
  local row = self.row
  if not row then return end
  self.row = nil
  local now = core.now()
  row._step, row._timestamp, row._runtime = tostring(self.step), records.json(now), records.json(now - self.started)
  put(self, records.summary, row)
  put(self, records.history, self.step, row)
end

local function add(self, method, values, step, commit)
  self:needs_run(method)
  if step == nil and self.open then
    step = self.step
  elseif step == nil then
    close_row(self)
    step = self.step + 1
  elseif step > self.step then
    close_row(self)
  elseif step < self.step or not self.row then
    if not self.warned_of_step then
      self.warned_of_step = true
      io.stderr:write(("accel: tracker 'wandb': steps must grow: values for step %d after step %d are left out\n"):format(step, self.step))
    end
    return
  end
  self.step, self.row = step, self.row or {}
  for key, text in next, values do self.row[key] = text end
  self.open = commit == false
  if commit then close_row(self) end
end

--- Numbers, tensors of one element, strings, booleans, and tables of these, which are one row. Rows have growing steps. Without a step the
--- row is the next one. commit, as in wandb.log: false leaves the row open for the next call without a step. true ends it, and later
--- values for the same step are left out.
---@param values table<string, any>
---@param step? integer
---@param opts? {commit: boolean?}
function WandBTracker:log(values, step, opts, ...)
  local o
  step, o = written.placed("tracker 'wandb': log", step, opts, { commit = none }, ...)
  if self.mode == "disabled" then return end
  local row = {}
  for key, x in accel.pairs(values) do row[tostring(key)] = records.json(written.plain(x)) end
  add(self, "log", row, step, o.commit)
  if self.writer then self:look_at(self.writer) end
end

--- Writes a file of the run and returns its path, which contains the hash of its content, and the hash.
local function keep(self, folder, name, step, ending, data)
  local hash = core.sha256(data)
  local path = ("media/%s/%s_%d_%s.%s"):format(folder, name:gsub("[^%w_./-]", "_"), step, hash:sub(1, 20), ending)
  local full = self.folder .. "/files/" .. path
  local ok, message = accel.makedirs(full:match "^(.*)/")
  if ok then ok, message = accel.write_file(full, data) end
  if not ok then
    io.stderr:write(("accel: tracker 'wandb': '%s' is left out: %s\n"):format(name, message))
    return nil
  end
  put(self, records.file, path)
  return path, hash
end

--- Images by name: tensors of one or several (floats of 0 to 1 or u8, CHW, NCHW, HW or in dataformats), bytes of PNG or JPEG files,
--- or lists of them.
---@param values table<string, any>
---@param step? integer
---@param opts? {dataformats: string?}
function WandBTracker:log_images(values, step, opts, ...)
  local o, row = nil, {}
  step, o = written.placed("log_images", step, opts, { dataformats = none }, ...)
  if self.mode == "disabled" then return end
  self:needs_run "log_images"
  for key, value in accel.pairs(values) do
    local list, names = image.images("log_images", value, o.dataformats), {}
    local ending = list[1] and list[1].mime:match "/(.*)"
    for i, img in ipairs(list) do
      names[#names + 1] = keep(self, "images", ("%s%s"):format(key, i > 1 and "_" .. i - 1 or ""), step or self.step + 1, ending, img.data)
    end
    if #names > 0 then
      row[tostring(key)] = records.json { _type = "images/separated", width = list[1].width, height = list[1].height, format = ending,
        count = #names, filenames = names, captions = false }
    end
  end
  add(self, "log_images", row, step)
end

--- A table of columns and rows.
---@param table_name string
---@param o {columns: string[], data: any[][], step: integer?}
function WandBTracker:log_table(table_name, o, ...)
  o = options("log_table", o, { columns = none, data = none, step = none }, ...)
  if self.mode == "disabled" then return end
  self:needs_run "log_table"
  if type(o.data) ~= "table" then raise "log_table: data must be a list of rows" end
  local rows, columns = accel.json.array {}, o.columns
  for i, row in ipairs(o.data) do
    rows[i] = accel.json.array {}
    for k, x in ipairs(row) do rows[i][k] = written.plain(x) end
  end
  if not columns then
    columns = accel.json.array {}
    for i in ipairs(rows[1] or {}) do columns[i] = tostring(i - 1) end
  end
  local data = records.json { columns = columns, data = rows }
  local path, hash = keep(self, "table", table_name, o.step or self.step + 1, "table.json", data)
  if not path then return end
  add(self, "log_table", { [table_name] = records.json { _type = "table-file", path = path, sha256 = hash, size = #data, ncols = #columns,
    nrows = #rows } }, o.step)
end

--- Ends the run, and prints how to send it. With mode = "online" it is sent.
function WandBTracker:finish()
  if not self.writer then return end
  close_row(self)
  put(self, records.exit, 0, math.floor(core.now() - self.started))
  written.Written.finish(self)
  local command = ("wandb sync '%s'"):format(self.folder:gsub("'", "'\\''"))
  if self.mode == "online" and os.execute(command .. " >&2") then return end
  if dist.get_rank() == 0 then io.stderr:write(("accel: tracker 'wandb': the run is in %s; send it with %s\n"):format(self.folder, command)) end
end

return WandBTracker
