--- DataLoader with num_workers: the batches, their order and their random numbers are those without workers; errors
--- name worker, sample and data set; passes end anywhere without leaving a thread, a file or memory behind.
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
package.path = ranks.tests .. "support/?.lua;" .. package.path
local data, same, says = accel.data, ranks.same, ranks.fails
local loop = require "accel.util.loop"
local sets = require "worker_data"

if arg[1] == "wait" then -- for a batch that never comes, until somebody interrupts
  local set = data.worker_dataset("worker_data:Random", 9, { loop = 2 })
  print(pcall(function()
    for _ in data.DataLoader({ dataset = set, num_workers = 2 })() do -- the first one comes
      assert(io.open(arg[2], "a")):write("x"):close()
    end
  end))
  print "went on"
  return
end

local function count(folder) return #accel.listdir("/proc/self/" .. folder) end
local function back_to(folder, most)
  local ends = accel.clock() + 30
  while count(folder) > most and accel.clock() < ends do end
  assert(count(folder) <= most, ("%d %ss, before %d"):format(count(folder), folder, most))
end
assert(accel.ones(1 << 20):sum():item() == 1 << 20) -- the team of kernels starts
local threads, files = count "task", count "fd"

local function plain(x)
  if accel.is_tensor(x) then return x:tolist() end
  if type(x) ~= "table" then return x end
  local out = {}
  for key, value in next, x do out[key] = plain(value) end
  return out
end
local function pass(loader)
  local out = {}
  for batch in loader() do out[#out + 1] = plain(batch) end
  return out
end
local function with(opts, more)
  local o = {}
  for _, t in ipairs { opts, more or {} } do
    for key, value in next, t do o[key] = value end
  end
  return data.DataLoader(o)
end

do -- every kind of loader gives the same with any number of workers, two passes long
  local random = data.worker_dataset("worker_data:Random", 23)
  local x = accel.arange(20, { dtype = "f32" }):view(10, 2)
  local tensor_set = data.TensorDataset(x, accel.arange(10))
  local texts = data.ListDataset { { input_ids = { 1, 2 } }, { input_ids = { 3 } }, { input_ids = { 4, 5, 6 } } }
  local path = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/workers.csv"
  local file = assert(io.open(path, "w"))
  file:write "a,b\n1,x\n2,y\n3,x\n"
  file:close()
  local csv = data.CSV(path, { types = { a = "number", b = "class" } })
  local tokens = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/workers.bin"
  file = assert(io.open(tokens, "wb"))
  for i = 1, 50 do file:write(string.pack("<I2", i * i % 999)) end
  file:close()
  local images = accel.arange(4 * 6, { dtype = "u8" }):view(4, 2, 3)
  local count_to = data.worker_dataset("worker_data:Count", 17)
  for what, opts in accel.pairs {
    plain = { dataset = random, batch_size = 4 },
    shuffled = { dataset = random, batch_size = 4, shuffle = true, seed = 3, drop_last = true },
    single = { dataset = random, batch_size = false, shuffle = true },
    ["batch sampler"] = { dataset = random, batch_sampler = data.LengthGroupedSampler and
      data.BatchSampler(data.RandomSampler(23), 5) },
    oversampled = { dataset = random, batch_size = 5, sampler = data.WeightedRandomSampler({ 1, 2, 3 }, 20) },
    collated = { dataset = random, batch_size = 4, collate_fn = "worker_data:noisy_collate" },
    ["default collate"] = { dataset = random, batch_size = 4, collate_fn = data.default_collate },
    mapped = { dataset = random:map "worker_data:double", batch_size = 3 },
    subset = { dataset = random:subset { 5, 3, 3, 9 }, batch_size = 3 },
    chained = { dataset = random:take(3):concat(random:skip(19)), batch_size = 3, shuffle = true },
    batched = { dataset = random:batch(4, { collate_fn = "worker_data:noisy_collate" }), batch_size = false },
    ["batched here"] = { dataset = random:batch(5, { drop_last = true }), batch_size = 2 },
    ["finished batches"] = { dataset = data.worker_dataset("worker_data:Batches", 11), batch_size = 3, shuffle = true },
    tensors = { dataset = tensor_set, batch_size = 3, shuffle = true },
    padded = { dataset = texts, batch_size = 2, collate_fn = data.PadCollate { padding_value = 9 } },
    ["padded by default"] = { dataset = texts, batch_size = 2, collate_fn = data.PadCollate() },
    csv = { dataset = csv, batch_size = 2 },
    tokens = { dataset = data.TokenFile(tokens, { block = 4, stride = 3 }), batch_size = 2, shuffle = true },
    ["tokens held"] = { dataset = data.TokenFile(accel.arange(40), { block = 4 }), batch_size = 2 },
    idx = { dataset = data.IDX(images, accel.arange(4), { scale = 2.0, channel = false }), batch_size = 3 },
    split = { dataset = data.random_split(random, { 0.5, 0.5 })[1], batch_size = 2 },
    empty = { dataset = random:take(0), batch_size = 2 },
    ["stream by one"] = { dataset = count_to, batch_size = 4, one = true },
    ["stream of views"] = { dataset = count_to:map("worker_data:add_one"):filter("worker_data:odd"):skip(1):take(5)
      :concat(count_to):batch(2), batch_size = false, one = true },
  } do
    local numbers = opts.one and { 1 } or { 1, 2, 4 }
    opts.one = nil
    local bare = with(opts)
    local first, second = pass(bare), pass(bare)
    for _, n in ipairs(numbers) do
      for _, persistent in ipairs { false, true } do
        local loader = with(opts, { num_workers = n, persistent_workers = persistent, prefetch_factor = n })
        same(pass(loader), first, ("%s, %d workers"):format(what, n))
        same(pass(loader), second, ("%s, %d workers, second pass"):format(what, n))
      end
    end
  end
end
accel.collect()
back_to("task", threads)

do -- what is drawn while data is read leaves the script's numbers alone, and does not depend on them
  local random = data.worker_dataset("worker_data:Random", 8)
  local seen
  for _, n in ipairs { 0, 2 } do
    accel.manual_seed(5)
    math.randomseed(5)
    local want = { accel.rand(3):tolist(), math.random() }
    accel.manual_seed(5)
    math.randomseed(5)
    local got = pass(with { dataset = random, batch_size = 3, num_workers = n })
    same({ accel.rand(3):tolist(), math.random() }, want, "the script's numbers")
    accel.rand(7)
    seen = seen or got
    same(got, seen, "drawn")
    assert(plain(got[1].x[1])[1] ~= plain(got[1].x[2])[1])
  end
  -- the numbers of a sample depend on its place, not on batches; other seeds and epochs have others
  local two = pass(with { dataset = random, batch_size = 2, num_workers = 2 })
  same(two[2].x[2], seen[2].x[1], "place 3")
  local other = pass(with { dataset = random, batch_size = 3, seed = 1, num_workers = 2 })
  assert(other[1].x[1][1] ~= seen[1].x[1][1])
end

do -- tensors are not copied, in either direction
  local t = accel.arange(6, { dtype = "f32" }):view(2, 3)
  local set = data.worker_dataset("worker_data:Kinds", t)
  local loader = with { dataset = set:take(3), batch_size = false, num_workers = 2 }
  local got = {}
  for x in loader() do got[#got + 1] = x end
  assert(got[1]:data_ptr() == t:data_ptr() and got[2]:data_ptr() == t:data_ptr() + 12)
  assert(rawequal(got[3].a, got[3].b[1]) and got[3].a:data_ptr() == t:data_ptr() and got[3].b[2] == "text")
  local err = says("DataLoader: worker 1 of 2, samples 4 of Kinds (worker_data:Kinds): the batch cannot come back: "
    .. "cannot encode function at batch.f", pass, with { dataset = set, batch_size = false, num_workers = 2 })
  assert(err.worker == 1)
end

do -- errors: message with the script's line, worker, sample, data set, the worker's traceback
  local function bad(opts, more)
    local set = data.worker_dataset("worker_data:Random", 12, opts)
    return with({ dataset = set, batch_size = 2, num_workers = 2 }, more)
  end
  for k = 1, 12 do
    local n, got = 0, nil
    local ok, err = pcall(function()
      for _ in bad { fail = k }() do n = n + 1 end
    end)
    assert(not ok and n == (k - 1) // 2, "the batches before come")
    got = tostring(err)
    assert(got:find("^[^\n]*workers_test.lua:%d+: DataLoader: worker " .. (k - 1) // 2 % 2 .. " of 2, sample " .. k
      .. " of Random %(worker_data:Random%): [^\n]*worker_data.lua:%d+: sample " .. k .. " is bad\n"), got)
    assert(got:find "stack traceback:\n.*worker_data.lua:%d+: in method 'get'", got)
    assert(err.worker == (k - 1) // 2 % 2 and err.position == k and err.code == "callback")
  end
  says("sample 3 of Random", pass, bad({ fail = 3 }, { persistent_workers = true }))
  local persistent = bad({ fail = 5 }, { persistent_workers = true })
  for _ = 1, 3 do says("sample 5 of", pass, persistent) end
  says("worker 0 of 2 (Random (worker_data:Random)) ended: ", pass,
    bad({}, { worker_init = "worker_data:bad_init" }))
  says("init of 0", pass, bad({}, { worker_init = "worker_data:bad_init" }))
  says("gave no batch for 0.05 s (timeout)", pass, bad({ loop = 3 }, { timeout = 0.05 }))
  do -- an error of a binding that accel's own data set calls names no line of accel's files
    local root = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/junk"
    assert(accel.makedirs(root .. "/a") and accel.write_file(root .. "/a/1.jpg", "no picture"))
    says("sample 1 of accel.vision.ImageFolder: read: " .. root .. "/a/1.jpg: not a picture", pass,
      with { dataset = accel.vision.ImageFolder(root), batch_size = 1, num_workers = 1 })
  end
  local step = bad { fail = 1 }()
  says("sample 1 of", step)
  says("sample 1 of", step) -- it stays failed
  -- errors of the loop's own body
  for _ = 1, 5 do
    says("my own", function()
      for _ in bad {}() do error "my own" end
    end)
  end
  local streams = with { dataset = data.worker_dataset("worker_data:Count", 9, { fail = 5 }), batch_size = 2,
    num_workers = 2 }
  says("worker 0 of 2, a batch of Count", pass, streams)
end
accel.collect()
back_to("task", threads)

do -- samples that make no batch: one line with their numbers in the data set, the same with workers and without
  for what, want in pairs {
    ["nil"] = "sample 3 of the data set is nil",
    ["function"] = "collate: sample 3: cannot make a batch of function values; give DataLoader a collate_fn",
    ragged = "collate: samples 3 and 4 have shapes (3) and (4)",
    mixed = "collate: sample 4 is a string, sample 3 a number",
  } do
    local set = data.worker_dataset("worker_data:Unfit", what)
    for workers = 0, 1 do
      local err = tostring(says(want, pass, data.DataLoader(set, { batch_size = 2, num_workers = workers })))
      assert(not err:find("\n", 1, true) and not err:find "stdlib/accel" and not err:find "5.4/accel", err)
    end
  end
  -- a batch that is nil, which a loop would take for the end
  for workers = 0, 1 do
    local o = { batch_size = 2, num_workers = workers }
    o.dataset = data.worker_dataset("worker_data:Gap", 6)
    says("get_batch of the data set returned nil", pass, with(o))
    o.dataset, o.collate_fn = data.worker_dataset("worker_data:Random", 6), "worker_data:no_batch"
    says("collate_fn returned nil", pass, with(o))
    o.dataset, o.collate_fn = data.worker_dataset("worker_data:Count", 6), "worker_data:no_numbers"
    says("collate_fn returned nil", pass, with(o))
  end
  -- what a loader reads does not number the lists that a script collates
  says("samples 1 and 2 have shapes", data.default_collate, { accel.ones(1), accel.ones(2) })
end

do -- what a worker cannot send, or has no memory for
  local function heavy(what)
    return with { dataset = data.worker_dataset("worker_data:Heavy", what), batch_size = false, num_workers = 1 }
  end
  says("samples 3 of Heavy (worker_data:Heavy): the batch cannot come back: a tensor that has a history at batch; "
    .. "detach() it", pass, heavy "history")
  if (os.getenv "ACCEL_TEST_SANITIZE" or "") == "" then -- its malloc ends the process
    local err = says("sample 3 of Heavy (worker_data:Heavy): ", pass, heavy "memory")
    assert(not tostring(err):find("worker.lua", 1, true), tostring(err))
  end
end

do -- a module that is not there: the script's line
  local err = tostring(says("worker_dataset: no module 'my.nothing': there is no my/nothing.lua in a folder of",
    data.worker_dataset, "my.nothing", 1))
  assert(not err:find("worker_spec.lua", 1, true) and not err:find("\n", 1, true), err)
end

do -- what cannot travel is refused at once, with what to do
  local closure = sets.Closure()
  for _, case in ipairs {
    { { dataset = closure }, "the data set, a Closure, cannot be sent to a worker: put it into a module" },
    { { dataset = data.ListDataset({ 1 }):map(function(x) return x end) }, "contains a function" },
    { { dataset = closure:take(2) }, "cannot be sent to a worker" },
    { { dataset = data.ListDataset { 1 }, collate_fn = function(s) return s end }, "collate_fn is a function" },
    { { dataset = data.ListDataset { 1 }, worker_init = print }, "worker_init is a function" },
    { { dataset = data.ListDataset { 1 }, collate_fn = "worker_data:colate" }, "module 'worker_data' has no 'colate'" },
    { { dataset = data.ListDataset { 1 }, collate_fn = "worker_data:number" }, "is 3, not a function" },
    { { dataset = data.ListDataset { 1 }, collate_fn = "no_such_module:f" }, "DataLoader: no module 'no_such_module'" },
    { { dataset = data.ListDataset { 1 }, num_workers = -1 }, "num_workers must be an integer from 0 on, got -1" },
    { { dataset = data.ListDataset { 1 }, num_workers = 1000 }, "num_workers must be at most 256" },
    { { dataset = data.ListDataset { 1 }, prefetch_factor = 0 }, "prefetch_factor must be a positive integer" },
    { { dataset = data.ListDataset { 1 }, timeout = -1 }, "timeout must be at least 0" },
    { { dataset = data.ListDataset { 1 }, worker_init = "worker_data:init", worker_init_fn = "worker_data:init" },
      "two names of one option" },
  } do
    local o = case[1]
    o.num_workers = o.num_workers or 2
    says(case[2], data.DataLoader, o)
  end
  for _, unfit in ipairs { { print }, { { a = { b = print } } }, { a = { b = data.ListDataset { 1 } } } } do
    local err = says("cannot be sent to a worker", data.DataLoader, { dataset = data.ListDataset(unfit), num_workers = 1 })
    assert(unfit[1] or tostring(err):find("an accel.data.ListDataset, at 'a.b' of a table", 1, true), tostring(err))
  end
  says("contains a function", data.worker_dataset, "worker_data:Random", print)
  says("must be a module's name", data.worker_dataset, closure)
  says("not a data set", data.worker_dataset, "worker_data:add_one", 1)
  says("did you mean 'Random'?", data.worker_dataset, "worker_data:Randon", 1)
  pass(with { dataset = closure, num_workers = 0 })
  pass(with { dataset = data.ListDataset { 1, 2 }, num_workers = 1, pin_memory = true })
end

do -- a slow worker: the others wait for it, the order stays
  local set = data.worker_dataset("worker_data:Random", 12, { slow = 1 })
  local ids = {}
  for batch in with({ dataset = set, batch_size = 2, num_workers = 3 })() do
    for _, i in ipairs(batch.i:tolist()) do ids[#ids + 1] = i end
  end
  same(ids, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }, "order")
end

do -- who reads
  local seen = {}
  local loader = with { dataset = data.worker_dataset("worker_data:Who", 6), batch_size = 1, num_workers = 2, seed = 4,
    worker_init_fn = "worker_data:init" }
  pass(loader)
  for batch in loader() do seen[#seen + 1] = plain(batch) end
  for k, b in ipairs(seen) do
    local id = (k - 1) % 2
    same(b, { { k }, { id }, { 2 }, { 4 }, { 1 }, { 10 + id }, { -1 } }, "sample " .. k)
  end
  assert(data.get_worker_info() == nil)
end

do -- streams: workers in turn, each with the part that it takes; places inside a pass
  local function numbers(loader)
    local out = {}
    for batch in loader() do out[#out + 1] = table.concat(batch:tolist(), " ") end
    return table.concat(out, ", ")
  end
  local set = data.worker_dataset("worker_data:Count", 11)
  local loader = with { dataset = set, batch_size = 2, num_workers = 2 }
  assert(numbers(loader) == "1 3, 2 4, 5 7, 6 8, 9 11, 10")
  assert(numbers(loader):find "^1001 1003, 1002")
  assert(numbers(with { dataset = set, batch_size = 2, num_workers = 2, drop_last = true })
    == "1 3, 2 4, 5 7, 6 8, 9 11")
  assert(numbers(with { dataset = set, batch_size = 2, num_workers = 4 }) == "1 5, 2 6, 3 7, 4 8, 9, 10, 11")
  assert(numbers(with { dataset = data.worker_dataset("worker_data:Count", 3, { all = true }), num_workers = 2 })
    == "1, 1, 2, 2, 3, 3")
  assert(#pass(with { dataset = set:take(0), num_workers = 2 }) == 0)
  local whole = pass(with { dataset = set, batch_size = 2, num_workers = 3 })
  for k = 1, #whole do
    local a, states = with { dataset = set, batch_size = 2, num_workers = 3 }, nil
    for _ in a() do
      if a.position == k then
        states = a:state_dict()
        break
      end
    end
    local b = with { dataset = set, batch_size = 2, num_workers = 3 }
    b:load_state_dict(states)
    local rest = pass(b)
    if k == #whole then
      assert(#rest == 0 or #rest == #whole)
    else
      same(rest, table.move(whole, k + 1, #whole, 1, {}), "after batch " .. k)
    end
    if k < #whole then
      says("2 workers read it in another order; use the same num_workers", function()
        with { dataset = set, batch_size = 2, num_workers = 2 }:load_state_dict(states)
      end)
    end
  end
end

do -- resume after every batch, with other numbers of workers: random numbers and all
  local set = data.worker_dataset("worker_data:Random", 13)
  for _, kind in ipairs { { batch_size = 3, shuffle = true }, { batch_size = false },
    { batch_sampler = data.BatchSampler(data.RandomSampler(13), 4) } } do
    local function loader(n) return with(kind, { dataset = set, num_workers = n }) end
    local whole, k = pass(loader(0)), 0
    local going = loader(2)
    local step = going()
    while step() ~= nil do
      k = k + 1
      local other = loader(k % 3)
      other:load_state_dict(going:state_dict())
      same(pass(other), table.move(whole, k + 1, #whole, 1, {}), "after batch " .. k)
    end
    assert(k == #whole)
    local loaded = loader(2)
    for _ in loaded() do
      loaded:set_epoch(5) -- ends the pass
      break
    end
    local straight = loader(0)
    straight:set_epoch(5)
    same(pass(loaded), pass(straight), "set_epoch")
  end
end

do -- two loaders at once, one inside the other, two passes of one
  local a = with { dataset = data.worker_dataset("worker_data:Random", 6), batch_size = 2, num_workers = 2 }
  local b = with { dataset = data.worker_dataset("worker_data:Random", 4), batch_size = 2, num_workers = 1, seed = 9,
    persistent_workers = true }
  local alone_a, alone_b, outer = pass(with { dataset = a.dataset, batch_size = 2 }), nil, {}
  b:set_epoch(0)
  alone_b = pass(b)
  for x in a() do
    outer[#outer + 1] = plain(x)
    b:set_epoch(0)
    same(pass(b), alone_b, "inner")
  end
  same(outer, alone_a, "outer")
  local first = a()
  first()
  local second = a()
  second()
  says("this pass is over", first)
end

do -- breaks: a thousand of them
  local set = data.TensorDataset(accel.arange(64))
  local kept = with { dataset = set, batch_size = 4, num_workers = 2, persistent_workers = true }
  local fresh = with { dataset = set, batch_size = 4, num_workers = 2 }
  accel.collect()
  local live, bytes = accel.live(), accel.mem_stats().live_bytes
  for i = 1, 1000 do
    local loader, k = i % 2 == 0 and kept or fresh, 0
    for _ in loader() do
      local function capture() return i end -- the break that Lua 5.4.4 forgets to tell of
      k = k + 1
      if k > capture() % 4 then break end
    end
    assert(loader.epoch == (i + 1) // 2)
  end
  pass(fresh) -- the last break is noticed by now
  accel.collect()
  back_to("task", threads + 2)
  kept = nil -- luacheck: ignore
  for _ = 1, 3 do accel.collect() end
  back_to("task", threads)
  back_to("fd", files)
  assert(accel.live() <= live + 2, ("%d handles, before %d"):format(accel.live(), live))
  assert(accel.mem_stats().live_bytes <= bytes + 4096, "bytes")
end

do -- a pass that nobody finishes goes with its loader; coroutines
  local set = data.worker_dataset("worker_data:Random", 100, { slow = true, seconds = 0.001 })
  do
    local loader = with { dataset = set, num_workers = 2 }
    local step = loader()
    step()
    local co = coroutine.wrap(function() for b in loader() do coroutine.yield(b) end end)
    assert(co() and co())
  end
  for _ = 1, 3 do accel.collect() end
  back_to("task", threads)
end

do -- Ctrl-C while a batch is waited for, on one rank and on two
  for _, n in ipairs { "", "--num_processes 2" } do
    local mark = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/waits"
    os.remove(mark)
    local command = ([[timeout --foreground -k 10 100 '%s' %s '%s' wait '%s' 2>&1 & p=$!
until [ "$(cat '%s' 2>/dev/null)" = %s ]; do kill -0 $p || break; sleep 0.02; done
sleep 0.2; kill -INT $p; wait $p]]):format(accel.process.program(), n, arg[0], mark, mark, n == "" and "x" or "xx")
    local pipe <close> = assert(io.popen(command))
    local out = pipe:read "a"
    assert(out:find "interrupted.-went on", out)
  end
end

do -- workers of a worker
  local inner = data.worker_dataset("worker_data:Nested", 6)
  same(pass(with { dataset = inner, batch_size = false, num_workers = 2 }), { 10, 20, 30, 40, 50, 60 }, "nested")
end

if loop.closes then -- a break ends the threads at once
  for _ in with({ dataset = data.ListDataset { 1, 2, 3 }, num_workers = 3 })() do break end
  back_to("task", threads)
end

-- the end of the state finds a pass under way, one worker in an endless loop
local left = with { dataset = data.worker_dataset("worker_data:Random", 9, { loop = 2 }), num_workers = 2 }
assert(left()())
print "workers: ok"
