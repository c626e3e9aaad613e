--- Helpers of the library: classes, options, command lines, ordered tables, random numbers, plots, progress
--- bar.
local accel = require "accel"
local util = accel.util

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

do -- classes
  local Animal = util.class "Animal"
  function Animal:init(name) self.name = name end
  function Animal.__tostring(self) return "<" .. self.name .. ">" end
  function Animal:speak() return self.name .. " speaks" end
  local Dog = Animal:extend "Dog"
  function Dog:init(name)
    Animal.init(self, name)
    self.tricks = {}
  end
  function Dog:speak() return Animal.speak(self) .. ": wau" end
  local rex = Dog "rex"
  assert(rex:speak() == "rex speaks: wau" and tostring(rex) == "<rex>")
  assert(util.class.isinstance(rex, Animal) and util.class.isinstance(rex, Dog))
  assert(not util.class.isinstance(Animal "x", Dog) and not util.class.isinstance(3, Dog))
  assert(util.class.of(rex) == Dog and util.class.of({}) == nil and util.class.isclass(Dog))
  assert(tostring(Dog) == "class Dog")
  fails("class name must be a string", util.class, 3)
end

do -- options and nearest
  local o = util.options("f", { a = 2 }, { a = 1, b = "x", c = util.options.none })
  assert(o.a == 2 and o.b == "x" and o.c == nil)
  fails("f: unknown option 'momentun'; did you mean 'momentum'%?", util.options, "f", { momentun = 1 },
    { momentum = 0 })
  fails("f: unknown option 'zzzzz'; there are 'lr', 'momentum'$", util.options, "f", { zzzzz = 1 },
    { momentum = 0, lr = 1 })
  fails("f: unknown option 'zzzzz'; it takes none$", util.options, "f", { zzzzz = 1 }, {})
  fails("f: option 'a' must be a number, got string", util.options, "f", { a = "1" }, { a = 1 })
  assert(util.nearest("wieght_decay", { "lr", "weight_decay", "betas" }) == "weight_decay")
  assert(util.nearest("xyzzy", { "lr", "weight_decay" }) == nil)
end

do -- the error of a wrong option points at the caller, here
  local ok, err = pcall(function() return accel.optim.AdamW({ accel.ones(1) }, { rate = 1 }) end)
  assert(not ok and tostring(err):find("util_test.lua", 1, true), tostring(err))
end

do -- command lines
  local declared = {
    name = "x.lua", { "steps", "int", 5, "N", "how many" }, { "dry-run", "flag", false, nil, "nothing" },
    { "dtype", { "f32", "bf16" }, "f32", "WORD", "format" }, { "lr", "number", 0.1, "X", "rate" },
  }
  local o, rest, given = util.cli.parse(declared, { "a", "--steps=7", "--dry_run", "--lr", "-2.5e-1", "--",
    "--b" })
  assert(o.steps == 7 and math.type(o.steps) == "integer" and o.dry_run == true and o.lr == -0.25
    and o.dtype == "f32")
  assert(#rest == 2 and rest[1] == "a" and rest[2] == "--b" and given.steps and not given.dtype)
  assert(util.cli.parse(declared, { "--no-dry-run" }).dry_run == false)
  local function message(...) return select(2, util.cli.parse(declared, { ... })) end
  assert(message "--stepz=3" == "unknown option '--stepz'; did you mean '--steps'?")
  assert(message "--steps=3.5" == "option '--steps' must be an integer, got '3.5'")
  assert(message "--steps" == "option '--steps' needs a value")
  assert(message("--dtype", "f16") == "option '--dtype' must be one of f32, bf16, got 'f16'")
  assert(message "--dry-run=1" == "option '--dry-run' takes no value")
  assert(util.cli.help(declared):find("--steps N +how many %[5%]"))
  -- options that do nothing: beside others, by a reason, given twice
  local rules = { name = "x.lua", { "a", "flag", false, nil, "" }, { "b", "int", nil, "N", "", needs = "a|c", least = 1, most = 9 },
    { "c", "string", nil, "S", "", excludes = "a" }, { "d", "flag", false, nil, "", ignored = "it is old" } }
  local function said(...)
    local got, rest_, _, warnings = util.cli.parse(rules, { ... })
    return got and table.concat(warnings, "\n") or rest_
  end
  assert(said("--a", "--b", "1") == "" and said("--c", "x", "--b", "9") == "" and said "--no-d" == "--d has no effect: it is old; leave it out")
  assert(said("--b", "3") == "--b has no effect without --a or --c" and said("--no-a", "--b", "3") == said("--b", "3"))
  assert(said("--c", "x", "--a") == "--c has no effect with --a; give one of them")
  assert(said("--b", "0", "--a") == "option '--b' must be 1 to 9, got '0'")
  assert(said("--a", "--b", "1", "--b", "1") == ""
    and said("--a", "--b", "1", "--b=2") == "--b is given twice, as 1 and as 2; the last one counts, leave one out")
  rules.others = true
  local _, words = util.cli.parse(rules, { "--x", "y", "--a" })
  assert(words[1] == "--x" and words[2] == "y" and #words == 2)
  -- help is for 80 columns, and a name too long for its column has a line of its own
  local wide = util.cli.help { name = "x", usage = "", summary = ("word "):rep(40), epilog = ("last "):rep(40),
    { "some_option_of_some_length", "int", nil, "N", ("help "):rep(30) } }
  assert(wide:find "^Usage: x\nword " and wide:find "\n  %-%-some%-option%-of%-some%-length N\n +help help")
  for line in wide:gmatch "[^\n]+" do assert(#line <= 79 and not line:find "%s$", line) end
  assert(select(2, wide:gsub("help", "")) == 31 and select(2, wide:gsub("last", "")) == 40)
end

do -- ordered tables
  local t = util.ordered()
  for _, name in ipairs { "z", "a", "m" } do t[name] = name:upper() end
  t.a = "again"
  local seen = {}
  for name, value in pairs(t) do seen[#seen + 1] = name .. value end
  assert(table.concat(seen, " ") == "zZ aagain mM")
  seen = {}
  for name in t do seen[#seen + 1] = name end
  assert(table.concat(seen) == "zam")
  t.z = nil
  seen = {}
  for name in util.ordered.iterate(t) do seen[#seen + 1] = name end
  assert(table.concat(seen) == "am" and rawget(t, "m") == "M")
end

do -- random: known stream of splitmix64, range, uniformity, resumption
  local r = util.Random(0)
  r.state = 1234567
  -- splitmix64 with this state, from its published definition (checked against an independent program)
  assert(("%016x"):format(r:bits()) == "599ed017fb08fc85"
    and ("%016x"):format(r:bits()) == "2c73f08458540fa5")
  local counts, n = {}, 60000
  r = util.Random(7, 3)
  for _ = 1, n do
    local k = r:below(6)
    counts[k] = (counts[k] or 0) + 1
  end
  local chi2 = 0
  for k = 0, 5 do chi2 = chi2 + (counts[k] - n / 6) ^ 2 / (n / 6) end
  assert(chi2 < 25, "chi squared of 6 faces: " .. chi2)
  local state = r.state
  local a = { r:bits(), r:uniform(), r:below(10) }
  r.state = state
  assert(a[1] == r:bits() and a[2] == r:uniform() and a[3] == r:below(10))
  local list = r:shuffle { 1, 2, 3, 4, 5, 6, 7, 8, 9 }
  local sum = 0
  for _, v in ipairs(list) do sum = sum + (1 << v) end
  assert(sum == 1022, "shuffle keeps every entry once")
  local hits = { 0, 0, 0 }
  for _ = 1, 30000 do
    local k = r:choice { 1.0, 0.0, 3.0 }
    hits[k] = hits[k] + 1
  end
  assert(hits[2] == 0 and math.abs(hits[3] / 30000 - 0.75) < 0.01)
  fails("not all zero", r.choice, r, { 0, 0 })
end

do -- plots
  local x, y = {}, {}
  for i = 1, 50 do x[i], y[i] = i, 4 / i end
  local series = { { name = "train", x = x, y = y }, { name = "val", x = { 10, 50 }, y = { 0.4, 0 / 0 } } }
  local ascii = util.plot.text(series, { width = 60, height = 8, utf8 = false })
  assert(not ascii:find("[^\n\32-\126]"), "ASCII plot has other characters")
  local lines = {}
  for line in ascii:gmatch "[^\n]+" do
    lines[#lines + 1] = line
    assert(#line <= 60, "line of " .. #line)
  end
  assert(#lines == 10 and lines[1]:find("^  4%.000 |%.") and lines[8]:find("0%.080 |.*%.$"))
  assert(select(2, ascii:gsub("o", "")) == 2, "one mark and one in the legend 'o val'")
  local braille = util.plot.text(series, { width = 60, height = 8, utf8 = true })
  assert(utf8.len(braille) and braille:find(utf8.char(0x2801):sub(1, 2), 1, true))
  local narrow = util.plot.text({ { name = "training loss", x = { 1, 900 }, y = { 2, 1 } },
    { name = "validation", x = { 900 }, y = { 1 } } }, { width = 40, height = 4, utf8 = false })
  for line in narrow:gmatch "[^\n]+" do assert(#line <= 40, line) end
  assert(narrow:find "\n +1 +900 step\n +%.%. training loss\n +o validation\n$", narrow)
  local one = util.plot.text({ { name = "loss", x = { 1 }, y = { 2 } } }, { width = 60, utf8 = false })
  assert(one:find "\n +1 step\n" and not one:find "%d%.5 ", one)
  local function figures(xs)
    local found = {}
    for text in util.plot.svg({ { x = xs, y = xs } }, { height = 400 })
      :gmatch 'y="373.0" text%-anchor="middle">([^<]*)<' do found[#found + 1] = text end
    return table.concat(found, " ")
  end
  assert(figures { 1, 1 } == "1" and figures { 1, 3 } == "1 2 3" and figures { 0, 8 } == "0 2 4 6 8")
  assert(util.plot.text { { y = { 0 / 0 } } } == "(nothing to plot)\n")
  local svg = util.plot.svg(series, { title = "a < b" })
  assert(svg:find("^<svg") and svg:find("a &lt; b", 1, true) and select(2, svg:gsub("<polyline", "")) == 2)
end

do -- progress: rates, times, width, plain lines
  local Progress = util.Progress
  assert(Progress.duration(59.4) == "0:59" and Progress.duration(3661) == "1:01:01"
    and Progress.duration(1 / 0) == "?")
  local counts = { [17923.4] = "17.9k", [999.9] = "1.00k", [996] = "996", [0.5] = "0.50", [2.5e12] = "2500G" }
  for n, want in pairs(counts) do
    assert(Progress.count(n) == want, Progress.count(n))
  end
  local text = {}
  local out = { write = function(_, ...) text[#text + 1] = table.concat { ... } end, flush = function() end }
  local bar = Progress { label = "train", unit = "tok", out = out, interactive = true, width = 80,
    utf8 = false }
  assert(bar:due())
  bar:update(0.5, 1000, { { "loss", 1.25 }, { "val", "1.5" } })
  assert(not bar:due(), "at most ten times a second")
  local line = text[1]:gsub("\r", ""):gsub("\27%[K", "")
  assert(#line < 80 and line:find("^train  50%% %[#+%-+%]  loss 1.2500  val 1.5  .* tok/s  ETA %d+:%d%d$"),
    line)
  bar:finish()
  assert(text[2] == "\n")
  for width = 36, 80 do -- whole figures or none
    text = {}
    local thin = Progress { label = "train", unit = "tok", out = out, interactive = true, width = width,
      utf8 = false }
    thin:update(0.5, 1000, { { "loss", 1.25 }, { "val", "1.5" } })
    line = text[1]:gsub("\r", ""):gsub("\27%[K", "")
    assert(#line < width and line:find "^train  50%%.*  loss 1.2500.*  ETA %d+:%d%d$", line)
    for word in line:gsub("%[[#-]+%]", ""):gmatch "%S+" do
      assert(word:find "^train$" or word:find "^50%%$" or word:find "^loss$" or word:find "^1.2500$"
        or word:find "^val$" or word:find "^1.5$" or word:find "^[%d.]+[kMG]?$" or word:find "^tok/s$"
        or word:find "^ETA$" or word:find "^%d+:%d%d$", word)
    end
  end
  text = {}
  local plain = Progress { label = "train", out = out, interactive = false, every = 0 }
  plain:update(1, 10, {})
  assert(table.concat(text):find "^train 100%%  [^\r\n]*  in 0:00\n$", table.concat(text))
end

-- Native classes have a name in messages although their metatables are closed to scripts.
do
  local shown = require("accel.util.check").shown
  local generator = accel.Generator()
  assert(getmetatable(generator) == "accel.Generator" and shown(generator) == "an accel.Generator", shown(generator))
end
