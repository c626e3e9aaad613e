-- Every op on inputs that lie differently in memory - transposed, every other element, a window, repeated
-- rows, two views of the same elements - gives what it gives on contiguous clones, gradients included. Ops
-- with an in-place form write what the plain form returns and nothing beside it.
-- tier: sampled, memory
--   accel-run tests/numerics/ops_layouts_test.lua [OP]
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local numbers = require "numbers"
local cases = require "op_cases"

local BAR = 8 -- roundings: sums may run in another order

-- Results and gradients of a call, as flat lists with shapes.
local function outcome(case, f, t)
  local leaves = {}
  for i, s in ipairs(case.inputs) do
    if case.grad ~= false and cases.wants_grad(s) then
      t[i] = t[i]:detach()
      t[i].requires_grad = true
      leaves[#leaves + 1] = t[i]
    end
  end
  local results, outs, cots = cases.run(case, f, t), {}, {}
  local list = {}
  local function note(r, what)
    list[#list + 1] = { shape = r.shape, dtype = r.dtype, what = what, value = r:detach() }
  end
  for j, r in ipairs(results) do
    note(r, "result " .. j)
    if r.requires_grad then
      outs[#outs + 1] = r
      accel.manual_seed(500 + j)
      cots[#cots + 1] = accel.rand(r.shape, { dtype = r.dtype })
    end
  end
  if #outs > 0 then
    local g = accel.grad(outs, leaves, { grad_outputs = cots, allow_unused = true })
    for i = 1, #leaves do
      if g[i] then note(g[i], "gradient " .. i) end
    end
  end
  return list
end

local function same(got, want, what)
  assert(#got == #want, ("%s: %d results and gradients instead of %d"):format(what, #got, #want))
  for i, w in ipairs(want) do
    local g = got[i]
    local fits = numbers.same_shape(g.shape, w.shape) and g.dtype == w.dtype
    assert(fits, what .. ": " .. w.what .. " has another shape or dtype")
    if g.value:contiguous():to_bytes() ~= w.value:contiguous():to_bytes() then
      local e, why = numbers.distance(numbers.flat(g.value), numbers.flat(w.value))
      local bar = BAR * (numbers.EPS[w.dtype] or 0)
      assert(e <= bar, ("%s: %s: error %.3g%s"):format(what, w.what, e, why and " (" .. why .. ")" or ""))
    end
  end
end

local function clones(t)
  local r = {}
  for i, x in ipairs(t) do r[i] = x:detach():clone():contiguous() end
  return r
end

local function compare(case, f, t, what)
  local want = outcome(case, f, clones(t))
  same(outcome(case, f, { table.unpack(t) }), want, what)
end

local function layouts(case, f)
  for _, name in ipairs(numbers.layout_names) do
    local t, changed = cases.build(case, "f64"), false
    for i, x in ipairs(t) do
      local y = numbers.layouts[name](x)
      if y then
        if not name:match("^repeated") then
          assert(numbers.distance(numbers.flat(y), numbers.flat(x)) == 0, "a layout changed the values")
        end
        t[i], changed = y, true
      end
    end
    if changed and not case.needs_contiguous then compare(case, f, t, name) end
    -- one input at a time: the others take the paths of contiguous ones
    for i = 1, #t do
      local one = cases.build(case, "f64")
      one[i] = numbers.layouts[name](one[i])
      if one[i] and #t > 1 and not case.needs_contiguous then
        compare(case, f, one, name .. " input " .. i)
      end
    end
  end
end

-- Inputs of one shape as windows on the same elements, one apart, and as the very same tensor.
local function overlapping(case, f)
  for i = 1, #case.inputs do
    for j = i + 1, #case.inputs do
      local a, b = case.inputs[i], case.inputs[j]
      local n = numbers.numel(a.shape)
      if cases.is_real(a) and cases.is_real(b) and numbers.same_shape(a.shape, b.shape) and n > 0 then
        local lo, hi = math.max(a.lo, b.lo), math.min(a.hi, b.hi)
        local store = numbers.tensor(numbers.distinct(n + 1, lo, hi, 77), { n + 1 }, "f64")
        local t = cases.build(case, "f64")
        t[i], t[j] = store:narrow(1, 1, n):view(a.shape), store:narrow(1, 2, n):view(a.shape)
        compare(case, f, t, ("inputs %d and %d overlap"):format(i, j))
        t[j] = t[i]
        compare(case, f, t, ("inputs %d and %d are one"):format(i, j))
      end
    end
  end
end

-- ---- in place ----
local function in_place(info, case, label)
  if case.call or not info.inplace then return end
  local f, g = accel.op(info.name), accel.op(info.name .. "_")
  local t = cases.build(case, "f64")
  local ok, want = pcall(function() return cases.run(case, f, clones(t))[1] end)
  if not ok or not numbers.same_shape(want.shape, t[1].shape) or want.dtype ~= "f64" then return end
  want = numbers.flat(want)
  local function check(x, what)
    local u = clones(t)
    u[1] = x
    local r = cases.run(case, g, u)[1]
    assert(r == x, what .. ": it does not give back what it wrote")
    local e, why = numbers.distance(numbers.flat(x), want)
    assert(e <= BAR * numbers.EPS.f64, ("%s: error %.3g%s"):format(what, e, why and " (" .. why .. ")" or ""))
  end
  check(t[1]:clone(), "in place")
  -- through a view: what lies between stays
  local store = accel.stack({ accel.full(t[1].shape, 113, { dtype = "f64" }), t[1] }, -1)
  check(store:select(-1, 2), "in place, every other element")
  for _, v in ipairs(numbers.flat(store:select(-1, 1))) do
    assert(v == 113, "in place: wrote beside its view")
  end
  -- other operands that are views of what is written: read as they were
  for j = 2, #t do
    if numbers.same_shape(t[j].shape, t[1].shape) and t[j].dtype == "f64" and t[1]:numel() > 1 then
      local n = t[1]:numel()
      local a, b = case.inputs[1], case.inputs[j]
      local v = numbers.distinct(n + 1, math.max(a.lo, b.lo), math.min(a.hi, b.hi), 78)
      local all = numbers.tensor(v, { n + 1 }, "f64")
      local function written(x, y, what)
        local u = clones(t)
        u[1], u[j] = x, y
        local expected = numbers.flat(cases.run(case, f, clones(u))[1])
        cases.run(case, g, u)
        local e = numbers.distance(numbers.flat(x), expected)
        assert(e <= BAR * numbers.EPS.f64, ("in place: operand %d %s"):format(j, what))
      end
      for first = 1, 2 do -- reads ahead of what is written, and behind it
        local s = all:clone()
        local x, y = s:narrow(1, first, n), s:narrow(1, 3 - first, n)
        written(x:view(t[1].shape), y:view(t[1].shape), "overlaps what is written")
      end
      local x = t[1]:clone()
      written(x, x, "is what is written")
    end
  end
  -- gradients through the written tensor are those of the plain form
  if case.grad == false or info.nondiff then return end
  local function through(op, copy)
    local u = clones(t)
    local leaf = u[1]
    leaf.requires_grad = true
    u[1] = copy and leaf:clone() or leaf
    local r = cases.run(case, op, u)[1]
    local w = numbers.tensor(numbers.distinct(r:numel(), -1, 1, 9), r.shape, "f64")
    return numbers.flat(accel.grad(r, leaf, { grad_outputs = w }))
  end
  local e = numbers.distance(through(g, true), through(f, false))
  assert(e <= BAR * numbers.EPS.f64, ("in place: gradient: error %.3g"):format(e))
end

-- Large ones: rows are worked off in pieces, by several threads.
local function large(case, f)
  for _, name in ipairs(numbers.layout_names) do
    local t, changed = cases.build(case, "f32"), false
    for i, x in ipairs(t) do
      local y = numbers.layouts[name](x)
      t[i], changed = y or x, changed or y ~= nil
    end
    if changed then compare(case, f, t, name) end
  end
end

local taken = cases.one_of(3)
local failed = cases.each(function(info, case, f, label)
  if not taken(info.name) then return end
  if case.big then
    if not case.random then large(case, f) end
    return
  end
  if not case.random then layouts(case, f) end
  if not case.random then overlapping(case, f) end
  in_place(info, case, label)
end, function() return true end)
cases.finish(failed)
