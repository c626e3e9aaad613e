-- Process control on 1 to 4 ranks, and on 8: what runs where, who goes first, shares of lists (against what Accelerate gives),
-- the trigger, and collectives inside of regions that not all ranks run.
--   accel-run tests/stdlib/accelerator/processes_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local dist = accel.dist

if not ranks.launched then
  local tmp = os.tmpname()
  for n, out in accel.pairs(ranks.start { 1, 2, 3, 4, 8, args = tmp, capture = true }) do
    assert(select(2, out:gsub("printed once\n", "")) == 1, ("%d ranks printed: %s"):format(n, out))
  end
  os.remove(tmp)
  return
end

local R, P, same, says = ranks.rank, ranks.size, ranks.same, ranks.fails
local state = accel.PartialState()
local file = arg[1]

-- ---- who runs what ----

local function here(f) return f() == "here" end
local function ran() return "here" end
assert(here(state:on_main_process(ran)) == (R == 0))
assert(here(state:on_local_main_process(ran)) == (R == 0))
assert(here(state:on_last_process(ran)) == (R == P - 1))
for index = 0, P - 1 do
  assert(here(state:on_process(ran, index)) == (R == index))
  assert(here(state:on_process(index)(ran)) == (R == index))
  assert(here(state:on_process { process_index = index } (ran)) == (R == index))
  assert(here(state:on_local_process(ran, index)) == (R == index))
  assert(here(state:on_local_process { local_process_index = index } (ran)) == (R == index))
  assert(here(state:on_local_process { local_process_idx = index } (ran)) == (R == index))
  assert(here(state:on_local_process(ran, { local_process_idx = index })) == (R == index))
end
same({ state:on_process(select, 0)(2, "a", "b", "c") }, R == 0 and { "b", "c" } or {}, "arguments and results")
if P > 1 then
  says(("process_index is %d, there are %d processes"):format(P, P), state.on_process, state, ran, P)
else -- which runs for every index, as in the reference
  assert(here(state:on_process(ran, 3)) and here(state:on_process { process_index = 1 } (ran)))
  assert(here(state:on_local_process(ran, 3)) and here(state:on_local_process { local_process_index = 1 } (ran)))
end
says("which process?", state.on_process, state, ran)
says("fn must be a function", state.on_main_process, state, 3)
state:print "printed once"

-- ---- collectives in regions ----

local function line() return debug.getinfo(2, "l").currentline end

if P > 1 then
  local at = line() + 1
  local region = state:on_main_process(function(f, ...)
    return says("inside on_main_process", f, ...)
  end)
  local text = tostring(region(function() dist.all_reduce(accel.ones(1)) end))
  if R == 0 then
    assert(text:find(("processes_test.lua:%d)"):format(at), 1, true), "the region's line: " .. text)
    assert(text:find(("processes_test.lua:%d: all_reduce"):format(at + 3), 1, true), "the collective's line: " .. text)
  end
  for _, call in accel.pairs {
    barrier = function() dist.barrier() end,
    broadcast = function() dist.broadcast(accel.ones(1), 0) end,
    all_gather_object = function() dist.all_gather_object(1) end,
    broadcast_object_list = function() dist.broadcast_object_list({ 1 }, 0) end,
    async = function() dist.all_reduce(accel.ones(1), { async_op = true }) end,
    wait_for_everyone = function() state:wait_for_everyone() end,
    check_trigger = function() state:check_trigger() end,
  } do
    state:on_main_process(function() says("inside on_main_process", call) end)()
    state:on_last_process(function() says("inside on_last_process", call) end)()
    dist.barrier() -- the region has ended
  end
  -- after an error, inside of another region, and of a group of its own
  state:on_main_process(function()
    state:on_process(function() says("inside on_process", dist.barrier) end, 0)()
    says("inside on_main_process", dist.barrier)
  end)()
  pcall(state:on_main_process(function() error "inside" end))
  dist.barrier()
  local alone = dist.new_group { 0 }
  state:on_main_process(function()
    local t = accel.tensor { 3.0 }
    dist.all_reduce(t, { group = alone })
    assert(t:item() == 3)
  end)()
  state:main_process_first(function() says("inside main_process_first", dist.barrier) end)
  state:local_main_process_first(function() says("inside local_main_process_first", dist.barrier) end)
else
  state:on_main_process(function() dist.barrier() end)()
  state:main_process_first(function() dist.barrier() end)
end
dist.barrier()

-- ---- who goes first ----

for _, first in ipairs { "main_process_first", "local_main_process_first" } do
  for _, form in ipairs { "block", "function" } do
    local function write()
      local f <close> = assert(io.open(file, R == 0 and "w" or "a"))
      f:write(R, "\n")
      return "result", R
    end
    if form == "block" then
      local _ <close> = state[first](state)
      write()
    else
      same({ state[first](state, write) }, { "result", R }, first)
    end
    state:wait_for_everyone()
    local lines = {}
    for number in io.lines(file) do lines[#lines + 1] = tonumber(number) end
    assert(lines[1] == 0 and #lines == P, ("%s: %d lines, the first by rank %d"):format(first, #lines, lines[1]))
    state:wait_for_everyone()
  end
end
do -- an error on the main process lets the others go on
  local ok = pcall(function()
    local _ <close> = state:main_process_first()
    if R == 0 then error "main" end
  end)
  assert(ok == (R ~= 0))
  state:wait_for_everyone()
end

-- ---- the trigger ----

assert(state:check_trigger() == false)
for k = 0, P - 1 do
  if R == k then state:set_trigger() end
  assert(state:check_trigger() == true, "set by one")
  assert(state:check_trigger() == false, "cleared everywhere")
end

-- ---- shares ----

local function range(n)
  local list = {}
  for i = 1, n do list[i] = i end
  return list
end

do -- sizes for any length: as even as can be, in order, nothing twice
  for n = 0, 19 do
    local own = state:split_between_processes(range(n))
    local all = dist.all_gather_object(own)
    local joined = {}
    for r, part in ipairs(all) do
      assert(#part == n // P + (r <= n % P and 1 or 0), "size")
      for _, item in ipairs(part) do joined[#joined + 1] = item end
    end
    same(joined, range(n), "shares joined")
    if P > 1 then
      local padded = state:split_between_processes(range(n), { apply_padding = true })
      assert(#padded == (n + P - 1) // P, "padded size")
      for i = #own + 1, #padded do assert(padded[i] == n, "padding is the last item of the whole input") end
    end
  end
  local sizes = { [2] = { 9, 8 }, [3] = { 6, 6, 5 }, [4] = { 5, 4, 4, 4 }, [8] = { 3, 2, 2, 2, 2, 2, 2, 2 } }
  if P > 1 then assert(#state:split_between_processes(range(17)) == sizes[P][R + 1]) end
end

do -- one process: the input itself, also with padding
  local list = range(3)
  assert((state:split_between_processes(list, true) == list) == (P == 1))
end

do -- tables of lists, tensors and data sets
  local input = { a = range(8), b = accel.arange(8), c = { d = accel.data.ListDataset(range(8)) } }
  local before = accel.json.encode { a = input.a, b = input.b:tolist() }
  local part = state:split_between_processes(input)
  local size = 8 // P + (R < 8 % P and 1 or 0)
  local first = R * (8 // P) + math.min(R, 8 % P) + 1
  assert(#part.a == size and part.a[1] == first)
  assert(part.b.shape[1] == size and part.b[1]:item() == first - 1)
  assert(part.c.d:len() == size and part.c.d:get(1) == first)
  assert(before == accel.json.encode { a = input.a, b = input.b:tolist() }, "the input is as it was")
  local _, err = pcall(state.split_between_processes, state, { a = range(3), b = range(4) })
  assert(tostring(err):find("input.a has 3 items, input.b has 4", 1, true), err)
  local rows = state:split_between_processes(accel.arange(14):reshape(7, 2), { apply_padding = true })
  assert(P == 1 or rows.shape[1] == (7 + P - 1) // P and rows.shape[2] == 2)
  if P > 1 and R == P - 1 then same(rows[-1]:tolist(), { 12, 13 }, "the last row again") end
  local ordered = accel.util.ordered()
  ordered.z = range(4)
  ordered.a = range(4)
  local names = {}
  for name in pairs(state:split_between_processes(ordered)) do names[#names + 1] = name end
  same(names, { "z", "a" }, "order of names")
  local set = state:split_between_processes(accel.data.ListDataset(range(5)), true)
  assert(P == 1 or set:len() == (5 + P - 1) // P)
  assert(state:split_between_processes({ "x" }, function(own) return #own end) == (R == 0 and 1 or 0))
  assert(state:split_between_processes({ "x" }, { apply_padding = true }, function(own) return own[1] end) == "x")
end

says("must be a list, a table of lists, a tensor or a data set, got 'text'", state.split_between_processes, state,
  "text")
says("without dims", state.split_between_processes, state, accel.tensor(1.0))
says("has list entries and the key 'n'", state.split_between_processes, state, { 1, 2, n = 2 })
says("did you mean 'apply_padding'?", state.split_between_processes, state, {}, { apply_paddin = true })

do -- what Accelerate gives
  if P <= 3 then
    local cases, n = ranks.json(("reference/accelerate/accelerate_%d.json"):format(P)), 0
    for name, records in accel.pairs(cases) do
      local kind, length, padding = name:match "^split_(%a+)_(%d+)_(%a+)$"
      if name == "split_dict" then kind, length = "dict", 5 end
      if kind then
        local record = records[R + 1]
        local input = record["in"]
        if kind == "tensor" then input = accel.tensor(input, { dtype = "f32" }) end
        local got = state:split_between_processes(input, { apply_padding = padding == "True" })
        local want = record.out
        -- with padding an empty input fails there; here it is empty
        if tonumber(length) == 0 and padding == "True" then want = {} end
        if kind == "tensor" then got = got:tolist() end
        if kind ~= "dict" then
          assert(#got == #want, ("%s: %d items, expected %d"):format(name, #got, #want))
          for i = 1, #want do assert(got[i] == want[i], name) end
        else
          same(got, want, name)
        end
        n = n + 1
      end
    end
    assert(n >= 13, ("only %d cases"):format(n))
  end
end
