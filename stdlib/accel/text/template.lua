--- text.Template: chat templates in Jinja's language, as in model folders, a subset without access to anything outside, with
--- bounded size, depth, steps and output (text/jinja/limits.lua). Statements, filters, tests and methods are in text/jinja.
--- Whitespace is handled as in Transformers (trim_blocks, lstrip_blocks).
---
---   local t = text.Template "<{{ role }}>"
---   local s = t:render { role = "user" }
local check = require "accel.util.check"
local class = require "accel.util.class"
local limits = require "accel.text.jinja.limits"
local options = require "accel.util.options"
local parser = require "accel.text.jinja.parser"
local raise = require "accel.util.raise"
local render = require "accel.text.jinja.render"
local values = require "accel.text.jinja.values"

local problem, kind = limits.problem, values.kind

--- example: local t = accel.text.Template "{{ x }}s"
---   return t:render { x = "cat" } --> "cats"
---@class accel.text.Template
---@field source string
local Template = class("accel.text.Template")

--- Runs fn. An error of the template becomes nil and one line with its name and line.
local function guarded(name, fn, ...)
  local ok, result, more = pcall(fn, ...)
  if ok then return result, more end
  if type(result) == "table" and result.template_error then
    return nil, ("%s%s: %s"):format(name, result.line and (", line %d"):format(result.line) or "", result.message)
  end
  if type(result) == "string" and result:find "stack overflow" then return nil, name .. ": nested too deep" end
  error(result, 0)
end

--- The template of a text. nil and the error, with its line. `name` stands in messages.
---@param source string
---@param name? string
---@return accel.text.Template?
---@return string? message
function Template.parse(source, name, ...)
  check.surplus("Template.parse", ...)
  if type(source) ~= "string" then raise("Template: expected a string, got %s", type(source)) end
  name = name == nil and "template" or name
  if type(name) ~= "string" then raise("Template: name must be a string, got %s", type(name)) end
  local tree, message = guarded(name, parser.parse, source)
  if not tree then return nil, message end
  local self = setmetatable(Template.alloc(), Template)
  self.source, self.name, self.tree = source, name, tree
  return self
end

--- Like parse, but raises errors.
---@param source string
---@param name? string
function Template:init(source, name)
  local made, message = Template.parse(source, name)
  if not made then raise("%s", message) end
  self.source, self.name, self.tree = made.source, made.name, made.tree
end

local globals = {}

globals.range = values.fn("range", function(env, args, _, line)
  local list = {}
  for i, v in ipairs(args) do
    if math.type(v) ~= "integer" then problem(line, "range needs integers, got %s", values.type_name(v)) end
    list[i] = v
  end
  if #list == 0 or #list > 3 then problem(line, "range takes one to three integers, got %d", #list) end
  local from, to, step = list[1], list[2], list[3] or 1
  if to == nil then from, to = 0, from end
  if step == 0 then problem(line, "range: the step must not be zero") end
  local n = math.max(0, step > 0 and math.ceil((to - from) / step) or math.ceil((from - to) / -step))
  if n > limits.RANGE then problem(line, "range of more than %d numbers", limits.RANGE) end
  env.budget:items(n, line)
  local out = {}
  for i = 1, math.tointeger(n) do out[i] = from + (i - 1) * step end
  return values.list(out)
end)

local function filled(target)
  return function(env, args, named, line)
    local out = target()
    if args[1] ~= nil then
      if kind(args[1]) ~= "dict" then problem(line, "expected a dictionary, got %s", values.type_name(args[1])) end
      env.budget:work(5 * #args[1].keys)
      for _, key in ipairs(args[1].keys) do values.set(out, key, args[1].map[key]) end
    end
    local names = {}
    for name in next, named do names[#names + 1] = name end
    table.sort(names)
    env.budget:work(#names)
    for _, name in ipairs(names) do values.set(out, name, named[name]) end
    return out
  end
end

globals.dict = values.fn("dict", filled(values.dict))
globals.namespace = values.fn("namespace", filled(function()
  local space = values.dict()
  space.kind = "namespace"
  return space
end))
globals.raise_exception = values.fn("raise_exception", function(env, args, _, line)
  problem(line, "%s", values.text(args[1] == nil and values.NONE or args[1], env.budget):sub(1, limits.NUMBER))
end)
globals.strftime_now = values.fn("strftime_now", function(env, args, _, line)
  local format = args[1]
  env.budget:work(40)
  if type(format) ~= "string" or #format > 200 then problem(line, "strftime_now needs a short string") end
  local rest = format:gsub("%%%%", "")
  if rest:find "%%[^aAbBdHIjmMpSUwWxXyYcDeFnRtTuZ]" or rest:find "%%$" then
    problem(line, "strftime_now: unknown conversion in %s", limits.quoted(format))
  end
  return os.date(format)
end)

--- Bytes of a value of a template, 16 for each entry of a table: the measure of a rendering's work.
local function size_of(v)
  local k = kind(v)
  if k == "string" then return 16 + #v end
  local n = 16
  if k == "list" then
    for i = 1, v.n do n = n + size_of(v.items[i]) end
  elseif k == "dict" then
    for _, key in ipairs(v.keys) do n = n + size_of(key) + size_of(v.map[key]) end
  end
  return n
end

--- Bytes of a text, from 0 and half open, as characters.
local function characters_of(text, spans)
  for i, span in ipairs(spans) do spans[i] = { utf8.len(text, 1, span[1]), utf8.len(text, 1, span[2]) } end
  return spans
end

--- Whether a {% generation %} marks a part of the text as the assistant's.
---@return boolean
function Template:generates() return self.tree.generates end

--- Whether the template reads a variable of this name.
---@param name string
---@return boolean
function Template:reads(name)
  self.names_read = self.names_read or parser.names(self.tree)
  return self.names_read[name] == true
end

--- The text with these names. A failure is nil and one line.
---@param names? table<string, any>
---@param opts? {limit: number?, generation_spans: boolean?} limit: how many times the usual work is allowed. generation_spans: as of render
---@return string?
---@return string|integer[][]|nil message or the spans
function Template:try_render(names, opts, ...)
  local o = options("Template:render", opts, { limit = 1, generation_spans = false }, ...)
  if not (o.limit > 0 and o.limit <= 1e6) then raise("Template:render: limit must be above 0 and at most 1e6, got %g", o.limit) end
  local text, more = guarded(self.name, function()
    local all, input = {}, 0
    for name, fn in next, globals do all[name] = fn end
    for name, value in next, names or {} do
      if type(name) ~= "string" then problem(nil, "names are strings, got a %s", type(name)) end
      all[name] = values.import(value)
      input = input + size_of(all[name])
    end
    return render.render(self.tree, all, input, o.limit)
  end)
  if not text then return nil, more end
  if o.generation_spans then return text, characters_of(text, more) end
  return text
end

--- The text of the template with these names. Its own errors (raise_exception) and faults raise an error with the line.
---@param names? table<string, any> strings, numbers, booleans, tables, functions
---@param opts? table
---  limit number = 1: a template may take 50 ms and 8 MiB for every 16 KiB that it reads or writes. 10: ten times as much
---  generation_spans boolean = false: also return what {% generation %} marks, as pairs of characters, from 0 and half open
---@return string
---@return integer[][]? spans
function Template:render(names, opts, ...)
  local text, more = self:try_render(names, opts, ...)
  if not text then raise("%s", more) end
  if more then return text, more end
  return text
end

return Template
