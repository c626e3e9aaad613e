-- The views of accel-run ui in headless Chromium: the table (columns, order, groups, CSV), an address that keeps the view, the page of a run
-- with notes that go into the store, two runs compared, parallel coordinates, files of a chart, windows of three widths, and axe-core where
-- python3 has axe_playwright_python.  tier: slow
--   accel-run tests/stdlib/track/page_views_test.lua [FOLDER]    pictures go into FOLDER
local accel = require "accel"
local core = require "accel.track.core"
package.path = (arg[0]:match "^(.*)/" or ".") .. "/../../support/?.lua;" .. package.path
local support = require "track"
support.needs(core.sqlite, core.http_library)
local browser = support.browser()

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or core.current_folder()) .. "/page-views-"))
for k = 1, 6 do
  local run = accel.track.Run { dir = root, project = "p", name = "run " .. k, system = k == 3, group = k > 3 and "late" or nil,
    config = { lr = 0.1 * k, opt = k % 2 == 0 and "adam" or "sgd", same = 1, ["a,b"] = 'x"y' } }
  for s = 1, 50 do run:log({ loss = math.abs(k - 3.5) + 1 / s, acc = s / 50 }, s) end
  if k == 3 then
    run:alert("look", "here")
    run:log_images({ pic = accel.rand(3, 8, 8) }, 5)
    run:log({ note = "a text" }, 50)
    run:log_histogram("weights", { 1, 2, 2, 3 }, 50)
  end
  run:finish()
end

local url, pid = support.page(("'%s'"):format(root), root)
local ok, err = xpcall(function()
  local got = support.in_browser(browser, "page_views.py", url, arg[1])
  local function words(list)
    local out = {}
    for i, x in ipairs(list) do out[i] = tostring(x) end
    return table.concat(out, " | ")
  end
  assert(words(got.table[1]):find "show | name | status | group | time | step | lr | opt | acc | loss", words(got.table[1]))
  assert(#got.table == 7 and words(got.table[2]):find "run 6 | finished | late | .- | 50 | 0.6 | adam | 1 | 2.52", words(got.table[2]))
  for i, name in ipairs { 4, 3, 5, 2, 6, 1 } do -- by |k - 3.5|, of equal ones the last run first
    assert(got.sorted[i] == "run " .. name, words(got.sorted))
  end
  assert(words(got.aria_sort) == "loss \u{25B2}" and select(2, got.csv:gsub("\r\n", "")) == 7 and got.csv:find("id,name,status,group,", 1, true))
  assert(words(got.filtered) == "run 4 | run 3 | run 5 | run 2 | run 6" and words(got.groups) == "opt adam (3) | opt sgd (2)", words(got.groups))
  assert(words(got.kept):find("table | lr>=0.2 | c:opt | m:loss | status min:loss | 0.5 | true", 1, true), words(got.kept))
  assert(words(got.heads) == "show | name | status | min loss", words(got.heads))
  -- what was typed is in the store
  local store = accel.track.Store(root)
  local run = assert(store:find "run 3")
  assert(run.notes == "seen" and words(run.tags) == "good | <b>" and words(got.by_tag) == "run 3", run.notes)
  for _, part in ipairs { "look", "same", "Origin", "processors", "Machine", "not finite" } do assert(got.run:find(part, 1, true), part) end
  local rows = {}
  for _, row in ipairs(got.compare) do rows[row[1]] = row end
  assert(rows.lr and not rows.same and rows.loss[3]:find "%%", "two runs are compared")
  assert(got.lines == 6 and got.dots == 6 and words(got.axes) == "lr | opt | loss", words(got.axes))
  assert(got.brushed >= 2 and got.brushed < 6, got.brushed)
  assert(got.svg:find "^<svg xmlns" and got.svg_valid and select(2, got.svg:gsub("<path ", "")) > 6 and got.svg:find ">run 4<")
  assert(select(2, got.chart_csv:gsub("\r\n", "")) == 301 and got.chart_csv:find(",run 4,loss,50,0.52,0.52,0.52\r\n", 1, true))
  assert(#got.wide == 0, words(got.wide))
  if got.axe then assert(#got.axe == 0, table.concat(got.axe, "\n")) else print "not checked with axe-core (package axe_playwright_python)" end
  assert(#got.errors == 0, got.errors[1])
  assert(#got.elsewhere == 0, got.elsewhere[1])
end, debug.traceback)
os.execute("kill " .. pid)
os.execute(("rm -rf '%s'"):format(root))
assert(ok, err)
