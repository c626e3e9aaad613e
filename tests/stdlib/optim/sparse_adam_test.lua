-- SparseAdam: PyTorch's steps of an embedding with sparse gradients (reference/optim_more.json). Rows without a gradient stay.
local accel = require "accel"
local file = assert(io.open(os.getenv "ACCEL_TEST_SRC" .. "/tests/reference/optim_more.json"))
local want = accel.json.decode(file:read "a").sparse_adam
file:close()

for _, maximize in ipairs { false, true } do
  local e = accel.nn.Embedding(5, 3):to "f64"
  do
    local _ <close> = accel.no_grad()
    e.weight:copy_((accel.arange(15):to "f64" * 1.3):cos():view(5, 3))
  end
  local before = e.weight:detach():clone()
  local o = accel.optim.SparseAdam(e:parameters(), { lr = 0.1, betas = { 0.8, 0.95 }, eps = 1e-6, maximize = maximize })
  for s = 0, 3 do
    o:zero_grad()
    local ids = accel.tensor({ s % 5, 3, s * 2 % 5 });
    (e(ids) ^ 2):sum():backward()
    o:step()
  end
  local got = e.weight:detach():reshape(-1):tolist()
  for i, w in ipairs(want[tostring(maximize)]) do assert(math.abs(got[i] - w) <= 1e-12, ("%d: %.17g, wanted %.17g"):format(i, got[i], w)) end
  assert(e.weight.shape[1] == 5 and not accel.equal(e.weight:detach(), before))
end

local p = accel.ones(3, 2)
local o = accel.optim.SparseAdam({ p }, { lr = 0.1 })
p.grad = accel.tensor { { 1.0, 0.0 }, { 0.0, 0.0 }, { 0.0, 2.0 } }
o:step()
assert(accel.equal(p[2], accel.ones(2)) and accel.equal(o:state_dict().state[0].exp_avg[2], accel.zeros(2)))
assert(p[1][1]:item() < 1 and p[1][2]:item() == 1)
for _, options in ipairs { { lr = 0 }, { eps = 0 }, { betas = { 1, 0.9 } } } do assert(not pcall(accel.optim.SparseAdam, { p }, options)) end
