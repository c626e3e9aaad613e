-- Options of the methods of nn.Module, nn.init and nn.utils: each one changes what is seen, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/nn_tools_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local nn = accel.nn
local s = sweep.folder("nn", function(entry)
  return entry.name:find "^accel%.nn%.Module[:.]?" and not entry.name:find "ModuleList" and not entry.name:find "ModuleDict"
    or entry.name:find "^accel%.nn%.init%." or entry.name:find "^accel%.nn%.utils%." or entry.name:find "^accel%.nn%.Parameter[:.]"
    or entry.name == "accel.nn.deepcopy"
end)

local function net()
  local m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
  m:register_buffer("own", accel.ones(1))
  m:register_parameter("scale", nn.Parameter(accel.ones(1)))
  return m
end
local function names(map)
  local list = {}
  for name in map do list[#list + 1] = name end
  return list
end

-- ---- methods of modules ----
s:recipe("accel.nn.Module:load_state_dict", {
  base = function()
    local state = net():state_dict()
    return { state = state }
  end,
  run = function(call, given)
    local m, state = net(), given.state
    if given.strict ~= nil then state.own = nil end
    local ok, result = pcall(call, m)
    if not ok and given.strict == nil then error(result, 0) end
    return ok, ok and result, m:state_dict(), m.own == state.own, m.scale:to "f64" == state.scale, rawequal(m.scale, state.scale),
      m.scale:detach():add_(1) and state.scale
  end,
  with = { strict = { strict = true } }, values = { strict = { false }, assign = { true } },
})
local function listed(call) return names(call(net())) end
local walks = { values = { prefix = { "model" }, recurse = { false } } }
for _, name in ipairs { "named_modules", "named_parameters", "named_buffers" } do
  s:recipe("accel.nn.Module:" .. name, { run = listed, values = walks.values })
end
for _, name in ipairs { "parameters", "buffers" } do
  s:recipe("accel.nn.Module:" .. name, { run = function(call) return #call(net()) end, values = walks.values })
end
s:recipe("accel.nn.Module:state_dict", { run = function(call) return call(net()) end, values = walks.values })
s:recipe("accel.nn.Module:register_buffer", {
  base = function() return { name = "extra", t = accel.ones(2) } end,
  run = function(call)
    local m = net()
    call(m)
    return m:state_dict(), #m:buffers()
  end,
  values = { persistent = { false } },
})
s:recipe("accel.nn.Module:train", { run = function(call) return call(net():eval()).training end, values = { mode = { false } } })
s:recipe("accel.nn.Module:to", {
  base = function() return { what = "f32" } end,
  run = function(call, given)
    given.what = nil
    if next(given) == nil then return net():state_dict() end
    return call(net()):state_dict()
  end,
})
local function order_of(kind, use)
  return function(call, given)
    local log, m = {}, nn.Linear(2, 2)
    m["register_" .. kind .. "_hook"](m, function() log[#log + 1] = "first" end)
    given.fn = function() log[#log + 1] = "second" end
    call(m)
    local twin = m:clone()
    use(m)
    log[#log + 1] = "clone"
    use(twin)
    return log
  end
end
local function forward(m) m(accel.ones(1, 2)) end
for kind, use in pairs {
  forward = forward, forward_pre = forward, full_backward = function(m) m(accel.ones(1, 2, { requires_grad = true })):sum():backward() end,
  state_dict_pre = function(m) m:state_dict() end, state_dict_post = function(m) m:state_dict() end,
  load_state_dict_pre = function(m) m:load_state_dict(m:state_dict()) end,
  load_state_dict_post = function(m) m:load_state_dict(m:state_dict()) end,
} do
  s:recipe("accel.nn.Module:register_" .. kind .. "_hook", { run = order_of(kind, use), values = { prepend = { true }, copied = { true } } })
end

-- ---- init ----
local function filled(shape, more)
  local recipe = { base = function()
    local base = { t = accel.zeros(shape) }
    for key, value in pairs(more and more.base or {}) do base[key] = value end
    return base
  end, values = setmetatable({ generator = { accel.Generator(99) } }, { __index = more and more.values }), with = more and more.with }
  recipe.run = function(call, given)
    if given.generator then given.generator = accel.Generator(99) end
    return call(), given.t
  end
  return recipe
end
s:recipe({ "accel.nn.init.normal_", "accel.nn.init.orthogonal_", "accel.nn.init.xavier_normal_", "accel.nn.init.xavier_uniform_" },
  filled { 4, 6 })
s:recipe("accel.nn.init.uniform_", filled({ 4, 6 }, { values = { low = { -1 }, high = { 3 } } }))
s:recipe("accel.nn.init.trunc_normal_", filled({ 4, 6 }, { values = { low = { -1 }, high = { 1 } } }))
s:recipe("accel.nn.init.sparse_", filled({ 4, 6 }, { base = { sparsity = 0.5 } }))
s:recipe("accel.nn.init.dirac_", filled({ 4, 2, 3 }, { values = { groups = { 2 } } }))
s:recipe({ "accel.nn.init.kaiming_normal_", "accel.nn.init.kaiming_uniform_" },
  filled({ 4, 6 }, { values = { a = { 0.5 }, mode = { "fan_out" }, nonlinearity = { "linear", "tanh" } } }))
s:recipe("accel.nn.init.calculate_gain", { base = function() return { nonlinearity = "leaky_relu" } end, values = { a = { 0.5 } } })

-- ---- utils ----
s:recipe("accel.nn.utils.clip_grad_norm_", {
  base = function()
    local p = accel.ones(3, { requires_grad = true })
    p.grad = accel.tensor { 3.0, 4.0, 1.0 }
    return { params = { p }, max_norm = 0.5 }
  end,
  run = function(call, given)
    local p = given.params[1]
    if given.optimizer then given.optimizer = accel.optim.SGD(p, { lr = 1 }) end
    if given.error_if_nonfinite ~= nil then p.grad:fill_(1 / 0) end
    local ok, norm = pcall(call)
    if not ok and given.error_if_nonfinite == nil then error(norm, 0) end
    return ok, ok and norm, p.grad
  end,
  values = { norm_type = { 1, math.huge }, optimizer = { true } },
  with = { error_if_nonfinite = { error_if_nonfinite = false } },
})
s:recipe("accel.nn.utils.rnn.pad_sequence", {
  base = function() return { sequences = { accel.ones(3, 2), accel.ones(1, 2) } } end,
  values = { padding_value = { 7 }, padding_side = { "left" } },
})
s:recipe("accel.nn.utils.rnn.unpad_sequence", {
  base = function() return { padded = accel.arange(12):reshape(3, 2, 2):to "f32", lengths = { 2, 1 } } end,
})
local function observed(call, given)
  given.module = given.module or nn.Linear(3, 4)
  if given.name == "other" then given.module:register_parameter("other", nn.Parameter(accel.ones(4, 4))) end
  local m = call()
  return require "option_observer".layer(type(m) == "table" and m or given.module, accel.ones(2, 3))
end
local parametrised = { run = observed, values = { name = { "other" }, dim = { 2 }, n_power_iterations = { 3 }, eps = { 10 } } }
s:recipe({ "accel.nn.utils.weight_norm", "accel.nn.utils.parametrizations.weight_norm", "accel.nn.utils.parametrizations.spectral_norm" },
  parametrised)
local function with_norm() return nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)) end
s:recipe("accel.nn.utils.parametrize.is_parametrized", { base = function() return { module = with_norm() } end, values = { name = { "bias" } } })
s:recipe("accel.nn.utils.parametrize.remove_parametrizations", {
  base = function() return { module = with_norm(), name = "weight" } end,
  run = function(call) return call().weight end,
  values = { leave_parametrized = { false } },
})
s:recipe("accel.nn.utils.remove_weight_norm", {
  base = function()
    local m = nn.utils.weight_norm(nn.Linear(3, 4))
    m:register_parameter("other", nn.Parameter(accel.ones(4, 4)))
    return { module = nn.utils.weight_norm(m, "other") }
  end,
  run = function(call) return call():state_dict() end, values = { name = { "other" } },
})

s:recipe("accel.nn.utils.spectral_norm", parametrised)
s:recipe("accel.nn.utils.remove_spectral_norm", {
  base = function()
    local m = nn.utils.spectral_norm(nn.Linear(3, 4))
    m:register_parameter("other", nn.Parameter(accel.eye(4, 4)))
    return { module = nn.utils.spectral_norm(m, "other") }
  end,
  run = function(call)
    local names_ = {}
    for name in call():named_parameters() do names_[#names_ + 1] = name end
    return names_
  end, values = { name = { "other" } },
})
s:recipe("accel.nn.utils.parametrizations.orthogonal", { run = function(call, given)
  given.module = given.module or nn.Linear(3, 4)
  if given.name == "other" then given.module:register_parameter("other", nn.Parameter(accel.eye(4, 4))) end
  accel.no_grad(function() given.module.weight:copy_(accel.arange(12):to "f32":sin():reshape(4, 3)) end)
  call()
  for _, p in ipairs(given.module:parameters()) do accel.no_grad(function() p:add_(0.1) end) end
  given.module(accel.ones(1, 3))
  return given.module.weight, given.module:state_dict()
end, values = { name = { "other" }, orthogonal_map = { "matrix_exp" }, use_trivialization = { false } } })
s:recipe("accel.nn.utils.fuse_conv_bn_eval", {
  base = function() return { conv = nn.ConvTranspose1d(2, 2, 1):eval(), bn = nn.BatchNorm1d(2):eval() } end,
  run = function(call, given)
    accel.no_grad(function() given.bn.running_var:copy_(accel.tensor { 1.0, 4 }) end)
    return call().weight
  end,
})
s:recipe("accel.nn.utils.fuse_conv_bn_weights", { base = function()
  return { weight = accel.ones(2, 2, 1), running_mean = accel.zeros(2), running_var = accel.tensor { 1.0, 4 }, eps = 0 }
end, values = { transpose = { true } } })
s:recipe("accel.nn.utils.get_total_norm", {
  base = function() return { list = { accel.tensor { 3.0, 4.0 } } } end,
  run = function(call, given)
    if given.error_if_nonfinite ~= nil then given.list[1]:fill_(1 / 0) end
    local ok, norm_ = pcall(call)
    if not ok and given.error_if_nonfinite == nil then error(norm_, 0) end
    return ok, ok and norm_
  end,
  values = { norm_type = { 1 } }, with = { error_if_nonfinite = { error_if_nonfinite = false } },
})
-- ---- pruning ----
local Q = "accel.nn.utils.prune."
-- by the sum of squares the second row is the smallest, by magnitudes the first, by scores the third
local weights = accel.tensor { { 3.0, 0, 0 }, { 2, 2, 0 }, { 5, 5, 5 }, { 6, 6, 6 } }
local scores = accel.tensor { { 3.0, 4, 5 }, { 6, 6, 6 }, { 1, 1, 0.5 }, { 7, 7, 7 } }
local function pruned(call, given)
  accel.manual_seed(3)
  given.module = nn.Linear(3, 4)
  accel.no_grad(function() given.module.weight:copy_(weights) end)
  call()
  return given.module.weight_mask
end
local amounts = { values = { amount = { 0.9 }, importance_scores = { scores }, dim = { 1 }, n = { 1 } }, run = pruned,
  base = function() return { name = "weight", amount = 1 } end }
s:recipe({ Q .. "l1_unstructured", Q .. "random_unstructured", Q .. "random_structured" }, amounts)
s:recipe(Q .. "ln_structured", { values = { amount = { 2 }, importance_scores = { scores }, dim = { 2 }, n = { 1 } }, run = pruned,
  base = function() return { name = "weight", amount = 1, n = 2, dim = 1 } end })
s:recipe(Q .. "global_unstructured", {
  base = function() return { pruning_method = nn.utils.prune.L1Unstructured, amount = 3 } end,
  run = function(call, given)
    local m = nn.Linear(3, 4)
    accel.no_grad(function() m.weight:copy_(weights) end)
    given.parameters = { { m, "weight" } }
    call()
    return m.weight_mask
  end,
  values = { amount = { 0.5 }, importance_scores = { { scores } } },
})
local function by_method(call, given)
  accel.manual_seed(3)
  local m = nn.Linear(3, 4)
  accel.no_grad(function() m.weight:copy_(weights) end)
  call():apply(m, "weight")
  return m.weight_mask
end
s:recipe({ Q .. "L1Unstructured", Q .. "RandomUnstructured", Q .. "RandomStructured" }, {
  base = function() return { amount = 1 } end, run = by_method, values = { amount = { 2 }, dim = { 1 } },
})
s:recipe(Q .. "LnStructured", {
  base = function() return { amount = 1, dim = 1 } end, run = by_method, values = { amount = { 2 }, dim = { 2 }, n = { 1 } },
})
s:recipe(Q .. "CustomFromMask", {
  base = function() return { mask = accel.ones(4, 3) } end, run = by_method, values = { mask = { accel.zeros(4, 3) } },
})
s:recipe(Q .. "Identity", { run = by_method })
s:recipe(Q .. "BasePruningMethod:apply", { base = function() return { module = nn.Linear(3, 4), name = "weight" } end, run = function(call, given)
  accel.no_grad(function() given.module.weight:copy_(weights) end)
  call(nn.utils.prune.L1Unstructured(1))
  return given.module.weight_mask
end, values = { importance_scores = { scores } } })
-- ---- packed sequences ----
local R = "accel.nn.utils.rnn."
local padded = accel.arange(6):to "f32":reshape(3, 2)
s:recipe(R .. "pack_padded_sequence", { base = function() return { input = padded, lengths = { 2, 2 } } end, run = function(call, given)
  if given.batch_first then given.input = accel.ones(2, 3) end
  local p = call()
  return p.data, p.batch_sizes, p.sorted_indices ~= nil
end })
s:recipe(R .. "pack_sequence", { base = function() return { sequences = { accel.ones(2), accel.ones(1) } } end,
  run = function(call) return call().sorted_indices ~= nil end })
s:recipe(R .. "pad_packed_sequence", { base = function() return { sequence = nn.utils.rnn.pack_padded_sequence(padded, { 3, 1 }) } end,
  values = { padding_value = { 7.0 }, total_length = { 5 } } })
s:recipe(R .. "PackedSequence", { base = function() return { data = accel.ones(2), batch_sizes = accel.tensor { 2 } } end,
  run = function(call)
    local p = call()
    return p.sorted_indices, p.unsorted_indices
  end,
  values = { sorted_indices = { accel.tensor { 1, 0 } }, unsorted_indices = { accel.tensor { 1, 0 } } } })
s:leave({ R .. "PackedSequence:to" }, "its options are Tensor:to's: tests/options/ops_test.lua")
s:leave({ "accel.nn.utils.skip_init" }, "its arguments are those of the class that it is given")

s:recipe("accel.nn.Module:requires_grad_", { values = { on = { false } }, run = function(call)
  local m = nn.Linear(1, 1)
  call(m)
  return m.weight.requires_grad
end })
s:finish()
