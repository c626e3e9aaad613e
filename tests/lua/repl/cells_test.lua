-- Cells of a notebook as inputs: names of top-level locals stay, the last expression is shown, everything else is what the same text does as
-- a script. The reference is Lua itself, which runs the whole text.
local accel = require "accel"
local cells = accel.host_chunk "repl/cells"
local Session = accel.host_chunk "repl/session"

-- Runs a cell in a session: the shown value, and the session.
local function run(text, session)
  session = session or Session.new()
  local r, shows
  for _, input in ipairs(cells.inputs(text)) do
    r, shows = session:evaluate(input.text, input.line), input.shows
    if not r.ok then return nil, r.message end
  end
  return shows and r[1] or nil, nil, session
end

local function value(text, expected)
  local got, why = run(text)
  assert(why == nil and got == expected, ("%s: %s, %s"):format(text, tostring(got), tostring(why)))
end

value("1 + 1", 2)
value("local x = 3\nx + 1", 4)
value("local x = 3\nlocal y = x\n\nx * y -- the end\n\n-- a comment\n", 9)
value("local a, b = 1, 2\nlocal function f(n)\n  return n + a\nend\nf(b)", 3)
value("local x\nx = 5\nx", 5)
value("-- a comment\nlocal x = 7\nx", 7)
value("local x = 1\n  + 2\nx", 3)
value("local t = {\n  1,\n  2,\n}\n#t", 2)
value("local s = [[\nlocal x = 1\n]]\n#s", 12)
value("for i = 1, 3 do\n  local y = i\nend", nil)
value("local t = {}\nfor i = 1, 3 do\n  t[i] = i\nend\nt[3]", 3)
value("do\n  local x = 1\n  x = x + 1\nend", nil) -- `return end` is no expression
value("local f = function(x) return x end\nf\n(4)", 4) -- one call, as in a script
value("local x = 5\nlocal y = x\n- 1\ny", 4)
value("x = 1", nil)
value("local x <const> = 2\nx + 1", 3)
value("local n = 0\nlocal guard <close> = setmetatable({}, { __close = function() n = n + 1 end })\nlocal y = n\ny", 0)
value("local function fib(n)\n  if n < 2 then return n end\n  return fib(n - 1) + fib(n - 2)\nend\nfib(10)", 55)
value("", nil)

-- names stay for the next cell, and lines of errors are the cell's
local _, _, session = run "local x, y = 1, 2\nlocal z = 3"
assert(run("x + y + z", session) == 6)
local _, why = run("local x = 1\n\nlocal y = x\nerror 'here'", session)
assert(why == "stdin:4: here", why)
_, why = run("local x = 1\nlocal y = = 2", session)
assert(why:find "^stdin:2: ", why)
session:close()

-- whatever the division, statements do what the whole text does
local program = [[
local out = {}
local function add(...)
  out[#out + 1] = table.concat({ ... }, " ")
end
local i = 0
while i < 3 do
  local sq = i * i
  add(i, sq)
  i = i + 1
end
local text = "a -- b"
local more = [==[
local not_code = 1
]==]
if #more > 3 then
  local deep = more
  add(#deep, text)
end
local t = setmetatable({}, {
  __index = function(_, k) return k .. "!" end,
})
add(t.a, t["local b"])
local a, b = add, 3
a(b)
local r = table.concat(out, ";")
]]
local expected = assert(load(program .. "return r"))()
local got = run(program .. "r")
assert(got == expected and #expected > 20, tostring(got))

local function state(text, wanted, indent)
  local status, deeper = cells.state(text)
  assert(status == wanted and (indent == nil or deeper == indent), ("%s: %s '%s'"):format(text, status, tostring(deeper)))
end
state("x = 1", "complete")
state("1 +", "incomplete", "")
state("for i = 1, 3 do", "incomplete", "  ")
state("  local function f(a)", "incomplete", "    ")
state("local x = {", "incomplete", "  ")
state("x = = 1", "invalid")
state("local x = 1\nlocal y = (", "incomplete")
state("local a = )\nlocal b = (", "invalid")
state("", "complete")
print "cells: right"
