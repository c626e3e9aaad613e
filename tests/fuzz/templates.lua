-- Fuzzing of chat templates: any text becomes a template that renders within its bounds, or an error of one line that names the
-- template; never a raise of Lua, never anything of the process. Texts are those of reference/chat_templates and pieces of the
-- language, cut, joined and changed.
--   accel-run tests/fuzz/templates.lua SECONDS [SEED]
local accel = require "accel"
local Template = accel.text.Template
local limits = require "accel.text.jinja.limits"

local seconds, seed = tonumber(arg[1] or 5), math.tointeger(tonumber(arg[2] or os.getenv "ACCEL_TEST_SEED" or os.time()))
math.randomseed(seed)
local here = arg[0]:match "^(.*)/[^/]*$" or "."

local file <close> = assert(io.open(here .. "/../reference/chat_templates/chat_templates.json", "rb"))
local corpus, names = {}, {}
for _, case in ipairs(accel.json.decode(file:read "a").cases) do
  corpus[#corpus + 1] = case.template
  names[#names + 1] = case.names
end
assert(#corpus > 100, "no corpus")

local PIECES <const> = {
  "{{ ", " }}", "{% ", " %}", "{# ", " #}", "{%- ", " -%}", "+%}", "if ", "for x in ", "endfor", "endif",
  "set x = ", "set x.y = ", "macro m(a, b=1)", "endmacro", "{{ m(m(1)) }}", "{% for i in range(99999) %}",
  "{% endfor %}", "{% set x = x ~ x %}", "{% set x = x + x %}", "x * 99999", "'a' * 16777216", "range(100000)",
  "| tojson(indent=64)", "|replace('', 'aaaa')", "|join('x')", "|map('upper')", "|sort", "|unique",
  "|select('in', l)", "[::-1]", "[1:2:3]", "(", ")", "[", "]", "{", "}", "((((((((((", "[[[[[[[[",
  "not not not ", "- - - ", "'", '"', "\\", "\\u12", "~", "**", "// 0", "9999999999999999999", "1e999",
  "loop.previtem", "loop.cycle()", "namespace(", ".__class__", ".items()", ".split('')", ".index(", "messages",
  "self", "is ", "is not ", " if ", " else ", "raw %}", "endraw %}", "\n", "\r\n", "\0", "\xff", "\u{e9}",
  "|d|d|d|d", "{% filter upper %}", "{% endfilter %}", "{% with %}", "{% break %}", "-9223372036854775807",
  "% 0", "|indent(1000, true, true)", "|int(base=99)", "|round(99)", "strftime_now('%')", "raise_exception(",
  "|attr('x')", "dict(", "d.update(", "%", ":", ",",
}

local function pick(list) return list[math.random(#list)] end

local function change(text)
  for _ = 1, math.random(6) do
    local at, kind = math.random(0, #text), math.random(6)
    if kind == 1 then
      text = text:sub(1, at) .. pick(PIECES) .. text:sub(at + 1)
    elseif kind == 2 then
      text = text:sub(1, at) .. text:sub(at + math.random(20))
    elseif kind == 3 then
      text = text:sub(1, at) .. string.char(math.random(0, 255)) .. text:sub(at + 2)
    elseif kind == 4 then
      local other = pick(corpus)
      text = text:sub(1, at) .. other:sub(math.random(#other + 1))
    elseif kind == 5 then
      text = text:sub(1, at) .. text:sub(at, at + math.random(40)):rep(math.random(math.random(4) == 1 and 3000 or 30)) .. text:sub(at + 1)
    else
      local out = {}
      for i = 1, math.random(12) do out[i] = pick(PIECES) end
      text = text:sub(1, at) .. table.concat(out) .. text:sub(at + 1)
    end
  end
  return text:sub(1, 1 << 18)
end

local function one_line(message, text)
  assert(type(message) == "string" and message:sub(1, 8) == "template", ("%q of %q"):format(tostring(message), text))
  return message
end

local runs, rendered, slowest, longest = 0, 0, 0, 0
-- A count as well, so that a run on a faster machine does not go further than the one before it.
local stop, most = accel.clock() + seconds, seconds * 1500
while accel.clock() < stop and runs < most do
  local text = pick(corpus)
  if math.random(20) > 1 then text = change(text) end
  local began = os.clock() -- of the processor: other programs do not count
  local ok, template, message = pcall(Template.parse, text)
  if not ok then error(("seed %d: %s of %q"):format(seed, tostring(template), text)) end
  if template then
    local done, out
    done, out, message = pcall(template.try_render, template, pick(names))
    if not done then error(("seed %d: %s of %q"):format(seed, tostring(out), text)) end
    if out then
      rendered, longest = rendered + 1, math.max(longest, #out)
      assert(#out <= 2 * limits.STRING)
    else
      one_line(message, text)
    end
  else
    one_line(message, text)
  end
  local took = os.clock() - began
  if took > slowest then slowest = took end
  assert(took < 2, ("%g s for %q"):format(took, text))
  runs = runs + 1
end
print(("%d templates, %d rendered, the longest text %d bytes, the slowest %.0f ms (seed %d)"):format(runs, rendered, longest, slowest * 1000, seed))
