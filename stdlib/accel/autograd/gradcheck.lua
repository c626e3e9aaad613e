--- gradcheck and gradgradcheck: do a function's gradients agree with its values? Numerically, central differences move
--- every number of every input in both directions. Analytically, backward computes the gradient of every number of
--- every output. Meant for f64 and small tensors.
local accel = require "accel.core"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

---@param list any tensor or list
local function as_list(who, name, list)
  if tensors.is_tensor(list) then return { list, n = 1 } end
  if type(list) ~= "table" then raise("%s: %s must be a tensor or a list, got %s", who, name, check.shown(list)) end
  local n = list.n or #list
  return { n = n, table.unpack(list, 1, n) }
end

local function is_differentiable(t) return tensors.is_tensor(t) and tensors.is_floating(t.dtype) and t.requires_grad end

--- The tensors that fn returns: several results, or one list of them.
local function outputs_of(who, fn, inputs)
  local list = table.pack(fn(table.unpack(inputs, 1, inputs.n)))
  if list.n == 1 and not tensors.is_tensor(list[1]) then list = as_list(who, "fn's result", list[1]) end
  local out = {}
  for i = 1, list.n do
    if tensors.is_tensor(list[i]) and tensors.is_floating(list[i].dtype) then out[#out + 1] = list[i] end
    if tensors.is_tensor(list[i]) and list[i]:is_complex() then out[#out + 1] = accel.view_as_real(list[i]) end
  end
  return out
end

-- ---- Jacobians: J[i][j] is the derivative of number j of the output by number i of the input ----

local function matrix(rows, columns)
  local J = {}
  for i = 1, rows do
    J[i] = {}
    for j = 1, columns do J[i][j] = 0.0 end
  end
  return J
end

local function numbers(t) return t:detach():to("f64"):reshape(-1):tolist() end

--- Sets number i (from 1, row-major) of t.
local function set_number(t, i, value)
  local at, view, shape = i - 1, t:detach(), t.shape
  if #shape == 0 then
    view:fill_(value)
    return
  end
  local place = {}
  for d = #shape, 1, -1 do place[d], at = at % shape[d] + 1, at // shape[d] end
  for d = 1, #shape - 1 do view = view[place[d]] end
  view[place[#shape]] = value
end

--- One matrix per output.
local function numerical(who, fn, inputs, x, outputs, eps)
  local J, n = {}, x:numel()
  for o, y in ipairs(outputs) do J[o] = matrix(n, y:numel()) end
  local was = numbers(x)
  local function values_at(i, value)
    accel.no_grad(set_number, x, i, value)
    local out = outputs_of(who, fn, inputs)
    for o, y in ipairs(out) do out[o] = numbers(y) end
    return out
  end
  for i = 1, n do
    local ok, above, below = pcall(function() return values_at(i, was[i] + eps), values_at(i, was[i] - eps) end)
    accel.no_grad(set_number, x, i, was[i])
    if not ok then error(above, 0) end
    for o = 1, #outputs do
      for j = 1, #J[o][i] do J[o][i][j] = (above[o][j] - below[o][j]) / (2 * eps) end
    end
  end
  return J
end

--- One matrix per input that is differentiated.
local function analytical(y, wanted)
  local J, n = {}, y:numel()
  for k, x in ipairs(wanted) do J[k] = matrix(x:numel(), n) end
  for j = 1, n do
    local one = accel.zeros(n, { dtype = y.dtype, device = y.device })
    one[j] = 1.0
    local grads = accel.grad({ y }, wanted,
      { grad_outputs = { one:reshape(y.shape) }, retain_graph = true, allow_unused = true })
    for k in ipairs(wanted) do
      for i, value in ipairs(grads[k] and numbers(grads[k]) or {}) do J[k][i][j] = value end
    end
  end
  return J
end

local function show(J)
  if #J == 0 or #J[1] == 0 then return "[]" end
  return tostring(accel.tensor(J, { dtype = "f64" }))
end

--- Whether |a - b| <= atol + rtol * |b| everywhere.
local function is_close(a, b, rtol, atol)
  for i, row in ipairs(a) do
    for j, value in ipairs(row) do
      local other = b[i][j]
      if value ~= other and not (math.abs(value - other) <= atol + rtol * math.abs(other)) then return false end
    end
  end
  return true
end

-- ---- checks: each returns an error text, or nil ----

local function check_inputs(who, inputs, eps)
  local wanted, place = {}, {}
  for i = 1, inputs.n do
    local t = inputs[i]
    if is_differentiable(t) then
      if t.dtype ~= "f64" and eps < 1e-3 then
        warn(("%s: input %d is %s; differences of %g need f64"):format(who, i, t.dtype, eps))
      end
      if not t.is_leaf then
        raise("%s: input %d is not a leaf; give a leaf (detach it, then requires_grad_)", who, i)
      end
      for d, size in ipairs(t.shape) do
        if size > 1 and t:stride()[d] == 0 then
          raise("%s: dim %d of input %d is expanded, so its elements share memory; give a clone", who, d, i)
        end
      end
      wanted[#wanted + 1], place[#place + 1] = t, i
    end
  end
  if #wanted == 0 then raise("%s: no input is a floating-point tensor that requires gradients", who) end
  return wanted, place
end

local function mismatch(o, place, num, ana)
  return ("Jacobian mismatch for output %d with respect to input %d,\nnumerical:%s\nanalytical:%s"):format(o, place,
    show(num), show(ana))
end

local function compare(wanted, place, outputs, num, p)
  for o, y in ipairs(outputs) do
    if not y.requires_grad then
      for k, x in ipairs(wanted) do
        if not is_close(num[k][o], matrix(x:numel(), y:numel()), 0, p.atol) then
          return ("output %d does not require gradients, but it changes with input %d,\nnumerical:%s")
            :format(o, place[k], show(num[k][o]))
        end
      end
    else
      local ana, again = analytical(y, wanted), analytical(y, wanted)
      for k in ipairs(wanted) do
        if not is_close(ana[k], again[k], 0, p.nondet_tol) then
          return ("backward is not deterministic for output %d with respect to input %d: twice the same gives\n%s\n"
            .. "and\n%s\nIf that is known, set nondet_tol"):format(o, place[k], show(ana[k]), show(again[k]))
        end
        if not is_close(ana[k], num[k][o], p.rtol, p.atol) then return mismatch(o, place[k], num[k][o], ana[k]) end
      end
    end
  end
end

--- Zero gradients of the outputs give zero gradients of the inputs, and dtypes and shapes match.
local function check_zeros(outputs, wanted, place, p)
  local from, zeros = {}, {}
  for _, y in ipairs(outputs) do
    if y.requires_grad then from[#from + 1], zeros[#zeros + 1] = y, accel.zeros_like(y:detach()) end
  end
  if #from == 0 then return end
  local grads = accel.grad(from, wanted, { grad_outputs = zeros, retain_graph = true, allow_unused = true })
  for k, x in ipairs(wanted) do
    local g = grads[k]
    if g and p.check_grad_dtypes and g.dtype ~= x.dtype then
      return ("the gradient of input %d is %s, the input %s"):format(place[k], g.dtype, x.dtype)
    end
    for _, value in ipairs(g and numbers(g) or {}) do
      if value ~= 0 then
        return ("backward is not multiplied by the gradient of the output: zeros give other than zeros for input %d")
          :format(place[k])
      end
    end
  end
end

--- Complex inputs as leaves of their real and imaginary parts, by which gradients are compared, and fn of those.
local function of_parts(who, fn, inputs)
  check.callable(who, "fn", fn)
  inputs = as_list(who, "inputs", inputs)
  local list, complex = { n = inputs.n }, {}
  for i = 1, inputs.n do
    local t = inputs[i]
    complex[i] = tensors.is_tensor(t) and t:is_complex()
    if complex[i] and not t.is_leaf then raise("%s: input %d is not a leaf; give a leaf (detach it, then requires_grad_)", who, i) end
    list[i] = complex[i] and accel.view_as_real(t:detach()):clone():requires_grad_(t.requires_grad) or t
  end
  return function(...)
    local args = table.pack(...)
    for i = 1, list.n do
      if complex[i] then args[i] = accel.view_as_complex(args[i]) end
    end
    return fn(table.unpack(args, 1, args.n))
  end, list
end

local parameters = { { "eps", 1e-6 }, { "atol", 1e-5 }, { "rtol", 1e-3 }, { "raise_exception", true },
  { "nondet_tol", 0.0 }, { "check_undefined_grad", true }, { "check_grad_dtypes", false } }
local parse = arguments("gradcheck", table.unpack(parameters))
local parse_second = arguments("gradgradcheck", { "grad_outputs", any = true }, table.unpack(parameters))

local function run(who, fn, inputs, p)
  no_effect("accel.autograd." .. who, p)
  local wanted, place = check_inputs(who, inputs, p.eps)
  local message = accel.enable_grad(function()
    local outputs, num = outputs_of(who, fn, inputs), {}
    if #outputs == 0 then raise("%s: fn returned no floating-point tensor", who) end
    for k, x in ipairs(wanted) do num[k] = numerical(who, fn, inputs, x, outputs, p.eps) end
    outputs = outputs_of(who, fn, inputs) -- the inputs were written
    return compare(wanted, place, outputs, num, p)
      or p.check_undefined_grad and check_zeros(outputs, wanted, place, p) or nil
  end)
  if message and p.raise_exception then raise("%s: %s", who, message) end
  return message == nil
end

--- Whether the gradients of fn(inputs...) agree with central differences of its values, for every output and every
--- input that requires gradients: |analytical - numerical| <= atol + rtol * |numerical|. Options, by position or
--- name: eps = 1e-6, atol = 1e-5, rtol = 1e-3, raise_exception = true (else false is returned), nondet_tol = 0.0 (two
--- backwards may differ by that), check_undefined_grad = true, check_grad_dtypes = false. Inputs should be f64 or c128.
--- example: local x = accel.tensor({ 0.5, -2.0 }, { dtype = "f64", requires_grad = true }) return
---   accel.autograd.gradcheck(function(t) return t:exp() * t end, x) --> true
---@param fn function returns one tensor or several
---@param inputs accel.Tensor|table one, or a list of its arguments
---@param ... any
---@return boolean
function M.gradcheck(fn, inputs, ...)
  local p = parse(...)
  fn, inputs = of_parts("gradcheck", fn, inputs)
  return run("gradcheck", fn, inputs, p)
end

--- The same for second derivatives: gradcheck of the gradients, by the inputs and by the gradients of the outputs
--- (grad_outputs, random by default). Options: grad_outputs, then gradcheck's.
--- example: local x = accel.tensor({ 0.5, -2.0 }, { dtype = "f64", requires_grad = true }) return
---   accel.autograd.gradgradcheck(function(t) return t:exp() * t end, x) --> true
---@param fn function
---@param inputs accel.Tensor|table
---@param ... any
---@return boolean
function M.gradgradcheck(fn, inputs, ...)
  local who = "gradgradcheck"
  local p = parse_second(...)
  fn, inputs = of_parts(who, fn, inputs)
  local n_wanted, n = 0, inputs.n
  for i = 1, n do n_wanted = n_wanted + (is_differentiable(inputs[i]) and 1 or 0) end
  local all = { n = n, table.unpack(inputs, 1, n) }
  if p.grad_outputs ~= nil then
    local given = as_list(who, "grad_outputs", p.grad_outputs)
    for i = 1, given.n do all[n + i] = given[i] end
    all.n = n + given.n
  else
    local generator = accel.Generator(2147483647)
    for _, y in ipairs(accel.enable_grad(outputs_of, who, fn, inputs)) do
      all.n = all.n + 1
      all[all.n] = accel.randn(y.shape,
        { dtype = y.dtype, device = y.device, generator = generator, requires_grad = true })
    end
  end
  local function gradients(...)
    local args = table.pack(...)
    local outputs = outputs_of(who, fn, { n = n, table.unpack(args, 1, n) })
    local wanted, from, cotangents = {}, {}, {}
    for i = 1, n do
      if is_differentiable(args[i]) then wanted[#wanted + 1] = args[i] end
    end
    for o, y in ipairs(outputs) do
      if y.requires_grad then from[#from + 1], cotangents[#cotangents + 1] = y, args[n + o] end
    end
    local grads = accel.grad(from, wanted, { grad_outputs = cotangents, create_graph = true, allow_unused = true })
    for k = 1, n_wanted do grads[k] = grads[k] or accel.zeros_like(wanted[k]:detach()) end
    return table.unpack(grads, 1, n_wanted)
  end
  return run(who, function(...) return accel.enable_grad(gradients, ...) end, all, p)
end

return M
