--- optim.LBFGS: limited-memory BFGS.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local strong_wolfe = require "accel.optim.strong_wolfe"

--- A quasi-Newton method for functions of all data. Each step(closure) makes up to max_iter iterations: the direction -H g from the last
--- history_size changes of parameters and gradients (Nocedal and Wright, Numerical Optimization, algorithm 7.4), then a step of length lr, or
--- one that meets the strong Wolfe conditions. closure computes the loss and the gradients again: it calls zero_grad and backward, and returns
--- the loss. There is one parameter group. Parameters of sharded models are refused, and every rank must see the same loss.
--- example: local p = accel.tensor({ 3.0 }, { requires_grad = true }) local o = accel.optim.LBFGS({ p }, { line_search_fn = "strong_wolfe" })
---   o:step(function() o:zero_grad() local loss = (p - 1):square():sum() loss:backward() return loss end) return p --> { 1 }
---@class accel.optim.LBFGS : accel.optim.Optimizer
local LBFGS = Optimizer:extend("accel.optim.LBFGS")

LBFGS.defaults = { lr = 1.0, max_iter = 20, max_eval = false, tolerance_grad = 1e-7, tolerance_change = 1e-9, history_size = 100,
  line_search_fn = "none" }
LBFGS.counts = false
LBFGS.elementwise = false

---@param params accel.ParamList
---@param opts? table
---  lr number = 1.0: length of a step, and first guess of the line search
---  max_iter integer = 20: iterations of a step
---  max_eval integer|false = false: evaluations of a step, also within a line search. false: 1.25 max_iter
---  tolerance_grad number = 1e-7: a step ends where no element of the gradient is larger
---  tolerance_change number = 1e-9: a step ends where parameters or loss change less
---  history_size integer = 100: changes that are kept
---  line_search_fn string = "none": "none" or "strong_wolfe"
function LBFGS:init(params, opts)
  if type(opts) == "table" and opts.max_eval then
    local copy = {}
    for key, value in next, opts do copy[key] = value end
    self._max_eval = check.positive("LBFGS", "max_eval", opts.max_eval)
    copy.max_eval = nil
    opts = copy
  end
  Optimizer.init(self, params, opts)
end

function LBFGS:check_options(o)
  self:expect(#self.param_groups == 0, "there is one parameter group; give all parameters in one list")
  self:expect_not_negative(o, "lr")
  check.positive("LBFGS", "max_iter", o.max_iter)
  check.positive("LBFGS", "history_size", o.history_size)
  check.word("LBFGS", "line_search_fn", o.line_search_fn, { "none", "strong_wolfe" })
  o.max_eval = self._max_eval or o.max_iter * 5 // 4
end

local function flat_gradient(params)
  local parts = {}
  for i, p in ipairs(params) do
    local g = p.grad
    parts[i] = g and g:reshape(-1) or accel.zeros(p:numel(), { dtype = p.dtype, device = p.device })
  end
  return accel.cat(parts, 1)
end

local function move(params, direction, by)
  local at = 1
  for _, p in ipairs(params) do
    p:add_(direction:narrow(1, at, p:numel()):view_as(p), by)
    at = at + p:numel()
  end
end

--- H g for the kept changes: from the last to the first, times the scale of the last one, and back.
local function product(state, gradient)
  local q, alphas, n = gradient:neg(), {}, #state.dirs
  for i = n, 1, -1 do
    alphas[i] = state.steps[i]:dot(q) * state.ro[i]
    q = q - state.dirs[i] * alphas[i]
  end
  q = q * state.scale
  for i = 1, n do
    local beta = state.dirs[i]:dot(q) * state.ro[i]
    q = q + state.steps[i] * (alphas[i] - beta)
  end
  return q
end

--- The next direction. Its history lies in state: dirs the changes of gradients, steps those of parameters, ro 1 over their products.
local function direction(state, gradient, size)
  if state.n_iter == 1 then
    state.dirs, state.steps, state.ro, state.scale = {}, {}, {}, 1.0
    return gradient:neg()
  end
  local y, s = gradient - state.gradient, state.d * state.t
  local ys = y:dot(s)
  if ys:item() > 1e-10 then
    if #state.dirs == size then
      for _, list in ipairs { state.dirs, state.steps, state.ro } do table.remove(list, 1) end
    end
    state.dirs[#state.dirs + 1], state.steps[#state.steps + 1], state.ro[#state.ro + 1] = y, s, 1 / ys
    state.scale = ys / y:dot(y)
  end
  return product(state, gradient)
end

--- One step. The result is the loss before it.
---@param closure fun(): accel.Tensor
---@return accel.Tensor
function LBFGS:step(closure, ...)
  check.object(self, "o", "step")
  check.surplus("LBFGS:step", ...)
  if closure == nil then raise "LBFGS: step needs a closure that computes the loss and the gradients" end
  self:_shards() -- refuses parameters that are sharded
  local group = self.param_groups[1]
  local params, state = group.params, self._own or { n_iter = 0, func_evals = 0 }
  self._own = state
  local function evaluate()
    local loss
    do
      local _ <close> = accel.enable_grad()
      loss = closure()
    end
    return loss, type(loss) == "number" and loss or loss:item(), accel.unscoped(flat_gradient, params)
  end
  local result
  do
    local _ <close> = accel.no_grad()
    result = accel.unscoped(self._iterate, self, group, params, state, evaluate)
  end
  self._steps = (self._steps or 0) + 1
  accel.step()
  return result
end

function LBFGS:_iterate(group, params, state, evaluate) -- luacheck: ignore self
  local result, loss, gradient = evaluate()
  local evals, iterations = 1, 0
  state.func_evals = state.func_evals + 1
  local function flat() return gradient:abs():amax():item() <= group.tolerance_grad end
  if flat() then return result end
  while iterations < group.max_iter do
    iterations, state.n_iter = iterations + 1, state.n_iter + 1
    local d = direction(state, gradient, group.history_size)
    state.d, state.gradient = d, gradient
    local before, t, used = loss, group.lr, 0
    if state.n_iter == 1 then t = math.min(1.0, 1 / gradient:abs():sum():item()) * group.lr end
    state.t = t
    local slope = gradient:dot(d):item()
    if slope > -group.tolerance_change then break end
    local done
    if group.line_search_fn == "strong_wolfe" then
      local start = {}
      for i, p in ipairs(params) do start[i] = p:clone() end
      local function at(length)
        move(params, d, length)
        local _, value, g = evaluate()
        for i, p in ipairs(params) do p:copy_(start[i]) end
        return value, g
      end
      loss, gradient, t, used = strong_wolfe(at, t, d, loss, gradient, slope, group.max_eval - evals)
      state.t = t
      move(params, d, t)
      done = flat()
    else
      move(params, d, t)
      if iterations ~= group.max_iter then
        local _
        _, loss, gradient = evaluate()
        done, used = flat(), 1
      end
    end
    evals, state.func_evals = evals + used, state.func_evals + used
    if iterations == group.max_iter or evals >= group.max_eval or done then break end
    if (d * t):abs():amax():item() <= group.tolerance_change or math.abs(loss - before) < group.tolerance_change then break end
  end
  return result
end

local KEPT <const> = { "n_iter", "func_evals", "t", "d", "gradient", "scale" }
local LISTS <const> = { "dirs", "steps", "ro" }

--- The options and the history, which belongs to the first parameter, as in PyTorch.
---@return table
function LBFGS:state_dict()
  local out = Optimizer.state_dict(self)
  if self._own then
    local entry = {}
    for _, key in ipairs(KEPT) do entry[key] = self._own[key] end
    for _, key in ipairs(LISTS) do entry[key] = self._own[key] and table.move(self._own[key], 1, #self._own[key], 1, {}) end
    out.state[0] = entry
  end
  return out
end

--- Continues from a state_dict.
---@param dict table
---@param opts? {assign: boolean?}
function LBFGS:load_state_dict(dict, opts, ...)
  local entry = type(dict) == "table" and type(dict.state) == "table" and dict.state[0]
  local rest = dict
  if entry then
    rest = { state = {}, param_groups = dict.param_groups }
    if type(entry.n_iter) ~= "number" or type(entry.func_evals) ~= "number" then raise "LBFGS: not the state of this optimizer" end
  end
  Optimizer.load_state_dict(self, rest, opts, ...)
  self._own = nil
  if not entry then return end
  local own, n = {}, 0
  for _, p in ipairs(self.param_groups[1].params) do n = n + p:numel() end
  local function take(value)
    if accel.is_tensor(value) then return value:detach():clone() end
    return value
  end
  for _, key in ipairs(KEPT) do own[key] = take(entry[key]) end
  if own.d and own.d:numel() ~= n then raise("LBFGS: the state is of %d elements, the parameters have %d", own.d:numel(), n) end
  for _, key in ipairs(LISTS) do
    own[key] = {}
    for i, value in ipairs(entry[key] or {}) do own[key][i] = take(value) end
  end
  self._own = own
end

return LBFGS
