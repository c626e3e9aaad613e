-- /metrics of accel-run ui is valid in Prometheus' text format: a strict reader here, written from the format's description, takes every
-- line, finds each family once with HELP and TYPE before its samples, and reads back names and values that need escapes. Prometheus' own
-- readers take it as well, where python3 has prometheus_client or promtool is installed.  tier: every change
--   accel-run tests/stdlib/track/prometheus_test.lua
local accel = require "accel"
local core = require "accel.track.core"
package.path = (arg[0]:match "^(.*)/" or ".") .. "/../../support/?.lua;" .. package.path
require("track").needs(core.sqlite)
local metrics = require "accel.track.ui.metrics"

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/prometheus-"))
local odd <const> = 'a "quoted" \\ name\nof two lines\\n {x="y"} 1'
local a = accel.track.Run { dir = root, name = odd, project = "p\195\164", system = false }
for i = 1, 20 do a:log({ loss = 1 / i, nested = { z = i }, nan = 0 / 0, up = math.huge, down = -math.huge, [odd] = -i, tiny = 5e-324 }, i) end
assert(a:finish())
local b = accel.track.Run { dir = root, name = "not utf8 \255\254", system = false }
b:log({ loss = 0.1 }, 7)
assert(b:flush())
local store = accel.track.Store(root)
local text = metrics.text(store)

--- Reads label="value", ... up to the brace.
local function labels_of(s, where)
  local out, at = {}, 1
  while true do
    local name, from = s:match('^([%a_][%w_]*)="()', at)
    assert(name and not out[name], where)
    local value, i = {}, from
    while true do
      local c = s:sub(i, i)
      assert(c ~= "" and c ~= "\n", where)
      if c == '"' then break end
      if c == "\\" then
        i = i + 1
        c = assert(({ ["\\"] = "\\", ['"'] = '"', n = "\n" })[s:sub(i, i)], where)
      end
      value[#value + 1], i = c, i + 1
    end
    out[name] = table.concat(value)
    local after = s:sub(i + 1, i + 1)
    if after == "}" then return out, s:sub(i + 2) end
    assert(after == ",", where)
    at = i + 2
  end
end

--- Families of the text: { kind =, help =, samples = { { labels, value } } }. Raises at the first line that the format excludes.
local function read(page)
  assert(utf8.len(page) and page:sub(-1) == "\n")
  local families, current, seen = {}, nil, {}
  for line in page:gmatch "([^\n]*)\n" do
    local keyword, name, rest = line:match "^# (%u+) ([%a_:][%w_:]*) (.*)$"
    if keyword == "HELP" then
      assert(not families[name], "a family begins twice: " .. line)
      current = { help = rest, samples = {} }
      families[name] = current
    elseif keyword == "TYPE" then
      assert(families[name] == current and not current.kind and #current.samples == 0, line)
      assert(rest == "gauge" or rest == "counter", line)
      current.kind = rest
    else
      local sample, tail = line:match "^([%a_:][%w_:]*){(.*)$"
      assert(sample and families[sample] == current and current.kind, "a sample outside its group: " .. line)
      local labels, after = labels_of(tail, line)
      local word = after:match "^ (%S+)$"
      local value = ({ NaN = 0 / 0, ["+Inf"] = math.huge, ["-Inf"] = -math.huge })[word] or tonumber(word)
      assert(value, line)
      assert(not seen[sample .. tail:sub(1, #tail - #after)], "twice: " .. line)
      seen[sample .. tail:sub(1, #tail - #after)] = true
      current.samples[#current.samples + 1] = { labels = labels, value = value }
    end
  end
  return families
end

local families = read(text)
local function value(name, want)
  for _, s in ipairs(families[name].samples) do
    local same = true
    for k, v in next, want do same = same and s.labels[k] == v end
    if same then return s.value end
  end
end
assert(value("accel_running", { run = a.id, name = odd, project = "p\195\164" }) == 0 and value("accel_running", { run = b.id }) == 1)
assert(value("accel_value", { run = a.id, tag = "loss" }) == 1 / 20 and value("accel_step", { run = a.id, tag = "nested/z" }) == 20)
assert(value("accel_value", { run = b.id, tag = "loss", name = "not utf8 \u{FFFD}\u{FFFD}" }) == 0.1)
assert(value("accel_value", { tag = "up" }) == math.huge and value("accel_value", { tag = "down" }) == -math.huge)
assert(value("accel_value", { tag = odd }) == -20 and value("accel_value", { tag = "tiny" }) == 5e-324)
local nan = value("accel_value", { tag = "nan" })
assert(nan and nan ~= nan and value("accel_not_finite_total", { tag = "nan" }) == 20)
assert(value("accel_points_total", { run = a.id, tag = "loss" }) == 20)
assert(#families.accel_value.samples == 8 and families.accel_points_total.kind == "counter")
-- the reader can refuse: the page as it was before, with the families mixed
assert(not pcall(read, '# HELP a x\n# TYPE a gauge\n# HELP b x\n# TYPE b gauge\na{r="1"} 1\n'), "a sample outside its group")
assert(not pcall(read, '# HELP a x\n# TYPE a gauge\na{r="1\\x"} 1\n') and not pcall(read, '# HELP a x\n# TYPE a gauge\na{r="1"} x\n'))

-- ---- Prometheus' own readers ----
assert(accel.write_file(root .. "/page", text))
assert(accel.write_file(root .. "/read.py", [[
import sys
from prometheus_client.parser import text_string_to_metric_families as read
with open(sys.argv[1], encoding="utf-8", newline="") as f:
    got = list(read(f.read()))
names = [m.name for m in got]
assert len(names) == len(set(names)) and all(m.documentation and m.type in ("gauge", "counter") for m in got), names
value = next(m for m in got if m.name == "accel_value")
print(len(got), len(value.samples), sum(s.labels["name"] == sys.argv[2] for s in value.samples))
]]))
local function output(command)
  local pipe <close> = assert(io.popen(command))
  return pipe:read "a"
end
local missing = {}
if os.execute "python3 -c 'import prometheus_client' >/dev/null 2>&1" then
  local got = output(("python3 '%s/read.py' '%s/page' '%s' 2>&1"):format(root, root, odd))
  assert(got == "6 8 7\n", got)
else missing[#missing + 1] = "prometheus_client for python3" end
if os.execute "command -v promtool >/dev/null 2>&1" then
  local got = output(("promtool check metrics < '%s/page' 2>&1; echo $?"):format(root))
  assert(got:find "0\n$", got)
else missing[#missing + 1] = "promtool (package prometheus)" end
if #missing > 0 then print("not compared with " .. table.concat(missing, ", ")) end
assert(b:finish())
