-- Ranks of an elastic training job are killed and replaced: the new rank gets the state of the job from a member, and the job ends with the
-- losses, weights and running statistics of an undisturbed rank, bit for bit. Every sample is consumed once. New ranks are killed at each
-- step of their way, and the rank that gives the state as well: the job continues, and nothing hangs.
-- tier: sampled
--   accel-run tests/fault/elastic_replace_test.lua [jobs]
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
local sample = ranks.sample
local jobs = tonumber(arg[1]) or (sample.full and 40 or 1)
local tmp = (os.getenv "ACCEL_TEST_TMP" or os.tmpname() .. ".d") .. "/replace"
local script = tmp .. "/case.lua" -- a copy, which a plan may change
local random = accel.util.Random(sample.seed)
local M <const>, UPDATES <const>, LIMIT <const> = 6, 15, sample.sanitized and 30 or 5
print(("ACCEL_TEST_SEED=%d, %d jobs"):format(sample.seed, jobs))

local function read(path)
  local f <close> = io.open(path)
  return f and f:read "a"
end

--- Runs a job. Returns its output, its exit status and the results of its processes: { hash, steps, size, pause, kinds, losses }.
local function run(n, plan, words, workers)
  os.execute(("rm -rf '%s' && mkdir -p '%s' && cp '%s' '%s'"):format(tmp, tmp, ranks.tests .. "fault/elastic_replace_case.lua", script))
  local pipe = assert(io.popen(("timeout -s KILL 100 '%s' --num-threads 1 --num-machines 1:1 --nproc-per-node %d %s '%s' '%s' %d %d %d '%s' %d 2>&1 "
    .. "</dev/null; echo status $?"):format(accel.process.program(), n, words or "", script, tmp, M, UPDATES, n, plan, workers or 0)))
  local text = pipe:read "a"
  pipe:close()
  local results = {}
  for _, name in ipairs(accel.listdir(tmp) or {}) do
    local line = name:find "^result" and read(tmp .. "/" .. name)
    if line then
      local r = {}
      r.hash, r.steps, r.size, r.pause, r.kinds, r.losses = line:match "^(%x+) (%d+) (%d+) (%S+) (%S*) (%S+)\n"
      results[#results + 1] = r
    end
  end
  return text, math.tointeger(tonumber(text:match "status (%d+)%s*$")), results
end

--- The samples of the updates that count: of each update those of its last generation. nil, why: one was repeated.
local function consumed()
  local last, of, seen, n = {}, {}, {}, 0
  local list <close> = assert(io.popen(("cat '%s'/log.*"):format(tmp)))
  for line in list:lines() do
    local u, generation, epoch, rows = line:match "^(%d+) (%d+) (%d+) ([%d ]+)$"
    if u then
      u, generation = math.tointeger(tonumber(u)), math.tointeger(tonumber(generation))
      if generation > (last[u] or 0) then last[u], of[u] = generation, {} end
      if generation == last[u] then
        for at in rows:gmatch "%d+" do table.insert(of[u], epoch .. ":" .. at) end
      end
    end
  end
  for _, rows in accel.pairs(of) do
    for _, at in ipairs(rows) do
      if seen[at] then return nil, "sample " .. at .. " was repeated" end
      seen[at], n = true, n + 1
    end
  end
  return n
end

local text, status, results = run(1, "")
assert(status == 0 and #results == 1, text)
local expected = results[1]

--- A job and its checks. size: ranks at its end. finds: texts in its output.
local function shoot(n, plan, size, finds, words, workers)
  local limit = plan:find "stuck" and 30 or LIMIT
  ranks.timely(function()
    local out, code, all = run(n, plan, words, workers)
    local function fail(why) error(("%d ranks, plan %s, %d workers: %s\n%s"):format(n, plan, workers or 0, why, out), 0) end
    if code ~= 0 then fail("exit status " .. code) end
    if #all ~= size then fail(("%d results, expected %d"):format(#all, size)) end
    local late
    for _, r in ipairs(all) do
      if r.hash ~= expected.hash then fail "other weights" end
      if tonumber(r.steps) ~= UPDATES or tonumber(r.size) ~= size then fail(("%s updates on %s ranks"):format(r.steps, r.size)) end
      if expected.losses:sub(-#r.losses) ~= r.losses then fail("other losses: " .. r.losses) end
      if r.kinds:sub(-#all[1].kinds) ~= all[1].kinds and all[1].kinds:sub(-#r.kinds) ~= r.kinds then fail "ranks saw other changes" end
      if tonumber(r.pause) > limit then late = ("a pause of %s s"):format(r.pause) end
    end
    local count, why = consumed()
    if count ~= UPDATES * M * 2 then fail(why or ("%d samples of %d"):format(count, UPDATES * M * 2)) end
    for _, pattern in ipairs(finds or {}) do
      if not out:find(pattern) then fail("missing in the output: " .. pattern) end
    end
    return late
  end)
end

local HEALED <const> = "accel%-run: rank %d %(pid %d+, [^\n]*%) "
  .. "joined with the state of the others %([%d.]+ MiB in [%d.]+ s%); generation %d+: %d ranks\n"
local killed = 0
for _ = 1, jobs do
  local n, plan = sample.full and 2 + random:below(5) or 3, {}
  for _, update in ipairs(sample.full and { 2, 6, 10 } or { 3 }) do
    plan[#plan + 1] = ("%d:%d"):format(random:below(n), update + random:below(3))
  end
  local seats = {} -- a seat is killed in its first life only
  for i = #plan, 1, -1 do
    local seat = plan[i]:match "^%d+"
    if seats[seat] then table.remove(plan, i) end
    seats[seat] = true
  end
  killed = killed + #plan
  shoot(n, table.concat(plan, ","), n, { HEALED }, "--replace yes", random:below(4) == 0 and 2 or 0)
end

-- A new rank that dies before it has the state: another one starts, up to three times. One whose script ends is not tried again.
local POINTS <const> = {
  { "preamble", 3, "new rank 1 [^\n]*SIGKILL%) before it had the job's state; another one starts", HEALED },
  { "prepared", 3, "another one starts", HEALED },
  { "receive:1", 3, "before it had the job's state; generation", HEALED },
  { "receive:5", 3, "before it had the job's state; generation", HEALED },
  { "received", 3, "before it had the job's state; generation", HEALED },
  { "healed", 3, "rank 1 [^\n]* was killed", HEALED },
  { "first", 3, "rank 1 [^\n]* was killed", HEALED },
  { "send:4", 3, "rank 0 [^\n]* was killed", HEALED },
  { "error", 2, "exited with status 1 before it had the job's state; the job continues without it" },
  { "changed", 2, "refused a new rank: [^\n]*case.lua has changed since the job started", "exited with status 1 before it had the job's state" },
  { "hand", 2, "this rank replaces a lost one", "the job continues without it" },
  { "other", 2, "whose state does not fit: model: [^\n]*has shape", "exited with status 1 before it had the job's state" },
}
local tried = 0
for i, p in ipairs(POINTS) do
  if sample.full or i % 6 == sample.seed % 6 then
    tried = tried + 1
    shoot(3, "1:4," .. p[1], p[2], table.move(p, 3, #p, 1, {}), "--replace yes")
  end
end
-- Planned changes: the last rank leaves, and comes back as a new one.
local asked, code, all = run(3, "leave:3,scale:7", "--replace no")
assert(code == 0 and #all == 3 and asked:find "rank 2 %(pid %d+, [^\n]*%) left as asked; generation 2: 2 ranks continue at update 4 after", asked)
assert(asked:find "asked for 3 ranks" and asked:find(HEALED), asked)
for _, r in ipairs(all) do
  assert(r.hash == expected.hash and expected.losses:sub(-#r.losses) == r.losses, asked)
  assert(("left:0:2,resized:1:3"):sub(-#r.kinds) == r.kinds, r.kinds)
end
assert(consumed() == UPDATES * M * 2)
if sample.full then -- the others would wait for it until --timeout ends the job
  shoot(3, "1:4,stuck", 2, { "new rank 1 [^\n]* was ended after 4 s before it had the job's state; generation" }, "--replace yes --timeout 5")
end
shoot(3, "2:5,none", 2, { "generation 2: 2 ranks continue" }, "--replace no")
os.execute(("rm -rf '%s'*"):format(tmp))
print(("ok: %d jobs, %d ranks killed, new ranks killed at %d points"):format(jobs, killed, tried))
