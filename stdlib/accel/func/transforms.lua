--- accel.func: gradients, Jacobians and their products with vectors, of functions of tensors and of trees of them (tree.lua).
---
--- Results record where an argument requires gradients, so that transforms can be nested: grad(grad(f)). Tensors that fn reaches otherwise
--- (a model's parameters) are constants: pass what is to be differentiated as an argument, with functional_call.
local accel = require "accel.core"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local tree = require "accel.func.tree"

local M = {}

local parse_grad = arguments("grad", { "argnums", 1, list = true }, { "has_aux", false })
local parse_jacrev = arguments("jacrev", { "argnums", 1, list = true }, { "has_aux", false }, { "chunk_size" })
local parse_jacfwd = arguments("jacfwd", { "argnums", 1, list = true }, { "has_aux", false }, { "randomness", "error" })
local parse_jvp = arguments("jvp", { "strict", false }, { "has_aux", false })
local parse_hessian = arguments("hessian", { "argnums", 1, list = true })

--- Arguments whose differentiated tensors record, the list of these tensors, and whether results must record.
local function prepare(who, args, argnums)
  local records = false
  for i = 1, args.n do
    for _, leaf in ipairs(tree.leaves(args[i])) do records = records or leaf.requires_grad end
  end
  local out, list = table.pack(table.unpack(args, 1, args.n)), {}
  for _, i in ipairs(type(argnums) == "table" and argnums or { argnums }) do
    i = check.integer(who, "argnums", i)
    if i < 0 then i = i + args.n + 1 end
    if i < 1 or i > args.n then raise("%s: argnums must lie between 1 and %d, the number of arguments, got %d", who, args.n, i) end
    if #tree.leaves(args[i]) == 0 then raise("%s: argument %d has no tensor: %s", who, i, check.shown(args[i])) end
    out[i] = tree.map(function(t)
      if not t:is_floating_point() then raise("%s: argument %d has dtype %s; only floats have gradients", who, i, t.dtype) end
      local fresh = t.requires_grad and t:view_as(t) or t:detach():requires_grad_()
      list[#list + 1] = fresh
      return fresh
    end, args[i])
  end
  return out, list, records
end

--- Gradients of a list of outputs, zeros where there are none.
local function gradients(outputs, cotangents, inputs, create, keep)
  local from, with, got = {}, {}, {}
  for i, y in ipairs(outputs) do
    if y.requires_grad then from[#from + 1], with[#with + 1] = y, cotangents[i] end
  end
  if #from > 0 then
    got = accel.grad(from, inputs, { grad_outputs = with, create_graph = create, retain_graph = keep or create, allow_unused = true })
  end
  local out = {}
  for i, x in ipairs(inputs) do out[i] = got[i] or accel.zeros_like(x:detach()) end
  return out
end

local function detached(value, records)
  if records then return value end
  return tree.map(function(t) return t:detach() end, value)
end

--- A list of gradients in the form of the arguments that argnums names.
local function shaped(args, argnums, list)
  local i = 0
  local function take(arg)
    return tree.map(function()
      i = i + 1
      return list[i]
    end, arg)
  end
  local function of(n) return args[n < 0 and n + args.n + 1 or n] end
  if type(argnums) ~= "table" then return take(of(argnums)) end
  local out = {}
  for k, n in ipairs(argnums) do out[k] = take(of(n)) end
  return out
end

local function one_number(who, y)
  if not tensors.is_tensor(y) or y:numel() ~= 1 or y.ndim ~= 0 then
    raise("%s: fn must return a tensor without dims, got %s", who, tensors.is_tensor(y) and "shape " .. tensors.shape_string(y) or check.shown(y))
  end
  return y
end

local function grad_and_value(who, fn, o, args)
  return accel.enable_grad(function()
    local given, list, records = prepare(who, args, o.argnums)
    local y, aux = fn(table.unpack(given, 1, given.n))
    if o.has_aux and aux == nil then raise("%s: with has_aux = true fn must return its result and a second value", who) end
    one_number(who, y)
    local g = gradients({ y }, { accel.ones_like(y:detach()) }, list, records)
    return detached(shaped(args, o.argnums, g), records), detached(y, records), detached(aux, records)
  end)
end

--- A function that returns the gradient of fn. fn must return a tensor without dims. An argument may be a table of tensors, and its gradient has
--- the same form.
--- - argnums: the argument to differentiate by, from 1, or a list of them for a list of gradients
--- - has_aux: fn returns a second value, which comes after the gradient
--- example: accel.func.grad(function(x) return (x ^ 3):sum() end)(accel.tensor { 1.0, 2.0 }) --> { 3, 12 }
---@param fn function
---@param ... any argnums = 1, has_aux = false, or a table of them
---@return function
function M.grad(fn, ...)
  local o = parse_grad(...)
  check.callable("grad", "fn", fn)
  return function(...)
    local g, _, aux = grad_and_value("grad", fn, o, table.pack(...))
    if o.has_aux then return g, aux end
    return g
  end
end

--- As grad, for the gradient and fn's result. With has_aux = true it returns the gradient, and a list of the result and the second value.
--- example: return accel.func.grad_and_value(function(x) return x ^ 2 end)(accel.tensor(3.0)) --> 6, 9
---@param fn function
---@param ... any argnums = 1, has_aux = false, or a table of them
---@return function
function M.grad_and_value(fn, ...)
  local o = parse_grad(...)
  check.callable("grad_and_value", "fn", fn)
  return function(...)
    local g, y, aux = grad_and_value("grad_and_value", fn, o, table.pack(...))
    if o.has_aux then return g, { y, aux } end
    return g, y
  end
end

--- Shapes of an output and an input one after the other.
local function joined(y, x)
  local shape = { table.unpack(y.shape) }
  return table.move(x.shape, 1, #x.shape, #shape + 1, shape)
end

local function unit(like, j)
  local e = accel.zeros(like:numel(), { dtype = like.dtype, device = like.device })
  e[j] = 1.0
  return e:reshape(like.shape)
end

--- J[i][k] of output i and input k, row by row.
local function rows(outputs, inputs, records)
  local J = {}
  for i, y in ipairs(outputs) do
    local found, n = {}, y:numel()
    for k = 1, #inputs do found[k] = {} end
    for j = 1, n do
      for k, g in ipairs(gradients({ y }, { unit(y, j) }, inputs, records, true)) do found[k][j] = g end
    end
    J[i] = {}
    for k, x in ipairs(inputs) do
      local shape = joined(y, x)
      J[i][k] = n > 0 and accel.stack(found[k], 1):reshape(shape) or accel.zeros(shape, { dtype = x.dtype, device = x.device })
    end
  end
  return J
end

--- The function v -> J v by two backwards: g = J' u is linear in u, so that its gradient by u, weighted by v, is J v.
local function pushed(outputs, inputs)
  local u = {}
  for i, y in ipairs(outputs) do u[i] = accel.zeros_like(y:detach()):requires_grad_() end
  local g = gradients(outputs, u, inputs, true)
  return function(v, create) return gradients(g, v, u, create, true) end
end

--- The same column by column.
local function columns(outputs, inputs, records)
  local push, J = pushed(outputs, inputs), {}
  for i = 1, #outputs do J[i] = {} end
  for k, x in ipairs(inputs) do
    local found = {}
    for i = 1, #outputs do found[i] = {} end
    for j = 1, x:numel() do
      local v = {}
      for m, other in ipairs(inputs) do v[m] = m == k and unit(x, j) or accel.zeros_like(other:detach()) end
      for i, c in ipairs(push(v, records)) do found[i][j] = c end
    end
    for i, y in ipairs(outputs) do
      local shape = joined(y, x)
      J[i][k] = x:numel() > 0 and accel.stack(found[i], -1):reshape(shape) or accel.zeros(shape, { dtype = y.dtype, device = y.device })
    end
  end
  return J
end

local function jacobian(who, fn, o, compute)
  check.callable(who, "fn", fn)
  return function(...)
    local args = table.pack(...)
    return accel.enable_grad(function()
      local given, list, records = prepare(who, args, o.argnums)
      local y, aux = fn(table.unpack(given, 1, given.n))
      if o.has_aux and aux == nil then raise("%s: with has_aux = true fn must return its result and a second value", who) end
      local outputs = tree.leaves(y)
      if #outputs == 0 then raise("%s: fn must return a tensor or a table of them, got %s", who, check.shown(y)) end
      local J, i = compute(outputs, list, records), 0
      local out = tree.map(function()
        i = i + 1
        return shaped(args, o.argnums, J[i])
      end, y)
      out = detached(out, records)
      if o.has_aux then return out, detached(aux, records) end
      return out
    end)
  end
end

--- A function that returns the Jacobian of fn, computed row by row (reverse mode). Its shape is the result's, then the argument's. If there are
--- several results, or tables, it has the form of the result, with the form of the arguments inside. Use it if fn has fewer results than arguments.
--- example: accel.func.jacrev(function(x) return x * x end)(accel.tensor { 1.0, 2.0 }) --> { { 2, 0 }, { 0, 4 } }
---@param fn function
---@param ... any argnums = 1, has_aux = false, chunk_size (no effect: one row at a time), or a table of them
---@return function
function M.jacrev(fn, ...)
  local o = parse_jacrev(...)
  if o.chunk_size ~= nil then
    check.positive("jacrev", "chunk_size", o.chunk_size)
    require("accel.util.no_effect").once("jacrev", "chunk_size", "because one row is computed at a time")
  end
  return jacobian("jacrev", fn, o, rows)
end

--- A function that returns the Jacobian of fn, computed column by column, in the form of jacrev's. Each column takes two backward passes instead
--- of a forward mode, so the operations of fn need second derivatives. Use it if fn has fewer arguments than results.
--- example: accel.func.jacfwd(function(x) return x * x end)(accel.tensor { 1.0, 2.0 }) --> { { 2, 0 }, { 0, 4 } }
---@param fn function
---@param ... any argnums = 1, has_aux = false, randomness = "error" (no effect: fn runs once), or a table of them
---@return function
function M.jacfwd(fn, ...)
  local o = parse_jacfwd(...)
  if check.word("jacfwd", "randomness", o.randomness, { "error", "different", "same" }) ~= "error" then
    require("accel.util.no_effect").once("jacfwd", "randomness", "because fn runs once for all columns")
  end
  return jacobian("jacfwd", fn, o, columns)
end

--- The function of the matrix of fn's second derivatives, shape of the argument twice: the Jacobian of the Jacobian, both in reverse mode.
--- example: accel.func.hessian(function(x) return (x ^ 3):sum() end)(accel.tensor { 1.0, 2.0 }) --> { { 6, 0 }, { 0, 12 } }
---@param fn function
---@param ... any argnums = 1, or a table of it
---@return function
function M.hessian(fn, ...)
  local o = parse_hessian(...)
  return M.jacrev(M.jacrev(fn, o.argnums), o.argnums)
end

local function options_last(args, known)
  local last = args[args.n]
  if type(last) ~= "table" or getmetatable(last) ~= nil or next(last) == nil then return {} end
  for key in next, last do
    if not known[key] then return {} end
  end
  args[args.n], args.n = nil, args.n - 1
  return last
end

local function all(n)
  local list = {}
  for i = 1, n do list[i] = i end
  return list
end

--- The result of fn at these arguments, and a function v -> v' J: the products of a vector with the Jacobian. v has the form of the result, and
--- the function returns one value for each argument. You can call it again. With a last table { has_aux = true }, fn returns a second value,
--- which comes third.
--- example: local y, pull = accel.func.vjp(function(x) return x * x end, accel.tensor { 1.0, 2.0 })
---   return y, pull(accel.ones(2)) --> { 1, 4 }, { 2, 4 }
---@param fn function
---@param ... any arguments of fn, then { has_aux = false }
---@return any, function
function M.vjp(fn, ...)
  check.callable("vjp", "fn", fn)
  local args = table.pack(...)
  local o = options_last(args, { has_aux = true })
  local given, list, records, y, aux
  accel.enable_grad(function()
    given, list, records = prepare("vjp", args, all(args.n))
    y, aux = fn(table.unpack(given, 1, given.n))
  end)
  local outputs = tree.leaves(y)
  local function pull(v, ...)
    check.surplus("vjp", ...)
    local cotangents = tree.leaves(v)
    if #cotangents ~= #outputs then raise("vjp: got %d tensors for the %d results of fn", #cotangents, #outputs) end
    for i, c in ipairs(cotangents) do
      if not tensors.same_shape(c, outputs[i]) then
        raise("vjp: tensor %d has shape %s, the result %s", i, tensors.shape_string(c), tensors.shape_string(outputs[i]))
      end
      records = records or c.requires_grad
    end
    local g = accel.enable_grad(function() return gradients(outputs, cotangents, list, records, true) end)
    return table.unpack(detached(shaped(args, all(args.n), g), records), 1, args.n)
  end
  if o.has_aux then return detached(y, records), pull, detached(aux, records) end
  return detached(y, records), pull
end

local function tangents_of(who, list, tangents)
  local v = tree.leaves(tangents)
  if #v ~= #list then raise("%s: got %d tangents for %d tensors", who, #v, #list) end
  for i, t in ipairs(v) do
    if not tensors.same_shape(t, list[i]) then
      raise("%s: tangent %d has shape %s, its argument %s", who, i, tensors.shape_string(t), tensors.shape_string(list[i]))
    end
  end
  return v
end

--- The result of fn at a list of arguments, and J v: how the result changes if the arguments move along the list of tangents v. It takes two
--- backward passes, so the operations of fn need second derivatives.
--- - has_aux: fn returns a second value, which comes third
--- - strict: raise if a result does not depend on the arguments, instead of zeros
--- example: return accel.func.jvp(function(x) return x * x end, { accel.tensor { 1.0, 2.0 } }, { accel.ones(2) }) --> { 1, 4 }, { 2, 4 }
---@param fn function
---@param primals table
---@param tangents table
---@param ... any strict = false, has_aux = false, or a table of them
---@return any, any
function M.jvp(fn, primals, tangents, ...)
  local o = parse_jvp(...)
  check.callable("jvp", "fn", fn)
  if not tree.is_node(primals) or not tree.is_node(tangents) then raise "jvp: primals and tangents must be lists of fn's arguments" end
  local args = table.pack(table.unpack(primals))
  return accel.enable_grad(function()
    local given, list, records = prepare("jvp", args, all(args.n))
    local v = tangents_of("jvp", list, tangents)
    for _, t in ipairs(v) do records = records or t.requires_grad end
    local y, aux = fn(table.unpack(given, 1, given.n))
    local outputs = tree.leaves(y)
    for i, out in ipairs(outputs) do
      if o.strict and not out.requires_grad then raise("jvp: result %d does not depend on the arguments, and strict = true", i) end
    end
    local out = detached(tree.fill(y, pushed(outputs, list)(v, records)), records)
    if o.has_aux then return detached(y, records), out, detached(aux, records) end
    return detached(y, records), out
  end)
end

--- The result of fn at these arguments, and a function v -> J v for many products at this point. It does not run fn again.
--- example: local y, push = accel.func.linearize(function(x) return x * x end, accel.tensor { 1.0, 2.0 })
---   return push(accel.ones(2)), push(accel.tensor { 0.0, 1.0 }) --> { 2, 4 }, { 0, 4 }
---@param fn function
---@param ... any arguments of fn
---@return any, function
function M.linearize(fn, ...)
  check.callable("linearize", "fn", fn)
  local args = table.pack(...)
  return accel.enable_grad(function()
    local given, list, records = prepare("linearize", args, all(args.n))
    local y = fn(table.unpack(given, 1, given.n))
    local push = pushed(tree.leaves(y), list)
    return detached(y, records), function(...)
      local v = tangents_of("linearize", list, { ... })
      return detached(tree.fill(y, accel.enable_grad(function() return push(v, records) end)), records)
    end
  end)
end

return M
