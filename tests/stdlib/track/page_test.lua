-- The page of accel-run ui in headless Chromium, where it and python3 are: curves are drawn, values that a run logs are drawn within a
-- second, a zoom into 100 runs of 100,000 points takes less than 200 ms, keys, dark and light, windows of other sizes; nothing is asked of
-- any other place, and without the token there is nothing.  tier: slow
--   accel-run tests/stdlib/track/page_test.lua [RUNS POINTS [FOLDER]]    pictures of the views go into FOLDER
local accel = require "accel"
local core = require "accel.track.core"
package.path = (arg[0]:match "^(.*)/" or ".") .. "/../../support/?.lua;" .. package.path
local support = require "track"
support.needs(core.sqlite, core.http_library)

local browser = support.browser()

local runs, points, pictures = tonumber(arg[1]) or 100, tonumber(arg[2]) or 100000, arg[3]
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or core.current_folder()) .. "/page-"))
local program = accel.process.program()
for r = 1, runs do
  local run = accel.track.Run { dir = root, project = "digits", name = "run-" .. r, system = r == runs,
    config = { lr = 0.1 * r, opt = r % 2 == 0 and "adam" or "sgd" } }
  for i = 1, points do run:log({ ["train/loss"] = 2 / (1 + i * 1e-4 * r) + 0.05 * math.sin(i / 50 + r) }, i) end
  if r == runs then
    for i = 1, 300 do run:log({ ["val/acc"] = 1 - 1 / i, lr = 1 / i }, i) end
    run:log_images({ sample = accel.rand(3, 32, 32) }, 100)
    run:log({ note = "a text" }, 200)
    run:log_table("cases", { "x", "y" }, { { 1, "a" }, { 2, "b" } }, 200)
  end
  run:finish()
end
assert(accel.write_file(root .. "/live.lua", ([[local accel = require "accel"
local run = accel.track.Run { dir = '%s', project = "digits", name = "live", system = false }
for i = 1, 2000 do
  run:log({ ["live/time"] = require "accel.track.core".now() }, i)
  require "accel.track.core".pause(0.1)
end]]):format(root)))

local url, pid = support.page(("'%s'"):format(root), root)
local ok, err = xpcall(function()
  local got = support.in_browser(browser, "browser.py", url, ("exec '%s' '%s/live.lua'"):format(program, root), pictures)
  local text = accel.json.encode(got)
  print(("%d lines of %d points: a zoom in %.0f ms; a logged value is drawn after %.2f s"):format(got.lines, got.points, got.zoom_ms, got.lag))
  assert(got.runs == runs and got.lines == runs and got.points == runs * points, text)
  assert(got.zoomed[1] == 8000 and got.zoomed[2] == 8000 + points // 5 and got.reset and got.arrow, text)
  assert(table.concat(got.themes, " ") == "dark light" and got.help and got.help_closed, text)
  for _, view in ipairs { "curves", "table", "run", "config", "relations", "images", "text", "tables", "system" } do
    assert(got["view_" .. view], view .. " " .. text)
  end
  for _, size in ipairs { "normal", "80", "narrow" } do assert(got["overflow_" .. size] == false, size .. ": wider than the window") end
  assert(#got.elsewhere == 0 and got.asked > 5 and #got.errors == 0, text)
  assert(got.without_token:find "^0 This address needs the token", text)
  -- of several the least: what else the machine does makes one longer, never shorter
  assert(got.zoom_ms < 200 and got.lag < 1, text)
end, debug.traceback)
os.execute("kill " .. pid)
os.execute(("rm -rf '%s'"):format(root))
assert(ok, err)
