-- Optimizers made before a module is converted or moved step on what takes the places of its parameters, with their states: as an optimizer
-- that is made afterwards and loads the states. Tied, frozen and foreign parameters, groups, rules with numbers, load_state_dict { assign }.
--   accel-run tests/stdlib/optim/replaced_test.lua
local accel = require "accel"
local nn, optim = accel.nn, accel.optim

local function net()
  accel.manual_seed(5)
  local m = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 2))
  m[3].weight = m[1].weight -- tied
  m[4].bias:requires_grad_(false)
  return m
end

local extra = accel.ones(2, { requires_grad = true })

local function groups(m)
  return { { params = { m[1].weight, m[1].bias } }, { params = { m[3].bias, m[4].weight, extra }, lr = 0.05 } }
end

local function step(m, o, s)
  local dtype = m[1].weight.dtype
  local x = accel.randn(3, 4, { generator = accel.Generator(s) }):to(dtype)
  o:zero_grad();
  (m(x) * extra:to(dtype)):pow(2):sum():backward()
  o:step()
end

local makers = { AdamW = { lr = 0.01 }, SGD = { lr = 0.01, momentum = 0.9 }, NAdam = { lr = 0.01 }, Adafactor = { lr = 0.01 } }
for name, opts in accel.pairs(makers) do
  local function run(follow, convert)
    accel.no_grad(function() extra:fill_(1) end)
    local m = net()
    local o = optim[name](groups(m), opts)
    for s = 1, 3 do step(m, o, s) end
    local dict = o:state_dict()
    convert(m)
    if not follow then
      o = optim[name](groups(m), opts)
      o:load_state_dict(dict)
    end
    for s = 4, 6 do step(m, o, s) end
    return m, o
  end
  for what, convert in accel.pairs {
    f64 = function(m) m:to "f64" end, part = function(m) m[4]:double() m[1]:double() m[3]:double() end,
    same = function(m) m:to "f32" end,
    assign = function(m)
      local state = {}
      for key, t in pairs(m:state_dict()) do state[key] = t:clone() end
      m:load_state_dict(state, { assign = true })
    end,
  } do
    local made, followed = run(false, convert), run(true, convert)
    for key, t in pairs(made:state_dict()) do
      assert(t:equal(followed:state_dict()[key]), ("%s, %s: '%s' differs"):format(name, what, key))
    end
  end
  local m, o = run(true, function(m) m:to "f64" end)
  local held = {}
  for _, group in ipairs(o.param_groups) do
    for _, p in ipairs(group.params) do held[p] = true end
  end
  for key, p in pairs(m:named_parameters()) do assert(held[p] or not p.requires_grad, key .. " is not stepped on") end
  assert(held[extra])
end
