--- Makes a tree of a template's tokens: statements. Expressions are read by expressions.lua. Tags: for, if, set, macro, filter,
--- with, generation, break, continue. Tags that read other templates (include, import, extends, block) are refused.
local expressions = require "accel.text.jinja.expressions"
local lexer = require "accel.text.jinja.lexer"
local limits = require "accel.text.jinja.limits"

local problem, quoted = limits.problem, limits.quoted

local M = {}

local parse_body

--- for a, b in ...: the names.
local function parse_targets(p)
  local names, many = {}, false
  local paren = p:accept("op", "(")
  repeat
    names[#names + 1] = p:expect("name").value
    local more = p:accept("op", ",")
    many = many or more ~= nil
  until not more or not p:is "name"
  if paren then p:expect("op", ")") end
  return names, many
end

local tags = {}

tags["for"] = function(p, line)
  local names, many = parse_targets(p)
  p:expect("name", "in")
  local iter = expressions.parse_tuple(p, { no_condition = true })
  local test
  if p:accept("name", "if") then test = expressions.parse(p) end
  if p:is("name", "recursive") then problem(p.token.line, "'recursive' is not supported") end
  p:expect "block_end"
  p.loops = p.loops + 1
  local body, stop = parse_body(p, { ["else"] = true, endfor = true })
  p.loops = p.loops - 1
  local otherwise
  if stop == "else" then
    p:expect "block_end"
    otherwise = parse_body(p, { endfor = true })
  end
  p:expect "block_end"
  return { kind = "for", line = line, names = names, many = many, iter = iter, test = test, body = body, otherwise = otherwise }
end

tags["if"] = function(p, line)
  local branches, otherwise = {}, nil
  repeat
    local test = expressions.parse_tuple(p, {})
    p:expect "block_end"
    local body, stop = parse_body(p, { ["elif"] = true, ["else"] = true, endif = true })
    branches[#branches + 1] = { test = test, body = body }
    if stop == "else" then
      p:expect "block_end"
      otherwise, stop = parse_body(p, { endif = true })
    end
  until stop == "endif"
  p:expect "block_end"
  return { kind = "if", line = line, branches = branches, otherwise = otherwise }
end

tags["set"] = function(p, line)
  local first = p:expect "name"
  if p:accept("op", ".") then
    local field = p:expect("name").value
    p:expect("op", "=")
    local value = expressions.parse_tuple(p, {})
    p:expect "block_end"
    return { kind = "set_field", line = line, name = first.value, field = field, value = value }
  end
  local names, many = { first.value }, false
  while p:accept("op", ",") do
    many = true
    names[#names + 1] = p:expect("name").value
  end
  if p:accept("op", "=") then
    local value = expressions.parse_tuple(p, {})
    p:expect "block_end"
    return { kind = "set", line = line, names = names, many = many, value = value }
  end
  local filters = expressions.parse_filters(p, { kind = "body" })
  p:expect "block_end"
  local body = parse_body(p, { endset = true })
  p:expect "block_end"
  return { kind = "set_block", line = line, name = names[1], body = body, filters = filters }
end

--- Parameters of a macro: names and defaults.
local function parse_parameters(p)
  local list = {}
  p:expect("op", "(")
  while not p:accept("op", ")") do
    if #list > 0 then p:expect("op", ",") end
    local name = p:expect("name").value
    local default
    if p:accept("op", "=") then
      default = expressions.parse(p)
    elseif #list > 0 and list[#list].default then
      problem(p.token.line, "parameter %s without a default follows one that has one", quoted(name))
    end
    list[#list + 1] = { name = name, default = default }
  end
  return list
end

function tags.macro(p, line)
  local name = p:expect("name").value
  local parameters = parse_parameters(p)
  p:expect "block_end"
  local loops = p.loops
  p.loops = 0
  local body = parse_body(p, { endmacro = true })
  p.loops = loops
  p:expect "block_end"
  return { kind = "macro", line = line, name = name, parameters = parameters, body = body }
end

function tags.filter(p, line)
  local filters = expressions.parse_filters(p, { kind = "body" }, true)
  p:expect "block_end"
  local body = parse_body(p, { endfilter = true })
  p:expect "block_end"
  return { kind = "filter_block", line = line, body = body, filters = filters }
end

tags["with"] = function(p, line)
  local names, values = {}, {}
  while not p:is "block_end" do
    if #names > 0 then p:expect("op", ",") end
    names[#names + 1] = p:expect("name").value
    p:expect("op", "=")
    values[#values + 1] = expressions.parse(p)
  end
  p:expect "block_end"
  local body = parse_body(p, { endwith = true })
  p:expect "block_end"
  return { kind = "with", line = line, names = names, values = values, body = body }
end

--- {% generation %}: marks the assistant's text. It renders its content.
function tags.generation(p, line)
  p:expect "block_end"
  local body = parse_body(p, { endgeneration = true })
  p:expect "block_end"
  p.generates = true
  return { kind = "generation", line = line, body = body }
end

for _, word in ipairs { "break", "continue" } do
  tags[word] = function(p, line)
    if p.loops == 0 then problem(line, "'%s' outside a loop", word) end
    p:expect "block_end"
    return { kind = word, line = line }
  end
end

--- Statements up to a tag of `stops` (a set of names), or to the end of the template. Returns them and the tag's name. The
--- parser is then after the tag.
function parse_body(p, stops)
  local list = {}
  local opened = p.token.line
  p:enter()
  while true do
    local token = p.token
    if token.kind == "data" then
      list[#list + 1] = { kind = "data", value = token.value, line = token.line }
      p:next()
    elseif token.kind == "variable_begin" then
      p:next()
      list[#list + 1] = { kind = "output", value = expressions.parse_tuple(p, {}), line = token.line }
      p:expect "variable_end"
    elseif token.kind == "block_begin" then
      p:next()
      local name = p:expect "name"
      if stops and stops[name.value] then
        p:leave()
        return list, name.value
      end
      local tag = tags[name.value]
      if not tag then
        local known = name.value:find "^end" or name.value == "else" or name.value == "elif"
        problem(name.line, known and "unexpected tag %s" or "the tag %s is not supported", quoted(name.value))
      end
      list[#list + 1] = tag(p, name.line)
    elseif token.kind == "eof" then
      if stops then
        local names = {}
        for name in next, stops do names[#names + 1] = "'" .. name .. "'" end
        table.sort(names)
        problem(opened, "a tag here has no end: %s is missing", table.concat(names, " or "))
      end
      p:leave()
      return list, nil
    else
      problem(token.line, "unexpected %s", p.shown(token))
    end
  end
end

--- The tree of a template. Its field `generates` tells whether a {% generation %} is in it.
---@param src string
---@return table[] statements
function M.parse(src)
  local p = expressions.parser(lexer.tokens(src))
  local tree = parse_body(p, nil)
  tree.generates = p.generates == true
  return tree
end

--- Names that a tree reads or sets, as a set: variables that are given under other names have no effect.
---@param tree table
---@return table<string, boolean>
function M.names(tree)
  local found = {}
  local function visit(node)
    if node.kind == "name" then found[node.name] = true end
    for _, part in next, node do
      if type(part) == "table" then visit(part) end
    end
  end
  visit(tree)
  return found
end

return M
