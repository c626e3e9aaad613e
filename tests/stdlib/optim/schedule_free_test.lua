--- Schedule-free optimizers: what train and eval do to the parameters, what they converge to, states and groups.
local accel = require "accel"
local optim = accel.optim

local function close(a, b, bar)
  local e = (a - b):abs():max():item()
  assert(e <= bar, e)
end

for _, class in ipairs { "SGDScheduleFree", "AdamWScheduleFree" } do
  assert(optim[class] == optim["ScheduleFree" .. class:match "^(.*)ScheduleFree$"])
  for _, share in ipairs { 0.5, 0.9 } do
    local options = { lr = 0.1 }
    if class == "SGDScheduleFree" then options.momentum = share else options.betas = { share, 0.99 } end
    local p = accel.tensor({ 3.0, -2.0 }, { dtype = "f64" })
    local target = accel.tensor({ 1.0, 0.5 }, { dtype = "f64" })
    local o = optim[class]({ p }, options)
    o:eval() -- nothing to do before the first step
    close(p, accel.tensor({ 3.0, -2.0 }, { dtype = "f64" }), 0)
    o:train()
    o:train()
    local x, z = p:clone(), nil
    for k = 1, 40 do
      p.grad = p - target
      o:step()
      z = o:state_dict().state[0].z
      x = x + (z - x) / k -- rates are all equal: the plain average of the iterates
      close(p, z * (1 - share) + x * share, 1e-12)
    end
    o:eval()
    close(p, x, 1e-11)
    local kept = p:clone()
    o:eval()
    close(p, kept, 0)
    o:train()
    close(p, z * (1 - share) + x * share, 1e-11)
    for _ = 1, 2000 do
      p.grad = p - target
      o:step()
    end
    o:eval()
    close(p, target, 0.02)
  end
end

do -- saved in eval mode, as a model is: goes on after train()
  local function run(at)
    local p, q = accel.ones(3, { dtype = "f64" }), accel.ones(2, 2, { dtype = "f64" })
    local function make()
      local groups = { { params = { p } }, { params = { q }, lr = 0.02 } }
      return optim.AdamWScheduleFree(groups, { lr = 0.1, warmup_steps = 4 })
    end
    local o = make()
    o:train()
    for s = 1, 6 do
      if s == at then
        o:eval()
        local saved = o:state_dict()
        assert(saved.param_groups[2].train_mode == false and saved.state[1].weight_sum:item() >= 0)
        o = make()
        o:load_state_dict(saved)
        o:train()
      end
      p.grad, q.grad = p * s - 1, q * 2 + s
      o:step()
    end
    o:eval()
    return p, q
  end
  local a, b = run()
  for at = 2, 6 do
    local c, d = run(at)
    close(c, a, 1e-14)
    close(d, b, 1e-14)
  end
end
