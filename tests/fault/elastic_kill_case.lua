-- A loop that survives the loss of ranks, for elastic_kill_test.lua. Run on every rank:
--   elastic_kill_case.lua FOLDER UPDATES MICRO PLAN
-- An update sums MICRO numbers, dealt over the ranks that there are, by collectives of every kind, and the state is a hash of the sums in
-- their order: an update that is lost, repeated or done by too few ranks gives another one. PLAN: RANK:UPDATE:POINT[:SECONDS],... kills
-- rank RANK (its number at the start) in that update, at POINT: before, inside or after collective K ("inside3"), "prepared", "applying",
-- "applied", "caught" (when it learns of another's loss), "recover" (SECONDS after it began to recover); "time": SECONDS after the start.
-- Every survivor writes FOLDER/RANK: hash, rank, size, generation, longest pause. Rank 0 writes FOLDER/running after the first update.
local accel = require "accel"
local elastic = require "accel.elastic.core"
local dist = accel.dist
local folder, updates, micro, plan = arg[1], tonumber(arg[2]), tonumber(arg[3]), arg[4] or ""
local start <const> = dist.get_rank()
local stat <close> = assert(io.open "/proc/self/stat")
local pid <const> = stat:read "n"
assert(elastic.active() and elastic.generation() == 1)

local function kill(delay)
  if delay and delay > 0 then os.execute(("(sleep %.4f; kill -9 %d) >/dev/null 2>&1 </dev/null &"):format(delay, pid))
  else os.execute(("kill -9 %d"):format(pid)) end
end
local mine = {}
for rank, update, point, delay in plan:gmatch "(%d+):(%d+):(%a+%d*):?([%d.]*)" do
  if tonumber(rank) == start then mine[#mine + 1] = { update = tonumber(update), point = point, delay = tonumber(delay) } end
end
local update, doomed = 0, false -- the one under way. A kill is on its way
local function at(point)
  for _, p in ipairs(mine) do
    if p.point == point and (update >= p.update and (point == "caught" or point == "recover") or update == p.update) then
      p.point, doomed = "done", true
      kill(p.delay)
    end
  end
end

local half = {} -- a group of the ranks with even numbers: it goes on with those that are left
for r = 0, dist.get_world_size() - 1, 2 do half[#half + 1] = r end
local group = dist.new_group(half)
for _, p in ipairs(mine) do
  if p.point == "time" then
    doomed = true
    kill(p.delay)
  end
end
local heap, private = dist.empty(150000), accel.zeros(40000)

local function collective(k, f)
  at("before" .. k)
  at("inside" .. k)
  f()
  at("after" .. k)
end
local function check(got, want, what)
  if got ~= want then error(("rank %d, update %d: %s is %s, not %s"):format(start, update, what, got, want), 0) end
end

local prepared -- the sum of an update whose gradients, so to say, are complete
local function try()
  local rank, size = dist.get_rank(), dist.get_world_size()
  elastic.phase("begin", update)
  if doomed and update == updates then os.execute "sleep 60" end -- a busy machine may be slow to kill it
  local own = 0
  for i = rank, micro - 1, size do own = own + update * 1000 + i end
  local sum = accel.full({ 2 }, own, { dtype = "i64" })
  collective(1, function() dist.all_reduce(sum) end)
  heap:fill_(rank + update)
  collective(2, function() dist.all_reduce(heap) end)
  check(heap[-1]:item(), size * update + size * (size - 1) / 2, "a sum in the heap")
  private:fill_(1)
  collective(3, function()
    local a = dist.all_reduce(private, { async_op = true })
    local b = dist.barrier { async_op = true }
    a:wait()
    b:wait()
  end)
  check(private[1]:item(), size, "a sum of private tensors")
  local all = accel.zeros(size, { dtype = "i64" })
  collective(4, function() dist.all_gather_into_tensor(all, accel.full({ 1 }, start, { dtype = "i64" })) end)
  check(all[rank + 1]:item(), start, "a gathered rank")
  if size > 1 then
    local got = accel.zeros(30000)
    collective(5, function()
      local works = { dist.isend(accel.full({ 30000 }, rank + update + 0.0), (rank + 1) % size), dist.irecv(got, (rank - 1) % size) }
      for _, w in ipairs(works) do w:wait() end
    end)
    check(got[-1]:item(), (rank - 1) % size + update, "a message")
  end
  if dist.get_rank(group) >= 0 then
    local part = accel.ones(5)
    collective(6, function() dist.all_reduce(part, { group = group }) end)
    check(part[5]:item(), dist.get_world_size(group), "a sum of the group")
  end
  prepared = sum[1]:item()
  elastic.phase("prepared", update)
  at "prepared"
  collective(7, dist.barrier) -- the vote
  elastic.phase("applying", update)
  at "applying"
end

local hash, applied, pause, last = 7, 0, 0, accel.clock()
local function apply()
  hash = (hash * 1000003 + prepared) & 0xffffffffffff
  applied = update
  elastic.phase("applied", applied)
  at "applied"
  if start == 0 and applied == 1 then assert(io.open(folder .. "/running", "w")):close() end
  pause = math.max(pause, accel.clock() - last)
  last = accel.clock()
end
while applied < updates do
  update = applied + 1
  local ok, e = pcall(try)
  if ok then
    apply()
  else
    if type(e) ~= "table" or e.code ~= "membership" then error(e, 0) end
    at "caught"
    at "recover"
    local change = elastic.recover()
    assert(change.rank == dist.get_rank() and change.size == dist.get_world_size())
    assert(change.generation == elastic.generation() and change.size + #change.lost == change.size_before)
    if change.committed == update then apply() end
    check(applied, change.committed, "the last update that counts")
  end
end
local file <close> = assert(io.open(("%s/%d"):format(folder, start), "w"))
file:write(("%d %d %d %d %.4f\n"):format(hash, dist.get_rank(), dist.get_world_size(), elastic.generation(), pause))
