-- nn.parallel.DistributedDataParallel in worlds of 1, 2 and 4 ranks: gradients are the means over ranks whatever the
-- buckets, names stay, what is not averaged is told. The script starts itself on the ranks.
--   accel-run tests/stdlib/dist/ddp_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local dist, nn = accel.dist, accel.nn
local DDP = nn.parallel.DistributedDataParallel

if ranks.start { 1, 2, 4 } then return end
local R, P, says = ranks.rank, ranks.size, ranks.fails

local function net(seed, bias)
  accel.manual_seed(seed)
  return nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 6, { bias = bias }), nn.Tanh(), nn.Linear(6, 2))
end

--- The inputs of rank r in step s, known to all ranks.
local function inputs(r, s)
  accel.manual_seed(1000 * s + r)
  return accel.randn(4, 5), accel.randn(4, 2)
end
local function loss(model, r, s)
  local x, y = inputs(r, s)
  return ((model(x) - y) ^ 2):mean()
end

local function close(a, b, what, bar)
  ranks.close(a, b, what, (bar or 2e-6) * math.max(b:abs():max():item(), 1e-6))
end

--- All ranks have the same bits.
local function agreed(t, what)
  local all = accel.empty(P, t:numel())
  dist.all_gather_into_tensor(all, t:detach():reshape(-1))
  for r = 1, P do assert(all[r]:to_bytes() == all[1]:to_bytes(), what .. " differs between ranks") end
end

local function reductions()
  local n = 0
  for _, r in ipairs(dist.records()) do n = n + (r.kind == "all_reduce" and 1 or 0) end
  return n
end

-- ---- gradients are means, whatever the buckets ----
for label, opts in accel.pairs {
  ["one bucket"] = {}, ["tiny buckets"] = { first_bucket_mb = 1e-5, bucket_cap_mb = 1e-4 },
  ["a bucket each"] = { bucket_cap_mb = 0 },
  ["own gradients"] = { gradient_as_bucket_view = false, bucket_cap_mb = 1e-4 },
  ["unused looked for"] = { find_unused_parameters = true, bucket_cap_mb = 1e-4 },
  ["unused, own gradients"] = { find_unused_parameters = true, gradient_as_bucket_view = false },
  ["static"] = { static_graph = true, bucket_cap_mb = 1e-4 },
  ["world"] = { deterministic = "world", bucket_cap_mb = 1e-4 },
  ["hook"] = { bucket_cap_mb = 1e-4 },
} do
  local model, reference = net(7 + R), net(7) -- rank 0's parameters count
  local ddp = DDP(model, opts)
  if label == "hook" then ddp:register_comm_hook(nil, dist.hooks.allreduce_hook) end
  local sgd = accel.optim.SGD(ddp:parameters(), { lr = 0.1 })
  local own = accel.optim.SGD(reference:parameters(), { lr = 0.1 })
  for s = 1, 4 do
    loss(ddp, R, s):backward()
    for r = 0, P - 1 do (loss(reference, r, s) / P):backward() end
    for i, p in ipairs(reference:parameters()) do
      close(model:parameters()[i].grad, p.grad, label)
      agreed(model:parameters()[i].grad, label)
    end
    sgd:step()
    own:step()
    if s < 3 then -- also gradients that are zeros, and some that stay and are added to
      sgd:zero_grad()
      own:zero_grad()
    elseif s == 3 and label ~= "world" then -- there an update starts from zero
      for r, p in ipairs(model:parameters()) do
        p.grad, reference:parameters()[r].grad = accel.zeros_like(p:detach()), accel.zeros_like(p:detach())
      end
    else
      own:zero_grad()
    end
  end
  for i, p in ipairs(reference:parameters()) do close(model:parameters()[i], p, label .. ", parameters", 1e-5) end
end

do -- buckets: by size and dtype, then in the order in which gradients came
  local model = net(1)
  local ddp = DDP(model, { first_bucket_mb = 1e-5, bucket_cap_mb = 200 / 2 ^ 20 })
  local function sizes()
    local list = {}
    for k, b in ipairs(ddp.reducer.buckets) do
      list[k] = {}
      for j, i in ipairs(b.list) do list[k][j] = ddp.reducer.names[i] end
      list[k] = table.concat(list[k], " ")
    end
    return table.concat(list, ", ")
  end
  assert(sizes() == "4.bias 4.weight, 2.bias 2.weight, 0.bias 0.weight", sizes())
  local before = reductions()
  loss(ddp, R, 1):backward()
  assert(reductions() - before == (P > 1 and 3 or 0))
  loss(ddp, R, 2):backward()
  local order = {}
  for i, p in ipairs(model:parameters()) do
    p:register_post_accumulate_grad_hook(function() order[#order + 1] = ddp.reducer.names[i] end)
  end
  loss(ddp, R, 3):backward()
  assert(sizes():gsub(",", "") == table.concat(order, " "), sizes())
  for _, p in ipairs(model:parameters()) do assert(p.grad:data_ptr() % 64 == 0) end
end

do -- names: the wrapper stands in the module's place
  local model = net(2)
  local ddp = DDP(model)
  local function names(t)
    local list = {}
    for name in pairs(t) do list[#list + 1] = name end
    return table.concat(list, " ")
  end
  for _, list in ipairs { "state_dict", "named_parameters", "named_modules" } do
    assert(names(ddp[list](ddp)) == names(model[list](model)), list)
  end
  assert(ddp:modules()[1] == model and ddp.module == model)
  local Outer = nn.Module:extend "Outer"
  function Outer:init() self.inner, self.last = ddp, nn.Linear(2, 2) end
  local outer = Outer()
  assert(names(outer:state_dict()):find("inner.0.weight", 1, true) and #outer:parameters() == 8)
  outer:eval()
  assert(not model.training and not ddp.training and not model[1].training)
  ddp:train()
  assert(model.training and ddp.training and model[1].training and ddp:get_submodule "0" == model[1])
  local state = net(3):state_dict()
  ddp:load_state_dict(state)
  close(model[1].weight, state["0.weight"], "load_state_dict", 0)
  assert(tostring(ddp):find "^DistributedDataParallel%(\n  %(module%): Sequential%(\n    %(0%)")
  assert(nn.Module.is_module(ddp) and ddp[1] == model[1] and ddp.append == model.append)
  ddp.remark = "kept by the module"
  assert(model.remark == ddp.remark)
  local copy = accel.deepcopy(ddp)
  assert(copy.module == nil and #copy:parameters() == 6 and copy:parameters()[1] ~= model:parameters()[1])
  says("do so before wrapping", ddp.to, ddp, "f64")
  ddp:zero_grad()
end

do -- no_sync accumulates without a collective; the next backward averages all of it
  local ddp, reference = DDP(net(4)), net(4)
  for round = 1, 3 do
    local before = reductions()
    for s = 1, 2 do
      local _ <close> = ddp:no_sync()
      loss(ddp, R, s):backward()
    end
    ddp:no_sync(function() loss(ddp, R, 3):backward() end)
    assert(reductions() == before and ddp.require_backward_grad_sync)
    loss(ddp, R, 4):backward()
    assert(reductions() - before == (P > 1 and #ddp.reducer.buckets or 0))
    reference:zero_grad()
    for r = 0, P - 1 do
      for s = 1, 4 do (loss(reference, r, s) / P):backward() end
    end
    for i, p in ipairs(reference:parameters()) do
      close(ddp:parameters()[i].grad, p.grad, "no_sync, round " .. round, 1e-5)
    end
    ddp:zero_grad()
  end
  do -- a forward inside no_sync whose backward is made to average
    local _ <close> = ddp:no_sync()
    local l = loss(ddp, R, 1)
    ddp:sync_next_backward()
    l:backward()
  end
  agreed(ddp:parameters()[1].grad, "sync_next_backward")
  assert(not pcall(ddp.no_sync, ddp, function() error "inside" end) and ddp.require_backward_grad_sync)
end

-- Three branches, used as told.
local Branches = nn.Module:extend "Branches"
function Branches:init(dtype)
  self.a, self.b, self.c = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 2)
  if dtype then self.b:to(dtype) end
end
function Branches:forward(x, use)
  local y
  for name in use:gmatch "." do
    local z = self[name](x:to(self[name].weight.dtype)):to "f32"
    y = y and y + z or z
  end
  return y
end
local function branches(dtype)
  accel.manual_seed(9)
  return Branches(dtype)
end
local ones = accel.ones(1, 3)

do -- a parameter without a gradient is named by the next forward
  local ddp = DDP(branches())
  ddp(ones, "abc"):sum():backward()
  ddp(ones, "ac"):sum():backward()
  says("gave no gradient to 2 of 6 parameters: 'b.weight', 'b.bias'", ddp, ones, "abc")
  ddp:zero_grad()
  ddp(ones, "abc"):sum():backward()
  agreed(ddp.b.weight.grad, "after an unused parameter")
  local y = ddp(ones, "abc") -- each by a backward of its own: together they are one
  local z = ddp.module(ones, "a")
  y:sum():backward { inputs = { ddp.a.weight, ddp.a.bias }, retain_graph = true }
  y:sum():backward { inputs = { ddp.b.weight, ddp.b.bias, ddp.c.weight, ddp.c.bias } }
  agreed(ddp.c.weight.grad, "two backward passes for one forward")
  says("a second backward since the last forward", function() z:sum():backward() end)
end

do -- find_unused: zeros where this rank had none, nil where no rank had one
  for _, as_view in ipairs { true, false } do
    local ddp = DDP(branches(), { find_unused_parameters = true, gradient_as_bucket_view = as_view, bucket_cap_mb = 0 })
    for s, use in ipairs { "a", R == 0 and "ab" or "a", "bc", R == P - 1 and "abc" or "c", "a" } do
      ddp:zero_grad()
      ddp(ones, use):sum():backward()
      local function check(name, users)
        local g = ddp[name].weight.grad
        if users == 0 then assert(g == nil, name .. " has a gradient that no rank made, step " .. s)
        else close(g, accel.full({ 2, 3 }, users / P), ("find_unused, step %d, %s"):format(s, name)) end
      end
      local users = { { P, 0, 0 }, { P, 1, 0 }, { 0, P, P }, { 1, 1, P }, { P, 0, 0 } }
      for k, name in ipairs { "a", "b", "c" } do check(name, users[s][k]) end
    end
    ddp:zero_grad() -- accumulated without averaging, then unused: it still counts
    ddp:no_sync(function() ddp(ones, "ab"):sum():backward() end)
    ddp(ones, "a"):sum():backward()
    close(ddp.b.weight.grad, accel.ones(2, 3), "accumulated before")
    close(ddp.a.weight.grad, accel.full({ 2, 3 }, 2), "accumulated before")
  end
end

do -- static graphs: what is unused is learnt once
  local ddp = DDP(branches(), { static_graph = true })
  for s = 1, 3 do
    ddp:zero_grad()
    ddp(ones, R == 0 and "ab" or "a"):sum():backward()
    close(ddp.a.weight.grad, accel.ones(2, 3), "static")
    close(ddp.b.weight.grad, accel.full({ 2, 3 }, 1 / P), "static, one rank's")
    assert(ddp.c.weight.grad == nil, "step " .. s)
  end
  says("static_graph = true requires all to be alike", function() ddp(ones, "abc"):sum():backward() end)
end

do -- weights whose gradient comes in two parts, from backward passes within the backward
  local Again = accel.Function {
    name = "Again",
    forward = function(ctx, module, x)
      ctx:save_for_backward(x)
      ctx.module = module
      return module(x)
    end,
    backward = function(ctx, grad)
      local x = ctx:saved_tensors():detach():requires_grad_()
      accel.enable_grad(function() ctx.module(x):backward(grad) end)
      return nil, x.grad
    end,
  }
  local Twice = nn.Module:extend "Twice"
  function Twice:init() self.fc, self.out = nn.Linear(3, 3), nn.Linear(3, 1) end
  function Twice:forward(x) return self.out(Again(self.fc, Again(self.fc, x):tanh())) end
  accel.manual_seed(3)
  local plain = Twice()
  local x = (ones * (R + 1)):requires_grad_()
  local ddp = DDP(plain:clone(), { static_graph = true })
  for _ = 1, 3 do
    ddp:zero_grad()
    ddp(x):sum():backward()
    plain:zero_grad()
    for r = 0, P - 1 do (plain((ones * (r + 1)):requires_grad_()):sum() / P):backward() end
    for i, p in ipairs(plain:parameters()) do close(ddp:parameters()[i].grad, p.grad, "computed again") end
  end
  ddp = DDP(plain:clone())
  if P > 1 then -- said before anything wrong could be used
    local y = ddp(x):sum()
    says("got a second gradient since the last forward", y.backward, y)
  end
end

do -- parameters without dims, without elements, that do not lie in order, and tied ones
  local Odd = nn.Module:extend "Odd"
  function Odd:init()
    accel.manual_seed(R)
    self.scale, self.none = nn.Parameter(accel.tensor(2.0)), nn.Parameter(accel.ones(0, 3))
    self.turned, self.fc = nn.Parameter(accel.randn(3, 4):t()), nn.Linear(3, 3)
    self.tied = self.fc
  end
  function Odd:forward(x) return self.tied(self.fc(x)):matmul(self.turned:t()) * self.scale + self.none:sum() end
  for _, opts in ipairs {
    {}, { bucket_cap_mb = 0 }, { find_unused_parameters = true, gradient_as_bucket_view = false },
  } do
    local ddp = DDP(Odd(), opts)
    local plain = accel.deepcopy(ddp)
    agreed(plain.turned, "a parameter that does not lie in order")
    for _ = 1, 2 do
      ddp:zero_grad()
      plain:zero_grad()
      ddp(ones * (R + 1)):sum():backward()
      for r = 0, P - 1 do (plain(ones * (r + 1)):sum() / P):backward() end
      for name, p in pairs(plain:named_parameters()) do
        local g = ddp:get_parameter(name).grad
        assert(accel.tensor(g.shape):equal(accel.tensor(p.shape)) or #p.shape == 0)
        if p:numel() > 0 then close(g, p.grad, name) end
      end
    end
  end
end

do -- two dtypes; frozen parameters; a second wrapper
  local model = branches "f64"
  model.c:requires_grad_(false)
  local ddp = DDP(model)
  assert(#ddp.reducer.buckets == 2 and ddp.reducer.n == 4)
  ddp(ones * (R + 1), "abc"):sum():backward()
  close(model.a.weight.grad, accel.full({ 2, 3 }, (P + 1) / 2), "f32")
  close(model.b.weight.grad, accel.full({ 2, 3 }, (P + 1) / 2, { dtype = "f64" }), "f64")
  assert(model.c.weight.grad == nil and model.b.weight.grad.dtype == "f64")
  local second = DDP(model)
  second:zero_grad()
  second(ones * (R + 1), "abc"):sum():backward()
  close(model.a.weight.grad, accel.full({ 2, 3 }, (P + 1) / 2), "wrapped again")
  says("the model was wrapped again", ddp, ones, "abc")
  says("the module is already wrapped; wrap its .module", DDP, second)
end

do -- buffers are rank 0's at every forward, or each rank's own
  for _, broadcast in ipairs { true, false } do
    local model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    model[2].running_mean:fill_(R)
    local ddp = DDP(model, { broadcast_buffers = broadcast })
    agreed(model[2].running_mean, "buffers at the start")
    ddp(accel.randn(5, 3) + R):sum():backward()
    if P > 1 then
      local all = accel.empty(P, 4)
      dist.all_gather_into_tensor(all, model[2].running_mean)
      assert(all[1]:to_bytes() ~= all[2]:to_bytes(), "ranks saw the same data")
    end
    ddp:eval()
    local before = model[2].running_mean:clone()
    accel.no_grad(function() ddp(accel.ones(5, 3)) end)
    if broadcast then agreed(model[2].running_mean, "buffers after a forward")
    else close(model[2].running_mean, before, "buffers", 0) end
  end
end

if P > 1 then -- models that differ are refused by all ranks
  local function differs(part, make)
    says(part, function() DDP(make()) end)
    dist.barrier()
  end
  local function wider() return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, R == P - 1 and 5 or 4)) end
  differs("different parameters; at parameter 3 rank", wider)
  differs("'1.weight' f32 (4, 3) (", wider)
  differs(("rank %d has '1.weight' f32 (5, 3)"):format(P - 1), wider)
  differs("has nothing, after 2 of them", function()
    return R == 0 and nn.Sequential(nn.Linear(2, 3)) or nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
  end)
  differs("frozen", function()
    local m = nn.Linear(2, 3)
    if R == 0 then m.bias.requires_grad = false end
    return m
  end)
  differs("buffer 1 rank 0 has 'x' f32 (1)", function()
    local m = nn.Linear(2, 2)
    m:register_buffer("x", accel.ones(R == 0 and 1 or 2))
    return m
  end)
end
do
  local frozen = nn.Linear(2, 2)
  frozen:requires_grad_(false)
  says("has no parameter that requires gradients", DDP, frozen)
  says("unknown option 'bucket_cap'; did you mean 'bucket_cap_mb'?", DDP, nn.Linear(2, 2), { bucket_cap = 1 })
  says("deterministic must be one of world", DDP, nn.Linear(2, 2), { deterministic = "yes" })
  says("expected a module, got the class", DDP, nn.Linear)
  says("bucket_cap_mb must be at least 0", DDP, nn.Linear(2, 2), { bucket_cap_mb = -1 })
end

do -- errors in the middle of a backward leave everything usable
  local ddp = DDP(net(5), { bucket_cap_mb = 0 })
  loss(ddp, R, 1):backward()
  ddp:zero_grad()
  local handle = ddp[1].weight:register_hook(function() error "in the middle" end)
  local l = loss(ddp, R, 2)
  says("in the middle", l.backward, l)
  handle:remove()
  ddp:zero_grad()
  loss(ddp, R, 1):backward()
  agreed(ddp[1].weight.grad, "after an error")
  agreed(ddp[5].weight.grad, "after an error")
  l = loss(ddp, R, 1)
  l:backward { retain_graph = true }
  says("a second backward since the last forward", l.backward, l)
end

do -- steps inside a scope: what the wrapper keeps outlives it
  local ddp = DDP(net(6), { find_unused_parameters = true })
  for s = 1, 3 do
    local _ <close> = accel.scope()
    ddp:zero_grad()
    loss(ddp, R, s):backward()
  end
  agreed(ddp[1].weight.grad, "scope")
end

if P == 4 then -- a group of some ranks averages among them
  local even, odd = dist.new_group { 0, 2 }, dist.new_group { 1, 3 }
  local group = R % 2 == 0 and even or odd
  local ddp = DDP(branches(), { process_group = group })
  ddp(ones * (R + 1), "abc"):sum():backward()
  close(ddp.a.weight.grad, accel.full({ 2, 3 }, R % 2 == 0 and 2 or 3), "group")
end

do -- a wrapper that is dropped takes its memory and its hooks with it
  local model = net(8)
  local function use()
    local ddp = DDP(model, { bucket_cap_mb = 0 })
    loss(ddp, R, 1):backward()
    return setmetatable({ ddp.reducer }, { __mode = "v" })
  end
  local weak = use()
  collectgarbage()
  collectgarbage()
  assert(weak[1] == nil, "the reducer is held by somebody")
  model:zero_grad()
  loss(model, R, 1):backward()
  local again = net(8)
  loss(again, R, 1):backward()
  for i, p in ipairs(model:parameters()) do close(p.grad, again:parameters()[i].grad, "after the wrapper", 0) end
end
