--- Reads expressions of a template: Jinja's grammar and precedence. Used by parser.lua, which reads the tags around them.
local limits = require "accel.text.jinja.limits"

local problem, quoted = limits.problem, limits.quoted

local M = {}

local Parser = {}
Parser.__index = Parser

--- A token as a message shows it.
function Parser.shown(token)
  if token.kind == "eof" then return "end of the template" end
  if token.value ~= nil then return quoted(tostring(token.value)) end
  return ({ variable_end = "'}}'", block_end = "'%}'", variable_begin = "'{{'", block_begin = "'{%'" })[token.kind] or token.kind
end

function Parser:next()
  local token = self.token
  self.at = self.at + 1
  self.token = self.tokens[self.at] or token
  return token
end

function Parser:is(kind, value)
  return self.token.kind == kind and (value == nil or self.token.value == value)
end

function Parser:accept(kind, value)
  if self:is(kind, value) then return self:next() end
end

function Parser:expect(kind, value)
  if self:is(kind, value) then return self:next() end
  local wanted = value and "'" .. value .. "'" or self.shown { kind = kind }
  problem(self.token.line, "expected %s, got %s", wanted == "name" and "a name" or wanted, self.shown(self.token))
end

function Parser:enter()
  self.depth = self.depth + 1
  if self.depth > limits.DEPTH then problem(self.token.line, "nested more than %d deep", limits.DEPTH) end
end

function Parser:leave() self.depth = self.depth - 1 end

---@param tokens table[]
function M.parser(tokens)
  return setmetatable({ tokens = tokens, at = 1, token = tokens[1], depth = 0, loops = 0 }, Parser)
end

local parse_unary, parse_not
local constants = { ["true"] = true, ["True"] = true, ["false"] = false, ["False"] = false }
local reserved = { ["else"] = true, ["or"] = true, ["and"] = true, ["is"] = true, ["if"] = true, ["in"] = true, ["not"] = true }

--- Arguments up to ')': a list and names.
local function parse_call(p)
  local args, named = {}, nil
  p:expect("op", "(")
  while not p:accept("op", ")") do
    if #args > 0 or named then
      p:expect("op", ",")
      if p:accept("op", ")") then break end
    end
    if p:is("op", "*") or p:is("op", "**") then problem(p.token.line, "arguments by * are not supported") end
    local after = p.tokens[p.at + 1]
    if p:is "name" and after and after.kind == "op" and after.value == "=" then
      local name = p:next().value
      p:next()
      named = named or {}
      named[name] = M.parse(p)
    else
      if named then problem(p.token.line, "an argument without a name follows one that has one") end
      args[#args + 1] = M.parse(p)
    end
  end
  return args, named
end

local function parse_list(p, close, kind, line)
  local items = {}
  while not p:accept("op", close) do
    if #items > 0 then
      p:expect("op", ",")
      if p:accept("op", close) then break end
    end
    items[#items + 1] = M.parse(p)
  end
  return { kind = kind, items = items, line = line }
end

local function parse_primary(p)
  local token = p.token
  local line = token.line
  if token.kind == "name" then
    p:next()
    if constants[token.value] ~= nil then return { kind = "constant", value = constants[token.value], line = line } end
    if token.value == "none" or token.value == "None" then return { kind = "none", line = line } end
    if reserved[token.value] and token.value ~= "is" then problem(line, "unexpected %s", quoted(token.value)) end
    return { kind = "name", name = token.value, line = line }
  elseif token.kind == "string" then
    local parts = {}
    while p:is "string" do parts[#parts + 1] = p:next().value end
    return { kind = "constant", value = table.concat(parts), line = line }
  elseif token.kind == "integer" or token.kind == "float" then
    p:next()
    return { kind = "constant", value = token.value, line = line }
  elseif p:accept("op", "(") then
    if p:accept("op", ")") then return { kind = "tuple", items = {}, line = line } end
    local node = M.parse_tuple(p, {})
    p:expect("op", ")")
    return node
  elseif p:accept("op", "[") then
    return parse_list(p, "]", "list", line)
  elseif p:accept("op", "{") then
    local keys, values = {}, {}
    while not p:accept("op", "}") do
      if #keys > 0 then
        p:expect("op", ",")
        if p:accept("op", "}") then break end
      end
      keys[#keys + 1] = M.parse(p)
      p:expect("op", ":")
      values[#values + 1] = M.parse(p)
    end
    return { kind = "dict", keys = keys, values = values, line = line }
  end
  problem(line, "unexpected %s", p.shown(token))
end

--- x[a], x[a:b:c]
local function parse_subscript(p, node, line)
  local parts, colons = {}, 0
  while not p:is("op", "]") do
    if p:accept("op", ":") then
      colons = colons + 1
      if colons > 2 then problem(p.token.line, "a slice has at most three parts") end
    elseif parts[colons + 1] then
      problem(p.token.line, "expected ']', got %s", p.shown(p.token))
    else
      parts[colons + 1] = M.parse(p)
    end
  end
  p:expect("op", "]")
  if colons > 0 then return { kind = "slice", of = node, from = parts[1], to = parts[2], step = parts[3], line = line } end
  if not parts[1] then problem(line, "a subscript is missing") end
  return { kind = "item", of = node, key = parts[1], line = line }
end

local function parse_postfix(p, node)
  while true do
    local line = p.token.line
    if p:accept("op", ".") then
      local token = p:next()
      if token.kind == "name" then
        node = { kind = "attribute", of = node, name = token.value, line = line }
      elseif token.kind == "integer" then
        node = { kind = "item", of = node, key = { kind = "constant", value = token.value, line = line }, line = line }
      else
        problem(line, "expected a name after '.', got %s", p.shown(token))
      end
    elseif p:accept("op", "[") then
      node = parse_subscript(p, node, line)
    elseif p:is("op", "(") then
      local args, named = parse_call(p)
      node = { kind = "call", fn = node, args = args, named = named, line = line }
    else
      return node
    end
    p.chain = p.chain + 1
    if p.chain > limits.DEPTH * 10 then problem(line, "too long a chain of accesses") end
  end
end

--- | filter(...) after a node. bare: the first comes without its bar.
function M.parse_filters(p, node, bare)
  local n = 0
  while bare or p:accept("op", "|") do
    bare = false
    local token = p:expect "name"
    local args, named = {}, nil
    if p:is("op", "(") then args, named = parse_call(p) end
    node = { kind = "filter", of = node, name = token.value, args = args, named = named, line = token.line }
    n = n + 1
    if n > limits.DEPTH then problem(token.line, "more than %d filters in a row", limits.DEPTH) end
  end
  return node
end

--- is [not] test
local function parse_test(p, node)
  local line = p:next().line
  local negated = p:accept("name", "not") ~= nil
  local name = p:expect("name").value
  local args, named = {}, nil
  if p:is("op", "(") then
    args, named = parse_call(p)
  elseif p:is "string" or p:is "integer" or p:is "float" or p:is("op", "[") or p:is("op", "{")
    or (p:is "name" and not reserved[p.token.value]) then
    args = { parse_postfix(p, parse_primary(p)) }
  end
  node = { kind = "test", of = node, name = name, args = args, named = named, line = line }
  return negated and { kind = "not", of = node, line = line } or node
end

local function parse_filter_expression(p, node)
  local n = 0
  while true do
    if p:is("op", "|") then
      node = M.parse_filters(p, node)
    elseif p:is("name", "is") then
      node = parse_test(p, node)
    elseif p:is("op", "(") then
      local line = p.token.line
      local args, named = parse_call(p)
      node = { kind = "call", fn = node, args = args, named = named, line = line }
    else
      return node
    end
    n = n + 1
    if n > limits.DEPTH then problem(p.token.line, "more than %d filters in a row", limits.DEPTH) end
  end
end

function parse_unary(p, without_filter)
  p:enter()
  local line, node = p.token.line, nil
  if p:accept("op", "-") then
    node = { kind = "negative", of = parse_unary(p, true), line = line }
  elseif p:accept("op", "+") then
    node = { kind = "positive", of = parse_unary(p, true), line = line }
  else
    p.chain = 0
    node = parse_primary(p)
  end
  node = parse_postfix(p, node)
  if not without_filter then node = parse_filter_expression(p, node) end
  p:leave()
  return node
end

--- Operators of one level, from the left. As many in a row as the tree may be deep.
local function binary(next_level, ops)
  return function(p)
    local node, n = next_level(p), 0
    while p.token.kind == "op" and ops[p.token.value] do
      local token = p:next()
      node = { kind = "binary", op = token.value, left = node, right = next_level(p), line = token.line }
      n = n + 1
      if n > limits.DEPTH then problem(token.line, "more than %d operators in a row", limits.DEPTH) end
    end
    return node
  end
end

local parse_pow = binary(function(p) return parse_unary(p) end, { ["**"] = true })
local parse_product = binary(parse_pow, { ["*"] = true, ["/"] = true, ["//"] = true, ["%"] = true })

local function parse_concat(p)
  local first = parse_product(p)
  if not p:is("op", "~") then return first end
  local node = { kind = "concat", items = { first }, line = p.token.line }
  while p:accept("op", "~") do node.items[#node.items + 1] = parse_product(p) end
  return node
end

local parse_sum = binary(parse_concat, { ["+"] = true, ["-"] = true })
local comparisons = { ["=="] = true, ["!="] = true, ["<"] = true, ["<="] = true, [">"] = true, [">="] = true }

local function parse_compare(p)
  local first, rest = parse_sum(p), nil
  while true do
    local token, op = p.token, nil
    if token.kind == "op" and comparisons[token.value] then
      op = p:next().value
    elseif p:is("name", "in") then
      p:next()
      op = "in"
    elseif p:is("name", "not") and p.tokens[p.at + 1].kind == "name" and p.tokens[p.at + 1].value == "in" then
      p:next()
      p:next()
      op = "not in"
    else
      break
    end
    rest = rest or {}
    rest[#rest + 1] = { op = op, value = parse_sum(p) }
  end
  return rest and { kind = "compare", first = first, rest = rest, line = first.line } or first
end

function parse_not(p)
  local token = p:accept("name", "not")
  if not token then return parse_compare(p) end
  p:enter()
  local node = { kind = "not", of = parse_not(p), line = token.line }
  p:leave()
  return node
end

local function logical(next_level, word)
  return function(p)
    local first = next_level(p)
    if not p:is("name", word) then return first end
    local node = { kind = word, items = { first }, line = p.token.line }
    while p:accept("name", word) do node.items[#node.items + 1] = next_level(p) end
    return node
  end
end

local parse_and = logical(function(p) return parse_not(p) end, "and")
local parse_or = logical(parse_and, "or")

--- An expression. With no_condition one without `x if y else z`.
---@param p table
---@param no_condition? boolean
function M.parse(p, no_condition)
  p:enter()
  local node = parse_or(p)
  local n = 0
  while not no_condition and p:is("name", "if") do
    local line = p:next().line
    local test, otherwise = parse_or(p), nil
    if p:accept("name", "else") then otherwise = M.parse(p) end
    node = { kind = "condition", test = test, yes = node, no = otherwise, line = line }
    n = n + 1
    if n > limits.DEPTH then problem(line, "nested more than %d deep", limits.DEPTH) end
  end
  p:leave()
  return node
end

--- An expression, or several with commas: a tuple.
---@param p table
---@param o {no_condition: boolean?}
function M.parse_tuple(p, o)
  local line = p.token.line
  local first = M.parse(p, o.no_condition)
  if not p:is("op", ",") then return first end
  local node = { kind = "tuple", items = { first }, line = line }
  while p:accept("op", ",") do
    if p:is "variable_end" or p:is "block_end" or p:is("op", ")") then break end
    node.items[#node.items + 1] = M.parse(p, o.no_condition)
  end
  return node
end

return M
