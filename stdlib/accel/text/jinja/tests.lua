--- Tests of templates (`x is name`): name -> function(value, args, budget, line) -> boolean.
local limits = require "accel.text.jinja.limits"
local values = require "accel.text.jinja.values"

local problem = limits.problem
local kind = values.kind

local M = {}

local function other(args, what, line)
  if args[1] == nil then problem(line, "the test %s needs a value", what) end
  return args[1]
end

local function whole(v, what, line)
  if type(v) == "boolean" then return v and 1 or 0 end
  if math.type(v) ~= "integer" then problem(line, "the test %s needs an integer, got %s", what, values.type_name(v)) end
  return v
end

function M.defined(v) return kind(v) ~= "undefined" end
function M.undefined(v) return kind(v) == "undefined" end
function M.none(v) return kind(v) == "none" end
function M.boolean(v) return type(v) == "boolean" end
M["true"] = function(v) return v == true end
M["false"] = function(v) return v == false end
function M.integer(v) return math.type(v) == "integer" or kind(v) == "big" end
function M.float(v) return math.type(v) == "float" end
function M.number(v) return type(v) == "number" or type(v) == "boolean" or kind(v) == "big" end
function M.string(v) return type(v) == "string" end
function M.mapping(v) return kind(v) == "dict" end
function M.iterable(v)
  local k = kind(v)
  return k == "list" or k == "dict" or k == "string" or k == "undefined"
end
function M.sequence(v)
  local k = kind(v)
  return k == "list" or k == "dict" or k == "string" or k == "undefined"
end
function M.callable(v) return kind(v) == "function" end
function M.lower(v) return type(v) == "string" and v:find "%l" ~= nil and not v:find "%u" end
function M.upper(v) return type(v) == "string" and v:find "%u" ~= nil and not v:find "%l" end
function M.odd(v, _, _, line) return whole(v, "odd", line) % 2 == 1 end
function M.even(v, _, _, line) return whole(v, "even", line) % 2 == 0 end

function M.divisibleby(v, args, _, line)
  local n = whole(other(args, "divisibleby", line), "divisibleby", line)
  if n == 0 then problem(line, "divisibleby: division by zero") end
  return whole(v, "divisibleby", line) % n == 0
end

function M.sameas(v, args, _, line)
  local x = other(args, "sameas", line)
  return rawequal(v, x) and math.type(v) == math.type(x)
end

M["in"] = function(v, args, budget, line) return values.contains(other(args, "in", line), v, budget, line) end
function M.eq(v, args, budget, line) return values.equal(v, other(args, "eq", line), budget) end
function M.ne(v, args, budget, line) return not values.equal(v, other(args, "ne", line), budget) end
function M.lt(v, args, budget, line) return values.less(v, other(args, "lt", line), budget, line) end
function M.gt(v, args, budget, line) return values.less(other(args, "gt", line), v, budget, line) end
function M.le(v, args, budget, line) return not values.less(other(args, "le", line), v, budget, line) end
function M.ge(v, args, budget, line) return not values.less(v, other(args, "ge", line), budget, line) end
M.equalto, M.lessthan, M.greaterthan = M.eq, M.lt, M.gt

return M
