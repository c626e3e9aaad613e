-- Side of the bench of data loading: prints one JSON object of figures.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path
local data = accel.data
local sets = require "loader_sets"
local quick = arg[1] == "--quick"

local function time(loader)
  local best = math.huge
  for _ = 1, 3 do
    local began, n = accel.clock(), 0
    for _ in loader() do n = n + 1 end
    best = math.min(best, (accel.clock() - began) / n)
  end
  return best
end
local function once(loader)
  local began = accel.clock()
  for _ in loader() do end
  return accel.clock() - began
end

local rows = data.TensorDataset(accel.arange(64000):view(6400, 10), accel.arange(6400))
local figures = {
  fast = time(data.DataLoader { dataset = sets.Fast(quick and 500 or 20000), batch_size = 1 }) * 1e6,
  tensors = time(data.DataLoader { dataset = rows, batch_size = 8 }) * 1e6,
  handed = time(data.DataLoader { dataset = rows, batch_size = 8, num_workers = 1 }) * 1e6,
}
do
  local loader = data.DataLoader { dataset = rows, batch_size = 8, num_workers = 2 }
  local began = accel.clock()
  for _ in loader() do break end
  figures.start = (accel.clock() - began) * 1e3
end
local decoding = data.worker_dataset("loader_sets:Decoding", quick and 16 or 1024)
for _, n in ipairs { 0, 1, 2, 4 } do
  figures["decode" .. n] = once(data.DataLoader { dataset = decoding, batch_size = 8, num_workers = n }) * 1e3
end
print(accel.json.encode(figures))
