--- Run: writes a script's logs into a run store (one SQLite file, runs.db, per project folder. host/include/accel/store.h has its
--- tables). Used by store_tracker.lua. Scripts may make their own. `accel-run runs` and `accel-run ui` show it.
local accel = require "accel"
local annotations = require "accel.track.annotations"
local check = require "accel.util.check"
local class = require "accel.util.class"
local core = require "accel.track.core"
local environment = require "accel.track.environment"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local written = require "accel.track.written"
local open_read = require("accel.file.core").open_read

--- Logs into DIR/runs.db, which other runs may write at the same time. Nothing that it does waits for a disk: a thread writes twice a
--- second. Its methods never wait for a disk: a thread writes twice a second. Values logged a second before a kill -9 are kept.
---
---     local run = accel.track.Run { project = "mnist", config = { lr = 0.1 } }
---     for step = 1, 100 do run:log({ loss = 1 / step }, step) end
---     run:finish()
---
--- example: local dir = accel.mkdtemp "/tmp/x" local run = accel.track.Run { dir = dir, name = "a" } run:log({ loss = 1 }, 1)
---   run:finish() return #accel.track.Store(dir):runs() --> 1
---@class accel.track.Run
---@field id string of all runs. resume = id continues it
---@field name string
---@field project string
---@field path string the store's file
local Run = class "accel.track.Run"

local declared <const> = { project = "default", name = options.none, dir = ".", config = options.none, id = options.none,
  resume = options.none, system = true, alerts = options.none, group = options.none, tags = options.none, notes = options.none }

--- The store's file for a folder or a file.
---@param where string
---@return string
function Run.path_of(where)
  if where:match "%.db$" or where:match "%.sqlite3?$" then return where end
  return (where == "" and "." or where) .. "/runs.db"
end

local function script_name()
  local script = type(arg) == "table" and arg[0]
  local name = type(script) == "string" and script:match "([^/]+)$"
  return name and name:gsub("%.lua$", "") or "run"
end

---@param opts? {project: string?, name: string?, dir: string?, config: table?, id: string?, resume: string?, system: boolean?, alerts: any?,
---   group: string?, tags: string[]?, notes: string?}
---   project: the run's project. name: for people (the script's name and part of the id). dir: folder of the store, or its
---   file. config: the run's configuration. id: its own, default a random one. resume: the id of a run to continue. system: also
---   log metrics of the machine and its GPUs, every ten seconds. alerts: options of accel.track.Alerts, true for its defaults. group, tags,
---   notes: for people, also edited on the page of accel-run ui. A run of accel-run sweep goes into the sweep's store and group
function Run:init(opts, ...)
  local o = options("Run", opts, declared, ...)
  if o.id and o.resume then raise "Run: give id for a new run, or resume for an earlier one, not both" end
  local place = not (o.resume or o.id) and annotations.place() or nil
  self.id = o.resume or o.id or place and place.id or environment.random_id(10)
  self.project = o.project
  if o.name ~= nil and type(o.name) ~= "string" then raise("Run: name must be a string, got %s", check.shown(o.name)) end
  self.name = o.name or ("%s-%s"):format(script_name(), tostring(self.id):sub(1, 4))
  self.path = Run.path_of(place and place.store or o.dir)
  local folder = self.path:match "^(.*)/[^/]*$"
  if folder and folder ~= "" then
    local ok, message = accel.makedirs(folder)
    if not ok then raise("Run: %s", message) end
  end
  local writer, message = core.run(self.path, { uid = self.id, project = self.project, name = self.name,
    environment = accel.json.encode(environment.describe()), resume = o.resume ~= nil, system = o.system })
  if not writer then raise("Run: %s", message) end
  self.writer, self.step = writer, 0
  if o.config then self:log_config(o.config) end
  if place then
    self:log_config(place.parameters)
    self:annotate("sweep", { sweep = place.sweep, trial = place.trial, command = place.command, parameters = place.parameters })
    if not o.group then self:annotate("group", place.sweep) end
  end
  for _, key in ipairs { "group", "tags", "notes" } do
    if o[key] ~= nil then self:annotate(key, o[key]) end
  end
  if o.alerts then self.alerts = require "accel.track.alerts"(self, o.alerts) end
end

local function writer_of(self, who) return self.writer or raise("Run: %s after finish", who) end

--- The run's configuration. Nested tables become names with a slash. Later values of a name take the place of earlier ones.
---@param values table
function Run:log_config(values)
  local writer = writer_of(self, "log_config")
  local flat, names = written.flatten(values)
  for _, name in ipairs(names) do
    local x = flat[name]
    if type(x) == "number" and x - x ~= 0 then x = tostring(x) end
    writer:record("config", name, 0, nil, accel.json.encode(x))
  end
end

--- Notes something about the run: its group, tags or notes. The last value of a key counts.
---@param key "group"|"tags"|"notes"|"sweep"
---@param value string|string[]|table
function Run:annotate(key, value)
  local data, message = annotations.encode(key, value)
  if not data then raise("Run: %s", message) end
  writer_of(self, "annotate"):record("annotation", key, 0, nil, data)
end

--- Values of a step: numbers and tensors of one element go into series, strings become texts, tables give names with a slash. Other
--- values are left out.
---@param values table<string, any>
---@param step? integer the step after the last one
function Run:log(values, step, ...)
  step = written.placed("Run:log", step, nil, {}, ...)
  local writer = writer_of(self, "log")
  step = step or self.step + 1
  self.step = step
  local function add(prefix, t)
    for key, value in accel.pairs(t) do
      local name = prefix .. tostring(key)
      local x = written.number(value)
      if x then
        writer:scalar(name, step, x)
        if self.alerts then self.alerts:look(name, x, step) end
      elseif type(value) == "string" then writer:record("text", name, step, nil, value)
      elseif type(value) == "boolean" then writer:scalar(name, step, value and 1 or 0)
      elseif type(value) == "table" and getmetatable(value) == nil then add(name .. "/", value) end
    end
  end
  add("", values)
  if self.alerts then self.alerts:alive() end
end

--- One number: the cheapest way in.
---@param name string
---@param value number
---@param step integer
function Run:log_scalar(name, value, step) writer_of(self, "log_scalar"):scalar(name, step, value) end

--- Images by name: tensors (floats of 0 to 1 or u8, CHW, NCHW, HW, or in dataformats), or bytes of PNG or JPEG files, or lists.
---@param values table<string, any>
---@param step? integer
---@param opts? {dataformats: string?, caption: string?}
function Run:log_images(values, step, opts, ...)
  local o
  step, o = written.placed("log_images", step, opts, { dataformats = options.none, caption = options.none }, ...)
  local writer = writer_of(self, "log_images")
  local image = require "accel.track.image"
  for name, value in accel.pairs(values) do
    for i, img in ipairs(image.images("log_images", value, o.dataformats)) do
      writer:record("image", name, step or self.step, accel.json.encode { width = img.width, height = img.height, mime = img.mime,
        index = i, caption = o.caption }, img.data)
    end
  end
end

--- How the elements of a tensor, or the numbers of a list, are spread.
---@param name string
---@param values accel.Tensor|number[]
---@param step? integer
---@param opts? {bins: integer?}
function Run:log_histogram(name, values, step, opts, ...)
  local o
  step, o = written.placed("log_histogram", step, opts, { bins = 30 }, ...)
  local limits, counts = require("accel.track.summary").bins(written.numbers(values), o.bins)
  writer_of(self, "log_histogram"):record("histogram", name, step or self.step, nil,
    accel.json.encode { limits = accel.json.array(limits), counts = accel.json.array(counts) })
end

--- A table: a list of rows, each as long as columns.
---@param name string
---@param columns string[]
---@param rows any[][]
---@param step? integer
function Run:log_table(name, columns, rows, step, ...)
  step = written.placed("Run:log_table", step, nil, {}, ...)
  for i, row in ipairs(rows) do
    if #row ~= #columns then raise("log_table: row %d of '%s' has %d values for %d columns", i, name, #row, #columns) end
  end
  local plain = {}
  for i, row in ipairs(rows) do
    local out = {}
    for k, x in ipairs(row) do
      x = written.number(x) or x
      out[k] = (type(x) == "number" and x - x == 0 or type(x) == "boolean") and x or tostring(x)
    end
    plain[i] = accel.json.array(out)
  end
  writer_of(self, "log_table"):record("table", name, step or self.step, nil,
    accel.json.encode { columns = accel.json.array(columns), rows = accel.json.array(plain) })
end

--- A file or folder that the run made or used: its place is noted, not its bytes.
---@param path string
---@param opts? {name: string?, kind: string?}
function Run:log_artifact(path, opts, ...)
  local o = options("log_artifact", opts, { name = path:match "([^/]+)/*$" or path, kind = "file" }, ...)
  local file, size = open_read(path), nil
  if file then
    size = file:seek "end"
    file:close()
    if size == math.maxinteger then size = nil end -- a folder
  end
  local full = path:sub(1, 1) == "/" and path or environment.folder() .. "/" .. path
  writer_of(self, "log_artifact"):record("artifact", o.name, self.step, accel.json.encode { path = full, bytes = size, kind = o.kind }, "")
end

--- Something that a person should know.
---@param title string
---@param text? string
---@param opts? {level: string?, step: integer?} level: "info", "warn" (default) or "error"
function Run:alert(title, text, opts, ...)
  if type(text) == "table" and opts == nil then text, opts = nil, text end
  if text ~= nil and type(text) ~= "string" then raise("alert: text must be a string, got %s", check.shown(text)) end
  local o = options("alert", opts, { level = "warn", step = options.none }, ...)
  if o.level ~= "info" and o.level ~= "warn" and o.level ~= "error" then
    raise("alert: level must be 'info', 'warn' or 'error', got %s", check.shown(o.level))
  end
  writer_of(self, "alert"):record("alert", title, o.step or self.step, accel.json.encode { level = o.level }, text or "")
end

--- Writes all logged values to the file. Returns true. On failure returns nil, message, code.
function Run:flush() return writer_of(self, "flush"):flush() end

--- Ends the run, once. Returns true. If data could not be written, returns nil, message, code. A run that is not ended ends with its
--- script.
---@param status? "finished"|"failed" default: "finished"
---@param message? string
function Run:finish(status, message, ...)
  check.surplus("Run:finish", ...)
  if message ~= nil and type(message) ~= "string" then raise("finish: message must be a string, got %s", check.shown(message)) end
  if not self.writer then return true end
  if status and status ~= "finished" and status ~= "failed" then
    raise("finish: status must be 'finished' or 'failed', got %s", check.shown(status))
  end
  local writer = self.writer
  self.writer = nil
  writer:record("end", status or "finished", status == "failed" and 1 or 0, nil, message or "")
  local ok, why, code = writer:close()
  if self.alerts then self.alerts:close() end
  return ok, why, code
end

return Run
