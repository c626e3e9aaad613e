--- optim.SparseAdam: Adam for the rows that a step touches.
local Optimizer = require "accel.optim.optimizer"

--- Adam for embeddings: a row takes part in a step, with its moments, if its gradient is not zero everywhere. All other rows, their
--- moments too, stay. accel's gradients of embeddings are dense tensors, which every optimizer takes; nn.Embedding has no sparse = true.
--- So memory is that of Adam, and numbers are PyTorch's, except for a looked-up row whose gradient happens to be zero.
--- example: local p = accel.ones(2, 1) p.grad = accel.tensor { { 2.0 }, { 0.0 } } accel.optim.SparseAdam({ p }, { lr = 0.1 }):step()
---   return p --> { { 0.9 }, { 1 } }
---@class accel.optim.SparseAdam : accel.optim.Optimizer
local SparseAdam = Optimizer:extend("accel.optim.SparseAdam")

SparseAdam.defaults = { lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, maximize = false }
SparseAdam.buffers = { "exp_avg", "exp_avg_sq" }
SparseAdam.elementwise = false -- rows of a shard are cut

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-3: learning rate
---  betas number[] = { 0.9, 0.999 }: factors of the running means of the gradient and of its square
---  eps number = 1e-8: added to the denominator
---  maximize boolean = false: climb instead of descend
function SparseAdam:init(params, opts) Optimizer.init(self, params, opts) end

function SparseAdam:check_options(o)
  self:expect(o.lr > 0, "lr must be above 0, got %s", tostring(o.lr))
  self:expect(o.eps > 0, "eps must be above 0, got %s", tostring(o.eps))
  self:expect_betas(o)
end

function SparseAdam:update(group, step_group, grads, lr) -- luacheck: ignore self
  local step = step_group.step:add_(1)
  local b1, b2 = group.betas[1], group.betas[2]
  local size = lr * (1 - b2 ^ step:to "f64"):sqrt() / (1 - b1 ^ step:to "f64")
  for i, p in ipairs(step_group.params) do
    local g, m, v = grads[i], step_group.exp_avg[i], step_group.exp_avg_sq[i]
    if group.maximize then g = -g end
    local rows = g:ne(0)
    if g.ndim > 1 then
      local others = {}
      for d = 2, g.ndim do others[d - 1] = d end
      rows = rows:any(others, true)
    end
    m:add_((g - m) * (1 - b1) * rows)
    v:add_((g * g - v) * (1 - b2) * rows)
    p:sub_((m / (v:sqrt() + group.eps) * size:to(p.dtype)) * rows)
  end
end

return SparseAdam
