-- accel-run runs: what it lists, shows, compares, draws, follows, removes and exports, in 80 columns; and what it says of what is not
-- there.  tier: every change
--   accel-run tests/stdlib/cli/runs_test.lua
local accel = require "accel"
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/runs-"))
do
  local _, message, code = accel.track.Store.open(root)
  if code == "unsupported" then
    print("skip: " .. message)
    os.exit(77)
  end
end

local function command(args) return ("cd '%s' && COLUMNS= LC_ALL=C '%s' runs %s 2>&1"):format(root, accel.process.program(), args) end
local function gives(args, status, ...)
  local pipe = assert(io.popen(command(args)))
  local text = pipe:read "a"
  local _, _, got = pipe:close()
  assert(got == status, ("runs %s: status %d, wanted %d\n%s"):format(args, got, status, text))
  for _, part in ipairs { ... } do assert(text:find(part, 1, true), ("runs %s: %q lacks %q"):format(args, text, part)) end
  return text
end
local function narrow(text)
  for line in text:gmatch "[^\n]+" do assert(utf8.len(line) <= 80, line) end
  return text
end

gives("ls", 1, "accel-run runs ls: there is no run store ./runs.db; give it with --store PATH")
accel.track.Run({ dir = root .. "/up/in", system = false }):finish()
gives("ls --store up", 1, "there is no run store up/runs.db; there is one in up/in; give it with --store PATH")
gives("list", 2, "unknown action 'list'; did you mean 'ls'?") -- luacheck: ignore

for k = 1, 2 do
  local run = accel.track.Run { dir = root, name = ("a name that is long enough to be cut somewhere, number %d"):format(k),
    project = "digits", system = false, config = { lr = 0.1 * k, layers = 4, note = ("x"):rep(300) } }
  for i = 1, 100 do run:log({ loss = k / i, val = { acc = i % 10 == 0 and 1 - 1 / i or nil } }, i) end
  run:log({ text = ("word "):rep(100) }, 100)
  run:log_images({ pic = accel.rand(3, 8, 8) }, 50)
  run:alert("look", "here")
  run:finish()
end
local store = accel.track.Store(root)
local ids = {}
for i, run in ipairs(store:runs()) do ids[i] = run.uid end

local text = narrow(gives("ls", 0, "ID", "STATUS", "digits", "finished", ids[1], ids[2]))
assert(text:find(ids[1], 1, true) < text:find(ids[2], 1, true), "the last one first")
assert(#accel.json.decode(gives("ls --json --limit 1", 0)) == 1)
gives("ls --project nothing", 0, "no such runs here")
narrow(gives("show last", 0, ids[1], "Config", "layers", "SERIES", "val/acc", "Images", "pic, step 50: 8x8", "warn: look"))
assert(accel.json.decode(gives("show --json " .. ids[2]:sub(1, 5), 0)).config.lr == 0.1)
text = narrow(gives("diff last~1 last", 0, "lr", "0.1", "0.2", "loss", "+100.0 %"))
assert(not text:find "layers", "what is the same is not shown")
gives("diff last last", 0, "the two configurations are the same", "+0.0 %")
assert(accel.json.decode(gives("diff --json last~1 last", 0)).config.lr[2] == "0.2")
text = narrow(gives("plot last last~1 --metric loss", 0, "2.000 |", "0.010 |", "o a name"))
assert(not text:find "val/acc" and select(2, text:gsub("\n", "")) >= 13)
narrow(gives("plot last --height 5 --x time --smooth 0.5 --log", 0, "loss", "val/acc"))
gives("plot last --metric los", 1, "no series 'los'; did you mean 'loss'?")
gives("plot last --metric loss --svg l.svg", 0)
assert(assert(io.open(root .. "/l.svg")):read "a":find "<polyline")
text = gives("tail last --lines 3", 0)
assert(text == "step 98       loss 0.02041\nstep 99       loss 0.0202\nstep 100      loss 0.02  val/acc 0.99\n", text)
gives("show nosuch", 1, "has no run 'nosuch'")

-- ---- exports hold every value ----
local n = 0
for step, value in gives("export last", 0, "name,step,time,value"):gmatch "\nloss,(%d+),[%d.]+,([^\n]+)" do
  n = n + 1
  assert(tonumber(step) == n and tonumber(value) == 2 / n)
end
assert(n == 100)
n = 0
for line in gives("export last --format jsonl", 0):gmatch "[^\n]+" do
  local row = accel.json.decode(line)
  if row.name == "loss" then
    n = n + 1
    assert(row.value == 2 / row.step)
  end
end
assert(n == 100)
gives("export last --format tensorboard", 2, "--out DIR goes with")
gives("export last --format tensorboard --out tb", 0, "tb/")
if os.execute "python3 -c 'import tensorboard' >/dev/null 2>&1" then
  local pipe = assert(io.popen(([[python3 - '%s/tb' 2>/dev/null <<'X'
import sys, glob
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(glob.glob(sys.argv[1] + "/*")[0]); a.Reload()
print(sum(abs(e.value - 2 / e.step) < 1e-6 for e in a.Scalars("loss")), len(a.Images("pic")), a.Images("pic")[0].width)
X]]):format(root)))
  local got = pipe:read "a"
  pipe:close()
  assert(got == "100 1 8\n", got)
end

-- ---- a run that goes on is followed ----
local live = accel.track.Run { dir = root, name = "live", system = false }
live:log({ x = 1 }, 1)
live:flush()
gives("rm live", 1, "live is running; add --force")
local pipe = assert(io.popen(command "tail live --follow"))
assert(pipe:read "l" == "step 1        x 1")
live:log({ x = 2 }, 2)
assert(pipe:read "l" == "step 2        x 2")
live:finish()
assert(pipe:read "l" == "live: finished")
pipe:close()
gives("rm last~1 nosuch", 1, "has no run 'nosuch'")
assert(#store:runs() == 3, "nothing went")
gives("rm --pack last " .. ids[2], 0, "removed live", "removed a name")
assert(#store:runs() == 1 and store:runs()[1].uid == ids[1])
