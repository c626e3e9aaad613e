-- Where new tensors go, as scripts see it: a GPU when there is one, each rank its own; --cpu, --device and ACCEL_DEVICE decide otherwise;
-- what is made on the host (batches of workers, values from other devices, collectives) meets it there. Runs as ops_suite.lua does.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"
local run = os.getenv "ACCEL_TEST_BUILD" .. "/bin/accel-run "

-- What the code prints with these options, in the environment that a user has: without ACCEL_DEVICE unless it is given here.
local function prints(options, code, env)
  local text = suite.output(("env -u ACCEL_DEVICE %s %s %s -e '%s'"):format(env or "", run, options, code))
  return (text:gsub("\n$", ""))
end
local function expect(want, ...)
  local got = prints(...)
  assert(got == want, ("expected %q, got %q"):format(want, got))
end
local function expect_in(want, ...)
  local got = prints(...)
  assert(got:find(want, 1, true), ("expected %q in %q"):format(want, got))
end

-- ---- who decides ----
local SHOW = 'local a = require "accel" print(a.get_default_device(), a.zeros(1).device, (a.zeros(1) + 1):item())'
expect("cuda:0\tcuda:0\t1.0", "", SHOW)
expect("cuda:0\tcuda:0\t1.0", "--device cuda", SHOW)
expect("cpu\tcpu\t1.0", "--cpu", SHOW)
expect("cpu\tcpu\t1.0", "--device=cpu", SHOW)
expect("cpu\tcpu\t1.0", "", SHOW, "ACCEL_DEVICE=cpu")
expect("cuda:0\tcuda:0\t1.0", "--device cuda:0", SHOW, "ACCEL_DEVICE=cpu")
expect("cpu\tcpu\t1.0", "--cpu", SHOW, "ACCEL_DEVICE=cuda")
expect_in("no device 'cuda:77' here: this process sees", "--device cuda:77", SHOW)
expect_in("ACCEL_DEVICE: no device 'bogus' here", "", SHOW, "ACCEL_DEVICE=bogus")
expect("cpu", "", 'local a = require "accel" print(a.PartialState(true).device)')
expect("cpu\tcpu", "", 'local a = require "accel" print(a.Accelerator({ cpu = true }).device, a.ones(1).device)')
expect("cuda:0\tNO", "", 'local s = require("accel").PartialState() print(s.device, s.distributed_type)')
expect("cpu", "", 'local s = require("accel").PartialState() print(s.device)', "ACCELERATE_USE_CPU=1 ACCEL_CUDA_MODULE=none.so")

for name, want in pairs { ["cuda"] = "cuda:0", ["cuda:0"] = "cuda:0", ["cuda:1"] = "cuda:1", ["cpu"] = "cpu", ["meta"] = "meta" } do
  if want ~= "cuda:1" or suite.cuda.count > 1 then
    expect(want .. " " .. want, "", 'local a = require "accel" print(a.PartialState().device .. " " .. a.zeros(1).device)',
      "ACCELERATE_TORCH_DEVICE=" .. name)
  end
end
expect_in("ACCELERATE_TORCH_DEVICE=cuda:77: this build has no such device", "", 'require("accel").PartialState()',
  "ACCELERATE_TORCH_DEVICE=cuda:77")

-- nobody who asks for no tensor waits for a device
expect("cpu meta", "", 'print(table.concat(require("accel").devices(), " "))')
expect("cpu meta", "", [[
local a, path = require "accel", os.tmpname()
local x = a.zeros(2, { device = "cpu" }) + a.ones(2, { device = "cpu" })
a.device("cpu", function() a.ones(2) end)
a.save(path, { x = x })
a.load(path, { device = "cpu" })
os.remove(path)
a.decode(a.encode { x }, { device = "cpu" })
a.autocast({ dtype = "bf16" }, function() end)
print(table.concat(a.devices(), " "))]])
expect("cuda:0\tcpu", "", 'local a = require "accel" a.device("cpu", function() end) print(a.ones(1).device, a.devices()[1])')

-- ---- ranks ----
local RANKS = [[
local a, d = require "accel", require "accel.dist"
local r, n = d.get_rank(), d.get_world_size()
local mine = a.get_default_device()
assert(mine == ("cuda:%d"):format(r % a.features().devices.cuda.count), mine)
local t = a.full({ 3 }, r + 1.0)
local allocations = a.mem_stats(mine).n_allocs
d.all_reduce(t)
assert(a.mem_stats(mine).n_allocs == allocations) -- from the memory that ranks share to its place
local work = d.all_reduce(t, { async_op = true })
work:wait()
assert(t.device == mine and t:sum():item() == 3 * n * n * (n + 1) / 2, tostring(t))
local all = a.zeros(n, 2)
d.all_gather_into_tensor(all, a.full({ 2 }, r * 1.0):to("f32"))
assert(all.device == mine and all:sum():item() == n * (n - 1))
local column = a.zeros(4, 2):select(2, 1) -- not in one run
if r == 0 then column:fill_(5) end
d.broadcast(column, 0)
assert(column:sum():item() == 20)
assert(d.empty(3).device == "cpu") -- memory that ranks share
local list = { { rank = 0 } }
d.broadcast_object_list(list, 0)
assert(list[1].rank == 0 and a.PartialState().distributed_type == "MULTI_GPU")
d.barrier()
if r == 0 then print "agreed" end
]]
expect("agreed", "--num-processes 2", RANKS)
expect("own", "--num-processes 2", [[
local a = require "accel"
local s = a.PartialState()
assert(s.device == ("cuda:%d"):format(s.local_process_index % a.features().devices.cuda.count) and a.ones(1).device == s.device)
assert(a.accelerator.is_cuda_available())
if s.is_main_process then print "own" end]], "ACCELERATE_TORCH_DEVICE=cuda")

-- a model under DDP on GPUs: the gradients of one process on the whole batch
local DDP = [[
local a, d = require "accel", require "accel.dist"
local device = "%s"
local function gradients(first, rows, wrap)
  a.manual_seed(3)
  local net = a.nn.Linear(4, 2, { device = device })
  local x = a.arange(32, { dtype = "f32", device = device }):view(8, 4):narrow(1, first, rows) / 8
  local model = wrap and a.nn.parallel.DistributedDataParallel(net, { find_unused_parameters = true }) or net
  model(x):pow(2):mean():backward()
  assert(net.weight.grad.device == net.weight.device, net.weight.grad.device)
  assert(not wrap or model.reducer.used.device == "cpu") -- read by the host at every step
  return net.weight.grad:to("cpu")
end
local r = d.get_rank()
local part = gradients(r * 4 + 1, 4, true)
local e = (part - gradients(1, 8, false)):abs():amax():item()
assert(e < 1e-6, e)
if r == 0 then print "equal" end
]]
expect("equal", "--num-processes 2", DDP:format "cuda")
expect("equal", "--num-processes 2", DDP:format "cpu") -- a model that stays on the CPU beside GPUs

-- ---- what comes from elsewhere ----
accel.device("cuda", function()
  local p, q = accel.zeros(2, 3), accel.ones(3, { device = "cpu", dtype = "f64" })
  p:copy_(q * 2) -- from another device, broadcast, converted
  assert(p.device == "cuda:0" and p.dtype == "f32" and p:sum():item() == 12)
  q:copy_(p[2])
  assert(q.device == "cpu" and q:sum():item() == 6)
  local function allocations() return accel.mem_stats("cpu").n_allocs + accel.mem_stats("cuda").n_allocs end
  local a, b = accel.zeros(2, 3), accel.arange(6, { dtype = "f32", device = "cpu" }):view(2, 3)
  local before = allocations()
  a:copy_(b) -- bytes that lie alike go straight to their place
  a[1]:copy_(b[2])
  b:copy_(a)
  assert(allocations() == before and b:sum():item() == 24 and a.device == "cuda:0" and b.device == "cpu")
  b:copy_(a:t():contiguous():t())
  accel.zeros(0, 3):copy_(accel.zeros(0, 3, { device = "cpu" }))
  assert(b:sum():item() == 24)
  if suite.cuda.count > 1 then assert(accel.zeros(2, 3, { device = "cuda:1" }):copy_(a):sum():item() == 24) end

  local x = accel.ones(3, { device = "cpu", requires_grad = true })
  local y = accel.zeros(3):copy_(x * 3)
  accel.mul(y, y):sum():backward()
  assert(x.grad.device == "cpu" and x.grad:sum():item() == 54)
  assert(not pcall(p.copy_, p, accel.ones(3, { device = "meta" })))

  local net, path = accel.nn.Linear(3, 2), os.tmpname()
  accel.save(path, net:state_dict())
  local again = accel.nn.Linear(3, 2, { device = "cpu" })
  again:load_state_dict(accel.load(path))
  os.remove(path)
  assert(again.weight.device == "cpu" and again.weight:to_bytes() == net.weight:to("cpu"):to_bytes())

  local rows = accel.data.TensorDataset(accel.arange(6, { dtype = "f32" }):view(6, 1))
  do -- whatever of the CPU a data set gives is on the default device, whoever reads
    local f = assert(io.open(path, "wb"))
    f:write(string.pack("<I2I2I2I2I2", 1, 2, 3, 4, 5))
    f:close()
    local here = accel.arange(6, { device = "cpu" })
    for name, set in accel.pairs {
      cpu = accel.data.TensorDataset(here), numbers = accel.data.worker_dataset("accel.data.list_dataset", { { 1, "a" }, { 2, "b" } }),
      tokens = accel.data.TokenFile(path, { block = 2 }), both = rows,
    } do
      for _, workers in ipairs { 0, 2 } do
        for _, size in ipairs { 2, false } do
          for batch in accel.data.DataLoader(set, { batch_size = size, num_workers = workers })() do
            for _, x in ipairs(batch) do
              assert(not accel.is_tensor(x) or x.device == "cuda:0", name .. workers)
            end
          end
        end
      end
    end
    os.remove(path)
    assert(here.device == "cpu")
  end
  for _, workers in ipairs { 0, 2 } do
    local sum = 0
    for batch in accel.data.DataLoader(rows, { batch_size = 4, num_workers = workers })() do
      assert(batch[1].device == "cuda:0", workers)
      sum = sum + batch[1]:sum():item()
    end
    assert(sum == 15, workers)
  end
  -- data sets index their tensors where these lie
  local pixels, classes = accel.arange(12, { dtype = "u8", device = "cpu" }):view(3, 2, 2), accel.arange(3)
  for _, device in ipairs { "cpu", "cuda:0" } do
    local batch = accel.data.IDX(pixels:to(device), classes, { scale = 1, channel = false }):get_batch { 3, 1 }
    assert(batch[1].device == device and batch[1][1]:sum():item() == 38, device)
    assert(batch[2].device == device and batch[2]:sum():item() == 2, device)
  end
  local file <close> = assert(io.open(path, "wb"))
  file:write("\0\0\8\1", string.pack(">I4", 2), "ab")
  file:flush()
  assert(accel.data.IDX.read(path).device == "cpu")
  os.remove(path)

  local scaler = accel.amp.GradScaler()
  assert(scaler:get_scale() == 65536 and scaler:scale(accel.ones(1)):item() == 65536 and scaler.device == "cuda:0")
  -- a model on the CPU: its scaler is there, too, whatever of it the scaler sees first
  local w = accel.ones(1, { device = "cpu", requires_grad = true })
  local o, mixed = accel.optim.SGD({ w }, { lr = 1 }), accel.Accelerator { mixed_precision = "fp16", device_placement = false }
  for _, by_loss in ipairs { true, false } do
    scaler = accel.amp.GradScaler { init_scale = 8 }
    scaler:load_state_dict(scaler:state_dict())
    if by_loss then scaler:scale({ loss = w * 3 }).loss:backward() else w.grad = accel.full({ 1 }, 24, { dtype = "f32", device = "cpu" }) end
    scaler:step(o)
    scaler:update()
    assert(scaler.device == "cpu" and w:item() == (by_loss and -2 or -5) and scaler:get_scale() == 8)
    o:zero_grad()
  end
  local prepared = mixed:prepare(o)
  mixed:backward((w * 3):sum())
  prepared:step()
  assert(mixed.scaler.device == "cpu" and w:item() == -8)
end)

-- beside a default of the CPU, data on a GPU gives batches on the GPU
do
  local rows = accel.data.TensorDataset(accel.arange(4, { device = "cuda" }))
  for _, workers in ipairs { 0, 2 } do
    for batch in accel.data.DataLoader(rows, { batch_size = 3, num_workers = workers })() do
      assert(batch[1].device == "cuda:0", workers)
    end
  end
end

-- prepared loaders: on the accelerator's device, or, where it does not place, on the default one
expect("cuda:0 cuda:0 cuda:0 cuda:0 ", "", [[
local a = require "accel"
for _, placement in ipairs { true, false } do
  for _, workers in ipairs { 0, 1 } do
    local set = a.data.TensorDataset(a.arange(4, { device = "cpu" }))
    local loader = a.Accelerator({ device_placement = placement }):prepare(a.data.DataLoader(set, { num_workers = workers }))
    for batch in loader() do
      io.write(batch[1].device, " ")
      assert(loader:mask().device == batch[1].device)
      break
    end
  end
end]])
suite.finish()
