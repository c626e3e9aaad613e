-- Calls of PyTorch's public names with its results: make/calls.py wrote AREA.json from AREA.py, which documents the format.
--   accel-run tests/reference/calls.lua AREA.json [NAME ...]
--
-- Results, dtypes, shapes and gradients must be PyTorch's. A case with `fails` must raise. A name that ends with _ must return the tensor that it is
-- called on. Differences that are meant stand in calls/known.lua with a reason.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path
local raw = require "raw"

local path, only = arg[1], {}
assert(path, "usage: calls.lua AREA.json [NAME ...]")
for i = 2, #arg do only[arg[i]] = true end
local null = accel.json.null
local BAR <const> = { f64 = 1e-12, c128 = 1e-12, f32 = 1e-5, c64 = 1e-5, f16 = 1e-2, bf16 = 1e-2 }
local NUMBERS <const> = { nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }
local function number(v) return NUMBERS[v] or v end
local function is_complex(dtype) return dtype == "c64" or dtype == "c128" end

-- Input k (from 0) of a case: the formula of make/calls.py.
local function fill(s, k)
  local n, values = 1, {}
  for _, e in ipairs(s.shape) do n = n * e end
  for j = 1, n do
    local u = ((j * (k * 2 + 7)) * 0.6180339887498949) % 1.0
    if s.kind == "b" then values[j] = u < 0.5
    elseif s.kind == "i" then values[j] = math.floor(s.lo + u * (s.hi - s.lo))
    elseif s.kind == "f" then values[j] = s.lo + u * (s.hi - s.lo)
    end
  end
  if s.kind == "lit" then
    for j, v in ipairs(s.values) do values[j] = number(v) end
    if is_complex(s.dtype) then
      local shape = table.move(s.shape, 1, #s.shape, 1, {})
      shape[#shape + 1] = 2
      local half = s.dtype == "c64" and "f32" or "f64"
      return accel.view_as_complex(accel.tensor(values, { dtype = half }):reshape(shape))
    end
  end
  if n == 0 then return accel.zeros(s.shape, { dtype = s.dtype }) end
  return accel.tensor(values, { dtype = s.dtype }):reshape(s.shape)
end

local function flat(list, into)
  for i = 1, list.n or #list do
    local v = list[i]
    if type(v) == "table" then flat(v, into) else into[#into + 1] = v == nil and null or v end
  end
  return into
end

local function close(got, want, bar)
  if got == want or (got ~= got and want ~= want) then return true end
  if type(got) ~= "number" or type(want) ~= "number" then return false end
  local d = math.abs(got - want)
  return d == d and d ~= math.huge and d <= bar
end

local function list_of(t)
  if is_complex(t.dtype) then t = accel.view_as_real(t:detach():resolve_conj()) end
  t = t:detach()
  if t:is_floating_point() then t = t:to "f64" end
  return t:reshape(-1):tolist()
end

-- What differs, or nil.
local function differs(got, want, tol)
  if want.t then
    if not accel.is_tensor(got) then return ("a %s instead of a tensor"):format(type(got)) end
    if got.dtype ~= want.t then return ("dtype %s instead of %s"):format(got.dtype, want.t) end
    if not raw.same_list(got.shape, want.s) then
      return ("shape (%s) instead of (%s)"):format(table.concat(got.shape, ", "), table.concat(want.s, ", "))
    end
    if not want.v then return nil end
    local largest = 0.0
    for _, v in ipairs(want.v) do
      if math.type(v) == "float" and v == v and math.abs(v) < math.huge then largest = math.max(largest, math.abs(v)) end
    end
    local bar = (tol or BAR[want.t] or 0) * math.max(largest, 1)
    for i, v in ipairs(list_of(got)) do
      if not close(v, number(want.v[i]), bar) then return ("element %d is %s instead of %s"):format(i, tostring(v), tostring(want.v[i])) end
    end
  else
    local expected = want.n == nil and null or number(want.n)
    if not close(got, expected, (tol or 1e-12) * math.max(1, type(expected) == "number" and math.abs(expected) or 1)) then
      return ("%s instead of %s"):format(tostring(got), tostring(expected))
    end
  end
end

-- The bar of gradients: of the shortest dtype that takes part.
local function shortest(case)
  local bar = 1e-10
  for _, row in ipairs(case.inputs) do bar = math.max(bar, type(row[2]) == "table" and BAR[row[2].dtype] or 0) end
  for _, o in ipairs(case.out) do bar = math.max(bar, BAR[o.t] or 0) end
  return bar
end

local function gradients(case, outs, leaves)
  local total
  local k = 0
  for _, o in ipairs(outs) do
    if accel.is_tensor(o) and o.requires_grad then
      local cot = fill({ kind = "f", shape = o.shape, lo = -1, hi = 1, dtype = "f64" }, k + 20):to(o.dtype)
      local part = (o * cot):sum()
      if is_complex(part.dtype) then part = part:real() end
      total, k = total and total + part or part, k + 1
    end
  end
  if not total then return #case.grad > 0 and "no result requires gradients" or nil end
  if #case.grad == 0 then return "results require gradients, PyTorch's do not" end
  local of = {}
  for i, row in ipairs(case.grad) do of[i] = assert(leaves[row[1]]) end
  local got = accel.grad(total, of, { allow_unused = true })
  for i, row in ipairs(case.grad) do
    local g = got[i] or accel.zeros(row[2].s, { dtype = row[2].t }) -- none and zeros are the same
    local why = differs(g, row[2], case.tol and case.tol * 10 or shortest(case))
    if why then return ("gradient of %s: %s"):format(row[1], why) end
  end
end

local function check(case)
  local env = setmetatable({ accel = accel, F = accel.nn.functional, nn = accel.nn }, { __index = function(_, k)
    if k == "linalg" or k == "fft" then return accel[k] end
    return _G[k]
  end })
  local leaves = {}
  for k, row in ipairs(case.inputs) do
    local name, s = row[1], row[2]
    local value = s
    if type(s) == "table" then
      value = fill(s, k - 1)
      if case.grad and (value:is_floating_point() or is_complex(value.dtype)) then
        value:requires_grad_()
        leaves[name] = value
      end
    end
    env[name] = value
  end
  local written = case.name:find "[^_]_$"
  if written then env.y = env.x:clone() end
  local fn = assert(load("return " .. case.lua, "=" .. case.lua, "t", env))
  local ok, out = pcall(function() return table.pack(fn()) end)
  if case.fails then return ok and "gives a result; PyTorch raises" or nil end
  if not ok then return tostring(out) end
  local outs = flat(out, {})
  if written then
    if not rawequal(outs[1], env.y) then return "does not return the tensor that it is called on" end
    outs[#outs + 1] = env.y
  end
  if #outs ~= #case.out then return ("%d results instead of %d"):format(#outs, #case.out) end
  for i, want in ipairs(case.out) do
    local why = differs(outs[i], want, case.tol)
    if why then return #outs > 1 and ("result %d: %s"):format(i, why) or why end
  end
  if case.grad then return gradients(case, outs, leaves) end
end

local known = require "calls.known"
local passed, failed, skipped = 0, 0, 0
for _, case in ipairs(assert(raw.json(path))) do
  if not next(only) or only[case.name] then
    local ok, why = pcall(check, case)
    if ok and not why then passed = passed + 1
    elseif known[case.lua] then skipped = skipped + 1
    else
      failed = failed + 1
      print(("FAIL %s %s: %s: %s"):format(table.concat(case.spaces, ","), case.name, case.lua, tostring(why)))
    end
  end
end
print(("%d passed, %d failed, %d skipped"):format(passed, failed, skipped))
os.exit(failed == 0 and passed > 0)
