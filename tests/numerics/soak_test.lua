-- Thousands of steps of a small model with everything that a long run does around them - loaders left early, scopes, modes, errors,
-- hooks, own functions, files, collectives - leave nothing behind: handles, native bytes, Lua memory, resident memory, file
-- descriptors and threads stay what they were after the first steps.
--   ACCEL_SOAK_SECONDS=3600 accel-run tests/numerics/soak_test.lua     for that long, with a line every ten seconds
local accel = require "accel"
local nn, optim, data, dist = accel.nn, accel.optim, accel.data, accel.dist

local long = tonumber(os.getenv "ACCEL_SOAK_SECONDS" or "")
local sanitized = (os.getenv "ACCEL_TEST_SANITIZE" or "") ~= ""
local WARM, STEPS, EVERY = 600, sanitized and 1200 or 6000, 300
local path = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/soak.safetensors"

-- ---- what may not grow ----
local function status(field)
  for line in io.lines "/proc/self/status" do
    local n = line:match("^" .. field .. ":%s*(%d+)")
    if n then return tonumber(n) end
  end
end

local function descriptors()
  local n = 0
  for fd = 0, 255 do
    local f = io.open("/proc/self/fdinfo/" .. fd)
    if f then
      n = n + 1
      f:close()
    end
  end
  return n
end

local function measure()
  accel.collect()
  accel.collect()
  local m = accel.mem_stats()
  return { handles = accel.live(), tensors = m.live_tensors, native = m.live_bytes, lua = collectgarbage "count" * 1024,
    resident = status "VmRSS" * 1024, descriptors = descriptors(), threads = status "Threads" }
end

local SLACK = { handles = 0, tensors = 0, native = 0, lua = 64 << 10, resident = 2 << 20, descriptors = 0, threads = 0 }
if long then SLACK.resident = 4 << 20 end
if sanitized then SLACK.resident = math.huge end -- whose allocator keeps what was freed

-- ---- the work ----
accel.manual_seed(3)
local Net = nn.Module:extend "Net"
function Net:init()
  self.inp, self.norm, self.drop, self.out = nn.Linear(12, 24), nn.LayerNorm(24), nn.Dropout(0.1), nn.Linear(24, 3)
end
function Net:forward(x) return self.out(self.drop(self.norm(self.inp(x)):gelu())) end

local model = Net()
local optimizer = optim.AdamW(model:parameters(), { lr = 1e-3 })
local schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, { T_max = 1000 })
local set = data.TensorDataset(accel.randn(96, 12), accel.randint(0, 3, { 96 }))
local loader = data.DataLoader { dataset = set, batch_size = 16, shuffle = true, seed = 1 }
local other = data.DataLoader { dataset = set, batch_size = 16 }
local Square = accel.Function {
  forward = function(ctx, x)
    ctx:save_for_backward(x)
    return x * x
  end,
  backward = function(ctx, g) return g * ctx:saved_tensors() * 2 end,
}

local function train(batch)
  local loss = nn.functional.cross_entropy(model(batch[1]), batch[2])
  loss:backward()
  nn.utils.clip_grad_norm_(model:parameters(), 1)
  optimizer:step()
  optimizer:zero_grad()
  schedule:step()
end

-- Each runs in its turn, and leaves by another way than the last.
local around = {
  function()
    local s <close> = accel.scope()
    local big = accel.randn(64, 64)
    for _ = 1, 4 do big = big:matmul(big):tanh() end
    return s:keep(big):sum():item()
  end,
  function() -- an error inside modes, a scope and a graph
    local ok, err = pcall(function()
      local _ <close> = accel.no_grad()
      local _ <close> = accel.autocast { dtype = "bf16" }
      local _ <close> = accel.scope()
      return model(accel.ones(4, 13))
    end)
    assert(not ok and err.code == "shape" and accel.is_grad_enabled() and not accel.is_autocast_enabled())
  end,
  function() -- a graph that nobody takes back, and an error in a hook
    local x = accel.ones(8, 12, { requires_grad = true })
    local handle = x:register_hook(function() error "on purpose" end)
    assert(not pcall(function() model(x):sum():backward() end))
    handle:remove()
    model:zero_grad()
  end,
  function() -- own functions, second derivatives
    local x = accel.full({ 3 }, 2.0, { requires_grad = true })
    local g = accel.grad(Square(x):sum(), x, { create_graph = true })
    assert(accel.grad((g * g):sum(), x)[1]:item() == 16)
  end,
  function()
    assert(accel.save(path, model:state_dict()))
    model:load_state_dict(assert(accel.load(path)))
    assert(select(3, accel.load(path .. ".none")) == "not_found")
  end,
  function() -- a coroutine that is dropped with a mode and a loader open
    local co = coroutine.wrap(function()
      for batch in other() do coroutine.yield(batch[1]) end
    end)
    other:set_epoch(0)
    assert(#co() == 16)
  end,
  function()
    local t = accel.ones(100)
    dist.all_reduce(t)
    assert(dist.all_reduce(t, { async_op = true }):wait() and t:sum():item() == 100)
  end,
  function()
    local again = accel.decode(accel.encode { t = accel.ones(5), list = { 1, "x", { true } } })
    assert(again.t:sum():item() == 5 and accel.json.decode(accel.json.encode(again.list))[2] == "x")
  end,
  function() -- a model that lives for one step
    local m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    local o = optim.SGD(m:parameters(), { lr = 0.1, momentum = 0.9 })
    m(accel.ones(2, 4)):mean():backward()
    o:step()
  end,
  function() assert(not load "= 1" and not pcall(accel.zeros, -1) and #tostring(model) > 0) end,
}
if accel.checkpoint then
  around[#around + 1] = function()
    local x = accel.ones(4, 12, { requires_grad = true })
    accel.checkpoint(model, x):sum():backward()
    model:zero_grad()
  end
end

-- ---- the run ----
local step, first, began, said = 0, nil, os.time(), os.time()
local largest = {}
local function compare(now)
  for name, slack in pairs(SLACK) do
    largest[name] = math.max(largest[name] or 0, now[name] - first[name])
    assert(now[name] <= first[name] + slack, ("step %d: %s grew from %d to %d"):format(step, name, first[name], now[name]))
  end
end

local function done()
  if long then return os.time() - began >= long and first end
  return step >= WARM + STEPS
end

while not done() do
  for batch in loader() do
    step = step + 1
    train(batch)
    around[step % #around + 1]()
    if step % 17 == 0 then break end
  end
  if step >= WARM and not first then
    first = measure()
  elseif first and step % EVERY < 6 then
    compare(measure())
  end
  if long and os.time() - said >= 10 then
    said = os.time()
    local now = measure()
    io.write(("%d s, %d steps: %.1f MiB resident, %.0f KiB of Lua, %d handles\n"):format(said - began, step, now.resident / 2 ^ 20,
      now.lua / 1024, now.handles))
    io.flush()
  end
end
compare(measure())
os.remove(path)
for _, p in ipairs(model:parameters()) do assert(p:isfinite():all():item(), "the model is not finite") end
print(("%d steps: resident memory grew by at most %.0f KiB, Lua's by %.1f KiB, nothing else grew"):format(step, largest.resident / 1024,
  largest.lua / 1024))
