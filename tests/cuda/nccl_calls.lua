-- Collectives of tensors on a device through NCCL's calls, by the stand-in that is particular about them (twin/nccl.cpp): values of every
-- collective and dtype on 2 and 3 ranks, sub-groups, works, the order of streams, models that train; ranks that share a GPU, calls that differ,
-- a link that fails and a rank that never ends its part.
local accel = require "accel"
local dist, process = accel.dist, accel.process

local self = arg[0]
local mode = arg[1]

local function near(a, b) return math.abs(a - b) <= 1e-2 * math.max(1, math.abs(b)) end
local function check(t, want, what)
  local got = t:to "cpu":flatten():tolist()
  assert(#got == #want, what)
  for i = 1, #want do
    local g = type(got[i]) == "boolean" and (got[i] and 1 or 0) or got[i]
    assert(near(g, want[i]), ("%s: [%d] is %s, not %s"):format(what, i, g, want[i]))
  end
end

-- ---- what runs on every rank ----

local cases = {}

function cases.values()
  local rank, n, dev = dist.get_rank(), dist.get_world_size(), ("cuda:%d"):format(dist.get_rank())
  local function on(list, dtype) return accel.tensor(list, { dtype = dtype, device = dev }) end
  for _, dtype in ipairs { "f32", "f64", "f16", "bf16", "i64", "i32", "i8", "u8" } do
    local t = on({ rank + 1, 2 * rank }, dtype)
    dist.all_reduce(t)
    check(t, { n * (n + 1) // 2, n * (n - 1) }, "sum of " .. dtype)
    t = on({ rank + 1 }, dtype)
    dist.all_reduce(t, "max")
    check(t, { n }, "max of " .. dtype)
    t = on({ rank + 1 }, dtype)
    dist.all_reduce(t, "prod")
    check(t, { n == 2 and 2 or 6 }, "product of " .. dtype)
  end
  local t = on({ rank }, "f32")
  dist.all_reduce(t, "mean")
  check(t, { (n - 1) / 2 }, "mean")
  t = on({ rank == 0, false, true }, "bool")
  dist.all_reduce(t)
  check(t, { 1, 0, 1 }, "or")
  t = on({ rank * 300 }, "i16") -- which NCCL does not add: through the host
  dist.all_reduce(t)
  check(t, { 300 * n * (n - 1) // 2 }, "sum of i16")
  t = on({ rank + 1 }, "f32")
  dist.reduce(t, n - 1)
  check(t, { rank == n - 1 and n * (n + 1) / 2 or rank + 1 }, "reduce")
  t = on({ rank * 10, rank * 10 + 1 }, "i16")
  dist.broadcast(t, 1)
  check(t, { 10, 11 }, "broadcast")
  local out = accel.zeros(n, 2, { device = dev })
  dist.all_gather_into_tensor(out, on({ rank, -rank }, "f32"))
  local want = {}
  for r = 0, n - 1 do want[#want + 1], want[#want + 2] = r, -r end
  check(out, want, "all_gather")
  local parts = {}
  for r = 1, n do parts[r] = accel.zeros(r, { device = dev }) end
  dist.all_gather(parts, accel.full({ rank + 1 }, rank + 0.5, { device = dev }))
  for r = 1, n do check(parts[r], accel.full({ r }, r - 0.5):tolist(), "all_gather of uneven parts") end
  local mine = accel.zeros(2, { device = dev })
  dist.reduce_scatter_tensor(mine, accel.arange(2 * n, { dtype = "f32", device = dev }) + rank)
  check(mine, { 2 * rank * n + n * (n - 1) / 2, (2 * rank + 1) * n + n * (n - 1) / 2 }, "reduce_scatter")
  local lists = {}
  for r = 0, n - 1 do lists[r + 1] = on({ rank * 10 + r }, "i64") end
  local got = {}
  for r = 0, n - 1 do got[r + 1] = on({ 0 }, "i64") end
  dist.all_to_all(got, lists)
  for r = 0, n - 1 do check(got[r + 1], { r * 10 + rank }, "all_to_all") end
  local gathered
  if rank == 0 then
    gathered = {}
    for r = 1, n do gathered[r] = on({ 0 }, "f32") end
  end
  dist.gather(on({ rank + 7 }, "f32"), { gather_list = gathered, dst = 0 })
  for r = 1, gathered and n or 0 do check(gathered[r], { r + 6 }, "gather") end
  local one = on({ 0 }, "f32")
  local scattered
  if rank == 0 then
    scattered = {}
    for r = 1, n do scattered[r] = on({ r * 3 }, "f32") end
  end
  dist.scatter(one, { scatter_list = scattered, src = 0 })
  check(one, { (rank + 1) * 3 }, "scatter")
  -- parts of a tensor whose bytes do not lie in order
  local wide = accel.zeros(3, 4, { device = dev }) + rank
  dist.all_reduce(wide:transpose(1, 2))
  check(wide, accel.full({ 12 }, n * (n - 1) / 2):tolist(), "a transposed view")
  -- large: several pieces of the stand-in's area
  local large = accel.full({ 3 << 20 }, rank + 1, { device = dev })
  dist.all_reduce(large)
  assert(large:sum():item() == (3 << 20) * n * (n + 1) / 2)
  -- works, which go on while the script does
  local a, b = on({ rank }, "f32"), on({ 1 }, "f32")
  local first, second = dist.all_reduce(a, { async_op = true }), dist.all_reduce(b, { async_op = true })
  first:wait()
  second:wait()
  check(a, { n * (n - 1) / 2 }, "a work")
  check(b, { n }, "a second work")
  dist.all_reduce(on({ 1 }, "f32"), { async_op = true }) -- nobody waits for it
  collectgarbage()
  -- sub-groups are split off
  local pair = dist.new_group { 0, n - 1 }
  if rank == 0 or rank == n - 1 then
    local x = on({ rank + 1 }, "f32")
    dist.all_reduce(x, { group = pair })
    check(x, { 1 + n }, "a sub-group")
  end
  -- tensors of the host go on as before
  local host = accel.tensor { rank }
  dist.all_reduce(host)
  check(host, { n * (n - 1) / 2 }, "on the host")
end

-- A model trained on the device by DistributedDataParallel, and the same on the host: its losses, to the last rank.
function cases.train()
  local nn, optim = accel.nn, accel.optim
  local function run(dev)
    accel.manual_seed(5)
    local net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)):to(dev)
    local model = nn.parallel.DistributedDataParallel(net)
    local opt, losses = optim.AdamW(net:parameters(), { lr = 0.02 }), {}
    for step = 1, 5 do
      local x = (accel.arange(32, { dtype = "f32" }):view(4, 8) * (0.01 * step) + dist.get_rank() * 0.1):sin():to(dev)
      local loss = model(x):pow(2):mean()
      loss:backward()
      opt:step()
      opt:zero_grad()
      losses[step] = loss:item()
    end
    return losses
  end
  local device, host = run(("cuda:%d"):format(dist.get_rank())), run "cpu"
  for i = 1, #host do assert(math.abs(device[i] - host[i]) < 1e-5 * math.max(1e-3, math.abs(host[i])), ("step %d: %g, on the host %g"):format(i,
    device[i], host[i])) end
end

-- A step in which ranks communicate is not recorded: it runs as it is, on every rank.
function cases.graph()
  local rank, n, dev = dist.get_rank(), dist.get_world_size(), ("cuda:%d"):format(dist.get_rank())
  local step = accel.graph(function(x)
    local y = x * 2
    dist.all_reduce(y)
    return y
  end)
  for i = 1, 5 do check(step(accel.ones(2, { device = dev }) * (rank + i)), { n * (n - 1) + 2 * n * i, n * (n - 1) + 2 * n * i }, "call " .. i) end
  assert(step.recorded == 0 and step.reason:find("ranks communicate", 1, true), step.reason)
end

-- Ranks that share a GPU: the same values, through memory of the host.
function cases.shared()
  local t = accel.full({ 2 }, dist.get_rank() + 1, { device = "cuda:0" })
  dist.all_reduce(t)
  check(t, { 3, 3 }, "ranks that share a GPU")
end
cases.off = cases.shared

-- Works that outlive the world, one of them waited for after its end.
function cases.outlive()
  local n, dev = dist.get_world_size(), ("cuda:%d"):format(dist.get_rank())
  local a, b, c = accel.ones(2, { device = dev }), accel.ones(2, { device = dev }), accel.ones(2, { device = dev })
  local first, second = dist.all_reduce(a, { async_op = true }), dist.all_reduce(b, { async_op = true })
  dist.all_reduce(c, { async_op = true })
  dist.destroy_process_group()
  assert(first:is_completed() and first:wait())
  check(a, { n, n }, "a work waited for after the end of the world")
  first, second = nil, second and nil
  collectgarbage()
  collectgarbage()
end

function cases.differ()
  local dev, rank = ("cuda:%d"):format(dist.get_rank()), dist.get_rank()
  dist.all_reduce(accel.ones(2, { device = dev }))
  if rank == 0 then dist.all_reduce(accel.ones(2, { device = dev }))
  else dist.all_reduce(accel.ones(3, { device = dev })) end
end

function cases.places() -- one on the device, one on the host
  local rank = dist.get_rank()
  dist.all_reduce(accel.ones(2, { device = ("cuda:%d"):format(rank) }))
  dist.all_reduce(accel.ones(2, { device = rank == 0 and "cuda:0" or "cpu" }))
end

function cases.fails()
  local dev = ("cuda:%d"):format(dist.get_rank())
  for _ = 1, 5 do dist.all_reduce(accel.ones(2, { device = dev })) end
end
cases.lost = cases.fails

if mode and mode ~= "gpu" then
  cases[mode]()
  print("done " .. mode)
  return
end

-- ---- the test: starts them ----

local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local function run(name, ranks, env, options)
  local out = ("%s/nccl_%s.out"):format(tmp, name)
  local words = {}
  for key, value in accel.pairs(env or {}) do words[#words + 1] = ("%s='%s'"):format(key, value) end
  local command = ("%s timeout 120 '%s' --num-threads 1 --num-processes %d %s '%s' %s >'%s' 2>&1"):format(table.concat(words, " "),
    process.program(), ranks, options or "", self, name, out)
  local _, _, code = os.execute(command)
  local file <close> = assert(io.open(out))
  return file:read "a", code
end

local function succeeds(name, ranks, env, options)
  local text, code = run(name, ranks, env, options)
  assert(code == 0, text)
  local n = select(2, text:gsub("done " .. name, ""))
  assert(n == ranks, text)
  return text
end

if mode == "gpu" then -- the real library, where there are two GPUs
  local cuda = accel.features().devices.cuda
  if not cuda or cuda.count < 2 then
    print "skipped: two GPUs are needed"
    os.exit(77)
  end
  succeeds("values", 2)
  succeeds("train", 2)
  return
end

for _, ranks in ipairs { 2, 3 } do
  local log = ("%s/nccl_%d.log"):format(tmp, ranks)
  os.remove(log)
  succeeds("values", ranks, { NCCL_TWIN_LOG = log })
  local file <close> = assert(io.open(log))
  local calls = file:read "a"
  for _, kind in ipairs { "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "messages", "split" } do
    assert(calls:find(" " .. kind .. " type"), "no call of " .. kind .. " in\n" .. calls)
  end
end
succeeds("values", 2, nil, "--backend tcp")
succeeds("train", 2)
succeeds("graph", 2)
succeeds("outlive", 2, { MALLOC_PERTURB_ = "165", GLIBC_TUNABLES = "glibc.malloc.tcache_count=0" }) -- what is freed reads as garbage
local text = succeeds("shared", 2, { CUDA_TWIN_DEVICES = "1" })
assert(text:find("members 0 and 1 share a GPU", 1, true), text)
text = succeeds("off", 2, { ACCEL_NCCL = "off" })
assert(not text:find "warning: comm", text) -- it was asked for
text = succeeds("off", 2, { NCCL_TWIN_VERSION = "21403" })
assert(text:find("NCCL 2.14 is too old", 1, true), text)

local code
text, code = run("differ", 2)
assert(code ~= 0 and text:find "ranks differ in count at call %d+ of the world" and text:find "on a device at [^\n]-nccl_calls.lua:%d+", text)
text, code = run("places", 2)
assert(code ~= 0 and text:find "ranks differ in device", text)
text, code = run("fails", 2, { NCCL_TWIN_FAIL = "3" })
assert(code ~= 0 and text:find "unhandled system error", text)
local began = accel.clock()
text, code = run("lost", 2, { NCCL_TWIN_LOST = "3" }, "--timeout 2")
assert(code ~= 0 and text:find "waited 2", text)
assert(accel.clock() - began < 60, "what waits for ever was not given up")
