-- Schedules of DeepSpeed configurations have DeepSpeed's rates and momenta, step by step (deepspeed.json), also after a state was saved and
-- loaded.
--   accel-run tests/stdlib/deepspeed/lr_schedules_test.lua
local accel = require "accel"

local file <close> = assert(io.open((arg[0]:match "^.*/" or "") .. "deepspeed.json"))
local reference = accel.json.decode(file:read "a")

local function fails(part, fn, ...)
  local ok, e = pcall(fn, ...)
  assert(not ok and tostring(e):find(part, 1, true), tostring(e))
end

local function optimizer() return accel.optim.Adam(accel.ones(1), { lr = 0.3 }) end

for n, row in ipairs(reference.schedules) do
  local o = optimizer()
  local s = accel.deepspeed[row.name](o, row.params)
  for i, want in ipairs(row.rates) do
    local group, at = o.param_groups[1], ("schedule %d, %s, step %d"):format(n, row.name, i - 1)
    assert(math.abs(group.lr - want) <= 1e-14, ("%s: %.17g, not %.17g"):format(at, group.lr, want))
    for k = 1, 2 do assert(math.abs(group.betas[k] - row.momenta[i][k]) <= 1e-14, at) end
    if i == 9 then
      local saved = s:state_dict()
      o = optimizer()
      s = accel.deepspeed[row.name](o, row.params)
      s:load_state_dict(saved)
      assert(o.param_groups[1].lr == group.lr)
    end
    s:step()
  end
end

fails("warmup_num_steps must be", accel.deepspeed.WarmupLR, optimizer(), { warmup_num_steps = 0 })
fails("warmup_type", accel.deepspeed.WarmupLR, optimizer(), { warmup_type = "cubic" })
fails("did you mean 'warmup_max_lr'", accel.deepspeed.WarmupLR, optimizer(), { warmup_maxlr = 1 })
fails("total_num_steps", accel.deepspeed.WarmupDecayLR, optimizer(), {})
fails("cycle_min_lr", accel.deepspeed.OneCycle, optimizer(), {})
fails("cycle_min_lr has 2 values", accel.deepspeed.OneCycle, accel.optim.SGD({ { params = accel.ones(1) }, { params = accel.ones(1) },
  { params = accel.ones(1) } }), { cycle_min_lr = { 1, 2 }, cycle_max_lr = 3 })
print "ok"
