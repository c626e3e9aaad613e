--- Data sets made from others, random_split, streams.
local accel = require "accel"
local data = accel.data
local loop = require "accel.util.loop"

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end
local function join(list) return table.concat(list, ",") end
local function all(set)
  local out = {}
  for i = 1, #set do out[i] = set:get(i) end
  return join(out)
end
local function drain(stream, epoch)
  local out = {}
  for sample in stream:iterate(epoch or 0, 0) do out[#out + 1] = sample end
  return join(out)
end

local reads = 0
local Numbers = data.Dataset:extend "Numbers"
function Numbers:init(n) self.n = n end
function Numbers:len() return self.n end
function Numbers:get(i)
  self:check_position(i)
  reads = reads + 1
  return i
end
local set = Numbers(7)

do -- helpers
  local tens = set:map(function(x, i) return 10 * x + i - x end)
  assert(#tens == 7 and reads == 0 and all(tens) == "10,20,30,40,50,60,70")
  local even = set:filter(function(x) return x % 2 == 0 end)
  assert(#even == 3 and all(even) == "2,4,6")
  assert(all(set:take(2)) == "1,2" and all(set:take(99)) == "1,2,3,4,5,6,7" and #set:take(0) == 0)
  assert(all(set:skip(5)) == "6,7" and #set:skip(99) == 0 and #set:skip(math.maxinteger) == 0)
  assert(all(set:skip(0)) == "1,2,3,4,5,6,7")
  assert(all(set:subset { 7, 1, 7 }) == "7,1,7")
  assert(all(set:take(2):concat(even, set:skip(6))) == "1,2,2,4,6,7")
  assert(all(set:take(0):concat(set:take(1), set:take(0), set:take(1))) == "1,1", "empty parts")
  local batches = set:batch(3)
  assert(#batches == 3 and join(batches:get(1):tolist()) == "1,2,3" and join(batches:get(3):tolist()) == "7")
  assert(#set:batch(3, { drop_last = true }) == 2)
  assert(set:batch(3, { collate_fn = join }):get(2) == "4,5,6")
  local chained = set:filter(function(x) return x > 2 end):map(function(x) return x * x end):skip(1):take(2)
  assert(all(chained) == "16,25")
  local out = {}
  for batch in data.DataLoader(set:batch(3), { batch_size = false, shuffle = true })() do
    out[#out + 1] = #batch:tolist()
  end
  table.sort(out)
  assert(join(out) == "1,3,3")

  fails("Subset: position 8 %(entry 2%) is outside of 1 .. 7", set.subset, set, { 1, 8 })
  fails("Subset: positions must be a list, got 3", set.subset, set, 3)
  fails("Subset: position 4 is outside of 1 .. 3", even.get, even, 4)
  fails("position 8 is outside of 1 .. 7", tens.get, tens, 8)
  fails("position 4 is outside of 1 .. 3", batches.get, batches, 4)
  fails("returned nil for sample 3", function() all(set:map(function(x) return x < 3 and x or nil end)) end)
  fails("the function must be a function, got nil", set.map, set)
  fails("Dataset:take: n must be an integer from 0 on, got %-1", set.take, set, -1)
  fails("data set 2: expected a data set with the methods len, get, got 3", set.concat, set, 3)
  fails("unknown option 'droplast'; did you mean 'drop_last'", set.batch, set, 2, { droplast = true })
  fails("at least one", data.ConcatDataset, {})
  fails("position 0 is outside of 1 .. 2", function() data.ListDataset({ 1, 2 }):get(0) end)
  fails("ListDataset: expected a list, got 2", data.ListDataset, 2)
end

do -- batches are gathered by the source where it can
  local tensors = data.TensorDataset(accel.arange(6))
  local view = tensors:subset({ 5, 3, 1 }):subset { 3, 1 }
  assert(join(view:get_batch({ 1, 2 })[1]:tolist()) == "0,4")
  fails("position 3 is outside of 1 .. 2", view.get_batch, view, { 3 })
  assert(set:take(2).get_batch == nil)
  local asked
  local only = { len = function() return 4 end, get_batch = function(_, positions)
    asked = join(positions)
    return positions
  end }
  for _ in data.DataLoader(data.Subset(only, { 4, 2 }), { batch_size = 2 })() do assert(asked == "4,2") end
  fails("collate_fn needs a data set with the method get", data.DataLoader, only, { collate_fn = join })
  local holes = { len = function() return 3 end, get = function(_, i) return i ~= 2 and i or nil end }
  fails("sample 2 of the data set is nil", function() for _ in data.DataLoader(holes, { batch_size = 3 })() do end end)
end

do -- random_split
  local parts = data.random_split(set, { 4, 3 }, { seed = 5 })
  assert(#parts == 2 and #parts[1] == 4 and #parts[2] == 3)
  local seen = 0
  for _, part in ipairs(parts) do
    for i = 1, #part do seen = seen + (1 << part:get(i)) end
  end
  assert(seen == 254, "every sample once")
  local again = data.random_split(set, { 4, 3 }, { seed = 5 })
  assert(all(again[1]) == all(parts[1]) and all(data.random_split(set, { 4, 3 }, { seed = 6 })[1]) ~= all(parts[1]))
  local function lengths(n, fractions)
    local out = {}
    for i, part in ipairs(data.random_split(Numbers(n), fractions)) do out[i] = #part end
    return join(out)
  end
  -- as torch.utils.data.random_split
  assert(lengths(10, { 0.7, 0.3 }) == "7,3" and lengths(11, { 0.5, 0.5 }) == "6,5")
  assert(lengths(11, { 0.3, 0.3, 0.4 }) == "4,3,4" and lengths(7, { 1 / 3, 1 / 3, 1 / 3 }) == "3,2,2")
  assert(lengths(3, { 0.1, 0.2, 0.7 }) == "1,0,2" and lengths(5, { 1.0 }) == "5" and lengths(0, { 0.5, 0.5 }) == "0,0")
  assert(lengths(5, { 5, 0 }) == "5,0")
  fails("lengths make 8 samples, the data set has 7", data.random_split, set, { 4, 4 })
  fails("fractions add up to 0.9", data.random_split, set, { 0.5, 0.4 })
  fails("lengths%[2%] must be at least 0, got %-1", data.random_split, set, { 8, -1 })
  fails("counts or fractions, got 0.5", data.random_split, set, 0.5)
  fails("unknown option 'sead'; did you mean 'seed'", data.random_split, set, { 3, 4 }, { sead = 1 })
  fails("a data set with a length, got 3", data.random_split, 3, { 1 })
end

local opened, closed = 0, 0
local Count = data.IterableDataset:extend "Count"
function Count:init(n) self.n = n end
function Count:iterate(epoch)
  opened = opened + 1
  local step = function(n, i) if i < n then return i + 1 end end
  return step, self.n, (epoch or 0) * 0, setmetatable({}, { __close = function() closed = closed + 1 end })
end

do -- streams
  local stream = Count(7)
  assert(drain(stream) == "1,2,3,4,5,6,7")
  assert(drain(stream:map(function(x, i) return x * i end):filter(function(x) return x % 2 == 1 end)) == "1,9,25,49")
  assert(drain(stream:take(2)) == "1,2" and drain(stream:take(0)) == "" and drain(stream:take(9)) == "1,2,3,4,5,6,7")
  assert(drain(stream:skip(5)) == "6,7" and drain(stream:skip(9)) == "" and drain(stream:skip(2):take(1)) == "3")
  assert(drain(stream:take(1):concat(Count(0), Count(2), Count(0))) == "1,1,2")
  assert(drain(stream:batch(3, { collate_fn = function(s) return join(s) .. ";" end })) == "1,2,3;,4,5,6;,7;")
  assert(drain(stream:batch(3, { collate_fn = join, drop_last = true })) == "1,2,3,4,5,6")
  assert(opened == closed, ("%d opened, %d closed"):format(opened, closed))
  for _ in stream:map(tostring):concat(stream):iterate() do break end -- luacheck: ignore 512
  assert(opened == closed, "left by break")
  fails("returned nil for sample 2", drain, stream:map(function(x) return x == 1 and 1 or nil end))
  assert(opened == closed, "left by an error")
  fails("argument 1 must have the method iterate, got 3", stream.concat, stream, 3)
  fails("Bare does not define iterate", drain, data.IterableDataset:extend "Bare"())
  fails("IterableDataset:batch: n must be a positive integer, got 0", stream.batch, stream, 0)
end

local function pass(loader)
  local out = {}
  for batch in loader() do out[#out + 1] = type(batch) == "number" and batch or join(batch:tolist()) end
  return table.concat(out, "|")
end

do -- streams in the loader
  local loader = data.DataLoader(Count(7), { batch_size = 3 })
  assert(pass(loader) == "1,2,3|4,5,6|7" and loader.epoch == 1 and opened == closed)
  assert(pass(data.DataLoader(Count(7), { batch_size = 3, drop_last = true })) == "1,2,3|4,5,6")
  assert(pass(data.DataLoader(Count(2), { batch_size = false })) == "1|2")
  assert(tostring(loader) == "DataLoader(? samples, batch_size=3, shuffle=false, drop_last=false, ? batches)")
  fails("does not define len", loader.len, loader)
  fails("comes in its own order", loader.order, loader)
  fails("comes in its own order; leave out 'shuffle'", data.DataLoader, Count(7), { shuffle = true })
  fails("comes in its own order; leave out 'sampler'", data.DataLoader, Count(7),
    { sampler = data.SequentialSampler(7) })
  local Known = Count:extend "Known"
  function Known:len() return self.n end
  assert(#data.DataLoader(Known(7), { batch_size = 2 }) == 4)

  local part, state = data.DataLoader(Count(7), { batch_size = 2 }), nil
  for batch in part() do
    state = part:state_dict()
    if batch:tolist()[1] == 3 then break end
  end
  if loop.closes then assert(opened == closed, "the break closes it") end
  assert(part.epoch == 1 and opened == closed)
  local resumed = data.DataLoader(Count(7), { batch_size = 2 })
  resumed:load_state_dict(state)
  assert(pass(resumed) == "5,6|7" and pass(resumed) == "1,2|3,4|5,6|7" and resumed.epoch == 2)
  resumed:load_state_dict { epoch = 0, position = 9, seed = 0 }
  assert(pass(resumed) == "", "more than there is")

  -- epoch and seed reach the stream; lines of a file; the loader's break closes it
  local Seeded = data.IterableDataset:extend "Seeded"
  function Seeded:iterate(epoch, seed)
    local once = false
    return function()
      if once then return nil end
      once = true
      return 100 * seed + epoch
    end
  end
  loader = data.DataLoader(Seeded():map(function(x) return x + 0 end), { batch_size = false, seed = 3 })
  assert(pass(loader) == "300" and pass(loader) == "301")
  local path = os.getenv "ACCEL_TEST_TMP" .. "/lines.txt"
  local file = assert(io.open(path, "w"))
  file:write "one\ntwo\nthree\n"
  file:close()
  local handle
  local Lines = data.IterableDataset:extend "Lines"
  function Lines:iterate()
    local step, state_, control, open = io.lines(path)
    handle = open
    return step, state_, control, open
  end
  local lines = data.DataLoader(Lines(), { batch_size = 2 })
  for batch in lines() do -- luacheck: ignore 512
    assert(join(batch) == "one,two")
    break
  end
  if loop.closes then assert(io.type(handle) == "closed file", "the break closes it") end
  assert(lines.epoch == 1 and io.type(handle) == "closed file") -- asking where it is ends a pass that was left
end

do -- a cache hands out copies: a function that changes its sample in place does not change the kept one
  local function spoil(sample)
    sample.x:add_(1)
    sample.list[1] = sample.list[1] + 1
    sample.name = sample.name .. "!"
    return sample
  end
  local function fresh(text) return { x = accel.tensor { 1, 2 }, list = { 5 }, name = text } end
  local Stream = data.IterableDataset:extend "Stream"
  function Stream:iterate()
    local i = 0
    return function()
      i = i + 1
      return i <= 2 and fresh(tostring(i)) or nil
    end
  end
  local List = data.Dataset:extend "List"
  function List:len() return 2 end
  function List:get(i) return fresh(tostring(i)) end
  local kept = fresh "1"
  for _, set in ipairs { Stream():cache():map(spoil), List():cache():map(spoil), data.ListDataset({ kept, fresh "2" }):cache():map(spoil) } do
    for epoch = 1, 3 do
      local n = 0
      for sample in data.DataLoader(set, { batch_size = false })() do
        n = n + 1
        local what = ("pass %d"):format(epoch)
        assert(sample.x:sum():item() == 5 and sample.list[1] == 6 and sample.name == n .. "!", what)
        if set.dataset and epoch == 1 then kept.x:fill_(9) end -- nor is the kept one changed by its source
        kept.x:copy_(accel.tensor { 1, 2 })
      end
      assert(n == 2)
      kept.list[1], kept.name = 5, "1"
    end
  end
  local path = os.getenv "ACCEL_TEST_TMP" .. "/rows.json"
  accel.write_file(path, '[{"a": [1]}]')
  local rows = data.JSON(path)
  rows:get(1).a[1] = 7
  assert(rows:get(1).a[1] == 1)
end

do -- workers that end with a pass keep nothing: a warning
  local told, was = {}, warn
  warn = function(...) told[#told + 1] = table.concat { ... } end -- luacheck: ignore 121
  local path = os.getenv "ACCEL_TEST_TMP" .. "/lines.jsonl"
  accel.write_file(path, '{"a": 1}\n{"a": 2}\n')
  for _, set in ipairs { data.JSONL.stream(path):cache(), data.JSONL(path):cache():select_columns { "a" } } do
    require("accel.util.no_effect").reset()
    told = {}
    data.DataLoader(set, { num_workers = 1 })
    assert(#told == 1 and told[1]:find("persistent_workers", 1, true), told[1])
    data.DataLoader(set, { num_workers = 1, persistent_workers = true })
    assert(#told == 1)
  end
  warn = was -- luacheck: ignore 121
  local set = data.JSONL.stream(path):cache()
  local loader = data.DataLoader(set, { num_workers = 1, persistent_workers = true, batch_size = false })
  local n = 0
  for sample in loader() do n = n + sample.a end
  accel.write_file(path, "not JSON\n") -- the second pass does not read it
  for sample in loader() do n = n + sample.a end
  assert(n == 6)
end
