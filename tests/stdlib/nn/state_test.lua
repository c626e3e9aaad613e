--- nn.Module: loading states, their hooks, deep copies, weight norm and parametrisations.
local accel = require "accel"
local nn = accel.nn
local utils = nn.utils

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

local function equal(a, b) return a.dtype == b.dtype and (a:to "f64" - b:to "f64"):abs():sum():item() == 0 end

local function differs_everywhere(a, b)
  for name, t in pairs(a:state_dict()) do
    if equal(t, b:state_dict()[name]) then return false end
  end
  return true
end

do -- one error names all that is wrong, and nothing was copied
  local m = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
  local before = m[1].weight:clone()
  local state = {
    ["0.weight"] = accel.zeros(3, 3), ["0.bias"] = accel.zeros(3), ["1.weight"] = accel.zeros(1, 3),
    ["2.bias"] = accel.zeros(1),
  }
  fails("load_state_dict of accel.nn.Sequential: missing '1.bias'; unexpected '2.bias'; '0.weight' has shape "
    .. "%(3, 3%), the module needs %(3, 2%); is '2.bias' meant to be '1.bias'%?", m.load_state_dict, m, state)
  assert(equal(m[1].weight, before))
  fails("^[^:]*state_test.lua:%d+: .*'0.weight' has shape %(3, 3%)", function()
    m:load_state_dict(state, { strict = false })
  end)
  state["0.weight"] = nil
  local result = m:load_state_dict(state, { strict = false })
  assert(table.concat(result.missing_keys, " ") == "0.weight 1.bias")
  assert(table.concat(result.unexpected_keys, " ") == "2.bias" and m[2].weight:sum():item() == 0)
  fails("every unexpected name begins with 'module.': strip it", m.load_state_dict, m, (function()
    local wrapped = {}
    for name, t in pairs(m:state_dict()) do wrapped["module." .. name] = t end
    return wrapped
  end)())
  fails("unknown option 'strikt'; did you mean 'strict'", m.load_state_dict, m, {}, { strikt = false })
  fails("expected a table of tensors, got nil", m.load_state_dict, m)
  local many = {}
  for i = 1, 60 do many[("x%02d"):format(i)] = accel.zeros(1) end
  fails("'x40', ... %(60 in all%)", nn.ReLU().load_state_dict, nn.ReLU(), many)
  local state2 = m:state_dict()
  utils.consume_prefix_in_state_dict_if_present(state2, "0.")
  assert(names(state2) == "1.weight 1.bias bias weight", names(state2))
end

do -- states of norms that did not count their batches yet fit
  local m = nn.BatchNorm1d(2)
  m(accel.tensor { { 1.0, 2.0 }, { 3.0, 5.0 } })
  local old = {}
  for name, t in pairs(nn.BatchNorm1d(2):state_dict()) do old[name] = name ~= "num_batches_tracked" and t or nil end
  assert(#m:load_state_dict(old).missing_keys == 0 and m.running_mean:sum():item() == 0)
  assert(m.num_batches_tracked:item() == 1)
  old.running_var = nil
  fails("missing 'running_var'$", m.load_state_dict, m, old)
end

do -- assign: the given tensors take the places, with their dtype; ties and requires_grad stay
  local m = nn.Module:extend "Tied"()
  m.emb = nn.Embedding(4, 2)
  m.head = nn.Linear(2, 4, { bias = false })
  m.head.weight = m.emb.weight
  m:register_buffer("seen", accel.zeros(2))
  m.emb.weight:requires_grad_(false)
  local w, seen = accel.ones(4, 2, { dtype = "bf16" }), accel.ones(2, { dtype = "f64" })
  m:load_state_dict({ ["emb.weight"] = w, ["head.weight"] = w, seen = seen }, { assign = true })
  assert(m.emb.weight == m.head.weight and m.emb.weight.dtype == "bf16" and m.seen.dtype == "f64")
  assert(not m.emb.weight.requires_grad and #m:parameters() == 1)
  w:fill_(3)
  assert(m.head.weight:to("f32"):sum():item() == 24, "bytes are shared")
  local on_meta = nn.Linear(2, 3, { device = "meta" })
  on_meta:load_state_dict(nn.Linear(2, 3):state_dict(), { assign = true })
  assert(on_meta.weight.device == "cpu" and on_meta(accel.ones(1, 2)):size(2) == 3)
end

do -- hooks around states
  local m, log = nn.Sequential(nn.Linear(2, 2)), {}
  m[1]:register_state_dict_pre_hook(function(module, prefix)
    assert(module == m[1])
    log[#log + 1] = "pre " .. prefix
  end)
  m[1]:register_state_dict_post_hook(function(_, state, prefix)
    log[#log + 1] = "post " .. prefix
    state[prefix .. "extra"] = accel.ones(1)
  end)
  local state = m:state_dict "net."
  assert(table.concat(log, ", ") == "pre net.0., post net.0." and names(state) == "net.0.weight net.0.bias net.0.extra")
  local rename = m[1]:register_load_state_dict_pre_hook(function(_, old, prefix)
    old[prefix .. "weight"], old[prefix .. "kernel"] = old[prefix .. "kernel"], nil
  end)
  local result
  m:register_load_state_dict_post_hook(function(module, r)
    assert(module == m)
    result = r
  end)
  local file = { ["0.kernel"] = accel.ones(2, 2), ["0.bias"] = accel.ones(2) }
  m:load_state_dict(file)
  assert(m[1].weight:sum():item() == 4 and file["0.kernel"] and #result.missing_keys == 0)
  rename.remove()
  fails("missing '0.weight'; unexpected '0.kernel'", m.load_state_dict, m, file)
end

do -- deep copies: values equal, bytes apart, ties and modes kept, hooks gone
  local Net = nn.Module:extend "Net"
  function Net:init()
    self.emb = nn.Embedding(5, 3)
    self.body = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.3))
    self.again = self.body[1]
    self.head = nn.Linear(3, 5, { bias = false })
    self.head.weight = self.emb.weight
    self:register_buffer("mask", accel.ones(3), false)
    self.plain, self.note = accel.zeros(2), { deep = { accel.ones(1) } }
    self.note.self = self
  end
  function Net:forward(ids) return self.head(self.again(self.body(self.emb(ids)))) end
  local net = Net()
  local ids = accel.tensor { 0, 1, 4 }
  net(ids):sum():backward()
  net.body[1].bias:requires_grad_(false)
  local called = 0
  net:register_forward_hook(function() called = called + 1 end)
  net:eval()
  local copy = net:clone()
  assert(names(copy:named_parameters()) == names(net:named_parameters()))
  assert(names(copy:named_buffers()) == names(net:named_buffers()))
  assert(names(copy:state_dict()) == names(net:state_dict()))
  local want = net(ids)
  assert(equal(copy(ids), want) and called == 1 and not copy.training and copy:isinstance(Net))
  assert(copy.head.weight == copy.emb.weight and copy.again == copy.body[1] and copy.note.self == copy)
  assert(copy.head.weight ~= net.head.weight and copy.note.deep ~= net.note.deep)
  assert(equal(copy.emb.weight.grad, net.emb.weight.grad) and not copy.body[1].bias.requires_grad)
  for _, p in ipairs(copy:parameters()) do
    p:detach():fill_(7)
    if p.grad then p.grad:fill_(7) end
  end
  for _, b in ipairs(copy:buffers()) do b:fill_(5) end
  copy.plain:fill_(9)
  copy.note.deep[1]:fill_(9)
  assert(equal(net(ids), want) and net.plain:sum():item() == 0 and net.note.deep[1]:item() == 1)
  assert(differs_everywhere(net, copy) and net.emb.weight.grad:max():item() ~= 7)
  copy:train()
  assert(not net.training and not net.body[3].training and copy.body[3].training)
  copy.extra = nn.Linear(1, 1)
  assert(not net.extra and #copy:parameters() == #net:parameters() + 2)
  fails("cannot assign a plain tensor to parameter 'weight'", function() copy.head.weight = accel.zeros(5, 3) end)
end

do -- deepcopy of other values
  local leaf = accel.ones(2, { requires_grad = true })
  local a = { leaf = leaf, result = leaf * 2, same = leaf, fn = print, list = { 1, { "x" } }, lib = nn }
  a.cycle = a
  local b = accel.deepcopy(a)
  assert(b.cycle == b and b.leaf == b.same and b.leaf ~= a.leaf and b.fn == print and b.lib == nn)
  assert(b.leaf.requires_grad and b.result.is_leaf and equal(b.result, a.result) and b.list[2][1] == "x")
  assert(b.list ~= a.list and accel.deepcopy(3) == 3 and accel.deepcopy "x" == "x")
  local state = nn.Linear(2, 2):state_dict()
  local copy = accel.deepcopy(state)
  assert(names(copy) == "weight bias" and copy.weight ~= state.weight and equal(copy.weight, state.weight))
  local weak = setmetatable({ 1 }, { __mode = "k" })
  assert(getmetatable(accel.deepcopy(weak)) == getmetatable(weak))
end

do -- weight norm: same function, other parameters; copies compute for themselves; and back
  local m = nn.Linear(3, 2)
  local x = accel.randn(4, 3)
  local want = m(x)
  assert(utils.weight_norm(m) == m and names(m:named_parameters()) == "bias weight_g weight_v")
  assert((m(x) - want):abs():max():item() < 1e-6 and not nn.Parameter.is(m.weight))
  local copy = m:clone()
  accel.no_grad(function() copy.weight_g:mul_(2) end)
  assert((copy(x) - copy.bias - (want - m.bias) * 2):abs():max():item() < 1e-5)
  assert((m(x) - want):abs():max():item() < 1e-6)
  m(x):sum():backward()
  assert(m.weight_g.grad and m.weight_v.grad)
  utils.remove_weight_norm(m)
  assert(names(m:named_parameters()) == "bias weight" and (m(x) - want):abs():max():item() < 1e-6)
  assert(m.weight_g == nil and nn.Parameter.is(m.weight))
  m.weight = nn.Parameter(accel.zeros(2, 3))
  assert(m(x):sub(m.bias):abs():max():item() == 0, "nothing recomputes it any more")
  fails("'weight' of the module has no weight norm", utils.remove_weight_norm, m)
  fails("the module has no parameter 'wait'", utils.weight_norm, m, "wait")
  fails("dim 3 is out of range for 2 dimensions", utils.weight_norm, m, { dim = 3 })
end

do -- parametrisations
  local parametrize = utils.parametrize
  local Symmetric = nn.Module:extend "Symmetric"
  function Symmetric.forward(_, w) return w:triu() + w:triu(1):transpose(1, 2) end
  local m = nn.Linear(3, 3, { bias = false })
  local original = m.weight
  parametrize.register_parametrization(m, "weight", Symmetric())
  assert(names(m:named_parameters()) == "parametrizations.weight.original" and m:parameters()[1] == original)
  assert(equal(m.weight, m.weight:t()) and parametrize.is_parametrized(m, "weight"))
  accel.no_grad(function() original:fill_(2) end)
  assert(m(accel.ones(1, 3)):sum():item() == 18 and m.weight:sum():item() == 18)
  local Double = nn.Module:extend "Double"
  function Double.forward(_, w) return w * 2 end
  parametrize.register_parametrization(m, "weight", Double())
  assert(m(accel.ones(1, 3)):sum():item() == 36)
  local copy = m:clone()
  accel.no_grad(function() copy.parametrizations.weight.original:fill_(1) end)
  assert(copy(accel.ones(1, 3)):sum():item() == 18 and m(accel.ones(1, 3)):sum():item() == 36)
  parametrize.remove_parametrizations(m, "weight")
  assert(names(m:named_parameters()) == "weight" and m.weight:sum():item() == 36 and not parametrize.is_parametrized(m))
  parametrize.remove_parametrizations(copy, "weight", false)
  assert(copy.weight:sum():item() == 9 and names(copy:named_modules()) == "")
  fails("'bias' of the module is not parametrised", parametrize.remove_parametrizations, m, "bias")
  fails("the module has no parameter 'bias'", parametrize.register_parametrization, m, "bias", Double())
  local spectral = utils.parametrizations.spectral_norm(nn.Linear(4, 3), { n_power_iterations = 20 })
  spectral(accel.ones(1, 4))
  local w = spectral.weight:detach():to "f64"
  local v = accel.ones(4, { dtype = "f64" })
  for _ = 1, 200 do
    v = w:t():matmul(w:matmul(v))
    v = v / accel.norm(v)
  end
  assert(math.abs(accel.norm(w:matmul(v)):item() - 1) < 1e-3, "the largest singular value is 1")
end

do -- tensors by name
  local m = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3)))
  assert(m:get_parameter "0.weight" == m[1].weight and m[2]:get_parameter "0.bias" == m[2][1].bias)
  assert(m:get_buffer "1.0.running_var" == m[2][1].running_var and m[1]:get_parameter "bias" == m[1].bias)
  fails("accel.nn.Linear has no parameter 'wait'", m.get_parameter, m, "0.wait")
  fails("accel.nn.Linear has no buffer 'weight'", m.get_buffer, m, "0.weight")
  fails("has no module '5'", m.get_parameter, m, "5.weight")
end

do -- parameters as one vector
  local m = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
  local v = utils.parameters_to_vector(m:parameters())
  assert(v:numel() == 13)
  v:sum():backward()
  assert(m[1].weight.grad:sum():item() == 6)
  utils.vector_to_parameters(accel.arange(13):to "f32", m:parameters())
  assert(m[1].weight:tolist()[3][2] == 5 and m[2].bias:item() == 12 and m[1].weight.requires_grad)
  fails("12 elements do not fit parameters of 13", utils.vector_to_parameters, accel.ones(12), m:parameters())
  fails("expected a tensor of rank 1, got shape %(2, 2%)", utils.vector_to_parameters, accel.ones(2, 2), {})
  fails("the list has no parameters", utils.parameters_to_vector, {})
end

do -- lists and dictionaries of parameters
  local list = nn.ParameterList { accel.ones(2), nn.Parameter(accel.zeros(3)) }
  list:append(accel.ones(1))
  assert(#list == 3 and names(list:state_dict()) == "0 1 2" and nn.Parameter.is(list[1]))
  local n = 0
  for _, p in ipairs(list) do n = n + p:numel() end
  assert(n == 6 and #list:clone() == 3)
  fails("ParameterList: expected a tensor, got 3", list.append, list, 3)
  local dict = nn.ParameterDict { b = accel.ones(2), a = accel.ones(1) }
  dict:set("c", accel.ones(3))
  assert(table.concat(dict:keys(), " ") == "a b c" and #dict == 3 and dict.b:numel() == 2)
  assert(names(dict:named_parameters()) == "a b c")
end

do -- containers change their members
  local seq = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
  seq:insert(1, nn.Linear(3, 2))
  assert(#seq == 3 and seq(accel.ones(4, 3)):size(2) == 2 and names(seq:state_dict()):find "^0.weight 0.bias 1.weight")
  assert(seq:pop():isinstance(nn.ReLU) and seq:pop(1).in_features == 3 and #seq == 1)
  seq:append(nn.Linear(2, 7)):add_module("last", nn.Linear(7, 5))
  assert(seq(accel.ones(4, 2)):size(2) == 5 and names(seq:named_children()) == "0 1 last")
  local list = nn.ModuleList { nn.ReLU(), nn.ReLU(), nn.Tanh() }
  assert(tostring(list) == "ModuleList(\n  (0-1): 2 x ReLU()\n  (2): Tanh()\n)", tostring(list))
  list:insert(2, nn.Sigmoid())
  assert(#list == 4 and list[2]:isinstance(nn.Sigmoid) and list:pop(2):isinstance(nn.Sigmoid) and #list == 3)
  fails("ModuleList: place must be 1 .. 4, got 9", list.insert, list, 9, nn.ReLU())
  fails("ModuleList: no module at place 7 of 3", list.pop, list, 7)
end

-- a copy reads what a module's list of names holds, not what it claims to hold
do
  local m = nn.Linear(2, 3)
  local names = rawget(m, "_order")
  rawset(m, "_order", setmetatable({}, { __len = function() return math.maxinteger // 2 end, __index = names }))
  assert(rawequal(m:clone().weight.shape[1], 3))
end
