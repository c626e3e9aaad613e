-- Seeds and generators across ranks, loggers, progress bars, batch sizes that fit, small helpers; on 1, 2 and 3 ranks.
--   accel-run tests/stdlib/accelerator/utilities_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, dist = accel.accelerator, accel.dist

if ranks.start { 1, 2, 3 } then
  -- memory that is missing on one rank while the others wait for it: an error on all, and no hang
  local out, err, status = ranks.try(2, { args = "stuck" })
  out = out .. err
  assert(status ~= 0 and status ~= 124, "hung: " .. out)
  assert(out:find("out of memory with batch size 4 on rank 1, while other ranks are inside a collective", 1, true)
    or out:find("utilities_test.lua:%d+: .*all_reduce"), out)
  return
end

local R, P, same, says = ranks.rank, ranks.size, ranks.same, ranks.fails

if arg[1] == "stuck" then
  A.find_executable_batch_size(function()
    if R == 1 then error "out of memory." end
    dist.all_reduce(accel.ones(1))
  end, { starting_batch_size = 4 })()
  return
end

-- ---- loggers, before there is a state ----

local logger = A.get_logger "test.utilities"
says("make an accel.Accelerator or an accel.PartialState before logging", logger.warning, logger, "early")
local state = accel.PartialState()

-- ---- seeds ----

do
  A.set_seed(42)
  local a, b = accel.rand(3), math.random(1 << 40)
  A.set_seed(42, false)
  assert(accel.equal(a, accel.rand(3)) and b == math.random(1 << 40))
  assert(accel.equal(dist.all_gather_object(a)[1], a), "the same everywhere")
  for _, way in ipairs { "positional", "named" } do
    if way == "named" then A.set_seed(7, { device_specific = true }) else A.set_seed(7, true) end
    assert(accel.get_rng_state().seed == 7 + R)
    local all = dist.all_gather_object(accel.rand(2):tolist())
    for r = 2, P do assert(all[r][1] ~= all[1][1], "every rank its own") end
    A.synchronize_rng_state "torch"
    all = dist.all_gather_object(accel.rand(2):tolist())
    for r = 2, P do assert(all[r][1] == all[1][1] and all[r][2] == all[1][2], "all as rank 0") end
  end
  A.set_seed(1, true, true)
  says("unknown option 'device_specifc'", A.set_seed, 1, { device_specifc = true })
  says("seed must be an integer", A.set_seed, "one")
  says("at most seed, device_specific, deterministic", A.set_seed, 1, true, true, true)
end

do -- generators
  local g = accel.Generator(5 + R)
  for _ = 0, R do accel.rand(2, { generator = g }) end
  A.synchronize_rng_states({ "generator", "cpu" }, g)
  local all = dist.all_gather_object(accel.rand(1, { generator = g }):item())
  for r = 2, P do assert(all[r] == all[1]) end
  local numbers = accel.util.Random(5, R)
  A.synchronize_rng_state("generator", numbers)
  all = dist.all_gather_object(numbers:bits())
  for r = 2, P do assert(all[r] == all[1]) end
  says("needs a generator", A.synchronize_rng_state, "generator")
  says("generator must be an accel.Generator", A.synchronize_rng_state, "generator", {})
  for _, device in ipairs { "cuda", "xla", "mlu", "sdaa", "musa", "npu", "xpu", "hpu", "neuron" } do
    says(("'%s': this build has no such device"):format(device), A.synchronize_rng_states, { device })
  end
  says("did you mean 'generator'?", A.synchronize_rng_state, "generators")
end

-- ---- loggers ----

do
  local logging = require "accel.accelerator.logging"
  local records = {}
  logging.set_handler(function(record) records[#records + 1] = record end)
  local function seen(want, what)
    local got = {}
    for i, record in ipairs(records) do got[i] = record.message end
    same(got, want, what)
    records = {}
  end
  local function mine(text) return ("[RANK %d] %s"):format(R, text) end
  local function main(...) return R == 0 and { ... } or {} end

  logger:warning "one"
  seen(main "[RANK 0] one", "main only")
  logger:warning("%d %s", 2, "two", { main_process_only = false })
  seen({ mine "2 two" }, "on all")
  logger:error "100% plain"
  seen(main "[RANK 0] 100% plain", "no arguments: no format")
  logger:info "quiet"
  seen({}, "below the level")
  for _ = 1, 3 do logger:warning_once("again %d", 1) end
  seen(main "[RANK 0] again 1", "once")
  logger:critical("in order", { in_order = true })
  seen({ mine "in order" }, "in order")
  logger:log("error", "level by name")
  seen(main "[RANK 0] level by name", "log")
  says("level must be one of DEBUG", logger.log, logger, "LOUD", "x")
  says("unknown option 'inorder'", logger.warning, logger, "x", { main_process_only = true, inorder = true })

  logger:set_level "ERROR"
  assert(not logger:is_enabled_for "WARNING" and logger:is_enabled_for "ERROR")
  assert(not A.get_logger("test.utilities.below"):is_enabled_for "WARNING", "a level holds for those below")
  assert(A.get_logger("other"):is_enabled_for "WARNING")
  A.get_logger("loud", "debug")
  assert(A.get_logger("other"):is_enabled_for "DEBUG", "a level given sets the root's")
  A.patch_environment({ ACCELERATE_LOG_LEVEL = "ERROR" }, function()
    assert(not A.get_logger("another"):is_enabled_for "WARNING")
  end)
  logger:error("where", { main_process_only = false })
  local at = debug.getinfo(1, "l").currentline - 1
  assert(records[1].line == at and records[1].file:find "utilities_test.lua" and records[1].level == "ERROR"
    and records[1].name == "test.utilities" and records[1].rank == R)
  logging.set_handler(nil)

  -- in order: rank r writes after those before it
  local path = dist.all_gather_object(R == 0 and os.tmpname() or "")[1]
  logging.set_handler(function(record)
    local f <close> = assert(io.open(path, "a"))
    f:write(record.message, "\n")
  end)
  for k = 1, 5 do logger:error("turn %d", k, { in_order = true }) end
  logging.set_handler(nil)
  local lines, want = {}, {}
  for l in io.lines(path) do lines[#lines + 1] = l end
  for k = 1, 5 do
    for r = 0, P - 1 do want[#want + 1] = ("[RANK %d] turn %d"):format(r, k) end
  end
  same(lines, want, "in order")
  state:wait_for_everyone()
  if R == 0 then os.remove(path) end
end

-- ---- progress ----

do
  local text = {}
  local out = { write = function(_, ...) text[#text + 1] = table.concat({ ... }) end, flush = function() end }
  local opts = { out = out, every = 0, interactive = false, desc = "rows" }
  local function shown(what)
    assert((#text > 0) == (R == 0), ("%s: rank %d wrote %d lines"):format(what, R, #text))
    local all = table.concat(text)
    text = {}
    return all
  end
  local sum = 0
  for x in A.tqdm({ 1, 2, 3 }, opts) do sum = sum + x end
  assert(sum == 6)
  local all = shown "list"
  assert(R ~= 0 or all:find "^rows%s+33%%" and all:find "100%%", all)
  for i in A.tqdm(4, opts) do sum = sum + i end
  assert(sum == 16)
  shown "number"
  local loader = accel.data.DataLoader { dataset = accel.data.TensorDataset(accel.arange(10)), batch_size = 4 }
  local batches = 0
  for batch in A.tqdm(loader, opts) do batches = batches + #batch[1] end
  assert(batches == 10)
  assert(R ~= 0 or table.concat(text):find "33%%", "a loader's length is the total")
  text = {}
  local keys = {}
  for k, v in A.tqdm(accel.pairs { a = 1, b = 2 }) do keys[#keys + 1] = k .. v end
  same(keys, { "a1", "b2" }, "iterator with state")
  for k, v in A.tqdm(next, { c = 3 }, nil, opts) do keys[#keys + 1] = k .. v end
  same(keys, { "a1", "b2", "c3" }, "iterator with state and options")
  text = {}
  for x in A.tqdm(accel.data.ListDataset { 5, 6 }, opts) do sum = sum + x end
  assert(sum == 27)
  text = {}
  -- a loop that ends closes what is below it; one that is left by break does where Lua tells of it
  local closed = 0
  local function iterator()
    return function(_, i) if (i or 0) < 3 then return (i or 0) + 1 end end, nil, nil,
      setmetatable({}, { __close = function() closed = closed + 1 end })
  end
  for i in A.tqdm(iterator()) do sum = sum + i end
  assert(closed == 1 and sum == 33)
  for i in A.tqdm(iterator()) do if i == 2 then break end end
  assert(closed == (require("accel.util.loop").closes and 2 or 1))
  do
    local bar <close> = A.tqdm(10, opts)
    bar:set_postfix { loss = 0.5 }
    bar:update(4)
    assert(bar.n == 4)
  end
  all = shown "by hand"
  assert(R ~= 0 or all:find "40%%" and all:find "loss 0.5000", all)
  local all_ranks = { main_process_only = false, out = out, every = 0, interactive = false }
  for _ in A.tqdm(2, all_ranks) do end -- luacheck: ignore
  assert(#text > 0, "on all ranks")
  text = {}
  for _ in A.tqdm(2, { disable = true, out = out, every = 0 }) do end -- luacheck: ignore
  assert(#text == 0)
  says("main_process_only is an option now", A.tqdm, true, {})
  says("options must be a table", A.tqdm, {}, false)
  says("expected loader, list, iterator or number", A.tqdm, "text")
end

-- ---- batch sizes that fit ----

do
  local oom = { code = "out_of_memory", message = "no" }
  local function sizes(start, fits, what)
    local tried = {}
    local find = A.find_executable_batch_size { starting_batch_size = start }
    local run = find(function(n, ...)
      tried[#tried + 1] = n
      if n > fits then error(what or oom, 0) end
      return n, ...
    end)
    return tried, run
  end
  local want = { 128, 115, 103, 92, 82, 73, 65, 58, 52, 46, 41, 36, 32, 28, 25, 22, 19, 17, 15, 13, 11, 9, 8 }
  for _, text in ipairs {
    "CUDA out of memory. Tried", "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This", "not enough memory",
    "x: DefaultCPUAllocator: can't allocate memory: you tried", "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed",
    oom,
  } do
    local tried, run = sizes(nil, 8, text)
    same({ run("more", nil) }, { 8, "more" }, "results")
    same(tried, want, "tries")
  end
  local tried, run = sizes(16, 0)
  says("no batch size fits: even one row needs more memory than there is", run)
  same(tried, { 16, 14, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1 }, "down to zero")
  tried, run = sizes(16, 0, "another error")
  says("another error", run)
  same(tried, { 16 }, "other errors pass on")
  local _, err = pcall(select(2, sizes(16, 0, { my = "own" })))
  assert(err.my == "own", "as they are")

  -- a real one
  local n = A.find_executable_batch_size(function(size)
    accel.empty(size, 1 << 40)
    return size
  end, { starting_batch_size = 2, reduce_batch_size_fn = function(size) return size - 2 end })
  says("no batch size fits", n)

  -- the size that was found stays until reset
  tried, run = sizes(20, 17)
  run() run()
  same(tried, { 20, 18, 16, 16 }, "kept")
  assert(run.batch_size == 16)
  run:reset() run()
  same(tried, { 20, 18, 16, 16, 20, 18, 16 }, "reset")

  -- the reduction is taken in both forms
  for _, form in ipairs { "first", "later" } do
    local o, list = { starting_batch_size = 100, reduce_batch_size_fn = function(s) return s // 2 end }, {}
    local function f(size)
      list[#list + 1] = size
      if size > 20 then error "out of memory." end
    end
    if form == "first" then A.find_executable_batch_size(f, o)() else A.find_executable_batch_size(o)(f)() end
    same(list, { 100, 50, 25, 12 }, form)
  end
  says("must return a smaller integer than 8", A.find_executable_batch_size(function() error(oom) end,
    { starting_batch_size = 8, reduce_batch_size_fn = function(s) return s end }))
  says("takes 2 arguments including the batch size",
    A.find_executable_batch_size(function(a, b) return a, b end), 64, 1, 2)
  says("unknown option 'starting_batchsize'; did you mean", A.find_executable_batch_size, print,
    { starting_batchsize = 1 })
  says("fn must be a function", A.find_executable_batch_size, 3)

  -- one rank that has too little makes all try again; sizes stay equal
  for rank = 0, P - 1 do
    local list = {}
    assert(A.find_executable_batch_size(function(size)
      list[#list + 1] = size
      if R == rank and size > 100 then error(oom, 0) end
      return size
    end)() == 92)
    same(list, { 128, 115, 103, 92 }, "together")
    -- one that fails otherwise: its own error there, its number elsewhere
    says(R == rank and "mine alone" or ("rank %d failed with batch size 128"):format(rank),
      A.find_executable_batch_size(function() if R == rank then error "mine alone" end end))
  end
  if P > 1 then
    says("give all ranks the same starting_batch_size",
      A.find_executable_batch_size(function() end, { starting_batch_size = 10 + R }))
  end
end

-- ---- small helpers ----

do
  local a, b = A.release_memory(accel.ones(2), {})
  assert(a == nil and b == nil and select("#", A.release_memory(1, 2, 3)) == 3)
  for text, size in accel.pairs {
    ["0 bytes"] = 0, ["1023 bytes"] = 1023, ["1.0 KB"] = 1024, ["1.5 KB"] = 1536, ["413.18 MB"] = 433249280,
    ["2.0 GB"] = 2147483648, ["1.0 PB"] = 1 << 50, ["2048.0 PB"] = 1 << 61,
  } do
    assert(A.convert_bytes(size) == text, A.convert_bytes(size))
  end
  local memory = require "accel.accelerator.memory"
  assert(memory.get_pretty_name(accel.nn.ReLU()) == "ReLU" and memory.get_pretty_name(accel.nn.Linear) == "Linear")
  assert(memory.get_pretty_name(function() end):find "utilities_test.lua:%d+$" and memory.get_pretty_name(3) == "3")
  local merged = memory.merge_dicts({ a = { b = 1 }, x = 2 }, { a = { c = 2, b = 0 } })
  assert(accel.json.encode(merged) == '{"a":{"b":1,"c":2},"x":2}')
end
