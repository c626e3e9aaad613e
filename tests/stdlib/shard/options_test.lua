-- What FSDP's options do: dtypes of parameters, reductions, buffers and results against a master copy that is rounded by hand; f32
-- masters of 16-bit models; the order in which units are gathered under each prefetch; models of which only rank 0 has values;
-- param_init_fn, sync_module_states, ignored modules and parameters, whole parameters and gradients, GatheredParameters.
--   accel-run tests/stdlib/shard/options_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local Unit = require "accel.shard.unit"
local nn, dist = accel.nn, accel.dist

if ranks.start { 1, 2, 4 } then
  ranks.run(2, { backend = "tcp", args = "tcp" })
  return
end

local R, P <const>, TCP = ranks.rank, ranks.size, arg[1] == "tcp"
local leaves = { kind = "lambda", fn = function(m) return #m:children() == 0 and #m:parameters() > 0 end }

local function FSDP(module, o)
  o.share_memory, o.auto_wrap_policy = not TCP, o.auto_wrap_policy or leaves
  return nn.parallel.FullyShardedDataParallel(module, o)
end

local Net = nn.Module:extend "Net"
function Net:init()
  self.a, self.norm, self.b = nn.Linear(20, 40), nn.LayerNorm(40), nn.Linear(40, 20)
  self:register_buffer("shift", accel.full({ 20 }, 0.1))
end
function Net:forward(x)
  self.saw = x.dtype
  return self.b(self.norm(self.a(x)):tanh()) + self.shift
end
local function net(seed)
  accel.manual_seed(seed or 2)
  return Net()
end
local function data(s, r) return accel.randn(3, 20, { generator = accel.Generator(s * 16 + r) }) end
local function state(model)
  local out = {}
  for name, t in pairs(model:state_dict()) do out[name] = t:detach():clone() end
  return out
end
local function same(a, b, what)
  for name, t in pairs(a) do
    assert(t.dtype == b[name].dtype and accel.equal(t, b[name]), ("%s: %s on rank %d of %d"):format(what, name, R, P))
  end
end

-- ---- mixed precision ----

--- Training of a master copy: every rank computes with it rounded to `dtype`, gradients are averaged in `wire`.
local function by_hand(dtype, wire, master, steps)
  local whole = net():to(master)
  local sgd = accel.optim.SGD(whole:parameters(), { lr = 0.1, momentum = 0.9 }) -- Adam makes whole steps of rounding
  for s = 1, steps do
    local copy = net():to(dtype)
    copy:register_buffer("shift", net().shift) -- without buffer_dtype
    copy:load_state_dict(whole:state_dict())
    copy(data(s, R):to(dtype)):float():pow(2):mean():backward()
    for i, p in ipairs(copy:parameters()) do
      local g = p.grad:to(wire)
      dist.all_reduce(g, "mean")
      whole:parameters()[i].grad = g:to(master)
    end
    sgd:step()
    sgd:zero_grad()
  end
  return state(whole)
end

local function train(model, steps, dtype)
  local adam = accel.optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 })
  for s = 1, steps do
    model(data(s, R):to(dtype or "f32")):float():pow(2):mean():backward()
    adam:step()
    adam:zero_grad()
  end
  return model, adam
end

for _, policy in ipairs { { "bf16", "f32" }, { "bf16", "bf16" }, { "f16", "f32" }, { "f32", "bf16" } } do
  local want = by_hand(policy[1], policy[2], "f32", 4)
  for _, way in ipairs { { zero_stage = 1 }, { zero_stage = 3 }, { sharding_strategy = "SHARD_GRAD_OP" },
    { sharding_strategy = "NO_SHARD" } } do
    way.mixed_precision = { param_dtype = policy[1], reduce_dtype = policy[2] }
    local model = train(FSDP(net(), way), 4)
    assert(model.module.saw == policy[1] and model.a.weight.dtype == policy[1])
    local got = state(model)
    for name, t in pairs(want) do
      local far = (got[name] - t):abs():max():item()
      -- f32 sums of 16-bit gradients are not rounded once more, as those by hand are; 16-bit sums of many depend on their order
      local exact = policy[2] == "bf16" and P <= 2
      assert(far <= (exact and 0 or 1e-3), ("%s %s: %s is off by %g"):format(policy[1], policy[2], name, far))
    end
    model:summon_full_params({ writeback = false }, function()
      for name, p in pairs(model:named_parameters()) do assert(p.dtype == "f32" and accel.equal(p:detach(), got[name]), name) end
    end)
    assert(model.a.weight.dtype == policy[1])
    model:load_state_dict(want)
    same(want, state(model), "loaded")
  end
end

do -- 16-bit models: their own dtype, or masters in f32
  local want = by_hand("bf16", "bf16", "f32", 3)
  local model, adam = train(FSDP(net():to "bf16", { zero_stage = 3, master_weights = true }), 3, "bf16")
  local got = model:state_dict()
  for _, p in ipairs(adam.param_groups[1].params) do assert(p.dtype == "f32") end
  assert(got["a.weight"].dtype == "f32" and model.a.weight.dtype == "bf16")
  if P <= 2 then -- f32 copies of bf16 begin where rounding left them
    assert(accel.allclose(got["a.weight"], want["a.weight"], { atol = 0.02 }))
  end
  model = train(FSDP(net():to "bf16", { zero_stage = 2 }), 3, "bf16")
  assert(model:state_dict()["a.weight"].dtype == "bf16")
end

do -- buffers and results
  local model = FSDP(net(), { mixed_precision = { param_dtype = "bf16", buffer_dtype = "bf16" } })
  assert(model.shift.dtype == "bf16" and model:state_dict().shift.dtype == "f32")
  assert(model(data(1, R)).dtype == "bf16")
  model = FSDP(net(), { fsdp_version = 2, mixed_precision = { param_dtype = "bf16", output_dtype = "f32" } })
  assert(model(data(1, R)).dtype == "f32" and model.shift.dtype == "f32")
  model = FSDP(net(), { mixed_precision = { param_dtype = "bf16", cast_forward_inputs = false } })
  ranks.fails("f32", model, data(1, R))
  ranks.fails('mixed_precision.param_dtype must be "f32"', FSDP, net(), { mixed_precision = { param_dtype = "i64" } })
  ranks.fails("mixed_precision.output_dtype needs version 2", FSDP, net(), { mixed_precision = { output_dtype = "f32" } })
  ranks.fails("did you mean 'param_dtype'", FSDP, net(), { mixed_precision = { parm_dtype = "bf16" } })
  local bn = nn.Sequential(nn.Linear(20, 8), nn.BatchNorm1d(8))
  model = FSDP(bn, { mixed_precision = { param_dtype = "bf16", buffer_dtype = "bf16" } })
  assert(bn[2].weight.dtype == "f32" and bn[2].running_mean.dtype == "f32" and bn[1].weight.dtype == "bf16")
  assert(model(data(1, R)).shape[2] == 8)
end

-- ---- prefetch: the order in which gathers begin, and what was needed when ----

if TCP then
  local log, start, wait = {}, Unit.start_gather, Unit.gather
  local core = require "accel.shard.core"
  function Unit:start_gather()
    if not self.coming and not core.there(self.flat) then log[#log + 1] = (self.wanted and "+" or "-") .. self.name end
    return start(self)
  end
  function Unit:gather()
    self.wanted = true
    wait(self)
    self.wanted = nil
  end
  local function order(o)
    o.zero_stage = 3
    local model = FSDP(nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 20), nn.Linear(20, 20)), o)
    local adam = accel.optim.SGD(model:parameters(), { lr = 0.1 })
    local text
    for s = 1, 3 do -- the order is learnt in the first
      log = {}
      local loss = model(data(s, R)):sum()
      log[#log + 1] = "|"
      loss:backward()
      text = table.concat(log, " ")
      adam:step()
      adam:zero_grad()
    end
    return text
  end
  ranks.same(order {}, "+0 +1 +2 | +2 -1 -0", "PRE")
  ranks.same(order { backward_prefetch = "BACKWARD_POST" }, "+0 +1 +2 | +2 -1 -0", "POST")
  ranks.same(order { backward_prefetch = "NO_PREFETCH" }, "+0 +1 +2 | +2 +1", "none")
  ranks.same(order { forward_prefetch = true }, "-0 -1 -2 | +2 -1 -0", "forward")
  -- PRE begins while the gradients of the unit before are computed, POST when they are there
  local begun
  local function when(o)
    o.zero_stage = 3
    local model = FSDP(nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 20)), o)
    for s = 1, 2 do
      local loss = model(data(s, R)):sum()
      model.module[2].weight:register_hook(function() begun = model.reducer.units_of[2][1].coming ~= nil end)
      loss:backward()
      model:zero_grad()
    end
    return begun
  end
  assert(when {} == true and when { backward_prefetch = "BACKWARD_POST" } == false)
  Unit.start_gather, Unit.gather = start, wait
end

-- ---- models of which rank 0 alone has values ----

local function shapes() return R == 0 and net(9) or accel.device("meta", net) end
local function whole_at_most()
  local most = 0
  for _, p in ipairs(net():parameters()) do most = math.max(most, p:numel() * 4) end
  return most
end
for stage = 0, 3 do
  local want = state(net(9))
  local model = FSDP(shapes(), { zero_stage = stage })
  assert(model.a.weight.device == "cpu" and model.shift.device == "cpu")
  same(want, state(model), "meta")
  train(model, 2)
  local plain = train(FSDP(net(9), { zero_stage = stage }), 2)
  same(state(plain), state(model), "trained")
end
if P > 1 then
  ranks.fails("set sync_module_states = true to send them rank 0's values", FSDP, shapes(), { sync_module_states = false })
  ranks.fails("of rank 0 is on the meta device", FSDP, R == 0 and nn.Sequential(net(), accel.device("meta", net))
    or nn.Sequential(net(), net()), {})
  -- a rank without values holds its part and one unit at a time, never the model
  local big = function() return nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256), nn.Linear(256, 256), nn.Linear(256, 256)) end
  local model = R == 0 and big() or accel.device("meta", big)
  collectgarbage()
  local stats = accel.mem_stats "cpu"
  local before = stats.live_bytes
  accel.reset_peak_memory "cpu"
  model = FSDP(model, { zero_stage = 3 })
  local took = accel.mem_stats("cpu").peak_bytes - before
  local unit = 257 * 256 * 4
  assert(R == 0 or took < 4 * unit / P + 2.5 * unit, took / unit)
end
do -- made by the script, on every rank
  local calls = 0
  local model = FSDP(accel.device("meta", net), { param_init_fn = function(module)
    calls = calls + 1
    for name, t, kind in module:_fields() do
      if kind ~= "module" then
        local new = accel.full(t.shape, 0.25)
        if kind == "parameter" then new = nn.Parameter(new) end
        rawset(rawget(module, name) == nil and module._tensors or module, name, new)
      end
    end
  end })
  assert(calls == 4, calls) -- the root has a buffer
  for _, t in pairs(state(model)) do assert(accel.equal(t, accel.full(t.shape, 0.25))) end
end
do -- parts of each rank's own values
  local model = FSDP(net(20 + R), { zero_stage = 3, sync_module_states = false })
  local unit, own = require "accel.shard.owners".of[model.a.weight].unit, net(20 + R)
  for i, p in ipairs { own.a.weight, own.a.bias } do
    local from, count = unit:range(i)
    if from then assert(accel.equal(unit.pieces[i], p:detach():reshape(-1):narrow(1, from + 1, count))) end
  end
end

-- ---- ignored modules and parameters ----

do
  local model = net()
  local ignored = model.b.bias
  model = FSDP(model, { ignored_modules = { model.norm }, ignored_parameters = { ignored } })
  assert(#model.reducer.params == 3)
  model(data(1, R)):sum():backward()
  assert(ignored.grad and model.norm.weight.grad and not model.a.weight.grad)
  local adam = accel.optim.AdamW(model:parameters())
  adam:step()
end

-- ---- whole parameters and gradients ----

for _, way in ipairs { { zero_stage = 1 }, { zero_stage = 3 }, { mixed_precision = { param_dtype = "bf16" } } } do
  local plain, model = net(), FSDP(net(), way)
  plain(data(1, R)):pow(2):mean():backward()
  model(data(1, R)):float():pow(2):mean():backward()
  model:summon_full_params({ with_grads = true }, function()
    for i, p in ipairs(plain:parameters()) do
      local g = p.grad:clone()
      dist.all_reduce(g, "mean")
      local mine = model:parameters()[i].grad
      assert(mine.shape[1] == g.shape[1] and accel.allclose(mine, g, { atol = way.mixed_precision and 0.02 or 1e-7 }))
    end
  end)
  assert(model.a.weight.grad == nil)
  ranks.fails("set writeback = false", model.summon_full_params, model, { rank0_only = true })
  model:summon_full_params({ rank0_only = true, writeback = false }, function()
    if R == 0 then assert(accel.equal(model.a.weight:detach(), net().a.weight:detach())) end
  end)

  local Gathered = require "accel.shard.gathered_parameters"
  local before = state(model)
  Gathered(model.a.weight, { modifier_rank = P - 1 }, function()
    local _ <close> = accel.no_grad()
    if R == P - 1 then model.a.weight:fill_(7) else model.a.weight:fill_(3) end
  end)
  local after = state(model)
  assert(accel.equal(after["a.weight"], accel.full({ 40, 20 }, 7)) and accel.equal(after["b.weight"], before["b.weight"]))
  do
    local _ <close> = Gathered { model.b.weight, accel.ones(1) }
    assert(accel.equal(model.b.weight:detach(), before["b.weight"]))
  end
  Gathered({ model.a.weight }, { enabled = false }, function() end)
  ranks.fails("entry 1 is", Gathered, { 3 })
end
