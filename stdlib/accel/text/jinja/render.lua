--- Runs a template's tree. Values are defined in values.lua. A template cannot access Lua, files or the process. Used
--- by accel.text.Template.
local filters = require "accel.text.jinja.filters"
local limits = require "accel.text.jinja.limits"
local nearest = require "accel.util.nearest"
local new_budget = require "accel.text.jinja.budget"
local operators = require "accel.text.jinja.operators"
local strings = require "accel.text.jinja.strings"
local tests = require "accel.text.jinja.tests"
local values = require "accel.text.jinja.values"

local problem, quoted = limits.problem, limits.quoted
local NONE, kind, truth = values.NONE, values.kind, values.truth

local M = {}

local eval, run

--- Names of a scope. Those of `up` are visible and not changed.
local function scope_of(up) return { names = {}, up = up } end

local function lookup(scope, name)
  while scope do
    local value = scope.names[name]
    if value ~= nil then return value end
    scope = scope.up
  end
  return nil
end

local function did_you_mean(name, known)
  local near = nearest(name, known)
  return near and ("; did you mean '%s'?"):format(near) or ""
end

local function apply_filter(env, name, value, args, named, line)
  local filter = filters[name]
  if not filter then problem(line, "unknown filter %s%s", quoted(name), did_you_mean(name, filters)) end
  env.budget.line, env.line = line, line
  env.budget:work(1)
  return filter(value, args, named or {}, env, line)
end

local function apply_test(env, name, value, args, _, line)
  local test = tests[name]
  if not test then problem(line, "unknown test %s%s", quoted(name), did_you_mean(name, tests)) end
  env.budget:work(1)
  return test(value, args, env.budget, line)
end

local function evaluate(env, scope, nodes)
  local out = {}
  for i, node in ipairs(nodes or {}) do out[i] = eval(env, scope, node) end
  return out
end

local function evaluate_named(env, scope, nodes)
  local out = {}
  for name, node in next, nodes or {} do out[name] = eval(env, scope, node) end
  return out
end

local function refuse_undefined(v, line)
  if kind(v) == "undefined" then problem(line, "%s is undefined", quoted(v.name)) end
end

--- x.name: a method of strings, lists and dictionaries, else an entry.
local function attribute(env, v, name, line)
  local k = kind(v)
  refuse_undefined(v, line)
  local method = k == "string" and strings.of_string[name] or k == "list" and strings.of_list[name]
    or k == "dict" and strings.of_dict[name]
  if method then
    env.budget:work(12)
    return values.fn(name, function(_, args, named, at)
      env.budget:work(1)
      return method(v, args, named, env.budget, at)
    end)
  end
  if (k == "dict" or k == "namespace") and v.map[name] ~= nil then return v.map[name] end
  if k == "loop" then return v.field(name, line) end
  return values.undefined(name)
end

--- x[key]
local function item(env, v, key, line)
  local k = kind(v)
  refuse_undefined(v, line)
  if k == "dict" then
    if values.is_key(key) and v.map[key] ~= nil then return v.map[key] end
    if type(key) == "string" then return attribute(env, v, key, line) end
    return values.undefined(values.text(key, env.budget))
  end
  if (k == "list" or k == "string") and (math.type(key) == "integer" or type(key) == "boolean") then
    local n, at = values.length(v, env.budget), values.number(key)
    if at < 0 then at = at + n end
    if at < 0 or at >= n then return values.undefined(("entry %d of %d"):format(values.number(key), n)) end
    if k == "list" then return v.items[at + 1] end
    env.budget:work(#v // 16)
    return values.characters(v, at + 1, at + 1)
  end
  if type(key) == "string" then return attribute(env, v, key, line) end
  return values.undefined(values.text(key, env.budget))
end

local expressions = {}

function expressions.constant(_, _, node) return node.value end
function expressions.none() return NONE end

function expressions.name(_, scope, node)
  local value = lookup(scope, node.name)
  if value == nil then return values.undefined(node.name) end
  return value
end

function expressions.body(env) return env.body end
--- Charges the table of a list or a dictionary, and of one entry the place.
local NEW <const> = 20

function expressions.list(env, scope, node)
  env.budget:work(NEW + #node.items)
  return values.list(evaluate(env, scope, node.items))
end

function expressions.tuple(env, scope, node)
  env.budget:work(NEW + #node.items)
  return values.list(evaluate(env, scope, node.items), true)
end

function expressions.dict(env, scope, node)
  env.budget:work(NEW + 5 * #node.keys)
  local out = values.dict()
  for i, key in ipairs(node.keys) do
    local k = eval(env, scope, key)
    if not values.is_key(k) then problem(node.line, "a %s cannot be a key", values.type_name(k)) end
    values.set(out, k, eval(env, scope, node.values[i]))
  end
  return out
end

function expressions.attribute(env, scope, node) return attribute(env, eval(env, scope, node.of), node.name, node.line) end
function expressions.item(env, scope, node)
  return item(env, eval(env, scope, node.of), eval(env, scope, node.key), node.line)
end

function expressions.slice(env, scope, node)
  local v = eval(env, scope, node.of)
  local function part(x) return x and eval(env, scope, x) or NONE end
  return operators.slice(env.budget, v, part(node.from), part(node.to), part(node.step), node.line)
end

function expressions.call(env, scope, node)
  local fn = eval(env, scope, node.fn)
  if kind(fn) ~= "function" then
    refuse_undefined(fn, node.line)
    problem(node.line, "%s is not callable", values.type_name(fn))
  end
  env.budget:work(1)
  env.budget.line = node.line
  return fn.call(env, evaluate(env, scope, node.args), evaluate_named(env, scope, node.named), node.line)
end

function expressions.filter(env, scope, node)
  return apply_filter(env, node.name, eval(env, scope, node.of), evaluate(env, scope, node.args),
    evaluate_named(env, scope, node.named), node.line)
end

function expressions.test(env, scope, node)
  return apply_test(env, node.name, eval(env, scope, node.of), evaluate(env, scope, node.args), nil, node.line)
end

expressions["not"] = function(env, scope, node) return not truth(eval(env, scope, node.of)) end

expressions["and"] = function(env, scope, node)
  local v
  for _, x in ipairs(node.items) do
    v = eval(env, scope, x)
    if not truth(v) then return v end
  end
  return v
end

expressions["or"] = function(env, scope, node)
  local v
  for _, x in ipairs(node.items) do
    v = eval(env, scope, x)
    if truth(v) then return v end
  end
  return v
end

function expressions.condition(env, scope, node)
  if truth(eval(env, scope, node.test)) then return eval(env, scope, node.yes) end
  if node.no then return eval(env, scope, node.no) end
  return values.undefined "a condition without else"
end

function expressions.concat(env, scope, node)
  local parts = {}
  for i, x in ipairs(node.items) do parts[i] = values.text(eval(env, scope, x), env.budget) end
  return env.budget:joined(parts, "", node.line)
end

function expressions.binary(env, scope, node)
  return operators.binary(env.budget, node.op, eval(env, scope, node.left), eval(env, scope, node.right), node.line)
end

function expressions.negative(env, scope, node)
  return operators.binary(env.budget, "-", 0, eval(env, scope, node.of), node.line, true)
end

function expressions.positive(env, scope, node)
  return operators.binary(env.budget, "+", 0, eval(env, scope, node.of), node.line)
end

function expressions.compare(env, scope, node)
  local left = eval(env, scope, node.first)
  for _, step in ipairs(node.rest) do
    local right = eval(env, scope, step.value)
    if not operators.compare(env.budget, step.op, left, right, node.line) then return false end
    left = right
  end
  return true
end

function eval(env, scope, node)
  local budget = env.budget
  budget.left = budget.left - 1
  if budget.left < 0 then
    budget.line = node.line
    budget:work(0)
  end
  return expressions[node.kind](env, scope, node)
end

-- ---- statements ----

local statements = {}

local function write(env, text)
  local n = env.bytes + #text
  if n > env.budget.string then problem(env.budget.line, "writes more than %d bytes", env.budget.string) end
  env.bytes = n
  if env.captures == 0 then env.budget:earn(#text) else env.budget:work(1 + #text // 16) end
  env.out[#env.out + 1] = text
end

--- The output of statements, as a string.
local function capture(env, scope, body)
  local out, bytes = env.out, env.bytes
  if env.captures == 0 then env.bytes_outside = bytes end
  env.out, env.bytes, env.captures = {}, 0, env.captures + 1
  local jump = run(env, scope, body)
  local text = table.concat(env.out)
  env.out, env.bytes, env.captures = out, bytes, env.captures - 1
  env.budget:work(#text // 16)
  return text, jump
end

--- Gives names the parts of a value.
local function assign(env, scope, names, many, value, line)
  if not many then
    scope.names[names[1]] = value
    return
  end
  local items = values.sequence(value, env.budget, line)
  if #items ~= #names then problem(line, "%d values for %d names", #items, #names) end
  for i, name in ipairs(names) do scope.names[name] = items[i] end
end

function statements.data(env, _, node) write(env, node.value) end

function statements.output(env, scope, node)
  env.budget.line = node.line
  write(env, values.text(eval(env, scope, node.value), env.budget))
end

function statements.set(env, scope, node) assign(env, scope, node.names, node.many, eval(env, scope, node.value), node.line) end

function statements.set_field(env, scope, node)
  local space = lookup(scope, node.name)
  if space == nil or kind(space) ~= "namespace" then problem(node.line, "%s is not a namespace", quoted(node.name)) end
  values.set(space, node.field, eval(env, scope, node.value))
end

local function filtered(env, scope, filter, text)
  local before = env.body
  env.body = text
  local value = eval(env, scope, filter)
  env.body = before
  return value
end

function statements.set_block(env, scope, node)
  local text, jump = capture(env, scope_of(scope), node.body)
  scope.names[node.name] = filtered(env, scope, node.filters, text)
  return jump
end

function statements.filter_block(env, scope, node)
  local text, jump = capture(env, scope_of(scope), node.body)
  write(env, values.text(filtered(env, scope, node.filters, text), env.budget))
  return jump
end

--- {% generation %}: its place in the output is kept, in bytes. Inside a macro or a captured block this is where the output stands.
function statements.generation(env, scope, node)
  local from = env.captures == 0 and env.bytes or env.bytes_outside
  local before = env.bytes
  local jump = run(env, scope_of(scope), node.body)
  env.budget:work(12)
  env.spans[#env.spans + 1] = { from, from + env.bytes - before }
  return jump
end

statements["with"] = function(env, scope, node)
  local inner = scope_of(scope)
  for i, name in ipairs(node.names) do inner.names[name] = eval(env, scope, node.values[i]) end
  return run(env, inner, node.body)
end

statements["if"] = function(env, scope, node)
  for _, branch in ipairs(node.branches) do
    if truth(eval(env, scope, branch.test)) then return run(env, scope, branch.body) end
  end
  if node.otherwise then return run(env, scope, node.otherwise) end
end

--- The variable `loop` of a loop over items.
local function loop_variable(env, items, at)
  local n = #items
  local fields = {
    index = function() return at.i end, index0 = function() return at.i - 1 end, first = function() return at.i == 1 end,
    last = function() return at.i == n end, length = function() return n end, revindex = function() return n - at.i + 1 end,
    revindex0 = function() return n - at.i end, depth = function() return 1 end, depth0 = function() return 0 end,
    previtem = function()
      if at.i == 1 then return values.undefined "there is no previous item" end
      return items[at.i - 1]
    end,
    nextitem = function()
      if at.i == n then return values.undefined "there is no next item" end
      return items[at.i + 1]
    end,
  }
  local last
  return { kind = "loop", field = function(name)
    if name == "cycle" then
      return values.fn("cycle", function(_, args, _, line)
        if #args == 0 then problem(line, "cycle needs values") end
        return args[(at.i - 1) % #args + 1]
      end)
    elseif name == "changed" then
      return values.fn("changed", function(_, args)
        local value = values.list(args)
        local changed = last == nil or not values.equal(last, value, env.budget)
        last = value
        return changed
      end)
    end
    if fields[name] then return fields[name]() end
    return values.undefined("loop." .. name)
  end }
end

statements["for"] = function(env, scope, node)
  local items = values.sequence(eval(env, scope, node.iter), env.budget, node.line)
  if node.test then
    local kept = {}
    for _, value in ipairs(items) do
      env.budget:work(12)
      local inner = scope_of(scope)
      assign(env, inner, node.names, node.many, value, node.line)
      if truth(eval(env, inner, node.test)) then kept[#kept + 1] = value end
    end
    items = kept
  end
  if #items == 0 then return node.otherwise and run(env, scope_of(scope), node.otherwise) or nil end
  local at = { i = 0 }
  local loop = loop_variable(env, items, at)
  for i, value in ipairs(items) do
    at.i = i
    env.budget.line = node.line
    env.budget:work(12)
    local inner = scope_of(scope)
    inner.names.loop = loop
    assign(env, inner, node.names, node.many, value, node.line)
    if run(env, inner, node.body) == "break" then break end
  end
end

statements["break"] = function() return "break" end
statements["continue"] = function() return "continue" end

function statements.macro(_, scope, node)
  scope.names[node.name] = values.fn(node.name, function(env, args, named, line)
    env.calls = env.calls + 1
    if env.calls > limits.CALLS then problem(line, "macros call each other more than %d deep", limits.CALLS) end
    if #args > #node.parameters then
      problem(line, "the macro %s takes %d values, got %d", quoted(node.name), #node.parameters, #args)
    end
    env.budget:work(20 + 5 * #node.parameters)
    local inner, known = scope_of(scope), {}
    for i, p in ipairs(node.parameters) do
      local value = args[i]
      known[p.name] = true
      if value == nil then value = named[p.name] end
      if value == nil and p.default then value = eval(env, inner, p.default) end
      if value == nil then value = values.undefined(p.name) end
      inner.names[p.name] = value
    end
    for name in next, named do
      if not known[name] then
        problem(line, "the macro %s has no parameter %s%s", quoted(node.name), quoted(name), did_you_mean(name, known))
      end
    end
    local text = capture(env, inner, node.body)
    env.calls = env.calls - 1
    return text
  end)
end

function run(env, scope, list)
  for _, node in ipairs(list) do
    env.budget:work(0)
    local jump = statements[node.kind](env, scope, node)
    if jump then return jump end
  end
end

--- The text of a tree, with names (values of values.lua) for its variables.
---@param tree table[]
---@param names table<string, any>
---@param input integer bytes of the input
---@param limit? number
---@return string
---@return integer[][] spans bytes of the text that {% generation %} marks, from 0, half open
function M.render(tree, names, input, limit)
  local env = { budget = new_budget(input, limit), out = {}, bytes = 0, calls = 0, captures = 0, spans = {} }
  env.filter = function(...) return apply_filter(env, ...) end
  env.test = function(...) return apply_test(env, ...) end
  env.item = function(...) return item(env, ...) end
  env.attribute = function(...) return attribute(env, ...) end
  env.binary = function(...) return operators.binary(env.budget, ...) end
  run(env, scope_of({ names = names }), tree)
  return table.concat(env.out), env.spans
end

return M
