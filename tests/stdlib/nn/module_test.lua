--- nn.Module: registration, walks, state, modes, hooks, printing.
local accel = require "accel"
local nn = accel.nn

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local function names(map)
  local out = {}
  for name in pairs(map) do out[#out + 1] = name end
  return table.concat(out, " ")
end

local Net = nn.Module:extend "Net"
function Net:init()
  self.scale = nn.Parameter(accel.ones(3))
  self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, { bias = false }))
  self.list = nn.ModuleList { nn.LayerNorm(2), nn.Identity() }
  self:register_buffer("count", accel.zeros(2))
  self:register_buffer("scratch", accel.zeros(1), false)
  self.plain = accel.zeros(5)
end
function Net:forward(x) return self.list[1](self.body(x * self.scale)) end

local net = Net()

do -- registration order, names, and what is not registered
  local all = "body.0.weight body.0.bias body.2.weight list.0.weight list.0.bias"
  assert(names(net:named_parameters()) == "scale " .. all)
  assert(names(net:named_buffers()) == "count scratch")
  assert(names(net:state_dict()) == "scale count " .. all)
  assert(names(net:named_children()) == "body list")
  assert(names(net:named_modules()) == " body body.0 body.1 body.2 list list.0 list.1")
  assert(#net:parameters() == 6 and #net:modules() == 8 and #net:children() == 2 and #net:buffers() == 2)
  local n, m = 0, 0
  for p in net:parameters() do n = n + p:numel() end
  for _, p in ipairs(net:parameters()) do m = m + p:numel() end
  assert(n == 3 + 12 + 4 + 8 + 2 + 2 and m == n)
  assert(names(net:named_parameters "net"):find "^net.scale net.body.0.weight ")
  assert(names(net.body:named_parameters "body") == "body.0.weight body.0.bias body.2.weight")
  assert(names(net:named_parameters(nil, false)) == "scale")
  assert(net:get_submodule "body.2" == net.body[3])
  fails("has no module 'tail'", net.get_submodule, net, "body.tail")
  assert(net.plain:numel() == 5 and not net:named_parameters().plain)
end

do -- a field keeps its place when it gets another value; nil takes it out
  local m = nn.Module:extend "M"()
  m.a = nn.Parameter(accel.zeros(1))
  m.b = nn.Parameter(accel.zeros(1))
  m.a = nn.Parameter(accel.zeros(7))
  assert(names(m:named_parameters()) == "a b" and m:parameters()[1]:numel() == 7)
  m.a = nil
  assert(names(m:named_parameters()) == "b")
  m.a = nn.Linear(1, 1)
  assert(names(m:named_parameters()) == "b a.weight a.bias")
  m.c, m.d = nn.Identity(), nn.Identity()
  m.c = nil
  m.d = nn.Parameter(accel.zeros(1))
  assert(names(m:named_children()) == "a" and names(m:named_parameters()) == "b d a.weight a.bias")
  m.d = nil
  m:register_parameter("none", nil)
  assert(names(m:named_parameters()) == "b a.weight a.bias" and m.none == nil)
  fails("already names something", m.register_buffer, m, "forward", accel.zeros(1))
  fails("without dots", m.register_buffer, m, "x.y", accel.zeros(1))
  fails("must be a tensor", m.register_buffer, m, "x", 3)
  do -- a name of another kind: its tensor or module would leave the model unnoticed
    local l = nn.BatchNorm1d(2)
    l.child = nn.ReLU()
    fails("'weight' is already a parameter of accel.nn.BatchNorm1d", l.register_buffer, l, "weight", accel.ones(2))
    fails("is already a buffer", l.register_parameter, l, "running_mean", nn.Parameter(accel.ones(2)))
    fails("is already a module", l.register_buffer, l, "child", accel.ones(2))
    fails("is already a field", l.register_module, l, "eps", nn.ReLU())
    fails("is already a field", l.register_buffer, l, "training", accel.ones(2))
    l:register_buffer("running_mean", accel.ones(2), false)
    l:register_parameter("weight", nn.Parameter(accel.zeros(2)))
    assert(#l:parameters() == 2 and l.weight:sum():item() == 0 and l:state_dict().running_mean == nil)
  end
  fails("does not define forward", m, accel.zeros(1))
end

do -- assignments over raw fields, which nobody sees, are made good at the next walk
  local M = nn.Module:extend "M"
  function M:init()
    self.w, self.z, self.head, self[1] = false, 1, false, false
    self.z = nn.Identity()
    self.head = nn.Linear(2, 2)
    self.w = nn.Parameter(accel.zeros(3))
    self[1] = nn.Linear(1, 1, { bias = false })
  end
  function M:forward(x) return self.head(x) end
  local function fresh() return M() end
  local want = "w 0.weight head.weight head.bias"
  assert(names(fresh():named_parameters()) == want and #fresh():parameters() == 4)
  assert(names(fresh():state_dict()) == want and names(fresh():named_children()) == "0 head z")
  assert(names(fresh():named_modules()) == " 0 head z")
  assert(not fresh():eval().head.training and fresh():get_submodule "head".in_features == 2)
  assert(tostring(fresh()):find "%(head%): Linear" and fresh():to "f64".head.weight.dtype == "f64")
  local a, b = fresh(), fresh()
  a.head.weight:detach():fill_(7)
  b:load_state_dict(a:state_dict())
  assert(b.head.weight:sum():item() == 28)
  b(accel.ones(1, 2)):sum():backward()
  assert(b:parameters()[3].grad:sum():item() == 4)
  fails("cannot assign a plain tensor to parameter 'w'", function() b.w = accel.zeros(3) end)
  b.head = nn.Linear(5, 5) -- another module takes over the name and the place
  assert(names(b:named_parameters()) == want and b:parameters()[3]:numel() == 25)
  b.head = nn.Parameter(accel.zeros(4))
  assert(names(b:named_parameters()) == "head w 0.weight" and #b:parameters() == 3)

  local deep = nn.Sequential(fresh(), fresh())
  assert(#deep:parameters() == 8)
  for _, wrong in ipairs { "oops", 3, accel.zeros(2), function() end, {} } do
    deep[2].head = wrong
    for _, walk in ipairs { "parameters", "named_modules", "state_dict", "eval", "buffers", "double" } do
      fails("module_test.lua:%d+: M: cannot assign .* to module 'head' %(assign a module, or nil",
        function() deep[walk](deep) end)
    end
    fails("to module 'head'", function() deep:load_state_dict {} end)
  end
  deep[2].head = false
  fails("cannot assign .*false.* to module 'head'", function() return deep:parameters() end)
  deep[2].head = nil
  assert(#deep:parameters() == 6)
  fails("to module 'head'", function() deep[2].head = "oops" end)
  -- What lies in a table of one's own stays out.
  local m = nn.Module:extend "Held"()
  m.others = { nn.Linear(1, 1) }
  m.others = { nn.Linear(1, 1) }
  assert(#m:parameters() == 0)
end

do -- what would take a parameter or buffer out of the model unnoticed is refused, where it is written
  local m = nn.Linear(2, 2)
  local weight, x = m.weight, accel.ones(1, 2)
  local before = m(x):tolist()[1][1]
  fails("module_test.lua:%d+: [%w.]*Linear: cannot assign a plain tensor to parameter 'weight' %(use nn.P",
    function() m.weight = accel.zeros(2, 2) end)
  fails("cannot assign 3 to parameter 'weight'", function() m.weight = 3 end)
  fails("cannot assign 'x' to parameter 'bias'", function() m.bias = "x" end)
  assert(m.weight == weight and #m:parameters() == 2 and m(x):tolist()[1][1] == before)
  m.weight = nn.Parameter(accel.zeros(2, 2))
  fails("cannot assign a plain tensor", function() m.weight = weight:detach() end)
  m.bias = nil
  assert(m(x):tolist()[1][1] == 0 and names(m:named_parameters()) == "weight" and m.bias == nil)
  fails("cannot assign a plain tensor to parameter 'bias'", function() m.bias = accel.zeros(2) end)
  m.bias = nn.Parameter(accel.ones(2))
  assert(m(x):tolist()[1][1] == 1 and #m:parameters() == 2)

  local b = nn.Module:extend "B"()
  b:register_buffer("mean", accel.zeros(2))
  fails("B: cannot assign 3 to buffer 'mean'", function() b.mean = 3 end)
  b.mean = accel.ones(2)
  assert(b:named_buffers().mean:sum():item() == 2)
  b.plain = accel.zeros(1)
  b.plain = nn.Parameter(accel.ones(1))
  assert(names(b:named_parameters()) == "plain", "a plain field may become a parameter")
  b.flag, b.plain = false, nn.Identity()
  assert(b.flag == false and names(b:named_modules()) == " plain" and #b:parameters() == 0)
end

do -- tied tensors: once among parameters, under both names in the state
  local m = nn.Module:extend "Tied"()
  m.emb = nn.Embedding(5, 3)
  m.head = nn.Linear(3, 5, { bias = false })
  m.head.weight = m.emb.weight
  assert(names(m:named_parameters()) == "emb.weight" and names(m:state_dict()) == "emb.weight head.weight")
  m:to "f64"
  assert(m.head.weight == m.emb.weight and m.emb.weight.dtype == "f64" and m.emb.weight.requires_grad)
  -- one of the modules alone: the parameter is converted or moved under both names, with its gradient, hooks and optimizer
  local w, calls, optimizer = m.emb.weight, 0, accel.optim.AdamW(m:parameters(), { lr = 0.5 })
  w:register_hook(function() calls = calls + 1 end)
  m.head(m.emb(accel.tensor { 1 })):sum():backward()
  optimizer:step()
  m.head:to "f32"
  assert(m.head.weight == w and m.emb.weight == w and w.dtype == "f32" and w.grad.dtype == "f32" and w.requires_grad)
  local before = w:detach():clone()
  optimizer:zero_grad()
  m.head(m.emb(accel.tensor { 1 })):sum():backward()
  optimizer:step()
  assert(calls == 2 and optimizer.state[w].exp_avg.dtype == "f32" and (w:detach() - before):abs():max():item() > 0.1)
  optimizer:zero_grad()
  m.head:to "meta"
  assert(m.head.weight == w and m.emb.weight == w and w.device == "meta" and w.requires_grad)
end

do -- frozen parameters stay parameters
  local m = nn.Linear(2, 2)
  m:requires_grad_(false)
  assert(#m:parameters() == 2 and not m.weight.requires_grad)
  m:to "f64"
  assert(#m:parameters() == 2 and not m.weight.requires_grad and m.weight.dtype == "f64")
  local f = nn.Module:extend "F"()
  f.w = nn.Parameter(accel.ones(2), false)
  assert(names(f:named_parameters()) == "w" and not f.w.requires_grad)
end

do -- state_dict shares bytes, load_state_dict copies and checks before it writes
  local a, b = nn.Linear(3, 2), nn.Linear(3, 2)
  local state = a:state_dict()
  assert(not state.weight.requires_grad)
  local result = b:load_state_dict(state)
  assert(#result.missing_keys == 0 and #result.unexpected_keys == 0)
  local x = accel.randn(4, 3)
  assert(a(x):eq(b(x)):to("f32"):sum():item() == 8)
  fails("missing 'bias'; unexpected 'bias2'", b.load_state_dict, b,
    { weight = state.weight, bias2 = state.bias })
  result = b:load_state_dict({ weight = state.weight, extra = state.bias }, false)
  assert(result.missing_keys[1] == "bias" and result.unexpected_keys[1] == "extra")
  local before = b.weight:tolist()
  fails("'weight' has shape %(2, 2%), the module needs %(2, 3%)", b.load_state_dict, b,
    { weight = accel.zeros(2, 2), bias = accel.zeros(2) }, { strict = false })
  fails("'bias' is a number", b.load_state_dict, b, { weight = accel.zeros(2, 3), bias = 3 })
  for i, row in ipairs(b.weight:tolist()) do
    for j, v in ipairs(row) do assert(v == before[i][j]) end
  end
  state.weight:fill_(3)
  assert(a.weight:tolist()[1][1] == 3, "the state shares the module's bytes")
end

do -- train, eval, apply
  local m = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)))
  assert(m.training and m[2][1].training)
  assert(m:eval() == m and not m.training and not m[1].training and not m[2][1].training)
  m:train()
  assert(m[2][1].training)
  local seen = {}
  m:apply(function(module) seen[#seen + 1] = tostring(module):match "^%w+" end)
  assert(table.concat(seen, " ") == "Dropout Dropout Sequential Sequential")
  local x = accel.ones(1000)
  assert(m:eval()(x) == x, "no dropout in eval mode")
end

do -- to: dtype for floating tensors only
  local m = nn.Module:extend "Mixed"()
  m.w = nn.Parameter(accel.ones(2))
  m:register_buffer("ids", accel.zeros(2, { dtype = "i64" }))
  m.w.grad = accel.ones(2)
  m:to { dtype = "bf16" }
  assert(m.w.dtype == "bf16" and m.w.is_leaf and m.w.grad.dtype == "bf16" and m.ids.dtype == "i64")
  m:float()
  assert(m.w.dtype == "f32")
  fails("'i64' is not a floating dtype", m.to, m, { dtype = "i64" })
end

do -- gradients, zero_grad
  local y = net(accel.randn(5, 3)):sum()
  y:backward()
  for name, p in net:named_parameters() do assert(p.grad, name) end
  net:zero_grad()
  for _, p in ipairs(net:parameters()) do assert(p.grad == nil) end
end

do -- forward hooks: see and replace, in order, until removed
  local m, log = nn.Linear(2, 2), {}
  local x = accel.ones(1, 2)
  local plain = m(x):tolist()
  local pre = m:register_forward_pre_hook(function(module, args)
    assert(module == m and #args == 1)
    log[#log + 1] = "pre"
    return { args[1] * 0 }
  end)
  local post = m:register_forward_hook(function(module, args, out)
    assert(module == m and args[1]:sum():item() == 0)
    log[#log + 1] = "post"
    return out + 1
  end)
  local bias = m.bias:tolist()
  local got = m(x):tolist()
  assert(math.abs(got[1][1] - (bias[1] + 1)) < 1e-6 and table.concat(log, " ") == "pre post")
  pre.remove()
  post.remove()
  got = m(x):tolist()
  assert(got[1][1] == plain[1][1] and #log == 2)
end

do -- a forward hook replaces several outputs by as many
  local m = nn.LSTM(2, 3)
  local x = accel.ones(1, 1, 2)
  local hook = m:register_forward_hook(function(_, _, y, h, c) return y * 0, h, c end)
  local out = table.pack(m(x))
  assert(out.n == 3 and out[1]:sum():item() == 0 and out[2]:sum():item() ~= 0)
  hook.remove()
  m:register_forward_hook(function() end)
  assert(select("#", m(x)) == 3)
end

do -- backward hooks: gradients of inputs and outputs, and replacing the former
  local m = nn.Linear(2, 1, { bias = false })
  accel.no_grad(function() m.weight:copy_(accel.tensor { { 2.0, 3.0 } }) end)
  local seen
  local handle = m:register_full_backward_hook(function(module, grad_in, grad_out)
    seen = { module, grad_in[1]:tolist(), grad_out[1]:tolist() }
    return grad_in[1] * 10
  end)
  local x = accel.ones(1, 2, { requires_grad = true });
  (m(x) * 5):sum():backward()
  assert(seen[1] == m and seen[3][1][1] == 5 and seen[2][1][1] == 10 and seen[2][1][2] == 15)
  assert(x.grad:tolist()[1][1] == 100 and m.weight.grad:tolist()[1][1] == 5)
  handle.remove()
  seen = nil
  m(x):sum():backward()
  assert(seen == nil)
end

do -- printing
  local m = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.ModuleList { nn.Embedding(5, 2), nn.LayerNorm(4) })
  assert(tostring(m) == [[
Sequential(
  (0): Linear(in_features=3, out_features=4, bias=true)
  (1): ReLU()
  (2): ModuleList(
    (0): Embedding(5, 2)
    (1): LayerNorm((4,), eps=1e-05, elementwise_affine=true, bias=true)
  )
)]], tostring(m))
end

do -- containers
  local list = nn.ModuleList { nn.Identity() }
  assert(#list == 1 and #list:append(nn.Identity()) == 2)
  fails("call its modules in a loop", list, accel.zeros(1))
  assert(#list:extend { nn.ReLU(), nn.Tanh() } == 4 and tostring(list[4]) == "Tanh()")
  assert(#nn.Sequential(nn.ReLU()):extend { nn.Tanh() } == 2 and #nn.ParameterList():extend { accel.ones(1) } == 1)
  local Stack = nn.ModuleList:extend("Stack")
  assert(#Stack { nn.ReLU() } == 1 and tostring(Stack()) == "Stack()")
  fails("ModuleList: expected a module, got 3", nn.ModuleList, { 3 })
  fails("got the class accel.nn.ReLU; did you forget '%(%)'%?", nn.Sequential, nn.Linear(2, 2), nn.ReLU)
  fails("did you forget '%(%)'", nn.Sequential, nn.ReLU)
  local chain = nn.Sequential(nn.ReLU())
  chain:register_buffer("seen", accel.ones(1)) -- belongs to the chain, is not a link of it
  assert(chain(accel.ones(2)):sum():item() == 2)
  fails("did you forget '%(%)'", nn.ModuleList, { nn.ReLU })
  fails("Sequential: expected a module, got nil", nn.Sequential, nn.ReLU(), nil, nn.ReLU())
  local dict = nn.ModuleDict { b = nn.Identity(), a = nn.Linear(1, 1) }
  dict:set("c", nn.ReLU())
  assert(table.concat(dict:keys(), " ") == "a b c" and #dict == 3 and dict.a.in_features == 1)
  assert(names(dict:state_dict()) == "a.weight a.bias")
  assert(#nn.Sequential { nn.ReLU(), nn.ReLU() } == 2)
end

do -- slips that would pass unseen, or end in a riddle
  fails("Sequential: expected a list of modules, got a table without %[1%]", nn.Sequential, { a = nn.Identity() })
  local net = nn.Linear(1, 1)
  fails("parameters: use m:parameters%(%), with a colon", net.parameters)
  fails("train: use m:train%(%), with a colon", net.train)
  fails("train: use m:train%(%), with a colon", net.train, false)
  fails("eval: use m:eval%(%), with a colon", net.eval)
  fails("named_parameters: use m:named_parameters%(%), with a colon", net.named_parameters)
  fails("Module:to: unknown option 'dtpe'; did you mean 'dtype'", net.to, net, { dtpe = "f16" })
  fails("train: mode must be a boolean, got 'no'", net.train, net, "no")
  net:register_buffer("kept", accel.ones(1), { persistent = true })
  net:register_buffer("dropped", accel.ones(1), { persistent = false })
  assert(net:state_dict().kept and not net:state_dict().dropped)
  fails("register_buffer: unknown option 'persist'", net.register_buffer, net, "b", accel.ones(1), { persist = false })
  fails("clip_grad_norm_: expected a list of parameters, net:parameters%(%), got a module", nn.utils.clip_grad_norm_, net, 1)
  fails("clip_grad_value_: expected a list of parameters, net:parameters%(%), got parameters by name",
    nn.utils.clip_grad_value_, net:named_parameters(), 1)
end

do -- every loop over a list, or over a table by name, begins at the first entry: after break, and when nested
  local net = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
  for _, what in ipairs { "parameters", "named_parameters", "modules", "state_dict" } do
    local list, n, pairs_seen = net[what](net), 0, 0
    for _ in list do n = n + 1 end
    for _ in list do break end
    for _ in list do pairs_seen = pairs_seen + 1 end
    assert(pairs_seen == n and n >= 3, what)
    for _ in list do
      for _ in list do pairs_seen = pairs_seen + 1 end
      assert(pairs_seen <= n + n * n, what)
    end
    assert(pairs_seen == n + n * n, what)
    local first, second = list(), list() -- called by hand
    assert(first ~= nil and second ~= nil and first ~= second, what)
  end
end
