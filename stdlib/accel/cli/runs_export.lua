--- accel-run runs export: every value of a run as CSV or JSON lines on stdout, or as TensorBoard's event files in a folder, which
--- `wandb sync --sync-tensorboard`, `aim convert tensorboard`, `swanlab convert -t tensorboard` and others read.
local accel = require "accel"
local command = require "accel.cli.command"
local core = require "accel.track.core"
local opened = require "accel.cli.runs_store"

local PROGRAM <const> = "accel-run runs export"
local PAGE <const> = 10000

--- Calls take(row) for every point of a series, in the order of its steps.
local function each_point(store, series, take)
  local step, seq = math.mininteger, -1
  while true do
    local list = assert(store:rows("SELECT step, seq, wall, value FROM points WHERE series=?1 AND (step, seq) > (?2, ?3)"
      .. " ORDER BY step, seq LIMIT " .. PAGE, series.id, step, seq))
    for _, p in ipairs(list) do take(p) end
    if #list < PAGE then return end
    step, seq = list[#list].step, list[#list].seq
  end
end

local function quoted(s) return s:find '[,"\r\n]' and '"' .. s:gsub('"', '""') .. '"' or s end

local writers = {}

function writers.csv(store, _, series)
  io.write "name,step,time,value\n"
  for _, s in ipairs(series) do
    local name = quoted(s.tag)
    each_point(store, s, function(p) io.write(("%s,%d,%.6f,%s\n"):format(name, p.step, p.wall, p.value and ("%.17g"):format(p.value) or "nan")) end)
  end
  return true
end

function writers.jsonl(store, run, series)
  local config = assert(store:config(run))
  io.write(accel.json.encode { run = run.uid, name = run.name, project = run.project, status = run.status, config = config,
    environment = run.environment }, "\n")
  for _, s in ipairs(series) do
    each_point(store, s, function(p)
      local value = p.value or "NaN"
      if value == math.huge then value = "Infinity" elseif value == -math.huge then value = "-Infinity" end
      io.write(accel.json.encode { name = s.tag, step = p.step, time = p.wall, value = value }, "\n")
    end)
  end
  for _, kind in ipairs { "text", "histogram", "table", "artifact", "alert" } do
    for _, r in ipairs(assert(store:records(run, kind))) do
      io.write(accel.json.encode { kind = kind, name = r.tag, step = r.step, time = r.wall, meta = r.meta, data = r.data or "" }, "\n")
    end
  end
  return true
end

function writers.tensorboard(store, run, series, out)
  local summary, written = require "accel.track.summary", require "accel.track.written"
  local folder = out .. "/" .. run.name:gsub("/", "_")
  local ok, message = accel.makedirs(folder)
  local writer
  if ok then writer, message = core.events(folder) end
  if not writer then return command.refuse(PROGRAM, "%s", message) end
  local n = 0
  local function room() -- the queue holds 64 MiB
    n = n + 1
    if n % PAGE == 0 then assert(writer:flush()) end
  end
  local config = assert(store:config(run))
  if next(config) then
    local flat, names = written.flatten(config)
    writer:bytes(0, summary.session_start(flat, names, run.started), run.started)
  end
  for _, s in ipairs(series) do
    each_point(store, s, function(p)
      writer:scalar(s.tag, p.step, p.value or 0 / 0, p.wall)
      room()
    end)
  end
  for _, r in ipairs(assert(store:records(run, "text"))) do
    writer:bytes(r.step, summary.text(r.tag .. "/text_summary", r.data), r.wall)
  end
  for _, r in ipairs(assert(store:rows("SELECT tag, step, wall, meta, data FROM records WHERE run=? AND kind='image' ORDER BY id", run.id))) do
    local img = accel.json.decode(r.meta)
    img.data, img.channels = r.data, 3
    local tag = (img.index or 1) > 1 and ("%s/%d"):format(r.tag, img.index - 1) or r.tag
    writer:bytes(r.step, summary.images(tag, { img })[1], r.wall)
    assert(writer:flush())
  end
  if next(config) then writer:bytes(0, summary.session_end(run.status == "finished", run.ended or run.heartbeat), run.ended) end
  ok, message = writer:close()
  if not ok then return command.refuse(PROGRAM, "%s", message) end
  command.say("%s", folder)
  return true
end

return function(...)
  local o, words = command.parse({
    name = PROGRAM, usage = "RUN", summary = "Prints every value of a run.", opened.option,
    { "format", { "csv", "jsonl", "tensorboard" }, "csv", "WORD", "the output format" },
    { "out", "string", nil, "DIR", "for tensorboard: write a folder of the run into DIR" },
  }, 1, 1, ...)
  if (o.format == "tensorboard") ~= (o.out ~= nil) then
    io.stderr:write(PROGRAM, ": --out DIR goes with --format tensorboard\n")
    os.exit(2, true)
  end
  local store <close>, run = opened.run(PROGRAM, o, words[1])
  if not run then return false end
  local series = opened.need(store.store:series(run))
  return series ~= nil and writers[o.format](store.store, run, series, o.out)
end
