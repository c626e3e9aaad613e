-- Wrong arguments of every op: an error that names the op and what was wrong, and everything stays usable.
-- Made from the signatures: values of other types, missing and unknown ones, dims out of range, shapes that
-- do not fit.
--   accel-run tests/numerics/ops_errors_test.lua [OP]
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local numbers = require "numbers"
local cases = require "op_cases"

local LISTS = { tensors = true, ints = true, floats = true, dims = true, shape = true }
local wrong = { -- per type: values that it cannot be
  tensor = { "text", 3, true, {} }, tensors = { "text", 3, { 1, 2 } }, operand = { "text", {} },
  scalar = { "text" },
  int = { "text", 1.5 }, ints = { "text", { "a" } }, float = { "text", true }, floats = { "text", { "a" } },
  bool = { "text", 3 }, string = { 3 }, pos = { "text", 0, 1.5 }, dim = { "text", 0, 1.5 },
  dims = { "text", { "a" }, 0 }, shape = { "text", { "a" } }, enum = { "nothing such", 3 },
  dtype = { "f31", 3 },
  device = { "gpu:9", 3 }, generator = { 3, "text" },
}

local marker = accel.tensor { 1.5, 2.5, 3.5 }
local function usable()
  local v = (marker * 2):tolist()
  assert(v[1] == 3 and v[2] == 5 and v[3] == 7, "ops no longer work")
  assert(accel.is_grad_enabled(), "grad mode was left off")
end

local n_errors = 0
local function refused(info, what, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok, what .. ": was taken")
  assert(type(err) == "table" and err.code, what .. ": an error without a code: " .. tostring(err))
  assert(err.code ~= "internal", what .. ": " .. tostring(err))
  local text = tostring(err)
  assert(text:find(info.name, 1, true), what .. ": does not name the op: " .. text)
  usable()
  n_errors = n_errors + 1
  return text, err.code
end

-- Arguments by name for a plain case: what it was given positionally or as options.
local function named(info, case, t)
  local all, given = cases.with(t, case.args or {}), {}
  local last = all[#all]
  local is_table = #all > #t and type(last) == "table" and not accel.is_tensor(last)
  local options = is_table and next(last) ~= nil and #last == 0
  for i = 1, #all - (options and 1 or 0) do given[info.params[i].name] = all[i] end
  if options then
    for k, v in pairs(last) do given[k] = v end
  end
  return given
end

local function by_name(info, case, f)
  local given = named(info, case, cases.build(case, "f32"))
  local function with(name, value)
    local a = {}
    for k, v in pairs(given) do a[k] = v end
    a[name] = value
    return a
  end
  if not pcall(f, with("", nil)) then return end -- needs a call of its own
  for _, p in ipairs(info.params) do
    for _, value in ipairs(wrong[p.type] or error("no wrong values for type " .. p.type)) do
      local text = refused(info, ("%s = %s"):format(p.name, tostring(value)), f, with(p.name, value))
      assert(text:find(p.name, 1, true), "does not name the parameter: " .. text)
    end
    if not p.optional and p.default == nil and given[p.name] ~= nil then
      local text = refused(info, "without " .. p.name, f, with(p.name, nil))
      assert(text:find(p.name, 1, true), "does not name what is missing: " .. text)
    end
    if (p.type == "dim" or p.type == "dims") and info.name ~= "unsqueeze" and info.name ~= "diag_embed" then
      local rank = 1 -- a tensor of rank 0 counts as one dim
      for _, v in pairs(given) do
        if accel.is_tensor(v) then rank = math.max(rank, #v.shape) end
      end
      for _, d in ipairs { rank + 1, -rank - 1, 99 } do
        local list = {}
        if info.name == "permute" then -- wants them all
          for i = 1, #given.x.shape do list[i] = i end
        end
        list[1] = d
        local value = p.type == "dims" and list or d
        local text = refused(info, ("%s = %d"):format(p.name, d), f, with(p.name, value))
        local told = text:find(tostring(d), 1, true) or info.name == "permute" and #given.x.shape == 0
        assert(told, "does not name the dim: " .. text)
      end
    end
  end
  local text = refused(info, "unknown option", f, with("no_such_thing", 1))
  assert(text:find("no_such_thing", 1, true), "does not name the option: " .. text)
end

local function positional(info, f)
  refused(info, "no arguments", f)
  local many = {}
  for i = 1, #info.params + 2 do many[i] = marker end
  refused(info, "too many arguments", f, table.unpack(many))
  local first = info.params[1]
  if not LISTS[first.type] then refused(info, "a function", f, function() end) end
end

-- Shapes that no two operands of an elementwise op, and no matrices, may have together.
local function shapes(info, case, f)
  local real = {}
  for i, s in ipairs(case.inputs) do
    if #s.shape > 0 and numbers.numel(s.shape) > 0 then real[#real + 1] = i end
  end
  if #real < 2 then return end
  local t = cases.build(case, "f32")
  for _, i in ipairs(real) do -- one extent that fits nothing
    local u = { table.unpack(t) }
    local s = { table.unpack(u[i].shape) }
    for d = 1, #s do s[d] = s[d] + 11 end
    u[i] = accel.zeros(s, { dtype = u[i].dtype })
    local ok, err = pcall(cases.run, case, f, u)
    if not ok then
      local text = tostring(err)
      assert(type(err) == "table" and text:find(info.name, 1, true), "does not name the op: " .. text)
      local codes = { shape = true, index_out_of_range = true, invalid_argument = true }
      assert(codes[err.code], "code " .. tostring(err.code) .. ": " .. text)
    end
    usable()
  end
end

local seen = {}
local failed = cases.each(function(info, case, f)
  if not seen[info.name] then positional(info, f) end
  seen[info.name] = true
  if not case.call then by_name(info, case, f) end
  shapes(info, case, f)
end, function(case) return not case.big and not case.number end)
assert(arg[1] or n_errors > 2000, "only " .. n_errors .. " errors were provoked")

-- What each op says about operands that do not fit.
local function says(code, parts, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and err.code == code, tostring(err))
  for _, part in ipairs(parts) do
    assert(tostring(err):find(part, 1, true), ("'%s' is not in: %s"):format(part, tostring(err)))
  end
  usable()
end
if not arg[1] then
  local z = accel.zeros
  says("shape", { "mul", "(2, 3)", "(4, 3)" }, accel.mul, z(2, 3), z(4, 3))
  says("shape", { "matmul", "(2, 3)", "(4, 3)" }, accel.matmul, z(2, 3), z(4, 3))
  says("dtype", { "matmul", "f32", "f64" }, accel.matmul, z(2, 3), z({ 3, 2 }, { dtype = "f64" }))
  says("shape", { "linear", "(2, 3)", "(4, 5)" }, accel.linear, z(2, 3), z(4, 5))
  says("shape", { "cat", "(2, 3)", "(2, 4)" }, accel.cat, { z(2, 3), z(2, 4) }, 1)
  says("shape", { "view", "(2, 3)" }, accel.view, z(2, 3), { 4 })
  says("index_out_of_range", { "embedding", "7" }, accel.embedding, accel.tensor { 1, 7 }, z(5, 2))
  says("index_out_of_range", { "index_select", "-1" }, accel.index_select, z(5, 2), 1, accel.tensor { 0, -1 })
  says("index_out_of_range", { "gather", "5" }, accel.gather, z(5, 2), 1, accel.tensor { { 0, 5 } })
  says("index_out_of_range", { "cross_entropy", "3" }, accel.cross_entropy, z(2, 3), accel.tensor { 0, 3 })
  says("index_out_of_range", { "select", "6" }, accel.select, z(5, 2), 1, 6)
  says("dtype", { "masked_fill", "f32" }, accel.masked_fill, z(2), z(2), 1)
  says("dtype", { "where", "f32" }, accel.where, z(2), z(2), z(2))
  says("device", { "add", "cpu", "meta" }, accel.add, z(2), z({ 2 }, { device = "meta" }))
  says("dtype", { "add", "alpha", "0.5" }, accel.add, accel.tensor { 1, 2 }, 1, { alpha = 0.5 })
  says("invalid_argument", { "dropout", "1.5" }, accel.dropout, z(2), 1.5)
end
marker = nil
cases.finish(failed)
