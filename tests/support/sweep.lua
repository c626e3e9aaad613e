--- What the tests of accel-run sweep share: a folder with a short script of runs, and ways to start the command there.
local accel = require "accel"
local core = require "accel.track.core"
require("track").needs(core.sqlite)

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/sweep-"))
local function write(name, text) assert(accel.write_file(root .. "/" .. name, text)) end
local function shell(fmt, ...)
  local pipe = assert(io.popen(fmt:format(...) .. " 2>&1"))
  local text = pipe:read "a"
  local _, _, status = pipe:close()
  return text, status
end
local function sweep(args) return shell("cd '%s' && COLUMNS=200 LC_ALL=C '%s' sweep %s", root, accel.process.program(), args) end

-- A run of five steps. Its pid and threads go into files, so that the test sees which ones ran.
write("t.lua", [[
local accel = require "accel"
local o = accel.util.cli { name = "t.lua", summary = "x", { "lr", "number", 0, "X", "" }, { "width", "int", 1, "N", "" },
  { "steps", "int", 5, "N", "" }, { "pause", "number", 0, "S", "" }, { "flag", "flag", false, nil, "" } }
local run = accel.track.Run { dir = "elsewhere", system = false, config = { width = o.width } }
accel.write_file(("ran/%s-%g-%d"):format(run.id, o.lr, o.width), ("%d %s"):format(accel.process.pid and accel.process.pid() or 0,
  os.getenv "ACCEL_NUM_THREADS" or ""))
for i = 1, o.steps do
  run:log({ loss = math.abs(o.lr - 0.3) + 1 / o.width + 1 / i }, i)
  if o.pause > 0 then require "accel.track.core".pause(o.pause) end
end
assert(run:finish())
]])
assert(accel.makedirs(root .. "/ran"))
local function ran() return #accel.listdir(root .. "/ran") end

return { root = root, write = write, shell = shell, sweep = sweep, ran = ran }
