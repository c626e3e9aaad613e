--- Filters of templates: name -> function(value, args, named, env, line), with Jinja's results. env has budget, filter and test.
local case = require "accel.text.jinja.case"
local json = require "accel.text.jinja.json"
local limits = require "accel.text.jinja.limits"
local printf = require "accel.text.jinja.printf"
local strings = require "accel.text.jinja.strings"
local values = require "accel.text.jinja.values"

local problem = limits.problem
local kind, list = values.kind, values.list

local M = {}

local function text(v, env)
  return values.text(v, env.budget)
end

local function sequence(v, env, line) return values.sequence(v, env.budget, line) end

--- An argument by place or by name.
local function argument(args, named, at, name, default)
  local v = args[at]
  if v == nil then v = named[name] end
  if v == nil then return default end
  return v
end

local function integer(v, what, line)
  if type(v) == "boolean" then return v and 1 or 0 end
  if math.type(v) ~= "integer" then problem(line, "%s needs an integer, got %s", what, values.type_name(v)) end
  return v
end

--- The value at a dotted path of a value: names, and integers as positions.
local function getter(path, env)
  if math.type(path) == "integer" then return function(v) return env.item(v, path, env.line) end end
  if type(path) ~= "string" then return function(v) return v end end
  env.budget:work(4 * #path)
  local parts = {}
  for part in (path .. "."):gmatch "([^.]*)%." do parts[#parts + 1] = math.tointeger(tonumber(part)) or part end
  return function(v)
    for _, part in ipairs(parts) do v = env.item(v, part, env.line) end
    return v
  end
end

local function length(v, _, _, env, line)
  return values.length(v, env.budget) or problem(line, "%s has no length", values.type_name(v))
end

function M.abs(v, _, _, _, line)
  local n = values.number(v) or problem(line, "abs needs a number, got %s", values.type_name(v))
  return math.abs(n)
end

--- A filter that makes another string of every character.
local function each(fn)
  return function(v, _, _, env, line)
    local s = text(v, env)
    env.budget:work(#s // 2)
    env.budget:bytes(#s, line)
    return fn(s, env.budget)
  end
end

M.capitalize, M.lower, M.upper = each(case.capitalize), each(case.lower), each(case.upper)
M.title = each(function(s, budget)
  budget:work(2 * #s)
  return (s:gsub("[^%s%-%(%[{<]+", case.capitalize))
end)
function M.string(v, _, _, env) return text(v, env) end
function M.safe(v, _, _, env) return text(v, env) end
function M.trim(v, args, named, env) return strings.strip(text(v, env), argument(args, named, 1, "chars"), true, true, env.budget) end
M.length, M.count = length, length

function M.default(v, args, named)
  local other = argument(args, named, 1, "default_value", "")
  if kind(v) == "undefined" then return other end
  if argument(args, named, 2, "boolean", false) == true and not values.truth(v) then return other end
  return v
end
M.d = M.default

function M.escape(v, _, _, env, line)
  local s = text(v, env)
  local _, n = s:gsub("[&<>'\"]", "")
  env.budget:work(n + #s // 4)
  env.budget:bytes(#s + 5 * n, line)
  s = s:gsub("[&<>'\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ["'"] = "&#39;", ['"'] = "&#34;" })
  return s
end
M.e = M.escape

function M.list(v, _, _, env, line)
  local items = sequence(v, env, line)
  return list(table.move(items, 1, #items, 1, {}))
end

function M.first(v, _, _, env, line)
  local item = sequence(v, env, line)[1]
  if item == nil then return values.undefined "the first of nothing" end
  return item
end

function M.last(v, _, _, env, line)
  local items = sequence(v, env, line)
  if #items == 0 then return values.undefined "the last of nothing" end
  return items[#items]
end

function M.reverse(v, _, _, env, line)
  local items, out = sequence(v, env, line), {}
  env.budget:work(#items)
  for i = #items, 1, -1 do out[#out + 1] = items[i] end
  if type(v) == "string" then return table.concat(out) end
  return list(out)
end

function M.join(v, args, named, env, line)
  local get, parts = getter(argument(args, named, 2, "attribute"), env), {}
  for i, item in ipairs(sequence(v, env, line)) do parts[i] = text(get(item), env) end
  return env.budget:joined(parts, text(argument(args, named, 1, "d", ""), env), line)
end

function M.items(v, _, _, env, line)
  if kind(v) == "undefined" then return list {} end
  if kind(v) ~= "dict" then problem(line, "items needs a dictionary, got %s", values.type_name(v)) end
  return strings.items(v, env.budget)
end

local function sorted(items, env, line, get, reverse, caseless)
  local keys = {}
  env.budget:work(8 * #items)
  for i, item in ipairs(items) do
    local key = get(item)
    if caseless and type(key) == "string" then
      env.budget:work(#key)
      key = case.lower(key)
    end
    keys[i] = { key = key, at = i }
  end
  -- a merge sort: stable, and it meets every error in the same order
  local function sort(a, b)
    if a >= b then return a == b and { keys[a] } or {} end
    local mid = (a + b) // 2
    local left, right, out, i, j = sort(a, mid), sort(mid + 1, b), {}, 1, 1
    env.budget:work(b - a)
    while left[i] and right[j] do
      local take_right
      if reverse then
        take_right = values.less(left[i].key, right[j].key, env.budget, line)
      else
        take_right = values.less(right[j].key, left[i].key, env.budget, line)
      end
      if take_right then
        out[#out + 1], j = right[j], j + 1
      else
        out[#out + 1], i = left[i], i + 1
      end
    end
    table.move(left, i, #left, #out + 1, out)
    table.move(right, j, #right, #out + 1, out)
    return out
  end
  local out = {}
  for i, key in ipairs(sort(1, #keys)) do out[i] = items[key.at] end
  return out
end

function M.sort(v, args, named, env, line)
  return list(sorted(sequence(v, env, line), env, line, getter(argument(args, named, 3, "attribute"), env),
    argument(args, named, 1, "reverse", false) == true, argument(args, named, 2, "case_sensitive", false) ~= true))
end

function M.dictsort(v, args, named, env, line)
  if kind(v) ~= "dict" then problem(line, "dictsort needs a dictionary, got %s", values.type_name(v)) end
  local by = argument(args, named, 2, "by", "key")
  if by ~= "key" and by ~= "value" then problem(line, "dictsort: by must be 'key' or 'value'") end
  return list(sorted(strings.items(v, env.budget).items, env, line, function(pair) return pair.items[by == "key" and 1 or 2] end,
    argument(args, named, 3, "reverse", false) == true, argument(args, named, 1, "case_sensitive", false) ~= true))
end

function M.unique(v, args, named, env, line)
  local get, out, seen = getter(argument(args, named, 2, "attribute"), env), {}, {}
  for _, item in ipairs(sequence(v, env, line)) do
    local key, fresh = get(item), true
    if type(key) == "string" and argument(args, named, 1, "case_sensitive", false) ~= true then
      env.budget:work(#key)
      key = case.lower(key)
    end
    for _, other in ipairs(seen) do
      env.budget:work(1)
      if values.equal(other, key, env.budget) then
        fresh = false
        break
      end
    end
    if fresh then out[#out + 1], seen[#seen + 1] = item, key end
  end
  return list(out)
end

local function extreme(v, args, named, env, line, better)
  local get, best, best_key = getter(argument(args, named, 2, "attribute"), env), nil, nil
  for _, item in ipairs(sequence(v, env, line)) do
    local key = get(item)
    if type(key) == "string" and argument(args, named, 1, "case_sensitive", false) ~= true then
      env.budget:work(#key)
      key = case.lower(key)
    end
    if best == nil or better(key, best_key) then best, best_key = item, key end
  end
  if best == nil then return values.undefined "the extreme of nothing" end
  return best
end

function M.min(v, a, n, env, line)
  return extreme(v, a, n, env, line, function(x, y) return values.less(x, y, env.budget, line) end)
end

function M.max(v, a, n, env, line)
  return extreme(v, a, n, env, line, function(x, y) return values.less(y, x, env.budget, line) end)
end

function M.sum(v, args, named, env, line)
  local get, total = getter(argument(args, named, 1, "attribute"), env), argument(args, named, 2, "start", 0)
  for _, item in ipairs(sequence(v, env, line)) do total = env.binary("+", total, get(item), line) end
  return total
end

function M.int(v, args, named, _, line)
  local default = argument(args, named, 1, "default", 0)
  if type(v) == "boolean" then return v and 1 or 0 end
  if math.type(v) == "integer" then return v end
  local base = argument(args, named, 2, "base", 10)
  if type(v) == "string" and #v > limits.NUMBER then return default end
  if type(v) == "string" then
    if integer(base, "int", line) ~= 10 then
      if base < 2 or base > 36 then problem(line, "int: base must lie in 2 .. 36, got %d", base) end
      return tonumber(v:gsub("^%s*0[xXoObB]", ""), base) or default
    end
    local digits = v:match "^%s*([-+]?%d[%d_]*)%s*$"
    if digits then return math.tointeger(tonumber((digits:gsub("_", "")))) or problem(line, "int: %s is too large", digits) end
    v = tonumber(v:match "^%s*[-+]?[%d.]+[eE]?[-+]?%d*%s*$")
  end
  if type(v) ~= "number" or v ~= v or math.abs(v) == math.huge then return default end
  local whole = v < 0 and math.ceil(v) or math.floor(v)
  return math.tointeger(whole) or problem(line, "int: the number is too large")
end

function M.float(v, args, named)
  if type(v) == "boolean" then return v and 1.0 or 0.0 end
  if type(v) == "string" and #v > limits.NUMBER then return argument(args, named, 1, "default", 0.0) end
  if type(v) == "string" then
    local word = v:lower():match "^%s*([-+]?%l+)%s*$"
    local special = ({ inf = math.huge, ["+inf"] = math.huge, ["-inf"] = -math.huge, infinity = math.huge, nan = 0 / 0 })[word]
    v = special or (not v:find "[xX]" and tonumber(v))
  end
  if type(v) == "number" then return v + 0.0 end
  return argument(args, named, 1, "default", 0.0)
end

function M.round(v, args, named, env, line)
  env.budget:work(8)
  local n = values.number(v) or problem(line, "round needs a number, got %s", values.type_name(v))
  local precision, method = integer(argument(args, named, 1, "precision", 0), "round", line), argument(args, named, 2, "method", "common")
  if precision < -15 or precision > 15 then problem(line, "round: precision must lie in -15 .. 15, got %d", precision) end
  local scale = 10.0 ^ precision
  if method == "ceil" then return math.ceil(n * scale) / scale end
  if method == "floor" then return math.floor(n * scale) / scale end
  if method ~= "common" then problem(line, "round: method must be common, ceil or floor") end
  if precision > 0 then return tonumber(("%." .. precision .. "f"):format(n)) + 0.0 end
  local x = n * scale
  local whole = math.floor(x)
  local rest = x - whole -- halves go to the even one
  if rest > 0.5 or (rest == 0.5 and whole % 2 == 1) then whole = whole + 1 end
  return whole / scale + 0.0
end

function M.replace(v, args, named, env, line)
  local old, new, count = argument(args, named, 1, "old"), argument(args, named, 2, "new"), argument(args, named, 3, "count")
  if old == nil or new == nil then problem(line, "replace needs two strings") end
  return strings.replace(text(v, env), text(old, env), text(new, env),
    count == nil and -1 or kind(count) == "none" and -1 or integer(count, "replace", line), env.budget, line)
end

function M.indent(v, args, named, env, line)
  local s, width = text(v, env), argument(args, named, 1, "width", 4)
  local first, blank = argument(args, named, 2, "first", false) == true, argument(args, named, 3, "blank", false) == true
  local pad = type(width) == "string" and width or nil
  if not pad then
    local n = integer(width, "indent", line)
    if n < 0 or n > 1000 then problem(line, "indent: width must lie in 0 .. 1000, got %d", n) end
    pad = (" "):rep(n)
  end
  local parts = {}
  env.budget:work(3 * #s)
  for row in (s .. "\n"):gmatch "(.-)\n" do
    local wanted = (#parts > 0 or first) and (blank or row ~= "" or (#parts == 0 and first))
    if wanted then env.budget:bytes(#pad + #row, line) end
    parts[#parts + 1] = (wanted and pad or "") .. row
  end
  return env.budget:joined(parts, "\n", line)
end

function M.truncate(v, args, named, env, line)
  local s, most = text(v, env), integer(argument(args, named, 1, "length", 255), "truncate", line)
  local ending, leeway = text(argument(args, named, 3, "end", "..."), env), argument(args, named, 4, "leeway", 5)
  leeway = kind(leeway) == "none" and 5 or integer(leeway, "truncate", line)
  env.budget:work((#s + #ending) // 16)
  local n = most - utf8.len(ending)
  if n < 0 then problem(line, "truncate: length must be at least that of end, got %d", most) end
  if leeway < 0 then problem(line, "truncate: leeway must not be negative, got %d", leeway) end
  if utf8.len(s) <= most + leeway then return s end
  local head = values.characters(s, 1, n)
  if argument(args, named, 2, "killwords", false) ~= true then head = head:match "^(.*) [^ ]*$" or head end
  return env.budget:joined({ head, ending }, "", line)
end

function M.format(v, args, named, env, line)
  if #args > 0 and next(named) ~= nil then problem(line, "format takes values in order or by name, not both") end
  return printf(text(v, env), args, named, env.budget, line)
end

function M.wordcount(v, _, _, env)
  local n = 0
  env.budget:work(#text(v, env) // 2)
  for _ in text(v, env):gmatch "[%w_\128-\255]+" do n = n + 1 end
  return n
end

--- Arguments after the first ones.
local function rest_of(args, n) return table.move(args, n + 1, #args, 1, {}) end

function M.map(v, args, named, env, line)
  local out = {}
  if #args == 0 and named.attribute ~= nil then
    local get, default = getter(named.attribute, env), named.default
    for i, item in ipairs(sequence(v, env, line)) do
      local x = get(item)
      if default ~= nil and kind(x) == "undefined" then x = default end
      out[i] = x
    end
    return list(out)
  end
  local name = args[1]
  if type(name) ~= "string" then problem(line, "map needs a filter's name, or attribute") end
  local rest = rest_of(args, 1)
  for i, item in ipairs(sequence(v, env, line)) do out[i] = env.filter(name, item, rest, named, line) end
  return list(out)
end

--- select, reject, selectattr, rejectattr
local function choose(by_attribute, wanted)
  return function(v, args, named, env, line)
    local get, first = function(item) return item end, 0
    if by_attribute then
      if args[1] == nil then problem(line, "selectattr and rejectattr need an attribute") end
      get, first = getter(args[1], env), 1
    end
    local name, rest, out = args[first + 1], rest_of(args, first + 1), {}
    if name ~= nil and type(name) ~= "string" then problem(line, "the name of a test must be a string, got %s", values.type_name(name)) end
    for _, item in ipairs(sequence(v, env, line)) do
      local x, ok = get(item), nil
      if name == nil then ok = values.truth(x) else ok = env.test(name, x, rest, named, line) end
      if ok == wanted then out[#out + 1] = item end
    end
    return list(out)
  end
end

M.select, M.reject = choose(false, true), choose(false, false)
M.selectattr, M.rejectattr = choose(true, true), choose(true, false)

function M.tojson(v, args, named, env, line)
  local o = { ensure_ascii = args[1], indent = args[2], separators = args[3], sort_keys = args[4] }
  for key, value in next, named do o[key] = value end
  return json(v, o, env.budget, line)
end

function M.attr(v, args, _, env, line)
  if type(args[1]) ~= "string" then problem(line, "attr needs a name") end
  return env.attribute(v, args[1], line)
end

return M
