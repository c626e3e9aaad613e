--- The work of every rank of accel-run test: a list of checks, each { name, ok, why }.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local checks = {}
local function check(name, fn) checks[#checks + 1] = { name, fn } end

check("rank numbers", function(a)
  local rank, n = a.process_index, a.num_processes
  local all = accel.accelerator.gather_object { { rank, n } }
  for i, each in ipairs(all) do assert(each[1] == i - 1 and each[2] == n, "ranks disagree on their number") end
end)

check("reduce, gather and broadcast", function(a)
  local rank, n = a.process_index, a.num_processes
  local x = accel.arange(4) + rank
  local sum = a:reduce(x, "sum")
  for i = 1, 4 do assert(sum[i]:item() == (i - 1) * n + n * (n - 1) // 2, "a sum over ranks is wrong") end
  local all = a:gather(accel.full({ 2 }, rank))
  assert(all.shape[1] == 2 * n, "gather has a wrong shape")
  for i = 1, 2 * n do assert(all[i]:item() == (i - 1) // 2, "gather is out of order") end
  local from = accel.accelerator.broadcast(accel.full({ 3 }, rank + 1))
  assert(from[1]:item() == 1, "broadcast is not rank 0's")
end)

check("uneven tensors and objects", function(a)
  local rank, n = a.process_index, a.num_processes
  local padded = a:pad_across_processes(accel.ones(rank + 1))
  assert(padded.shape[1] == n and padded:sum():item() == rank + 1, "padding is wrong")
  local parts = accel.accelerator.gather_object { "rank " .. rank }
  assert(#parts == n and parts[rank + 1] == "rank " .. rank, "objects are out of order")
end)

check("loaders divide the data", function(a)
  local n = a.num_processes
  local set = data.TensorDataset(accel.arange(8 * n + 3))
  local loader = a:prepare(data.DataLoader { dataset = set, batch_size = 2 })
  local seen, count = {}, 0
  for batch in loader() do
    local x = a:gather_for_metrics(batch[1] or batch)
    for i = 1, x.shape[1] do
      local v = x[i]:item()
      count = count + (seen[v] and 0 or 1)
      seen[v] = true
    end
  end
  assert(count == 8 * n + 3, ("%d of %d items were seen"):format(count, 8 * n + 3))
end)

check("lower precision is close to f32", function()
  local x, y = accel.randn(16, 32), accel.randn(32, 16)
  local exact = x:matmul(y)
  local _ <close> = accel.autocast { dtype = "bf16" }
  local difference = (x:matmul(y):to "f32" - exact):abs():max():item()
  assert(difference < 0.5, ("bf16 is %g off"):format(difference))
end)

--- Weights after some steps of a small regression, on the rows first .. last of every batch.
local function train(prepare, first, last, rows)
  accel.manual_seed(1)
  local model = nn.Linear(3, 2)
  local optimizer = optim.SGD(model:parameters(), { lr = 0.1 })
  local backward
  model, optimizer, backward = prepare(model, optimizer)
  accel.manual_seed(2)
  for _ = 1, 5 do
    local x, y = accel.randn(rows, 3), accel.randn(rows, 2)
    optimizer:zero_grad()
    backward((model(x:narrow(1, first, last - first + 1)) - y:narrow(1, first, last - first + 1)):square():mean())
    optimizer:step()
  end
  return model
end

check("training gives the numbers of one rank", function(a)
  local rank, n = a.process_index, a.num_processes
  local rows = 4 * n
  local alone = train(function(m, o) return m, o, function(loss) loss:backward() end end, 1, rows, rows)
  local shared = train(function(m, o)
    local model, optimizer = a:prepare(m, o)
    return model, optimizer, function(loss) a:backward(loss) end
  end, 4 * rank + 1, 4 * rank + 4, rows)
  local p, q = alone:parameters(), a:unwrap_model(shared):parameters()
  local tolerance = a.mixed_precision == "no" and 1e-5 or 0.05
  for i, w in ipairs(p) do
    assert((w:detach():to "f32" - q[i]:detach():to "f32"):abs():max():item() < tolerance, "weights differ")
  end
end)

check("inputs split between ranks", function(a)
  local n = a.num_processes
  local list = {}
  for i = 1, 2 * n + 1 do list[i] = i end
  local mine
  a:split_between_processes(list, function(part) mine = part end)
  local all = accel.accelerator.gather_object { #mine }
  local total = 0
  for _, k in ipairs(all) do total = total + k end
  assert(total == 2 * n + 1, "items are missing")
end)

return function()
  local a = accel.Accelerator()
  local out = {}
  for i, c in ipairs(checks) do
    local ok, why = pcall(c[2], a)
    out[i] = { name = c[1], ok = ok, why = not ok and tostring(why):gsub("\n.*", "") or nil }
    a:wait_for_everyone()
  end
  return out
end
