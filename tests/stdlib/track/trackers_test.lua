-- Trackers by name through an Accelerator: tensorboard, jsonl and csv write the same values; only the main process writes. On 1 and 2
-- ranks.
--   accel-run tests/stdlib/track/trackers_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 1, 2 } then return end

local rank = accel.dist.get_rank()
local root
if rank == 0 then root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/trackers-")) end
root = accel.accelerator.broadcast_object_list { root or "" }[1]

local a = accel.Accelerator { log_with = { "tensorboard", "jsonl", "csv" }, project_dir = root }
a:init_trackers("run", { lr = 0.125, opt = { name = "adam" }, flag = true })
for i = 1, 40 do a:log({ loss = 1 / i, both = { a = i, b = 2 * i }, note = "step " .. i, bad = 0 / 0 }, i) end
a:end_training()
a:wait_for_everyone()
if rank > 0 then return end

local found = {}
local function visit(dir)
  for _, name in ipairs(assert(accel.listdir(dir))) do
    local path = dir .. "/" .. name
    if accel.listdir(path) then visit(path) else found[#found + 1] = path end
  end
end
visit(root)
local by = { tfevents = 0 }
for _, path in ipairs(found) do
  if path:find "tfevents" then by.tfevents = by.tfevents + 1 end
  if path:find "%.jsonl$" then by.jsonl = path end
  if path:find "%.csv$" then by.csv = path end
end
assert(by.tfevents >= 1 and by.jsonl and by.csv, accel.inspect(found))

local n = 0
for line in io.lines(by.jsonl) do
  local row = accel.json.decode(line)
  if row.loss or row.values and row.values.loss then
    n = n + 1
    assert(math.abs((row.loss or row.values.loss) - 1 / n) < 1e-12, line)
  end
end
assert(n == 40, "lines of jsonl: " .. n)
n = 0
for line in io.lines(by.csv) do
  local step, value = line:match "^(%d+),[^,]*,loss,(.*)$"
  if step then
    n = n + 1
    assert(tonumber(step) == n and math.abs(tonumber(value) - 1 / n) < 1e-12, line)
  end
end
assert(n == 40, "rows of csv: " .. n)
