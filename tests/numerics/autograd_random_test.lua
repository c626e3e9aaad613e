-- Random programs: dozens of ops on tensors that share inputs, with views, in-place writes, joins, hooks
-- and detours through detach and no_grad. Gradients, second derivatives and gradients by things in the
-- middle against central differences in f64.
--   accel-run tests/numerics/autograd_random_test.lua [SEED]
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local numbers = require "numbers"

local ROWS, COLS, LEAVES, STEPS, PROGRAMS = 2, 3, 3, 25, 150
local H, BAR = 1e-5, 2e-6

-- Each takes the values so far (all ROWS x COLS) and random choices, and returns one more of that shape, of
-- moderate size.
local ops = {
  function(a, b) return a + b end,
  function(a, b) return a * b end,
  function(a, b) return (a - b) * 0.5 end,
  function(a) return a:sin() end,
  function(a) return (a * 0.5):exp() end,
  function(a) return a:tanh() end,
  function(a) return a:silu() end,
  function(a, b) return a / (b * b + 1) end,
  function(a) return a:softmax(2) end,
  function(a, b) return a:matmul(b:t()):matmul(b) * 0.3 end,
  function(a, b) return a + b:sum(1, { keepdim = true }) end,
  function(a, b) return a * b:mean(2, { keepdim = true }) end,
  function(a, b) return accel.cat({ a:narrow(2, 1, 1), b:narrow(2, 2, 2) }, 2) end,
  function(a) return accel.stack({ a:select(1, 2), a:select(1, 1) }, 1) end,
  function(a) return a:t():reshape(ROWS, COLS) end,
  function(a, b) return a:t():contiguous():t() - b:select(2, 1):unsqueeze(2) end,
  function(a, b) return a:maximum(b) end,
  function(a)
    local p = a:split(1, 1)
    return accel.cat({ p[2], p[1] * 2 }, 1) * 0.5
  end,
  function(a) return a:rms_norm({ COLS }, { eps = 0.1 }) end,
  function(a, b) return a * b:detach() end,
  function(a, b) return a:clone():mul_(b) end,
  function(a, b) return (a * 0.7):add_(b, { alpha = 0.5 }):tanh_() end,
  function(a, b)
    local c = (a + 0):mul_(0.5)
    return c:add_(c:t():reshape(ROWS, COLS)):sub_(b)
  end,
  function(a, b) return (b * 1):copy_(a) + b end,
  function(a) return a:gather(2, accel.tensor { { 2, 0, 0, 1 }, { 1, 1, 2, 0 } }):narrow(2, 2, 3) end,
  function(a) return a:expand(4, ROWS, COLS):sum(1) * 0.25 end,
  function(a, b) return accel.where(b:gt(0), a, b * 0.3) end,
  function(a) -- a hook that gives back another tensor of the same values
    local c = a * 1
    if c.requires_grad then c:register_hook(function(g) return g * 1 end) end
    return c
  end,
}
local DETACH = 20

-- A program is a list of {op, operand positions}; made once per seed, run many times.
local function write_program(seed)
  local u, program = numbers.uniform(seed), {}
  for i = 1, STEPS do
    local n = LEAVES + i - 1
    local recent = math.max(1, n - 6) -- mostly what was made lately, so that paths grow long
    local function pick()
      local from = u() < 0.75 and recent or 1
      return from + math.floor(u() * (n - from + 1))
    end
    program[i] = { op = 1 + math.floor(u() * #ops), pick(), pick() }
  end
  return program
end

local function run(program, leaves)
  local v = { table.unpack(leaves) }
  for i, line in ipairs(program) do v[LEAVES + i] = ops[line.op](v[line[1]], v[line[2]]) end
  local loss = (v[#v] * v[#v]):sum()
  for i = LEAVES + 5, #v, 5 do loss = loss + (v[i]:tanh() * 0.3):sum() end
  return loss, v
end

local function leaves_of(flat, grad)
  local t = {}
  for i = 1, LEAVES do
    t[i] = numbers.tensor(flat[i], { ROWS, COLS }, "f64")
    if grad then t[i].requires_grad = true end
  end
  return t
end

local function differences(flat, fn)
  local d = {}
  for i = 1, LEAVES do
    d[i] = {}
    for k, x in ipairs(flat[i]) do
      flat[i][k] = x + H
      local up = fn()
      flat[i][k] = x - H
      local down = fn()
      flat[i][k] = x
      d[i][k] = (up - down) / (2 * H)
    end
  end
  return d
end

-- detach makes a constant of what it passes, and differences see through it: those programs are only
-- compared with themselves.
local function has_detach(program)
  for _, line in ipairs(program) do
    if line.op == DETACH then return true end
  end
  return false
end

local function apart(a, b) return (numbers.distance(numbers.flat(a), numbers.flat(b))) end

local function compare(got, want, what)
  for i = 1, LEAVES do
    local g = got[i] and numbers.flat(got[i]) or { 0, 0, 0, 0, 0, 0 }
    local e, why = numbers.distance(g, want[i], 1)
    assert(e <= BAR, ("%s, leaf %d: error %.3g%s"):format(what, i, e, why and " (" .. why .. ")" or ""))
  end
end

local n_compared, n_second = 0, 0

local function check(seed)
  local program, flat = write_program(seed), {}
  for i = 1, LEAVES do flat[i] = numbers.distinct(ROWS * COLS, -1.2, 1.2, seed * 10 + i) end
  local smooth = not has_detach(program)
  -- backward, retained, twice: the second adds the same again
  local t = leaves_of(flat, true)
  local loss = run(program, t)
  loss:backward { retain_graph = true }
  local first = {}
  for i = 1, LEAVES do first[i] = t[i].grad and t[i].grad:clone() end
  if smooth then
    compare(first, differences(flat, function() return run(program, leaves_of(flat)):item() end), "gradient")
    n_compared = n_compared + 1
  end
  loss:backward()
  for i = 1, LEAVES do
    if first[i] then
      assert(apart(t[i].grad, first[i] * 2) < 1e-14, "a second backward adds another gradient")
    end
  end
  assert(not pcall(loss.backward, loss), "a third backward has nothing left to use")
  -- accel.grad, also under create_graph, says the same; some programs compose ops differently then
  t = leaves_of(flat, true)
  local g = accel.grad(run(program, t), t, { create_graph = true, allow_unused = true })
  for i = 1, LEAVES do
    assert((g[i] == nil) == (first[i] == nil), "create_graph finds other leaves")
    if g[i] then
      assert(apart(g[i], first[i]) < 1e-11, "create_graph changes the gradient")
    end
  end
  -- second order: the gradient of the squared gradient
  local function penalty(list)
    local s
    for i = 1, LEAVES do
      if list[i] then s = s and s + (list[i] * list[i]):sum() or (list[i] * list[i]):sum() end
    end
    return s
  end
  local p = penalty(g)
  if smooth and p and p.requires_grad then
    local gg = accel.grad(p, t, { allow_unused = true })
    local scale = math.max(1, p:item())
    local want = differences(flat, function()
      local u = leaves_of(flat, true)
      return penalty(accel.grad(run(program, u), u, { allow_unused = true })):item()
    end)
    for i = 1, LEAVES do
      for k = 1, #want[i] do want[i][k] = want[i][k] / scale end
      gg[i] = gg[i] and gg[i] / scale
    end
    compare(gg, want, "second derivative")
    n_second = n_second + 1
  end
  -- by the chain rule through everything in the middle that can be reached: dl/dx = what the values made of
  -- x pass on
  t = leaves_of(flat, true)
  local l, v = run(program, t)
  local middle = v[LEAVES + 10]
  if middle.requires_grad then
    local all = accel.grad(l, { middle, t[1] }, { retain_graph = true, allow_unused = true })
    local again = accel.grad(l, middle, { allow_unused = true })
    assert((all[1] == nil) == (again == nil), "other inputs change what is found")
    if again then
      assert(apart(all[1], again) == 0, "asking for more changes a gradient")
    end
    if all[2] and first[1] then
      assert(apart(all[2], first[1]) < 1e-13, "asking for the middle changes the end")
    end
  end
end

local failed = 0
for seed = tonumber(arg[1]) or 1, tonumber(arg[1]) or PROGRAMS do
  local ok, why = pcall(check, seed)
  if not ok then
    failed = failed + 1
    print(("FAIL seed %d: %s"):format(seed, tostring(why)))
  end
end
collectgarbage()
collectgarbage()
local left = accel.mem_stats()
if left.live_tensors ~= 0 or left.live_bytes ~= 0 then
  print(("FAIL %d tensors and %d bytes are left"):format(left.live_tensors, left.live_bytes))
  failed = failed + 1
end
print(("%d gradients and %d second derivatives compared, %d failed"):format(n_compared, n_second, failed))
assert(arg[1] or (n_compared > 50 and n_second > 40), "too few programs can be compared")
if failed > 0 then os.exit(1, true) end
