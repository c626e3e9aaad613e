-- AutoAugment: each of the 75 pairs of operations, with positive and with negative sign, gives the picture that torchvision 0.29.2 gives (its
-- v2 transform, with the same draws): the means of those pictures are below. Each operation may be a level away, as rounding is chosen there.
local accel = require "accel"
local T = accel.vision.transforms

local MEANS <const> = {
  imagenet = {
    109.651, 110.639, 132.525, 132.525, 177.723, 177.723, 132.739, 132.739, 45.828, 45.828,
    140.282, 143.473, 162.704, 162.704, 160.966, 160.966, 101.289, 101.032, 158.362, 158.362,
    116.447, 117.493, 158.109, 158.1, 177.723, 177.723, 163.201, 163.201, 139.003, 123.69,
    117.777, 115.322, 70.095, 123.666, 118.934, 119.145, 162.421, 162.219, 162.887, 162.887,
    45.828, 45.828, 132.525, 132.525, 163.201, 163.201, 139.003, 123.69, 177.723, 177.723,
  },
  cifar10 = {
    114.339, 125.604, 67.937, 74.489, 136.026, 135.864, 76.937, 81.074, 162.887, 162.887,
    113.403, 111.203, 189.115, 39.047, 204.878, 13.156, 177.723, 177.723, 140.724, 126.529,
    83.398, 84.437, 162.887, 162.887, 118.396, 121.184, 182.359, 49.001, 157.95, 157.95,
    162.887, 162.887, 177.723, 177.723, 177.578, 162.831, 116.697, 116.697, 169.456, 94.752,
    132.525, 132.525, 14.652, 18.185, 77.097, 77.097, 92.113, 92.113, 75.813, 81.766,
  },
  svhn = {
    124.458, 124.915, 142.261, 144.759, 50.572, 50.572, 163.201, 163.201, 153.064, 153.86,
    131.662, 131.237, 142.261, 144.759, 72.216, 73.195, 130.429, 130.429, 153.064, 153.86,
    79.832, 78.871, 142.261, 144.759, 119.667, 124.627, 163.201, 163.201, 127.97, 120.15,
    109.068, 106.38, 92.733, 97.806, 105.043, 105.245, 104.133, 100.025, 127.231, 128.149,
    63.211, 63.679, 129.646, 131.199, 108.18, 106.39, 123.489, 121.699, 121.307, 121.574,
  },
}

local values = {}
for y = 0, 22 do
  for x = 0, 30 do
    local at = y * 31 + x + 1
    values[at] = (x * 7 + y * 3) % 256
    values[713 + at] = (x * y + 40) % 256
    values[1426 + at] = (250 - x * 5 - y) % 256
  end
end
local photo = accel.tensor(values, { dtype = "u8" }):view(3, 23, 31)

--- The result with these draws: the pair k, then the numbers of a list in turn, all of which must be drawn.
local function drawn(t, k, list)
  local random, n = math.random, 0
  math.random = function(m) -- luacheck: ignore 122
    if m then return k end
    n = n + 1
    return list[n]
  end
  local ok, out = pcall(t, photo)
  math.random = random -- luacheck: ignore 122
  assert(ok and n == #list, out)
  return out
end

for name, means in accel.pairs(MEANS) do
  local t = T.AutoAugment { policy = name }
  local pairs_of = require "accel.vision.transforms.auto_policies"[name]
  assert(#pairs_of == 25 and #means == 50)
  for k, pair in ipairs(pairs_of) do
    for s, sign in ipairs { 0.9, 0.0 } do
      local list = {}
      for _, op in ipairs(pair) do
        list[#list + 1] = -1 -- below every probability
        if op[3] and op[1] ~= "Posterize" and op[1] ~= "Solarize" then list[#list + 1] = sign end
      end
      local out = drawn(t, k, list)
      local mean, want = out:to("f64"):mean():item(), means[2 * k - 2 + s]
      assert(math.abs(mean - want) < 1.2, ("%s %d %s: %s, not %s"):format(name, k, pair[1][1], mean, want))
    end
  end
  assert(drawn(t, 1, { 1, 1 }) == photo) -- no operation at a draw above every probability
end

-- the same for the same sample, whatever reads it
local set = accel.data.TensorDataset(photo:unsqueeze(1):expand(16, 3, 23, 31), accel.arange(16)):map(T.AutoAugment())
local function sums(workers)
  local list = {}
  for batch in accel.data.DataLoader(set, { batch_size = 4, num_workers = workers, seed = 3 })() do
    for i = 1, 4 do list[#list + 1] = batch[1]:select(1, i):to("f64"):sum():item() end
  end
  return table.concat(list, " ")
end
assert(sums(0) == sums(2))
print "ok"
