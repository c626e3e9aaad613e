--- DVCLiveTracker: log_with = "dvclive". Found by track/general_tracker.lua.
local accel = require "accel"
local core = require "accel.track.core"
local general = require "accel.track.general_tracker"
local image = require "accel.track.image"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local written = require "accel.track.written"
local open_read = require("accel.file.core").open_read

local SUMMARY_SECONDS <const> = 2

--- Writes DVCLive's files into a folder (dir, "dvclive"): plots/metrics/NAME.tsv, metrics.json with the last values, params.yaml,
--- plots/images, and next to the folder a dvc.yaml that names them (dvcyaml = false: none). Functions of Git and `dvc exp` are left to
--- dvc. It takes numbers and strings. Every log moves to the next step. Options: dir, resume, dvcyaml. save_dvc_exp, report and live
--- have no effect.
--- example: require "accel.track.dvclive" ().name --> "dvclive"
---@class accel.track.DVCLiveTracker: accel.accelerator.GeneralTracker
local DVCLiveTracker = general.GeneralTracker:extend "accel.track.DVCLiveTracker"

DVCLiveTracker.name = "dvclive"
DVCLiveTracker.requires_logging_directory = false

---@param run_name string|table init_trackers' name, which DVCLive's files cannot hold, or the options
---@param opts? {dir: string?, resume: boolean?, dvcyaml: string|boolean?, save_dvc_exp: boolean?, report: any, live: any}
function DVCLiveTracker:init(run_name, opts, ...)
  if type(run_name) == "table" and opts == nil then
    opts = {}
    for key, value in next, run_name do
      if key ~= "run_name" then opts[key] = value end
    end
  end
  local o = options("tracker 'dvclive'", opts, { dir = "dvclive", resume = false, dvcyaml = options.none, save_dvc_exp = options.none,
    report = options.none, live = options.none }, ...)
  no_effect("accel.track.DVCLiveTracker", o)
  self.dir, self.opts = o.dir, o
end

local function fold(path)
  local ok, message = accel.makedirs(path)
  if not ok then raise("tracker 'dvclive': %s", message) end
end

--- Begins the run: the files of an earlier one go, unless it is resumed.
function DVCLiveTracker:start()
  self.files, self.last, self.step, self.next_summary, self.images = {}, {}, 0, 0, false
  fold(self.dir)
  local metrics = self.dir .. "/metrics.json"
  local old = self.opts.resume and open_read(metrics)
  if old then
    local ok, value = pcall(accel.json.decode, old:read "a")
    old:close()
    self.step = ok and type(value) == "table" and math.tointeger(value.step) and value.step + 1 or 0
  elseif not self.opts.resume then
    local function clear(path)
      for _, name in ipairs(accel.listdir(path) or {}) do
        if accel.listdir(path .. "/" .. name) then clear(path .. "/" .. name) else os.remove(path .. "/" .. name) end
      end
    end
    clear(self.dir .. "/plots/metrics")
    clear(self.dir .. "/plots/images")
    os.remove(metrics)
    os.remove(self.dir .. "/params.yaml")
  end
  self.running = true
end

--- The tracker itself stands for dvclive's Live: `step`, `dir`.
function DVCLiveTracker:tracker() return self end

local function needs_run(self, method)
  if not self.running then raise("tracker 'dvclive': %s before start or after finish", method) end
end

--- Writes params.yaml.
---@param values table
function DVCLiveTracker:store_init_configuration(values)
  needs_run(self, "store_init_configuration")
  local ok, message = accel.write_file(self.dir .. "/params.yaml", require("accel.config.write").yaml(values))
  if not ok then raise("tracker 'dvclive': %s", message) end
  self.has_params = true
end

local function file_of(self, name)
  local writer = self.files[name]
  if writer then return writer end
  local path = ("%s/plots/metrics/%s.tsv"):format(self.dir, name)
  fold(path:match "^(.*)/")
  local message
  writer, message = core.lines(path, ("step\t%s\n"):format(name:match "[^/]*$"))
  if not writer then raise("tracker 'dvclive': %s", message) end
  self.files[name] = writer
  return writer
end

--- metrics.json: the last values, names with a slash nested.
local function summarize(self)
  local out = {}
  for name, value in next, self.last do
    local at = out
    for part in name:gmatch "([^/]+)/" do
      if type(at[part]) ~= "table" then at[part] = {} end
      at = at[part]
    end
    at[name:match "[^/]*$"] = value
  end
  out.step = self.step
  local ok, message = accel.write_file(self.dir .. "/metrics.json", accel.json.encode(out, { pretty = true }) .. "\n")
  if not ok and not self.warned then
    self.warned = true
    io.stderr:write(("accel: tracker 'dvclive': %s; training continues\n"):format(message))
  end
end

--- Numbers and strings of a step. The following step is next.
---@param values table<string, any>
---@param step? integer
---@param opts? table options of the tracker's own client
function DVCLiveTracker:log(values, step, opts, ...)
  step = written.placed("tracker 'dvclive': log", step, opts, {}, ...)
  needs_run(self, "log")
  if step then self.step = step end
  for key, value in accel.pairs(values) do
    local x, name = written.number(value), tostring(key):gsub("%.%.", "_")
    if not x and type(value) == "string" and not value:find "[\t\r\n]" then x = value end
    if x == nil then
      self.left_out = self.left_out or {}
      if not self.left_out[name] then
        self.left_out[name] = true
        io.stderr:write(("accel: tracker 'dvclive': '%s' is left out: numbers and strings are taken\n"):format(name))
      end
    else
      local text = type(x) == "number" and (math.type(x) == "integer" and ("%d"):format(x) or ("%.17g"):format(x)) or x
      file_of(self, name):bytes(self.step, ("%d\t%s\n"):format(self.step, text))
      self.last[name] = type(x) == "number" and x - x ~= 0 and (x ~= x and "nan" or x > 0 and "inf" or "-inf") or x
    end
  end
  if accel.clock() >= self.next_summary then
    summarize(self)
    self.next_summary = accel.clock() + SUMMARY_SECONDS
  end
  self.step = self.step + 1
end

--- Images by name, as plots/images/NAME.png (NAME/STEP.png with a step).
---@param values table<string, any>
---@param step? integer
---@param opts? {dataformats: string?}
function DVCLiveTracker:log_images(values, step, opts, ...)
  needs_run(self, "log_images")
  local o
  step, o = written.placed("log_images", step, opts, { dataformats = options.none }, ...)
  for key, value in accel.pairs(values) do
    for i, img in ipairs(image.images("log_images", value, o.dataformats)) do
      local name = tostring(key):gsub("%.%.", "_") .. (step and "/" .. step or "") .. (i > 1 and "_" .. i or "")
      local path = ("%s/plots/images/%s.%s"):format(self.dir, name, img.mime:match "/(.*)")
      fold(path:match "^(.*)/")
      local ok, message = accel.write_file(path, img.data)
      if not ok then raise("tracker 'dvclive': %s", message) end
      self.images = true
    end
  end
end

--- Ends the run: the last values, and dvc.yaml.
function DVCLiveTracker:finish()
  if not self.running then return end
  self.running = false
  for _, writer in accel.pairs(self.files) do written.Written.close_writer(self, writer) end
  if self.step > 0 then self.step = self.step - 1 end
  summarize(self)
  if self.opts.dvcyaml == false then return end
  local at = type(self.opts.dvcyaml) == "string" and self.opts.dvcyaml or "dvc.yaml"
  local base = at:match "^(.*/)" -- names in it are relative to its folder
  local dir = base and self.dir:sub(1, #base) == base and self.dir:sub(#base + 1) or self.dir
  local text = {}
  if self.has_params then text[#text + 1] = ("params:\n- %s/params.yaml\n"):format(dir) end
  text[#text + 1] = ("metrics:\n- %s/metrics.json\n"):format(dir)
  text[#text + 1] = ("plots:\n- %s/plots/metrics:\n    x: step\n"):format(dir)
  if self.images then text[#text + 1] = ("- %s/plots/images\n"):format(dir) end
  local old = open_read(at)
  local there = old and old:read "a"
  if old then old:close() end
  if there and not there:find("- " .. dir .. "/metrics.json", 1, true) then
    io.stderr:write(("accel: tracker 'dvclive': %s belongs to another program and is not changed; set another file with dvcyaml\n"):format(at))
    return
  end
  local ok, message = accel.write_file(at, table.concat(text))
  if not ok then io.stderr:write(("accel: tracker 'dvclive': %s\n"):format(message)) end
end

return DVCLiveTracker
