-- zero.Init creates a model in parts: the values of one that is created whole, in memory of a rank's part and one module, also where the
-- whole would not fit the rank's memory; initial values that are written later stay; a sharded model takes it over and trains alike.
-- GatheredParameters: whole parameters on every rank, what the modifier writes stays.
--   accel-run tests/stdlib/deepspeed/zero_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local dist, nn, zero = accel.dist, accel.nn, accel.deepspeed.zero

if ranks.start { 1, 2, 4 } then
  local machines = dofile((arg[0]:match "^.*/" or "") .. "../../support/machines.lua")
  machines.run(2, 1)
  machines.run(2, 2)
  machines.run(2, 2, "limit", "--memory-limit 30M")
  return
end
local P <const> = ranks.size

local function live()
  collectgarbage()
  collectgarbage()
  return accel.mem_stats("cpu").live_bytes
end

local Block = nn.Module:extend "Block"
function Block:init(width)
  self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
end
function Block:forward(x) return x + self.down(self.up(x):tanh()) end

local Net = nn.Module:extend "Net"
function Net:init(width, depth)
  self.blocks = nn.ModuleList()
  for _ = 1, depth do self.blocks:append(Block(width)) end
  self.head = nn.Linear(width, 1)
  self:apply(function(m) -- as models do, once they are complete
    if m.up then nn.init.normal_(m.up.weight, 0, 0.05) end
  end)
end
function Net:forward(x)
  for _, block in ipairs(self.blocks) do x = block(x) end
  return self.head(x)
end

local function make(width, depth, parts)
  accel.manual_seed(7)
  local _ <close> = zero.Init { enabled = parts }
  return Net(width, depth)
end

if arg[1] == "limit" then -- 33.6 MB of parameters
  local ok, e = pcall(make, 512, 8, false)
  assert(not ok and tostring(e):find "out of memory", tostring(e))
  e = nil -- luacheck: ignore
  collectgarbage()
  local model = nn.parallel.FullyShardedDataParallel(make(256, 32, true), { zero_stage = 3,
    auto_wrap_policy = { kind = "transformer", classes = { "Block" } } })
  local loss = model(accel.ones(2, 256)):pow(2):mean()
  loss:backward()
  accel.optim.SGD(model:parameters(), { lr = 1e-5 }):step()
  assert(model(accel.ones(2, 256)):pow(2):mean():item() < loss:item())
  return
end

do -- the same values
  local whole, parts = make(32, 3, false), make(32, 3, true)
  local want = whole:state_dict()
  local _ <close> = zero.GatheredParameters(parts:parameters())
  for name, p in parts:named_parameters() do assert(accel.equal(p:detach(), want[name]), name) end
  assert(accel.equal(accel.rand(2), accel.rand(2)) == false)
end

do -- memory of a part
  local width, depth <const> = 256, 8
  local before = live()
  accel.reset_peak_memory "cpu"
  local net = make(width, depth, true)
  local held, peak = live() - before, accel.mem_stats("cpu").peak_bytes - before
  local n, largest = 0, 2 * width * width * 4
  for _, p in ipairs(net:parameters()) do n = n + p:numel() * 4 end
  assert(held < n / P * 1.03 + 4096 * depth, ("%d ranks hold %d of %d bytes each"):format(P, held, n))
  assert(P == 1 or peak < n / P + 3.5 * largest, ("%d ranks: peak %d of %d bytes"):format(P, peak, n))
  if P > 1 then assert(held < n * 0.6) end
end

local function train(model, optimizer, accelerator, steps)
  local losses = {}
  for s = 1, steps do
    local x = accel.randn(4, 32, { generator = accel.Generator(s * 8 + dist.get_rank()) })
    local loss = model(x):pow(2):mean()
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    losses[s] = loss:item()
  end
  return losses
end

if P > 1 then -- before it is sharded
  local net = make(32, 1, true)
  local p = net.blocks[1].up.weight
  do
    local _ <close> = zero.GatheredParameters(p, P - 1)
    local _ <close> = accel.no_grad()
    p:fill_(dist.get_rank() + 1)
  end
  assert(p:min():item() == P and p:max():item() == P)
  ranks.fails("would be lost", function()
    local _ <close> = zero.GatheredParameters(p)
    local _ <close> = accel.no_grad()
    p:zero_()
  end)
end

do -- a sharded model takes over
  local want
  for _, parts in ipairs { false, true } do
    accel.accelerator.AcceleratorState._reset_state(true)
    local a = accel.Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 3, zero3_save_16bit_model = true } }
    local net = make(32, 3, parts)
    local optimizer = accel.optim.AdamW(net:parameters(), { lr = 0.01 })
    local model
    model, optimizer = a:prepare(net, optimizer)
    local losses = train(model, optimizer, a, 4)
    want = want or losses
    for i, l in ipairs(losses) do assert(l == want[i], ("%d: %.9g, not %.9g"):format(i, l, want[i])) end
    -- GatheredParameters of a sharded model
    local p = net.blocks[1].up.weight
    do
      local _ <close> = zero.GatheredParameters({ p }, { modifier_rank = P - 1 })
      local _ <close> = accel.no_grad()
      p:fill_(dist.get_rank() + 1)
    end
    do
      local _ <close> = zero.GatheredParameters(p)
      assert(p:min():item() == P and p:max():item() == P)
    end
    local state = a:get_state_dict(model)
    if a.is_main_process then assert(state["blocks.0.up.weight"]:max():item() == P) end
    ranks.fails("modifier_rank is 9", zero.GatheredParameters, { p }, 9)
  end
end

do -- models of accel.models under a plugin: no zero.Init needed
  accel.accelerator.AcceleratorState._reset_state(true)
  local config = { vocab_size = 512, n_positions = 32, n_embd = 128, n_layer = 2, n_head = 4 }
  accel.manual_seed(5)
  local whole = accel.models.GPT2LMHeadModel(config):state_dict()
  local bytes = 0
  for _, t in pairs(whole) do bytes = bytes + t:numel() * 4 end
  local a = accel.Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 3, zero3_save_16bit_model = true } }
  accel.manual_seed(5)
  local before = live()
  local net = accel.models.GPT2LMHeadModel(config)
  local held = live() - before
  assert(held < bytes / P * 1.05 + 65536 and held > bytes / P * 0.7, ("%d of %d bytes"):format(held, bytes))
  local model = a:prepare(net)
  local state = a:get_state_dict(model)
  if a.is_main_process then
    for name, t in pairs(whole) do assert(accel.equal(t, state[name]), name) end
  end
  a.deepspeed_plugin:zero3_init_context_manager(false, function()
    local _ <close> = accel.no_grad()
    local m = accel.models.GPT2LMHeadModel(config)
    m:parameters()[1]:zero_()
  end)
end
