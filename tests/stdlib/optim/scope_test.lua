--- What the library makes on first use outlives the script's scope: accel.unscoped, optimizer state, `to`.
local accel = require "accel"
local nn, optim = accel.nn, accel.optim

local function released(t) return tostring(t):find("released", 1, true) ~= nil end

do -- unscoped: results, errors, and which scope is open in it and after it
  assert(select("#", accel.unscoped(function(...) return ... end, 1, nil, nil)) == 3)
  assert(not pcall(accel.unscoped, 3) and not pcall(accel.unscoped))
  local free, inner, kept, before, after, late, failed, moved
  do
    local _ <close> = accel.scope()
    before = accel.ones(1)
    free = accel.unscoped(function(n)
      kept = accel.scope(function() inner = accel.ones(n); return accel.ones(n) end)
      return accel.ones(n) * 2
    end, 3)
    after = accel.ones(1)
    local ok, err = pcall(accel.unscoped, function() failed = accel.ones(1); error "out" end)
    assert(not ok and tostring(err):find "out")
    late = accel.ones(1)
    moved = accel.ones(1)
    assert(accel.unscoped(function(t) return t end, moved) == moved)
  end
  assert(not released(free) and not released(kept) and not released(failed) and free:sum():item() == 6)
  assert(released(inner) and released(before) and released(after) and released(late) and released(moved))

  -- The script's scope may end inside, also by yielding out of it.
  local s, t, u = accel.scope(), accel.ones(1), nil
  accel.unscoped(function() s:close(); u = accel.ones(1) end)
  local v = accel.ones(1)
  s = nil
  collectgarbage()
  assert(released(t) and not released(u) and not released(v))
  local co = coroutine.wrap(function()
    local _ <close> = accel.scope()
    local x = accel.unscoped(function() return accel.ones(coroutine.yield "waits") end)
    coroutine.yield(x)
  end)
  assert(co() == "waits")
  local x = co(4)
  co()
  assert(x:sum():item() == 4 and not released(x))
end

--- Losses of some steps in which q misses its gradient in the third, each step in a scope if asked; the
--- learning rate changes and the state is saved and loaded on the way.
local function losses(make, scoped)
  accel.manual_seed(3)
  local p, q = nn.Linear(3, 3), nn.Linear(3, 3)
  local params = {}
  for _, m in ipairs { p, q } do
    for _, t in ipairs(m:parameters()) do params[#params + 1] = t end
  end
  local opt, out = make(params), {}
  for i = 1, 6 do
    local function step()
      local y = p(accel.ones(2, 3))
      if i ~= 3 then y = q(y) end
      local loss = (y * y):sum()
      loss:backward()
      opt:step()
      opt:zero_grad()
      out[i] = loss:item()
      opt.param_groups[1].lr = 0.05 / i
      if i == 4 then
        local again = make(params)
        again:load_state_dict(opt:state_dict())
        opt = again
      end
    end
    if scoped then accel.scope(step) else step() end
  end
  for _, entry in pairs(opt:state_dict().state) do
    for _, t in pairs(entry) do assert(not released(t)) end
  end
  return table.concat(out, " ")
end

for _, make in ipairs {
  function(params) return optim.AdamW(params, { lr = 0.05 }) end,
  function(params) return optim.SGD(params, { lr = 0.05, momentum = 0.9 }) end,
} do
  local want = losses(make, false)
  assert(select(2, want:gsub("%S+", "")) == 6 and not want:find "nan")
  assert(losses(make, true) == want)
end

do -- a model turned to another dtype inside a scope
  local m = nn.Linear(2, 2)
  m.weight.grad = accel.ones(2, 2)
  accel.scope(function() m:to "f64" end)
  assert(m(accel.ones(1, 2, { dtype = "f64" })).dtype == "f64" and m.weight.grad:sum():item() == 4)
end
