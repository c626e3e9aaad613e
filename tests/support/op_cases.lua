-- What the generated tests call every op with. Elementwise ops (host/ops/map, parameters that are elements
-- first) get their cases from their signature; the others from the files op_cases_<topic>.lua.
-- cases(op) is an error for an op that none of them knows.
--
-- A case: {label =, inputs = {spec...}, call = function(f, t...) -> results, grad = false: no gradients, fd
-- = false: not differentiable by differences, once = true: no second derivative, ints = false: no integer dtypes are tried, loss = factor on
-- the bars of short dtypes, floor = least scale of errors (sums that cancel), wide_result = true: in a
-- dtype of its own, single = true: computed in f32 whatever the dtype, random = true,
-- needs_contiguous = true, big = true: for threads only, meta = false: the meta device cannot know the
-- shape and says so, roundings = of 16-bit results on the way, full_rank = true: equal columns have no one
-- result}. A spec: {shape =, kind = "real" | "mask" | "index", lo =, hi =, n =, seed =, fixed = true: a
-- constant, dtype =}.
local accel = require "accel"
local numbers = require "numbers"
local sample = require "sample"

local M = {}

--- Says of case after case whether it is taken. Cases of one key (an op and a dtype or layout) differ in their shapes: of them
--- the first is, then one of n; every one in a full run and of an op that is named (arg[1]).
---@param n integer
---@return fun(key: string): boolean
function M.one_of(n)
  if arg[1] then return function() return true end end
  local sampled, seen = sample.one_of(n), {}
  return function(key)
    local first = not seen[key]
    seen[key] = true
    return first or sampled()
  end
end

-- ---- specs ----
local function spec(kind, shape, more)
  local s = { kind = kind, shape = shape, lo = -2, hi = 2 }
  for k, v in pairs(more or {}) do s[k] = v end
  return s
end
function M.real(...) return spec("real", { ... }) end
function M.range(lo, hi, ...) return spec("real", { ... }, { lo = lo, hi = hi }) end
function M.constant(lo, hi, ...) return spec("real", { ... }, { lo = lo, hi = hi, fixed = true }) end
function M.mask(...) return spec("mask", { ... }) end
function M.index(n, ...) return spec("index", { ... }, { n = n }) end
function M.permutation(n) return spec("index", { n }, { n = n, permuted = true }) end

-- A case: inputs first, then the fields of `more`.
function M.case(label, inputs, more)
  local t = { label = label, inputs = inputs }
  for k, v in pairs(more or {}) do t[k] = v end
  return t
end
function M.args(...) return { args = { ... } } end
function M.big(more, ...)
  local t = M.case("big", { ... }, more)
  t.big = true
  return t
end

-- The values of an input as a flat list, and whether gradients by it are asked for.
function M.values(s, at, ints)
  local n, u, v = numbers.numel(s.shape), numbers.uniform(100 + (s.seed or at)), {}
  if s.kind == "index" then
    for i = 1, n do v[i] = s.permuted and (i * 7) % s.n or math.floor(u() * s.n) end
  elseif s.kind == "mask" then
    for i = 1, n do v[i] = u() < 0.5 and 1 or 0 end
  elseif ints then -- small, so that eight bits hold sums of a few; divisors are not zero
    for i = 1, n do v[i] = math.floor(u() * 5) + (s.lo > 0 and 1 or 0) end
  else
    v = numbers.distinct(n, s.lo, s.hi, 7 * (s.seed or at))
  end
  return v
end

function M.is_real(s) return s.kind == "real" and s.dtype == nil end
function M.wants_grad(s) return M.is_real(s) and not s.fixed end

-- Tensors of a case in dtype (that of masks and indexes is their own).
function M.build(case, dtype, device)
  local ints = dtype:match("^[iu]%d") or dtype == "bool"
  local t = {}
  for i, s in ipairs(case.inputs) do
    local d = s.dtype or (s.kind == "mask" and "bool") or (s.kind == "index" and "i64") or dtype
    if device == "meta" then
      t[i] = numbers.tensor(nil, s.shape, d, "meta")
    elseif case.big and M.is_real(s) then
      t[i] = accel.empty(s.shape, { dtype = dtype })
      accel.no_grad(function() accel.op("uniform_")(t[i], s.lo, s.hi) end)
    else
      t[i] = numbers.tensor(M.values(s, i, ints and M.is_real(s)), s.shape, d)
    end
  end
  return t
end

-- Calls op f on tensors t; the results as one flat list. Random ops draw the same numbers every time.
function M.run(case, f, t)
  accel.manual_seed(11)
  local out = {}
  local function take(...)
    for i = 1, select("#", ...) do
      local r = select(i, ...)
      if accel.is_tensor(r) then out[#out + 1] = r
      elseif type(r) == "table" then take(table.unpack(r)) end
    end
  end
  if case.call then take(case.call(f, table.unpack(t)))
  else take(f(table.unpack(M.with(t, case.args or {})))) end
  return out
end

function M.with(t, args)
  local all = { table.unpack(t) }
  for _, a in ipairs(args) do all[#all + 1] = a end
  return all
end

-- ---- elementwise ops, from their signatures ----
-- Where a formula is defined and smooth enough for differences; one range per parameter.
local domain = {
  log = { { 0.3, 3 } }, log1p = { { -0.6, 2 } }, sqrt = { { 0.3, 3 } }, rsqrt = { { 0.3, 3 } },
  reciprocal = { { 0.4, 3 } },
  div = { { -2, 2 }, { 0.4, 3 } }, pow = { { 0.4, 2 }, { -2, 2 } }, fmod = { { -2, 2 }, { 2.1, 3 } },
  remainder = { { -2, 2 }, { 2.1, 3 } },
  log2 = { { 0.3, 3 } }, log10 = { { 0.3, 3 } }, asin = { { -0.9, 0.9 } }, acos = { { -0.9, 0.9 } },
  atanh = { { -0.9, 0.9 } }, acosh = { { 1.2, 3 } }, tan = { { -1.3, 1.3 } }, atan2 = { { -2, 2 }, { 0.4, 3 } },
  xlogy = { { -2, 2 }, { 0.3, 3 } },
  lgamma = { { 0.5, 3 } }, digamma = { { 0.5, 3 } }, erfinv = { { -0.9, 0.9 } }, ndtri = { { 0.1, 0.9 } }, entr = { { 0.3, 3 } },
  erfcx = { { -1, 2 } }, xlog1py = { { -2, 2 }, { -0.6, 2 } }, float_power = { { 0.4, 2 }, { -2, 2 } }, hypot = { { 0.4, 2 }, { -2, 2 } },
}

local unary_shapes = { { 3, 4 }, {}, { 0 }, { 2, 0, 3 }, { 7 }, { 2, 3, 2 } }
local binary_shapes = {
  { { 3, 4 }, { 3, 4 } }, { { 3, 4 }, { 4 } }, { { 3, 1 }, { 1, 4 } }, { { 2, 1, 2 }, { 3, 1 } },
  { {}, { 3 } }, { { 2, 3 }, {} }, { {}, {} }, { { 0, 3 }, { 1, 3 } },
}

local function shape_text(s) return "(" .. table.concat(s, ", ") .. ")" end

local function element_params(info)
  local n, operand = 0, true
  for _, p in ipairs(info.params) do
    if (p.type ~= "tensor" and p.type ~= "operand") or p.mutates or p.optional then break end
    n = n + 1
    operand = operand and p.type == "operand"
  end
  for i = n + 1, #info.params do
    if not info.params[i].optional and info.params[i].default == nil then return 0 end
  end
  return n, operand
end

local function is_map(info)
  local n = element_params(info)
  return info.file:match("^map/") ~= nil and n > 0 and n <= 2
end

local function map_cases(info)
  local n, operand = element_params(info)
  local dom, cases = domain[info.name] or {}, {}
  local function input(i, shape)
    local d = dom[i] or { -2, 2 }
    return M.range(d[1], d[2], table.unpack(shape))
  end
  local function add(label, inputs, more)
    cases[#cases + 1] = M.case(label, inputs, more)
  end
  if n == 1 then
    for _, s in ipairs(unary_shapes) do add(shape_text(s), { input(1, s) }) end
    add("big", { input(1, { 300, 257 }) }, { big = true })
  else
    for _, s in ipairs(binary_shapes) do
      add(shape_text(s[1]) .. " and " .. shape_text(s[2]), { input(1, s[1]), input(2, s[2]) })
    end
    if operand then
      local function behind(f, x) return f(x, 1.3) end
      local function before(f, x) return f(1.3, x) end
      add("number behind", { input(1, { 3, 2 }) }, { call = behind, number = true })
      add("number before", { input(2, { 3, 2 }) }, { call = before, number = true })
    end
    add("big", { input(1, { 300, 257 }), input(2, { 257 }) }, { big = true })
  end
  return cases
end

-- ---- the ops of this build ----
local function read(path)
  local f = assert(io.open(path, "rb"), "cannot read " .. path)
  local text = f:read("a")
  f:close()
  return text
end

-- Every public op with its parsed signature, from the table that the build generated; the library has the
-- same ones.
function M.ops()
  local build = os.getenv("ACCEL_TEST_BUILD") or "build/dev"
  local list, known = {}, {}
  for _, info in ipairs(accel.json.decode(read(build .. "/gen/ops.json")).ops) do
    if not info.hidden then
      list[#list + 1] = info
      known[info.name] = true
    end
  end
  for _, op in ipairs(accel.ops()) do
    assert(op.hidden or op.inplace or known[op.name], "ops.json does not know " .. op.name)
    if not op.hidden and not op.inplace then known[op.name] = nil end
  end
  assert(next(known) == nil, "the library does not know " .. tostring(next(known)))
  return list
end

-- Files of cases beside this one, by topic. Each returns a table of lists by op name.
local topics = {
  "math", "shape", "map", "reduce", "matmul", "norm", "attention", "conv", "sort", "pick", "loss", "optim", "more",
  "quant", "complex", "special", "statistics",
}

function M.cases(info)
  for _, topic in ipairs(topics) do
    local name = "op_cases_" .. topic
    local listed = package.searchpath(name, package.path) and require(name)[info.name]
    if listed then return listed end
  end
  if is_map(info) then return map_cases(info) end
  error(("op %s (%s) has no cases in tests/support"):format(info.name, info.file), 0)
end

-- Runs check(info, case, f, label) for every op and case, collects what fails, prints it and ends the
-- script with 1 if anything did. arg[1], when given, is the only op to run; one that has no case here fails.
function M.each(check, filter)
  local failed, n = {}, 0
  for _, info in ipairs(M.ops()) do
    if arg[1] == nil or arg[1] == info.name then
      local ok, cases = pcall(M.cases, info)
      if not ok then
        failed[#failed + 1] = tostring(cases)
        cases = {}
      end
      for i, case in ipairs(cases) do
        if filter(case, info) then
          local label = ("%s [%s]"):format(info.name, case.label or i)
          local good, why = pcall(check, info, case, accel.op(info.name), label)
          n = n + 1
          if not good then failed[#failed + 1] = label .. ": " .. tostring(why) end
        end
      end
    end
  end
  if arg[1] and n == 0 then failed[#failed + 1] = ("no case of an op %q"):format(arg[1]) end
  for _, line in ipairs(failed) do print("FAIL " .. line) end
  print(("%d cases, %d failed"):format(n, #failed))
  return #failed
end

-- Ends a test: nothing may be left alive.
function M.finish(failed)
  collectgarbage()
  collectgarbage()
  local s = accel.mem_stats()
  if s.live_tensors ~= 0 or s.live_bytes ~= 0 then
    print(("FAIL %d tensors and %d bytes are left"):format(s.live_tensors, s.live_bytes))
    failed = failed + 1
  end
  if failed > 0 then os.exit(1, true) end
end

return M
