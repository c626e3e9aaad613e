-- Faults that the page of accel-run ui had, in headless Chromium: a series without a finite value was "loading" for ever, labels of axes
-- were cut, the pointer showed values between steps and past the end of a run, whole rows were marked as different, and the list of runs
-- left no room in a narrow window.  tier: slow
--   accel-run tests/stdlib/track/page_faults_test.lua [FOLDER]    pictures go into FOLDER
local accel = require "accel"
local core = require "accel.track.core"
package.path = (arg[0]:match "^(.*)/" or ".") .. "/../../support/?.lua;" .. package.path
local support = require "track"
support.needs(core.sqlite, core.http_library)
local browser = support.browser()

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or core.current_folder()) .. "/page-faults-"))
local run = accel.track.Run { dir = root, project = "p", name = "long", system = false, config = { lr = 1, width = 8 } }
for s = 1, 200 do
  run:log({ lr = 3e-5 * (1 - s / 200), tokens = s * 123456, big = 1e5 + s * 1000, loss = 2 + 1e-4 * s, nan = 0 / 0, some = s % 2 == 0 and s or 0 / 0,
    huge = 1e30 * s / 200, ends = s, down = 10.0 ^ (-s / 20) }, 3 * s)
end
run:finish()
for name, width in accel.pairs { short = 8, wide = 16 } do
  run = accel.track.Run { dir = root, project = "p", name = name, system = false, config = { lr = 1, width = width } }
  for s = 1, 20 do run:log({ ends = 200 - s }, 3 * s) end
  run:finish()
end
run = accel.track.Run { dir = root, project = "p", name = "many points", system = false, config = { lr = 1, width = 8 } }
for s = 1, 20000 do run:log({ loss = 2 + s % 7 }, 10 * s) end -- thinned out: the page draws means of neighbours
run:finish()

local url, pid = support.page(("'%s'"):format(root), root)
local ok, err = xpcall(function()
  local got = support.in_browser(browser, "page_faults.py", url, arg[1])
  local function texts(tag)
    local list = {}
    for i, t in ipairs(got[tag]) do
      assert(not t.cut, tag .. ": a label is cut: " .. t.text)
      list[i] = t.text
    end
    return table.concat(list, " ")
  end
  assert(texts "nan":find "no finite values" and not texts "nan":find "loading" and got.nan_crosses > 10 and got.nan_note == "200 not finite")
  assert(got.some_crosses > 10 and not texts "some":find "finite")
  assert(texts "tokens":find "%f[%d]20M" or texts "tokens":find "%f[%d]25M", texts "tokens")
  assert(texts "huge":find "1e30" or texts "huge":find "1%.0e30", texts "huge")
  assert(texts "lr":find "30\u{B5}", texts "lr")
  assert(texts "big":find "200k" and texts "loss":find "%f[%d]2 " or texts "loss":find "%f[%d]%d%.0", texts "big" .. texts "loss")
  assert(texts "log":find "^1e%-10 1e%-8 1\u{B5} 100\u{B5} 0.01 1 ", texts "log")
  texts "down"
  -- only steps that were logged, with their values; the short runs end at step 60 of 600
  local tips, together = 0, 0
  for k, tip in ipairs(got.hover) do
    if tip then
      tips = tips + 1
      local step = math.tointeger(tonumber(tip[1]:match "^step (%d+)$"))
      assert(step and step % 3 == 0, tip[1])
      for i = 2, #tip do
        local name, value = tip[i]:match "^(%a+).- (%d+)$"
        local own = math.tointeger(tonumber(tip[i]:match "%(step (%d+)%)")) or step
        assert(tonumber(value) == (name == "long" and own // 3 or 200 - own // 3), tip[i])
        assert(name == "long" or own <= 60 and (k - 1) / 20 * 600 <= 75, "past its end: " .. tip[i])
      end
      if #tip == 4 then together = together + 1 end
    end
  end
  assert(tips >= 20 and together >= 2 and together <= 4, tips .. " " .. together)
  local thinned = 0
  for _, tip in ipairs(got.hover_long) do
    for i = 2, tip and #tip or 0 do
      local value = tonumber(tip[i]:match "many points.- (%d+)$")
      local step = tonumber(tip[i]:match "%(step (%d+)%)" or tip[1]:match "%d+")
      if value then
        thinned = thinned + 1
        assert(step % 10 == 0 and value == 2 + step // 10 % 7, tip[1] .. " " .. tip[i])
      end
    end
  end
  assert(thinned >= 18, thinned)
  -- marked: only what is not as in most runs
  local rows = {}
  for _, row in ipairs(got.marked) do rows[row[1][1]] = rows[row[1][1]] or row end
  assert(not rows.width[1][2], "the name of a row is not marked")
  for i = 2, #rows.width do assert(rows.width[i][2] == (rows.width[i][1] == "16"), "width " .. i) end
  for i = 2, #rows.lr do assert(not rows.lr[i][2]) end
  assert(got.folded and got.unfolded and not got.overflow and not got.wide_overflow and got.chart_height > 300)
  assert(#got.errors == 0, got.errors[1])
end, debug.traceback)
os.execute("kill " .. pid)
os.execute(("rm -rf '%s'"):format(root))
assert(ok, err)
