--- Learning-rate schedules against the rates that PyTorch and Transformers used
--- (reference/ops/manifest.json).
local accel = require "accel"
local optim = accel.optim
local S = optim.lr_scheduler

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local file = assert(io.open(os.getenv "ACCEL_TEST_SRC" .. "/tests/reference/ops/manifest.json", "rb"))
local manifest = accel.json.decode(file:read "a")
file:close()

local function optimizer()
  return optim.SGD({ accel.zeros(1, { requires_grad = true }) }, { lr = manifest.schedules_base_lr })
end

local function named(name)
  return function(o) return S.get_scheduler(name, o, { num_warmup_steps = 6, num_training_steps = 36 }) end
end

local makers = {
  ["ConstantLR(factor=0.25, total_iters=6)"] = function(o) return S.ConstantLR(o,
    { factor = 0.25, total_iters = 6 }) end,
  ["LinearLR(start_factor=0.1, end_factor=1.0, total_iters=10)"] = function(o)
    return S.LinearLR(o, { start_factor = 0.1, end_factor = 1.0, total_iters = 10 })
  end,
  ["CosineAnnealingLR(T_max=30, eta_min=0.01)"] = function(o)
    return S.CosineAnnealingLR(o, { T_max = 30, eta_min = 0.01 })
  end,
  ["LambdaLR(0.95^step)"] = function(o) return S.LambdaLR(o, function(step) return 0.95 ^ step end) end,
  ["SequentialLR(LinearLR(0.1,1.0,10) then CosineAnnealingLR(T_max=30), milestones={10})"] = function(o)
    local warm = S.LinearLR(o, { start_factor = 0.1, end_factor = 1.0, total_iters = 10 })
    return S.SequentialLR(o, { warm, S.CosineAnnealingLR(o, { T_max = 30 }) }, { 10 })
  end,
}
for _, name in ipairs {
  "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup",
    "inverse_sqrt",
} do
  makers[("get_scheduler(%s, num_warmup_steps=6, num_training_steps=36)"):format(name)] = named(name)
end

for name, make in pairs(makers) do
  local want = assert(manifest.schedules[name], name)
  local o = optimizer()
  local schedule = make(o)
  for step = 0, #want - 1 do
    if step == 17 then -- a schedule that is resumed goes on the same way
      local state = schedule:state_dict()
      o = optimizer()
      schedule = make(o)
      schedule:load_state_dict(state)
    end
    local got = o.param_groups[1].lr
    assert(math.abs(got - want[step + 1]) <= 1e-12, ("%s, step %d: %.17g, wanted %.17g"):format(name, step,
      got,
      want[step + 1]))
    assert(schedule:get_last_lr()[1] == got)
    o:step()
    schedule:step()
  end
end

do -- groups keep their proportions; one function per group
  local p, q = accel.zeros(1, { requires_grad = true }), accel.zeros(1, { requires_grad = true })
  local o = optim.SGD({ { params = { p } }, { params = { q }, lr = 4 } }, { lr = 1 })
  local schedule = S.LambdaLR(o, { function(s) return 1 / (s + 1) end, function() return 0.5 end })
  schedule:step()
  assert(o.param_groups[1].lr == 0.5 and o.param_groups[2].lr == 2)
  fails("2 functions for 1 parameter groups", S.LambdaLR, optimizer(), { math.sqrt, math.sqrt })
end

fails("'linear' needs num_training_steps", S.get_scheduler, "linear", optimizer())
fails("no schedule 'cosin'; did you mean 'cosine'", S.get_scheduler, "cosin", optimizer())
fails("T_max must be", S.CosineAnnealingLR, optimizer(), {})
fails("LambdaLR: expected a function of the step, got nil", S.LambdaLR, optimizer())
fails("LambdaLR: function 1 is 3", S.LambdaLR, optimizer(), 3)
fails("LinearLR: total_iters must be a positive integer, got 0", S.LinearLR, optimizer(), { total_iters = 0 })
fails("SequentialLR: expected a list of schedules and a list of milestones", S.SequentialLR, optimizer(), {})
fails("expected an optimizer", S.LambdaLR, {}, math.sqrt)
