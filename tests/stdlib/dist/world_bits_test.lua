-- deterministic = "world": the same global batch, cut into the same 8 micro-batches, leaves the same bits in the
-- parameters whatever the number of ranks, for every dtype, with dropout, batch norm, parameters that only some
-- micro-batches use, and through every kind of bucket. The script starts itself on the ranks and compares what they
-- say.
--   accel-run tests/stdlib/dist/world_bits_test.lua
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn = accel.nn

local all = ranks.start { 1, 2, 4, 8, capture = true }
if all then
  for n, said in accel.pairs(all) do
    assert(#said > 100 and said == all[1], ("%d ranks:\n%sone rank:\n%s"):format(n, said, all[1]))
  end
  case "several ranks and one"
  return
end

local R, P <const>, M <const>, ROWS <const> = ranks.rank, ranks.size, 8, 2

local Either = nn.Module:extend "Either"
function Either:init() self.a, self.b = nn.Linear(5, 2), nn.Linear(5, 2) end
function Either:forward(x, at) return (at % 3 == 0 and self.b or self.a)(x) end

local made = {
  plain = function() return nn.Sequential(nn.Linear(5, 90), nn.Tanh(), nn.Dropout(0.3), nn.Linear(90, 2)) end,
  norm = function() return nn.Sequential(nn.Linear(5, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 2)) end,
  unused = function() return Either() end,
}

local function train(what, dtype, opts)
  accel.manual_seed(3)
  local model = made[what]():to(dtype)
  opts.deterministic, opts.find_unused_parameters = "world", what == "unused"
  local ddp = nn.parallel.DistributedDataParallel(model, opts)
  local sgd = accel.optim.SGD(ddp:parameters(), { lr = 0.1, momentum = 0.9 })
  for s = 1, 3 do
    local generator = accel.Generator(s)
    local x = accel.randn(M * ROWS, 5, { generator = generator }):to(dtype)
    local y = accel.randn(M * ROWS, 2, { generator = generator }):to(dtype)
    for k = 1, M // P do
      local at = R * (M // P) + k - 1
      accel.micro_batch(at * ROWS)
      local _ <close> = k < M // P and ddp:no_sync() or nil
      local out = ddp(x:narrow(1, at * ROWS + 1, ROWS), what == "unused" and at or nil)
      ;(out - y:narrow(1, at * ROWS + 1, ROWS)):pow(2):mean():backward()
    end
    sgd:step()
    sgd:zero_grad()
  end
  local hash = 0
  for _, p in ipairs(model:parameters()) do
    for c in p:detach():to_bytes():gmatch "." do hash = hash * 0x100000001b3 ~ c:byte() end
  end
  return hash
end

for _, c in ipairs {
  { "plain", "f32" }, { "plain", "f64" }, { "plain", "bf16" }, { "plain", "f16" }, { "norm", "f32" },
  { "unused", "f32" },
} do
  for label, opts in accel.pairs {
    views = {}, own = { gradient_as_bucket_view = false }, ["a bucket each"] = { bucket_cap_mb = 0 },
  } do
    local hash = train(c[1], c[2], opts)
    if R == 0 then print(c[1], c[2], label, ("%016x"):format(hash)) end
  end
end
