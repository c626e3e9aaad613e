-- Object collectives of accel.dist in worlds of 1, 2, 3 and 4 ranks: every kind of value, uneven sizes, groups, roots
-- by global and group rank, and objects that cannot be encoded, which are an error on every rank. The script starts
-- itself on the ranks.
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local dist = accel.dist

if ranks.start { 1, 2, 3, 4 } then
  -- Playing rank 2 of 4: what comes from others is what this one sent, or nothing.
  dist.init_process_group { backend = "sim", rank = 2, world_size = 4 }
  local four = dist.all_gather_object { a = 1 }
  assert(#four == 4 and four[4].a == 1 and dist.bytes_sent() > 0)
  assert(dist.gather_object("x", { dst = 2 })[1] == "x" and dist.gather_object("x", { dst = 1 }) == nil)
  assert(dist.scatter_object_list({ 1, 2, 3, 4 }, { src = 2 }) == 3)
  assert(dist.scatter_object_list(nil, { src = 0 }) == nil and dist.recv_object_list({}, 1) == 1)
  dist.broadcast_object_list({}, 0)
  dist.send_object_list({ 1 }, 0)
  ranks.fails("all_gather_object: rank 2: ", dist.all_gather_object, print)
  return
end

local rank, size, fails = ranks.rank, ranks.size, ranks.fails

-- Differs in size from rank to rank; knows whether what came is what rank r sends.
local function object(r)
  local shared = { r }
  return { rank = r, text = ("x"):rep(r * 1000) .. "\0", float = r / 3, list = { shared, shared },
    tensor = accel.full({ r, 3 }, r), [r] = true }
end
local function check(o, r)
  assert(o.rank == r and o.text == ("x"):rep(r * 1000) .. "\0" and o.float == r / 3 and o[r] == true)
  assert(o.list[1] == o.list[2] and o.list[1][1] == r and accel.equal(o.tensor, accel.full({ r, 3 }, r)))
  assert(math.type(o.rank) == "integer" and o.tensor.dtype == accel.full({ r, 3 }, r).dtype)
end

-- ---- all_gather_object ----
local all = dist.all_gather_object(object(rank))
assert(#all == size)
for r = 0, size - 1 do check(all[r + 1], r) end
all = dist.all_gather_object(rank % 2 == 0 and rank or nil)
for r = 0, size - 1 do assert(all[r + 1] == (r % 2 == 0 and r or nil)) end

-- ---- gather_object ----
for dst = 0, size - 1 do
  local list = dist.gather_object(object(rank), { dst = dst })
  assert((list ~= nil) == (rank == dst))
  for r = 0, list and size - 1 or -1 do check(list[r + 1], r) end
end

-- ---- broadcast_object_list ----
for src = 0, size - 1 do
  local list = rank == src and { object(src), "two", false, n = 4 } or { "old", "old", "old", "old", "old" }
  dist.broadcast_object_list(list, src)
  check(list[1], src)
  assert(list[2] == "two" and list[3] == false and list[4] == nil and list[5] == nil)
  list = rank == src and { 1, 2 } or {}
  dist.broadcast_object_list(list, { group_src = src })
  assert(#list == 2 and list[2] == 2)
end

-- ---- scatter_object_list ----
for src = 0, size - 1 do
  local list
  if rank == src then
    list = {}
    for r = 0, size - 1 do list[r + 1] = object(r) end
  end
  check(dist.scatter_object_list(list, { src = src }), rank)
end

-- ---- send and receive, around a ring ----
if size > 1 then
  local to, from, list = (rank + 1) % size, (rank - 1) % size, {}
  if rank % 2 == 0 then
    dist.send_object_list({ object(rank), rank }, to)
    assert(dist.recv_object_list(list, from) == from)
  else
    dist.recv_object_list(list, from)
    dist.send_object_list({ object(rank), rank }, to, { tag = 0 })
  end
  check(list[1], from)
  assert(list[2] == from and #list == 2)
end

-- ---- groups ----
if size > 2 then
  local members = { size - 1, 0 } -- not in the order of the world
  local group = dist.new_group(members)
  if rank == 0 or rank == size - 1 then
    local order = dist.get_process_group_ranks(group)
    all = dist.all_gather_object(object(rank), { group = group })
    assert(#all == 2)
    for i, r in ipairs(order) do check(all[i], r) end
    local list = dist.gather_object(rank, { dst = size - 1, group = group })
    assert((list ~= nil) == (rank == size - 1) and (not list or (list[1] == order[1] and list[2] == order[2])))
    list = rank == size - 1 and { "from the last" } or {}
    dist.broadcast_object_list(list, size - 1, { group = group })
    assert(list[1] == "from the last")
    local mine = dist.scatter_object_list(rank == order[2] and order or nil, { group_src = 1, group = group })
    assert(mine == rank)
    fails("src = 1 is not a rank of the group", dist.broadcast_object_list, { 1 }, 1, { group = group })
    fails("group_src = 2 is not one of the 2 ranks", dist.broadcast_object_list, { 1 }, { group_src = 2, group = group })
  end
  dist.barrier()
end

-- ---- errors: on every rank, naming the one that caused it and the way to the value ----
local last = size - 1
local bad = { ok = 1, deep = { 1, 2, { f = print } } }
local what = ("rank %d: "):format(last)
local function one_bad() return rank == last and bad or object(rank) end
for _ = 1, 2 do -- and the world goes on
  fails("all_gather_object: " .. what, dist.all_gather_object, one_bad())
  fails("cannot encode function at .deep[3].f", dist.all_gather_object, one_bad())
  fails("objects_test.lua:", function() dist.all_gather_object(one_bad()) end)
  fails("gather_object: " .. what, dist.gather_object, one_bad(), { dst = 0 })
  fails("broadcast_object_list: " .. what, dist.broadcast_object_list, { one_bad() }, last)
  fails("cannot encode function at [1].deep[3].f", dist.broadcast_object_list, { one_bad() }, last)
  local list = {}
  for r = 1, size do list[r] = r == size and bad or r end
  fails(("scatter_object_list: rank %d: object %d of %d: "):format(last, size, size), dist.scatter_object_list,
    rank == last and list or nil, { src = last })
  fails(("scatter_object_list: rank 0: %d objects for %d ranks"):format(size + 1, size), dist.scatter_object_list,
    rank == 0 and table.move(list, 1, size, 2, { 0 }) or nil, { src = 0 })
  fails("scatter_object_list: rank 0: expected list of objects, got nil", dist.scatter_object_list, nil, { src = 0 })
  if size > 1 and rank == 0 then
    fails("send_object_list: rank 0: ", dist.send_object_list, { bad }, last)
  elseif size > 1 and rank == last then
    fails("recv_object_list: rank 0: ", dist.recv_object_list, {}, 0)
  end
  fails("more than 50 bytes", dist.all_gather_object, ("x"):rep(rank == last and 100 or 1), { max_bytes = 50 })
end
fails("src = " .. size .. " is not a rank of the group", dist.broadcast_object_list, { 1 }, size)
fails("dst = x is not a rank of the group", dist.gather_object, 1, { dst = "x" })
fails("give src or group_src, not both", dist.scatter_object_list, { 1 }, { src = 0, group_src = 0 })
fails("expected list of objects, got nil", dist.broadcast_object_list)
fails("unknown option 'grup'; did you mean 'group'?", dist.all_gather_object, 1, { grup = 1 })
check(dist.all_gather_object(object(rank))[size], last)
dist.barrier()
