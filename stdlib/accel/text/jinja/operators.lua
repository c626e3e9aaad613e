--- Operators of templates with Python's results: + - * / // % **, comparisons and slices. Integers that leave 64 bits are an error.
local limits = require "accel.text.jinja.limits"
local printf = require "accel.text.jinja.printf"
local values = require "accel.text.jinja.values"

local problem = limits.problem
local kind = values.kind

local M = {}

local function integer_of(exact, line)
  if exact ~= exact or exact < -0x1p63 or exact >= 0x1p63 then problem(line, "the integer is too large") end
end

local function times(budget, v, n, line)
  n = math.max(0, n)
  if type(v) == "string" then
    if #v > 0 and n > budget.string // #v then problem(line, "a string of more than %d bytes", budget.string) end
    budget:bytes(#v * n, line)
    return v:rep(n)
  end
  if v.n > 0 and n > limits.ITEMS // v.n then problem(line, "a list of more than %d entries", limits.ITEMS) end
  budget:items(v.n * n, line)
  local out = {}
  for i = 0, n - 1 do table.move(v.items, 1, v.n, i * v.n + 1, out) end
  return values.list(out, v.tuple)
end

local arithmetic = {
  ["+"] = function(a, b, line, both)
    if both then integer_of(a + 0.0 + b, line) end
    return a + b
  end,
  ["-"] = function(a, b, line, both)
    if both then integer_of(a - 0.0 - b, line) end
    return a - b
  end,
  ["*"] = function(a, b, line, both)
    if both then integer_of((a + 0.0) * b, line) end
    return a * b
  end,
  ["/"] = function(a, b, line)
    if b == 0 then problem(line, "division by zero") end
    return a / b
  end,
  ["//"] = function(a, b, line)
    if b == 0 then problem(line, "division by zero") end
    return a // b
  end,
  ["%"] = function(a, b, line)
    if b == 0 then problem(line, "division by zero") end
    return a % b
  end,
  ["**"] = function(a, b, line, both)
    if a == 0 and b < 0 then problem(line, "zero to a negative power") end
    if not both or b < 0 then
      local y = (a + 0.0) ^ b
      if y ~= y then problem(line, "the power is not a real number") end
      return y
    end
    integer_of((a + 0.0) ^ b, line)
    local out, base, e = 1, a, b
    while e > 0 do
      if e % 2 == 1 then out = out * base end
      base, e = base * base, e // 2
    end
    return out
  end,
}

--- a op b. negating: -b, with a = 0.
---@return any
function M.binary(budget, op, a, b, line, negating)
  local x, y = values.number(a), values.number(b)
  if x and y then
    if negating and math.type(y) == "float" then return -y end
    return arithmetic[op](x, y, line, math.type(x) == "integer" and math.type(y) == "integer")
  end
  for _, v in ipairs { a, b } do
    if kind(v) == "undefined" then problem(line, "%s is undefined", limits.quoted(v.name)) end
    if kind(v) == "big" then problem(line, "the integer %s is too large to reckon with", limits.quoted(v.text)) end
  end
  if op == "+" and type(a) == "string" and type(b) == "string" then return budget:joined({ a, b }, "", line) end
  if op == "+" and kind(a) == "list" and kind(b) == "list" and a.tuple == b.tuple then
    budget:items(a.n + b.n, line)
    local out = table.move(a.items, 1, a.n, 1, {})
    return values.list(table.move(b.items, 1, b.n, a.n + 1, out), a.tuple)
  end
  if op == "*" then
    local seq, n = a, y
    if x then seq, n = b, x end
    if math.type(n) == "integer" and (type(seq) == "string" or kind(seq) == "list") then return times(budget, seq, n, line) end
  end
  if op == "%" and type(a) == "string" then
    if kind(b) == "dict" then return printf(a, { b }, b.map, budget, line) end
    return printf(a, kind(b) == "list" and b.tuple and b.items or { b }, nil, budget, line)
  end
  if negating then problem(line, "%s has no negative", values.type_name(b)) end
  problem(line, "%s %s %s is not defined", values.type_name(a), op, values.type_name(b))
end

function M.compare(budget, op, a, b, line)
  if op == "==" then return values.equal(a, b, budget) end
  if op == "!=" then return not values.equal(a, b, budget) end
  if op == "in" then return values.contains(b, a, budget, line) end
  if op == "not in" then return not values.contains(b, a, budget, line) end
  for _, v in ipairs { a, b } do
    if kind(v) == "undefined" then problem(line, "%s is undefined", limits.quoted(v.name)) end
    if kind(v) == "big" then problem(line, "the integer %s is too large to order", limits.quoted(v.text)) end
  end
  local x, y = values.number(a), values.number(b)
  if x and y then
    if op == "<" then return x < y elseif op == "<=" then return x <= y elseif op == ">" then return x > y end
    return x >= y
  end
  if op == "<" then return values.less(a, b, budget, line) end
  if op == ">" then return values.less(b, a, budget, line) end
  if op == "<=" then return not values.less(b, a, budget, line) end
  return not values.less(a, b, budget, line)
end

--- x[from:to:step]
function M.slice(budget, v, from, to, step, line)
  local function part(p, default)
    if kind(p) == "none" then return default end
    if type(p) == "boolean" then return p and 1 or 0 end
    if math.type(p) ~= "integer" then problem(line, "a slice needs integers, got %s", values.type_name(p)) end
    return p
  end
  local k = kind(v)
  if k == "undefined" then problem(line, "%s is undefined", limits.quoted(v.name)) end
  if k ~= "list" and k ~= "string" then problem(line, "%s cannot be sliced", values.type_name(v)) end
  local n, by = values.length(v, budget), part(step, 1)
  if by == 0 then problem(line, "a slice's step must not be zero") end
  local low, high = by < 0 and -1 or 0, by < 0 and n - 1 or n
  local function bound(p, default)
    local at = part(p, nil)
    if at == nil then return default end
    if at < 0 then at = at + n end
    return math.min(math.max(at, low), high)
  end
  local first, last = bound(from, by < 0 and n - 1 or 0), bound(to, by < 0 and -1 or n)
  if k == "string" and by == 1 then
    budget:work(#v // 16)
    return values.characters(v, first + 1, last)
  end
  local items, out = values.sequence(v, budget, line), {}
  by = math.max(-limits.ITEMS * 16, math.min(by, limits.ITEMS * 16))
  budget:work(math.max(0, (last - first) // by))
  for i = first, last + (by < 0 and 1 or -1), by do out[#out + 1] = items[i + 1] end
  if k == "string" then return table.concat(out) end
  return values.list(out, v.tuple)
end

return M
