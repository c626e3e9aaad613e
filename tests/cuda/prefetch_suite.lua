-- Batches on their way to the device ahead of their use, with non_blocking: the same losses as with copies that wait, with and without
-- workers, over uneven batches and after a break; kernels of a step run while the next batch is copied (the twin makes such copies when
-- somebody waits for them, so that a wait that is missing shows as wrong numbers), and the host waits for nothing.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"
local nn, data = accel.nn, accel.data

local CHILD = [[
local accel = require "accel"
local nn, data = accel.nn, accel.data
local non_blocking, workers = arg[1] == "ahead", tonumber(arg[2])
local a = accel.Accelerator { dataloader_config = accel.DataLoaderConfiguration { non_blocking = non_blocking } }
accel.manual_seed(3)
local x = accel.arange(70 * 12, { dtype = "f32", device = "cpu" }):view(70, 12):sin()
local set = data.TensorDataset(x, x:sum(2, true))
local loader = data.DataLoader(set, { batch_size = 8, shuffle = true, seed = 4, num_workers = workers })
local model = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-2 })
model, optimizer, loader = a:prepare(model, optimizer, loader)
local losses = {}
for epoch = 1, 3 do
  local n = 0
  for batch in loader() do
    assert(batch[1].device == tostring(a.device) and batch[1].device ~= "cpu")
    local loss = (model(batch[1]) - batch[2]):pow(2):mean()
    a:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    losses[#losses + 1] = loss:detach()
    n = n + 1
    assert(loader.end_of_dataloader == (n == 9))
    if epoch == 2 and n == 4 then break end -- with the fifth on its way
  end
  assert(n == (epoch == 2 and 4 or 9))
end
local text = {}
for i, loss in ipairs(losses) do text[i] = ("%.17g"):format(loss:item()) end
print(table.concat(text, " "))
]]
local path = os.tmpname()
local f = assert(io.open(path, "w"))
assert(f:write(CHILD))
f:close()
local beside, waits = os.tmpname(), os.tmpname()
local run = os.getenv "ACCEL_TEST_BUILD" .. "/bin/accel-run"

local function child(how, workers)
  os.remove(beside)
  os.remove(waits)
  local text, ok = suite.output(("env -u ACCEL_DEVICE CUDA_TWIN_BESIDE=%s CUDA_TWIN_WAITS=%s %s %s %s %d"):format(beside, waits, run, path, how,
    workers))
  assert(ok, text)
  local function number(file)
    local handle <close> = io.open(file)
    return handle and handle:read "n" or 0
  end
  return text, number(beside), number(waits)
end

local want, none, waited = child("plain", 0)
assert(select(2, want:gsub("%S+", "")) == 22, want)
for _, workers in ipairs { 0, 2 } do
  local got, kernels, more = child("ahead", workers)
  assert(got == want, got .. "instead of\n" .. want)
  if suite.emulated then
    assert(none == 0 and kernels > 18 * 10, ("%d kernels ran beside copies"):format(kernels)) -- of 19 steps that had a batch on its way
    assert(more <= waited + 8, ("the host waited %d times, %d without copies ahead"):format(more, waited))
  end
end
os.remove(path)
os.remove(beside)
os.remove(waits)

-- what is nested, not a tensor, or on the device already; no copies for a device without streams
local ahead = require "accel.data.ahead"
assert(ahead "cpu" == nil)
do
  local copies <close> = ahead "cuda:0"
  local there = accel.ones(2, { device = "cuda:0" })
  local batch = { x = accel.arange(3, { device = "cpu" }), list = { accel.ones({ 2, 2 }, { device = "cpu" }):t() }, name = "n", there = there }
  local moved = copies:begin(batch)
  copies:join()
  assert(moved.x.device == "cuda:0" and moved.list[1].device == "cuda:0" and moved.name == "n" and moved.there == there)
  assert(moved.x:sum():item() == 3 and moved.list[1]:sum():item() == 4 and batch.x.device == "cpu")
  for i = 1, 40 do -- page-locked memory goes round
    local t = copies:begin(accel.full({ 1000 }, i, { device = "cpu" }))
    copies:join()
    assert(t[1000]:item() == i)
  end
  copies:begin { accel.ones(1000, { device = "cpu" }) } -- nobody waits for it
end
suite.finish()
