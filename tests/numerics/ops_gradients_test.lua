-- Every op's gradient against central differences in f64, and the gradient of that gradient against
-- differences of it - by the inputs and by the cotangent, so that backward kernels are differentiated too.
-- An op without cases fails.
--   accel-run tests/numerics/ops_gradients_test.lua [OP]
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local numbers = require "numbers"
local cases = require "op_cases"

local H, BAR = 1e-5, 1e-6

-- Values of the case's inputs, then of one cotangent per float result.
local function point(case, f)
  local p = { shapes = {}, flat = {}, wanted = {} }
  for i, s in ipairs(case.inputs) do
    p.shapes[i], p.flat[i] = s.shape, cases.values(s, i)
    p.wanted[i] = cases.wants_grad(s)
  end
  p.n = #p.flat
  for j, r in ipairs(cases.run(case, f, cases.build(case, "f64"))) do
    if r:is_floating_point() then
      local n = #p.flat + 1
      p.shapes[n], p.flat[n], p.wanted[n] = r.shape, numbers.distinct(r:numel(), -1, 1, 1000 + j), true
      p[j] = n
    end
  end
  return p
end

local function tensors(case, p, leaves)
  local t = {}
  for i, flat in ipairs(p.flat) do
    local s = case.inputs[i]
    local dtype = s and (s.dtype or s.kind == "mask" and "bool" or s.kind == "index" and "i64") or "f64"
    t[i] = numbers.tensor(flat, p.shapes[i], dtype)
    if leaves and p.wanted[i] then t[i].requires_grad = true end
  end
  return t
end

-- sum over results of cotangent times result
local function value(case, f, p)
  local t, sum = tensors(case, p), 0.0
  for j, r in ipairs(cases.run(case, f, { table.unpack(t, 1, p.n) })) do
    if p[j] then
      local a, w = numbers.flat(r), p.flat[p[j]]
      for i = 1, #a do sum = sum + a[i] * w[i] end
    end
  end
  return sum
end

-- Gradients of that by the inputs (tensors; zeros where nothing comes), with their graph when `again`.
local function gradients(case, f, p, again)
  local t = tensors(case, p, true)
  local outs, cots, ins = {}, {}, {}
  for j, r in ipairs(cases.run(case, f, { table.unpack(t, 1, p.n) })) do
    if r.requires_grad then outs[#outs + 1], cots[#cots + 1] = r, t[p[j]] end
  end
  for i = 1, p.n do
    if p.wanted[i] then ins[#ins + 1] = t[i] end
  end
  if #outs == 0 then return {}, ins, t end
  local options = { grad_outputs = cots, create_graph = again or false, allow_unused = true }
  return accel.grad(outs, ins, options), ins, t
end

local function check_close(got, want, what)
  for _, d in ipairs(want) do
    assert(d == d, what .. ": differences are NaN, so the op is not defined there; give it ranges in `domain` of tests/support/op_cases.lua")
  end
  local e, why = numbers.distance(got, want, 1e-2)
  assert(e <= BAR, ("%s: error %.3g, bar %.3g%s"):format(what, e, BAR, why and " (" .. why .. ")" or ""))
end

-- d value(p) / d flat[i] by differences
local function differences(p, i, fn)
  local d, flat = {}, p.flat[i]
  for k = 1, #flat do
    local x = flat[k]
    flat[k] = x + H
    local up = fn()
    flat[k] = x - H
    local down = fn()
    flat[k] = x
    d[k] = (up - down) / (2 * H)
  end
  return d
end

local function zeros(n)
  local z = {}
  for i = 1, n do z[i] = 0.0 end
  return z
end

local function first_order(case, f, label)
  local p = point(case, f)
  local g = gradients(case, f, p)
  local k = 0
  for i = 1, p.n do
    if p.wanted[i] then
      k = k + 1
      assert(not g[k] or numbers.same_shape(g[k].shape, p.shapes[i]), "a gradient of another shape")
      local got = g[k] and numbers.flat(g[k]) or zeros(#p.flat[i])
      local want = differences(p, i, function() return value(case, f, p) end)
      check_close(got, want, ("gradient of input %d"):format(i))
    end
  end
end

-- S = sum of v times the gradients; its gradient by inputs and cotangents against differences of S.
local function second_order(case, f, label)
  local p = point(case, f)
  local function weight(k, n) return numbers.distinct(n, -1, 1, 2000 + k) end
  local function s_value()
    local g, ins = gradients(case, f, p)
    local sum = 0.0
    for k = 1, #ins do
      if g[k] then
        local a, v = numbers.flat(g[k]), weight(k, g[k]:numel())
        for i = 1, #a do sum = sum + a[i] * v[i] end
      end
    end
    return sum
  end
  local g, ins, t = gradients(case, f, p, true)
  local outs, cots, by, at = {}, {}, {}, {}
  for k = 1, #ins do
    if g[k] and g[k].requires_grad then
      outs[#outs + 1], cots[#cots + 1] = g[k], numbers.tensor(weight(k, g[k]:numel()), g[k].shape, "f64")
    end
  end
  for i = 1, #t do
    if p.wanted[i] then by[#by + 1], at[#at + 1] = t[i], i end
  end
  local gg = #outs > 0 and accel.grad(outs, by, { grad_outputs = cots, allow_unused = true }) or {}
  for k, i in ipairs(at) do
    local got = gg[k] and numbers.flat(gg[k]) or zeros(#p.flat[i])
    local by_what = i <= p.n and "input " .. i or "cotangent " .. i - p.n
    check_close(got, differences(p, i, s_value), "second derivative by " .. by_what)
  end
end

local failed = cases.each(function(info, case, f, label)
  first_order(case, f, label)
  if not case.once then second_order(case, f, label) end
end, function(case, info)
  if case.big or case.grad == false or case.fd == false or info.nondiff then return false end
  return info.grad or info.composed
end)
cases.finish(failed)
