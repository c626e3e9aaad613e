-- Options of the functions of accel.dist that come from C, on two ranks: each one changes what a rank gets, or raises
-- (support/option_sweep.lua). Every call is made by both ranks, so that both take the same turn where one raises.
--   accel-run tests/options/collectives_test.lua [NAME]
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
if ranks.start { 2, args = arg[1] } then return end
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder { "dist.lua" }

local dist, none = accel.dist, sweep.none
local me = dist.get_rank()
local peer = 1 - me
local alone, other
for r = 0, 1 do
  local group = dist.new_group { r }
  if r == me then alone = group else other = group end
end

local function tensor(n) return accel.arange(n or 4):to "f32" * (me + 2) + me end

--- What both ranks have got: where one rank alone sees an effect, both judge by it.
local function of_both(x) return dist.all_gather_object(x) end

--- Makes the call, waits for a work, and returns what it wrote on both ranks.
local function made(call, ...)
  local work = call()
  if work ~= nil then work:wait() end
  local out = {}
  for i, t in ipairs { ... } do out[i] = t:tolist() end
  return of_both { out, work ~= nil }
end

local OPTIONS <const> = { group = { alone }, async_op = { true }, op = { "max", "min", "prod", "avg" } }
local function values(more)
  local all = {}
  for key, value in next, OPTIONS do all[key] = value end
  for key, value in next, more or {} do all[key] = value end
  return all
end

-- ---- the world, groups and records ----
s:recipe({ "accel.dist.get_rank", "accel.dist.get_world_size" }, { values = { group = { other } } })
s:recipe("accel.dist.get_process_group_ranks", { values = { group = { alone } } })
s:recipe("accel.dist.get_backend", { values = { group = { "no group" } }, raises = { group = "group" } }) -- all groups have the world's
s:recipe("accel.dist.new_group", {
  run = function(call)
    local g = call()
    return of_both { g:rank(), g:size() }
  end,
  values = { ranks = { { 1 }, { 0 } } },
})
s:leave("accel.dist.destroy_process_group", "without a group it ends the world: tests/bindings/dist_test.lua")
s:leave("accel.dist.init_process_group", "begins a world: tests/options/process_group_test.lua")
s:recipe("accel.dist.records", {
  run = function(call)
    for _ = 1, 3 do dist.barrier() end
    return #call() < 2
  end,
  values = { n = { 1 } },
})
s:recipe("accel.dist.empty", { run = function(call)
  local t = call(2, 3)
  return t.dtype, t.device, t.shape
end, values = { dtype = { "f64" }, device = { "meta" } } })

-- ---- collectives ----
s:recipe("accel.dist.all_reduce", {
  base = function() return { tensor = tensor() } end,
  run = function(call, given) return made(call, given.tensor) end, values = values(),
})
s:recipe("accel.dist.reduce", {
  base = function() return { tensor = tensor(), dst = 0 } end,
  run = function(call, given)
    if given.group then given.dst = me end
    return made(call, given.tensor)
  end,
  values = values { dst = { 1 }, group_dst = { 1 } }, raises = { group_dst = "given together with dst" },
})
s:recipe("accel.dist.broadcast", {
  base = function() return { tensor = tensor(), src = 0 } end,
  run = function(call, given)
    if given.group then given.src = me end
    return made(call, given.tensor)
  end,
  values = values { src = { 1 }, group_src = { 1 } }, raises = { group_src = "given together with src" },
})
local function list_of(n)
  local list = {}
  for i = 1, n do list[i] = accel.zeros(4) end
  return list
end
s:recipe("accel.dist.all_gather", {
  base = function() return { tensor_list = {}, tensor = tensor() } end,
  run = function(call, given)
    for i, t in ipairs(list_of(given.group and 1 or 2)) do given.tensor_list[i] = t end
    return made(call, table.unpack(given.tensor_list))
  end,
  values = values(),
})
s:recipe("accel.dist.all_gather_into_tensor", {
  base = function() return { output_tensor = accel.zeros(8), input_tensor = tensor() } end,
  run = function(call, given)
    if given.group then given.output_tensor = given.output_tensor:narrow(1, 1, 4) end
    return made(call, given.output_tensor)
  end,
  values = values(),
})
s:recipe("accel.dist.gather", {
  base = function() return { tensor = tensor() } end,
  run = function(call, given)
    local root = given.group and me or given.dst or given.group_dst or 0
    if given.group then given.dst = me end
    if me == root then given.gather_list = list_of(given.group and 1 or 2) end
    return made(call, table.unpack(given.gather_list or {}))
  end,
  values = values { dst = { 1 }, group_dst = { 1 } }, elsewhere = { gather_list = "tests/stdlib/dist/collectives_test.lua" },
})
s:recipe("accel.dist.scatter", {
  base = function() return { tensor = tensor() } end,
  run = function(call, given)
    local root = given.group and me or given.src or given.group_src or 0
    if given.group then given.src = me end
    if me == root then given.scatter_list = given.group and { tensor() * 3 } or { tensor() * 3, tensor() * 4 } end
    return made(call, given.tensor)
  end,
  values = values { src = { 1 }, group_src = { 1 } }, elsewhere = { scatter_list = "tests/stdlib/dist/collectives_test.lua" },
})
s:recipe("accel.dist.reduce_scatter", {
  base = function() return { output = accel.zeros(4), input_list = {} } end,
  run = function(call, given)
    for i = 1, given.group and 1 or 2 do given.input_list[i] = tensor() + i end
    return made(call, given.output)
  end,
  values = values(),
})
s:recipe("accel.dist.reduce_scatter_tensor", {
  base = function() return { output = accel.zeros(4), input = tensor(8) } end,
  run = function(call, given)
    if given.group then given.input = given.input:narrow(1, 1, 4) end
    return made(call, given.output)
  end,
  values = values(),
})
s:recipe("accel.dist.all_to_all", {
  base = function() return { output_list = {}, input_list = {} } end,
  run = function(call, given)
    for i, t in ipairs(list_of(given.group and 1 or 2)) do given.output_list[i], given.input_list[i] = t, tensor() + i end
    return made(call, table.unpack(given.output_list))
  end,
  values = values(),
})
local KEPT <const> = me == 0 and { 2, 0 } or { 0, 2 } -- rows that stay on their rank
s:recipe("accel.dist.all_to_all_single", {
  base = function() return { output = accel.zeros(2), input = tensor(2) } end,
  run = function(call, given)
    if given.input_split_sizes or given.output_split_sizes then -- what one rank sends, another one receives
      given.input_split_sizes, given.output_split_sizes = KEPT, KEPT
    end
    return made(call, given.output)
  end,
  values = values { input_split_sizes = { KEPT }, output_split_sizes = { KEPT } },
})
s:recipe("accel.dist.barrier", {
  run = function(call)
    local work = call()
    if work ~= nil then work:wait() end
    return dist.records(1)[1].group, work ~= nil
  end,
  values = values(),
})

-- ---- one to one ----
-- Two messages to the other rank, one of them by the call: the tag tells them apart.
local function sends(call, given)
  local work = call()
  local tags = given.tag == 3 and { 3, 0 } or { 0, 3 }
  local second = dist.isend(tensor() + 100, peer, { tag = tags[2] })
  local got = { accel.zeros(4), accel.zeros(4) }
  for i, tag in ipairs { 0, 3 } do dist.recv(got[i], peer, { tag = tag }) end
  for _, w in ipairs { second, work } do w:wait() end
  return of_both { got[1]:tolist(), got[2]:tolist() }
end
local function receives(call, given)
  local works = {}
  for i, tag in ipairs { 0, 3 } do works[i] = dist.isend(tensor() + 100 * i, peer, { tag = tag }) end
  local ok, work = pcall(call)
  if ok and accel.is_tensor(work) == false and type(work) == "userdata" then work:wait() end
  local rest = accel.zeros(4)
  for _, tag in ipairs(not ok and { 0, 3 } or given.tag == 3 and { 0 } or { 3 }) do dist.recv(rest, peer, { tag = tag }) end
  for _, w in ipairs(works) do w:wait() end
  if not ok then error(work, 0) end
  return of_both { given.tensor:tolist(), rest:tolist() }
end
for _, name in ipairs { "send", "isend" } do
  s:recipe("accel.dist." .. name, {
    base = function() return { tensor = tensor(), dst = peer } end, run = sends,
    values = { tag = { 3 }, group = { alone }, dst = { me }, group_dst = { peer } },
    raises = { group = "not a member of the group", dst = "rank", group_dst = "given together with dst" },
  })
end
for _, name in ipairs { "recv", "irecv" } do
  s:recipe("accel.dist." .. name, {
    base = function() return { tensor = accel.zeros(4), src = peer } end, run = receives,
    values = { tag = { 3 }, group = { alone }, src = { me }, group_src = { peer } },
    raises = { group = "not a member of the group", src = "rank", group_src = "given together with src" },
  })
end

-- Functions and methods without options drop no argument either.
for _, entry in ipairs(s.entries) do
  if next(entry.options) == nil and not entry.takes_table and not entry.open then
    local args = { entry.name:find "^Group" and alone or entry.name:find "^Work" and dist.barrier { async_op = true } or nil }
    local n = #entry.order + (entry.kind == "method" and 1 or 0) + 1
    args[n] = "surplus"
    local ok, why = pcall(entry.target, table.unpack(args, 1, n))
    if ok or not tostring(why):find("unexpected string", 1, true) then s:fail("%s: drops a surplus argument: %s", entry.name, tostring(why)) end
    if entry.name:find "^Work" then args[1]:wait() end
  end
end

s:finish()
