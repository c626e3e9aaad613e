-- LBFGS: PyTorch's steps with and without a line search (reference/optim_more.json), a quadratic function in a few iterations, its state saved and
-- loaded, and what is refused.
local accel = require "accel"
local LBFGS = accel.optim.LBFGS
local file = assert(io.open(os.getenv "ACCEL_TEST_SRC" .. "/tests/reference/optim_more.json"))
local want = accel.json.decode(file:read "a").lbfgs
file:close()

local function fails(text, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(text, 1, true), tostring(err))
end

local cases = { none = { lr = 0.05, max_iter = 5, history_size = 3 },
  strong_wolfe = { max_iter = 5, history_size = 3, line_search_fn = "strong_wolfe" },
  max_eval = { max_iter = 8, max_eval = 4, line_search_fn = "strong_wolfe" } }
for name, options in pairs(cases) do
  local p = accel.tensor({ -1.2, 1.0 }, { dtype = "f64", requires_grad = true })
  local q = accel.tensor({ { 0.5 } }, { dtype = "f64", requires_grad = true })
  local o = LBFGS({ p, q }, options)
  local function closure()
    o:zero_grad()
    local loss = 100 * (p[2] - p[1] ^ 2) ^ 2 + (1 - p[1]) ^ 2 + (q ^ 4):sum() + (q * p[1]):sum()
    loss:backward()
    return loss
  end
  for step, row in ipairs(want[name]) do
    if step == 4 then -- a state that is loaded goes on the same way
      local state = o:state_dict()
      o = LBFGS({ p, q }, options)
      o:load_state_dict(state)
    end
    local loss = o:step(closure)
    local state = o:state_dict().state[0]
    for i, got in ipairs { loss:item(), p[1]:item(), p[2]:item(), q:item(), state.func_evals, state.n_iter } do
      assert(math.abs(got - row[i]) <= 1e-8 * math.max(1, math.abs(row[i])),
        ("%s, step %d, %d: %.17g, wanted %.17g"):format(name, step, i, got, row[i]))
    end
  end
end

-- A quadratic function of n variables is at its minimum after about n iterations.
accel.manual_seed(2)
local n = 12
local a = accel.randn(n, n, { dtype = "f64" })
a = a:matmul(a:t()) + accel.eye(n, { dtype = "f64" })
local b, x = accel.randn(n, { dtype = "f64" }), accel.zeros(n, { dtype = "f64", requires_grad = true })
local o = LBFGS({ x }, { max_iter = 60, line_search_fn = "strong_wolfe", tolerance_grad = 1e-10, tolerance_change = 1e-14 })
o:step(function()
  o:zero_grad()
  local loss = x:dot(a:mv(x)) / 2 - b:dot(x)
  loss:backward()
  return loss
end)
assert((a:mv(x:detach()) - b):abs():max():item() < 1e-6)
assert(not x.grad_fn and accel.is_grad_enabled())

fails("step needs a closure", o.step, o)
fails("there is one parameter group", LBFGS, { { params = { accel.ones(1) } }, { params = { accel.ones(1) } } })
fails("must be one of none, strong_wolfe", LBFGS, { accel.ones(1) }, { line_search_fn = "wolfe" })
fails("max_iter", LBFGS, { accel.ones(1) }, { max_iter = 0 })
fails("the state is of 12 elements, the parameters have 1", function() LBFGS({ accel.ones(1) }):load_state_dict(o:state_dict()) end)
