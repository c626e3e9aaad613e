-- Options of accel.util: each one changes what is seen, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/util_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "util"

local util = accel.util

local function confusion()
  local c = util.Confusion { "cat", "dog", "bird" }
  for i = 0, 8 do c:add({ i % 3 }, { i % 2 }) end
  return c
end
s:recipe("accel.util.Confusion:text", { run = function(call) return call(confusion()) end, values = { width = { 14 }, utf8 = { true, false,
  any = true } } })
s:recipe("accel.util.Confusion:svg", { run = function(call) return call(confusion()) end, values = { cell = { 20 }, title = { "a title" } } })
local series = { { name = "loss", y = { 3, 2, 1 } } }
s:recipe("accel.util.plot.text", {
  base = function() return { series = series, width = 60 } end,
  values = { width = { 40 }, height = { 5 }, utf8 = { true, false, any = true }, xlabel = { "epoch" }, name = { "x" }, x = { 1 }, y = { 1 } },
  elsewhere = { name = "tests/options/util_test.lua", x = "tests/options/util_test.lua", y = "tests/options/util_test.lua" }, -- of a series
})
local drawn = accel.util.plot.text({ { name = "alpha", x = { 10, 20, 37 }, y = { 1, 4, 925 } } }, { width = 60 })
for _, part in ipairs { "alpha", "37", "925" } do assert(drawn:find(part, 1, true), drawn) end
s:recipe("accel.util.plot.svg", { base = function() return { series = series } end,
  values = { width = { 300 }, height = { 200 }, title = { "a title" }, xlabel = { "epoch" }, ylabel = { "error" } } })

--- What a bar writes; its times are left out.
local function bar(call, given, _, method)
  local written = {}
  local out = { write = function(_, ...) for _, text in ipairs { ... } do written[#written + 1] = text end end }
  local other = { write = function(_, ...) written[#written + 1] = "elsewhere" end, flush = function() end }
  out.flush = function() end
  if given.out then given.out = other else given.out = out end
  if given.interactive == nil then given.interactive = false end
  local p
  if method then
    p = util.Progress { out = out, interactive = false }
    call(p)
  else
    p = call()
    p:update(0.5, 10)
  end
  return (table.concat(written):gsub("%d+%.?%d*[kMG]? *([%a]*)/s", "%1/s"):gsub("ETA.*$", "")), p:due()
end
s:recipe("accel.util.Progress", {
  base = function() return { width = 60, utf8 = false } end, run = bar,
  values = { label = { "train" }, unit = { "tok" }, every = { 0 }, out = { {} }, interactive = { true }, width = { 30 }, utf8 = { true } },
  with = { utf8 = { interactive = true }, width = { interactive = true } },
})
s:recipe("accel.util.Progress:update", {
  base = function() return { fraction = 0.5, amount = 10 } end,
  run = function(call, given)
    local figures = given.figures
    local keep = {}
    for key, value in pairs(given) do keep[key] = value end
    local text = bar(function(p) return p:update(keep.fraction, keep.amount, figures) end, {}, nil, true)
    if not figures or figures[1] then return text end
    return call(util.Progress { interactive = false })
  end,
  values = { figures = { { { "loss", 0.5 } } } }, passes_on = true,
})
s:recipe("accel.util.Random", { base = function() return { seed = 3 } end, run = function(call) return call():below(1 << 40) end,
  values = { stream = { 5 } } })
s:recipe("accel.util.compare.allclose", {
  base = function() return { x = accel.tensor { 1.0, 0 / 0 }, other = accel.tensor { 1.1, 0 / 0 } } end,
  run = function(call, given)
    given.x, given.other = nil, nil
    local nan = given.equal_nan ~= nil and 0 / 0 or 1.0
    local own = given.equal_nan ~= nil and 1.0 or 1.1
    return call(accel.tensor { 1.0, nan }, accel.tensor { own, nan })
  end,
  values = { rtol = { 0.5 }, atol = { 0.5 }, equal_nan = { true } },
})
s:leave({ "accel.util.check.number", "accel.util.check.surplus", "accel.util.class.new", "accel.util.guard", "accel.util.options.check",
  "accel.util.raise", "accel.util.terminal.format" }, "of the library's own mechanisms: their arguments are values to check or pass on")

s:recipe("accel.util.Random:shuffle", { base = function() return { list = { 1, 2, 3, 4, 5, 6, 7, 8, 9 } } end, values = { n = { 3 } },
  run = function(call, given)
    call(util.Random(3))
    return given.list
  end })
s:recipe("accel.util.Random:choice", { base = function() return { weights = { 1, 1, 5, 5 } } end, values = { n = { 1 } },
  run = function(call)
    local random, drawn = util.Random(3), {}
    for i = 1, 20 do drawn[i] = call(random) end
    return drawn
  end })
s:recipe("accel.util.check.integer", { base = function() return { who = "f", name = "n", value = 5 } end, values = { low = { 9 }, high = { 2 } },
  raises = { low = "of at least 9", high = "f: n must be" } })
s:finish()
