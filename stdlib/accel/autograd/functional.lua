--- accel.autograd.functional: Jacobians, Hessians and their products with vectors, for functions of tensors.
---
--- inputs and v are one tensor or a list. The results have the same form, one entry per input. A gradient that does not
--- exist is zeros, or with strict = true an error. With create_graph = true the answer can be differentiated.
local accel = require "accel.core"
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

---@class accel.autograd.functional
local M = {}

local declared = { create_graph = false, strict = false }

local function list_of(who, name, value)
  if tensors.is_tensor(value) then return { value }, true end
  if type(value) ~= "table" or #value == 0 then
    raise("%s: %s must be a tensor or a list of tensors, got %s", who, name, check.shown(value))
  end
  for i, t in ipairs(value) do
    if not tensors.is_tensor(t) then raise("%s: %s[%d] must be a tensor, got %s", who, name, i, check.shown(t)) end
  end
  return value, false
end

--- The inputs as tensors that record: views of them if the result will be differentiated, leaves otherwise.
local function fresh(inputs, create_graph)
  local list = {}
  for i, t in ipairs(inputs) do
    if create_graph and t.requires_grad then list[i] = t:view_as(t)
    else list[i] = t:detach():requires_grad_() end
  end
  return list
end

local function call(who, fn, inputs)
  local results = table.pack(fn(table.unpack(inputs)))
  return list_of(who, "fn's result", results.n == 1 and results[1] or results)
end

--- Gradients with zeros for missing ones, or an error.
local function gradients(who, outputs, inputs, cotangents, o, create_graph)
  local from, with = {}, {}
  for i, y in ipairs(outputs) do
    if y.requires_grad then from[#from + 1], with[#with + 1] = y, cotangents[i]
    elseif o.strict then raise("%s: output %d does not depend on the inputs, and strict = true", who, i) end
  end
  local grads = {}
  if #from > 0 then
    grads = accel.grad(from, inputs,
      { grad_outputs = with, create_graph = create_graph, retain_graph = true, allow_unused = true })
  end
  for k, x in ipairs(inputs) do
    if not grads[k] then
      if o.strict then raise("%s: the outputs do not depend on input %d, and strict = true", who, k) end
      grads[k] = accel.zeros_like(x:detach())
    end
  end
  return grads
end

local function detached(list, create_graph)
  if create_graph then return list end
  local out = {}
  for i, t in ipairs(list) do out[i] = type(t) == "table" and detached(t) or t:detach() end
  return out
end

local function shaped_as(single, list)
  if single then return list[1] end
  return list
end

local function match(who, v, like, what)
  if v == nil then
    if #like ~= 1 or like[1]:numel() ~= 1 then
      raise("%s: v may only be left out for one %s of one element", who, what)
    end
    return { accel.ones_like(like[1]:detach()) }
  end
  local list = list_of(who, "v", v)
  if #list ~= #like then raise("%s: v has %d tensors for %d %ss", who, #list, #like, what) end
  for i, t in ipairs(list) do
    if not tensors.same_shape(t, like[i]) then
      raise("%s: v[%d] has shape %s, the %s %s", who, i, tensors.shape_string(t), what, tensors.shape_string(like[i]))
    end
  end
  return list
end

--- fn's results, and v' J: the gradient of the outputs weighted by v, which has their shapes (optional for one number).
--- example: local x = accel.tensor { 1.0, 2.0 } local function f(t) return t * t end local y, g =
---   accel.autograd.functional.vjp(f, x, accel.ones(2)) return y, g --> { 1, 4 }, { 2, 4 }
---@param fn function
---@param inputs accel.Tensor|accel.Tensor[]
---@param v? accel.Tensor|accel.Tensor[]
---@param opts? {create_graph: boolean?, strict: boolean?}
function M.vjp(fn, inputs, v, opts, ...)
  local o = options("vjp", opts, declared, ...)
  local given, single = list_of("vjp", "inputs", inputs)
  return accel.enable_grad(function()
    local x = fresh(given, o.create_graph)
    local y, one = call("vjp", fn, x)
    local g = gradients("vjp", y, x, match("vjp", v, y, "output"), o, o.create_graph)
    return shaped_as(one, detached(y, o.create_graph)), shaped_as(single, detached(g, o.create_graph))
  end)
end

--- fn's results, and J v: the change of the outputs when the inputs move by v. Made of two backwards, so that fn's
--- operations need second derivatives.
--- example: local x = accel.tensor { 1.0, 2.0 } local function f(t) return t * t end local y, g =
---   accel.autograd.functional.jvp(f, x, accel.ones(2)) return y, g --> { 1, 4 }, { 2, 4 }
---@param fn function
---@param inputs accel.Tensor|accel.Tensor[]
---@param v? accel.Tensor|accel.Tensor[]
---@param opts? {create_graph: boolean?, strict: boolean?}
function M.jvp(fn, inputs, v, opts, ...)
  local o = options("jvp", opts, declared, ...)
  local given = list_of("jvp", "inputs", inputs)
  return accel.enable_grad(function()
    local x = fresh(given, o.create_graph)
    local weights = match("jvp", v, x, "input")
    local y, one = call("jvp", fn, x)
    local u = {}
    for i, t in ipairs(y) do u[i] = accel.zeros_like(t:detach()):requires_grad_() end
    -- g = J' u is linear in u, so its gradient by u, weighted by v, is J v
    local g = gradients("jvp", y, x, u, o, true)
    local out = gradients("jvp", g, u, weights, { strict = false }, o.create_graph)
    return shaped_as(one, detached(y, o.create_graph)), shaped_as(one, detached(out, o.create_graph))
  end)
end

--- J[i][j] for outputs i and inputs j, shape output + input.
local function jacobian(who, fn, given, o)
  local x = fresh(given, o.create_graph)
  local y, one = call(who, fn, x)
  local J = {}
  for i, t in ipairs(y) do
    local rows, n = {}, t:numel()
    for k = 1, #x do rows[k] = {} end
    for j = 1, n do
      local e = accel.zeros(n, { dtype = t.dtype, device = t.device })
      e[j] = 1.0
      local g = gradients(who, { t }, x, { e:reshape(t.shape) }, o, o.create_graph)
      for k = 1, #x do rows[k][j] = g[k] end
    end
    J[i] = {}
    for k = 1, #x do
      local shape = { table.unpack(t.shape) }
      table.move(x[k].shape, 1, #x[k].shape, #shape + 1, shape)
      J[i][k] = n > 0 and accel.stack(rows[k], 1):reshape(shape) or accel.zeros(shape, { dtype = x[k].dtype })
    end
  end
  return J, one
end

--- The Jacobian of fn: shape of the output, then of the input. For a list of inputs it returns a list. For several
--- outputs it returns a list of lists, by output.
--- example: accel.autograd.functional.jacobian(function(t) return t * t end, accel.tensor { 1.0, 2.0 })
---   --> { { 2, 0 }, { 0, 4 } }
---@param fn function
---@param inputs accel.Tensor|accel.Tensor[]
---@param opts? {create_graph: boolean?, strict: boolean?}
function M.jacobian(fn, inputs, opts, ...)
  local o = options("jacobian", opts, declared, ...)
  local given, single = list_of("jacobian", "inputs", inputs)
  return accel.enable_grad(function()
    local J, one = jacobian("jacobian", fn, given, o)
    for i, row in ipairs(J) do J[i] = shaped_as(single, detached(row, o.create_graph)) end
    return shaped_as(one, J)
  end)
end

local function scalar(who, y)
  if #y ~= 1 or y[1]:numel() ~= 1 then raise("%s: fn must return one number, as a tensor of one element", who) end
  return y
end

--- The gradient of a function that returns one number, as a function of the inputs that can be differentiated.
local function gradient_of(who, fn, o)
  return function(...)
    local x = { ... }
    local y = scalar(who, (call(who, fn, x)))
    return gradients(who, y, x, { accel.ones_like(y[1]:detach()) }, o, true)
  end
end

--- The Hessian of fn, which returns one number: shape of the input twice. For a list of inputs it returns a list of
--- lists.
--- example: accel.autograd.functional.hessian(function(t) return (t * t * t):sum() end, accel.tensor { 1.0, 2.0 })
---   --> { { 6, 0 }, { 0, 12 } }
---@param fn function
---@param inputs accel.Tensor|accel.Tensor[]
---@param opts? {create_graph: boolean?, strict: boolean?}
function M.hessian(fn, inputs, opts, ...)
  local o = options("hessian", opts, declared, ...)
  local given, single = list_of("hessian", "inputs", inputs)
  return accel.enable_grad(function()
    local H = jacobian("hessian", gradient_of("hessian", fn, o), given, o)
    for i, row in ipairs(H) do H[i] = detached(row, o.create_graph) end
    return single and H[1][1] or H
  end)
end

local function hessian_product(who, fn, inputs, v, opts, ...)
  local o = options(who, opts, declared, ...)
  local given, single = list_of(who, "inputs", inputs)
  return accel.enable_grad(function()
    local x = fresh(given, o.create_graph)
    local weights = match(who, v, x, "input")
    local y = scalar(who, (call(who, fn, x)))
    local g = gradients(who, y, x, { accel.ones_like(y[1]:detach()) }, o, true)
    local out = gradients(who, g, x, weights, { strict = false }, o.create_graph)
    return detached(y, o.create_graph)[1], shaped_as(single, detached(out, o.create_graph))
  end)
end

--- fn's result, one number, and v' H.
--- example: local x = accel.tensor { 1.0, 2.0 } local function f(t) return (t * t * t):sum() end local y, g =
---   accel.autograd.functional.vhp(f, x, accel.ones(2)) return y, g --> 9, { 6, 12 }
---@param fn function
---@param inputs accel.Tensor|accel.Tensor[]
---@param v? accel.Tensor|accel.Tensor[]
---@param opts? {create_graph: boolean?, strict: boolean?}
function M.vhp(fn, inputs, v, opts, ...) return hessian_product("vhp", fn, inputs, v, opts, ...) end

--- fn's result, one number, and H v, which equals v' H if second derivatives do not depend on their order.
--- example: local x = accel.tensor { 1.0, 2.0 } local function f(t) return (t * t * t):sum() end local y, g =
---   accel.autograd.functional.hvp(f, x, accel.ones(2)) return y, g --> 9, { 6, 12 }
---@param fn function
---@param inputs accel.Tensor|accel.Tensor[]
---@param v? accel.Tensor|accel.Tensor[]
---@param opts? {create_graph: boolean?, strict: boolean?}
function M.hvp(fn, inputs, v, opts, ...) return hessian_product("hvp", fn, inputs, v, opts, ...) end

return M
