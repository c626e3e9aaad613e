-- Run and Store: everything that a run logs comes back; runs that go on, end by themselves, exit or fail; images read by another
-- program where python3 has one; log_with = "store"; accel.plot.  tier: every change
--   accel-run tests/stdlib/track/run_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
package.path = ranks.tests .. "support/?.lua;" .. package.path
local same, says = ranks.same, ranks.fails

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/run-"))
do
  local store, message, code = accel.track.Store.open(root)
  if code == "unsupported" then
    print("skip: " .. message)
    os.exit(77)
  end
  assert(store == nil and code == "not_found" and message:find "no run store", tostring(message))
end

-- ---- what goes in comes out ----
local run = accel.track.Run { dir = root .. "/a", project = "p", name = "first",
  config = { lr = 0.125, opt = { name = "adam", betas = { 0.9, 0.99 } }, flag = true, odd = 1 / 0 } }
for i = 1, 2000 do run:log({ loss = 1 / i, val = { acc = accel.full({}, i) }, bad = 0 / 0, on = i % 2 == 0 }, i) end
run:log({ note = "some text" }, 7)
run:log { later = 3 }
local pixels = accel.arange(3 * 5 * 7):reshape(3, 5, 7):to "u8"
run:log_images({ rgb = pixels, list = { accel.zeros(4, 4), accel.ones(4, 4) }, batch = accel.rand(2, 1, 6, 8) }, 9, { caption = "c" })
run:log_images({ hwc = pixels:permute(2, 3, 1) }, 9, { dataformats = "HWC" })
run:log_histogram("h", accel.arange(100):to "f32", 3, { bins = 4 })
run:log_table("t", { "x", "y" }, { { 1, "a" }, { accel.full({}, 2.5), 0 / 0 } }, 4)
run:log_artifact(arg[0], { name = "script" })
run:alert("title", "why", { level = "error", step = 5 })
assert(run:flush())
says("log_table: row 1 of 't' has 1 values for 2 columns", run.log_table, run, "t", { "x", "y" }, { { 1 } })
says("does not fit", run.log_images, run, { x = accel.zeros(3) }, 1)
says("PNG or JPEG", run.log_images, run, { x = "GIF89a" }, 1)
says("unknown option 'projekt'; did you mean 'project'?", accel.track.Run, { projekt = "x" })
assert(run:finish())
assert(run:finish(), "once is enough")
says("log after finish", run.log, run, { x = 1 }, 1)

local store = accel.track.Store(root .. "/a")
local list = assert(store:runs())
assert(#list == 1 and list[1].uid == run.id and list[1].status == "finished" and list[1].exit_code == 0 and list[1].last_step == 2000)
local env = list[1].environment
assert(env.cpus >= 1 and env.command[1]:find "run_test" and env.directory:sub(1, 1) == "/" and env.accel == accel._VERSION)
same(assert(store:config(list[1])), { lr = 0.125, ["opt/name"] = "adam", ["opt/betas"] = "[0.9,0.99]", flag = true, odd = "inf" }, "config")
local by = {}
for _, s in ipairs(assert(store:series(list[1]))) do by[s.tag] = s end
assert(by.loss.n == 2000 and by.loss.min == 1 / 2000 and by.loss.max == 1 and by.loss.last_step == 2000)
assert(by["val/acc"].last == 2000 and by.bad.n == 2000 and by.bad.finite == 0 and by.bad.last == nil and by.on.last == 1)
assert(by.later.last_step == 8 and by["system/process_memory_mib"].last > 1)
local c = assert(store:curve(by.loss.id, { points = 100 }))
assert(#c.x <= 100 and #c.x >= 40 and c.max[1] == 1 and c.min[#c.min] == 1 / 2000)
c = assert(store:curve(by.loss.id, { from = 10, to = 12 }))
same(c.x, { 9.0, 10.0, 11.0, 12.0, 13.0 }, "x")
assert(assert(store:records(list[1], "text"))[1].data == "some text")
local h = accel.json.decode(assert(store:records(list[1], "histogram"))[1].data)
same(h, { limits = { 0.0, 24.75, 49.5, 74.25, 99.0 }, counts = { 0, 25, 25, 25, 25 } }, "histogram")
local t = accel.json.decode(assert(store:records(list[1], "table"))[1].data)
assert(t.columns[2] == "y" and t.rows[1][2] == "a" and t.rows[2][1] == 2.5 and tostring(t.rows[2][2]):find "nan")
local alert = assert(store:records(list[1], "alert"))[1]
assert(alert.tag == "title" and alert.data == "why" and alert.meta.level == "error" and alert.step == 5)
assert(assert(store:records(list[1], "artifact"))[1].meta.path:find "run_test.lua$")
local images = assert(store:rows "SELECT tag, step, meta, data FROM records WHERE kind='image' ORDER BY id")
assert(#images == 6 and images[1].tag == "batch" and images[2].tag == "batch" and images[6].tag == "hwc")
local rgb
for _, image in ipairs(images) do
  if image.tag == "rgb" then rgb = image end
end
same(accel.json.decode(rgb.meta), { width = 7, height = 5, mime = "image/png", index = 1, caption = "c" }, "meta")
assert(rgb.data == images[6].data, "the same pixels in another order")
assert(#store:find("fir" .. "st").uid == 10 and store:find(run.id:sub(1, 4)).uid == run.id and store:find("last").uid == run.id)
local none, message = store:find "firstt"
assert(none == nil and message:find("did you mean 'first'?", 1, true), message)

if os.execute "python3 -c 'import PIL' >/dev/null 2>&1" then
  local file = assert(io.open(root .. "/rgb.png", "wb"))
  file:write(rgb.data)
  file:close()
  local code = "from PIL import Image; im = Image.open('%s/rgb.png'); print(im.size, list(im.tobytes()))"
  local pipe = assert(io.popen(("python3 -c \"%s\""):format(code:format(root))))
  local text = pipe:read "a"
  pipe:close()
  local want = {}
  for y = 0, 4 do
    for x = 0, 6 do
      for ch = 0, 2 do want[#want + 1] = tostring(ch * 35 + y * 7 + x) end
    end
  end
  assert(text == "(7, 5) [" .. table.concat(want, ", ") .. "]\n", text)
else
  print "python3 with PIL is not here: PNG files are not read by another program"
end

-- ---- a run that goes on ----
says("has a run '" .. run.id .. "' already", accel.track.Run, { dir = root .. "/a", id = run.id })
local again = accel.track.Run { dir = root .. "/a", resume = run.id, system = false, name = "first" }
again:log({ loss = 0.25 }, 2001)
again:finish("failed", "on purpose")
list = assert(store:runs())
assert(#list == 1 and list[1].status == "failed" and list[1].message == "on purpose")
assert(store:rows("SELECT n, last FROM series WHERE tag='loss'")[1].n == 2001)

-- ---- how a script ends ----
local function script(code)
  local path = root .. "/script.lua"
  local file = assert(io.open(path, "w"))
  file:write("local accel = require 'accel'\nlocal run = accel.track.Run { dir = '", root, "/b', system = false }\nrun:log({ x = 1 }, 1)\n", code)
  file:close()
  os.execute(("'%s' '%s' >/dev/null 2>&1"):format(accel.process.program(), path))
  local other = accel.track.Store(root .. "/b")
  local last = assert(other:runs())[1]
  local n = other:rows("SELECT n FROM series WHERE run=?", last.id)[1].n
  other:close()
  return last, n
end
for code, want in accel.pairs { [""] = { "finished", 0 }, ["os.exit(3)"] = { "failed", 3 }, ["os.exit(0, true)"] = { "finished", 0 },
  ["error 'went wrong'"] = { "failed", 1, "script.lua:4: went wrong" }, ["os.execute 'kill -9 $PPID'"] = { "killed" } } do
  if code:find "kill" then code = "run:flush() " .. code .. " while true do end" end
  local last, n = script(code)
  if want[1] == "killed" then
    assert(last.status == "running" or last.status == "killed", last.status)
    local other = accel.track.Store(root .. "/b", { write = true })
    other:rows("UPDATE runs SET heartbeat=heartbeat-10 WHERE id=?", last.id) -- its process is gone for some time
    last = assert(other:runs())[1]
    other:close()
  end
  assert(last.status == want[1] and last.exit_code == want[2] and n == 1, code .. ": " .. accel.inspect(last))
  if want[3] then assert(last.message:find(want[3], 1, true), last.message) end
end

-- ---- an Accelerator's tracker, and accel.plot ----
local a = accel.Accelerator { log_with = "store", project_dir = root .. "/c" }
a:init_trackers("proj", { lr = 1 }, { store = { name = "try", system = false } })
for i = 1, 50 do a:log({ loss = i }, i) end
a:get_tracker("store"):log_table("t", { columns = { "x" }, data = { { 1 } } })
local text = accel.plot(a:get_tracker("store", true), { print = false, utf8 = false })
assert(text:find "^loss\n" and text:find "50.000 |" and text:find "%.%. try", text)
a:end_training()
local c_store = accel.track.Store(root .. "/c")
local tracked = c_store:find "try"
assert(tracked.project == "proj" and tracked.status == "finished" and c_store:config(tracked).lr == 1)
assert(accel.plot(root .. "/c", { print = false, utf8 = false, metric = "lo*" }) == text)
assert(accel.plot(root .. "/c", { print = false, metric = "nothing" }) == "(nothing to plot)\n")

-- ---- removal ----
c_store:close()
c_store = accel.track.Store(root .. "/c", { write = true })
assert(c_store:remove(tracked) == 1 and #c_store:runs() == 0)
for _, name in ipairs { "points", "series", "buckets", "records", "config" } do
  assert(c_store:rows("SELECT count(*) AS n FROM " .. name)[1].n == 0, name)
end
assert(c_store:pack())
