-- Templates: what they may cost, what they cannot reach, messages with lines, values from Lua. (Results are compared with those of
-- jinja2 by tests/reference/chat_templates.lua.)
local accel = require "accel"
local Template, ordered = accel.text.Template, accel.util.ordered

local function fails(pattern, source, names)
  local template, message = Template.parse(source)
  if template then
    local text
    text, message = template:try_render(names)
    assert(not text, ("%q gave %q"):format(source, text and text:sub(1, 50) or ""))
  end
  assert(message:find(pattern), ("wanted %s, got %s"):format(pattern, message))
end

local function gives(want, source, names)
  local got = Template(source):render(names)
  assert(got == want, ("%q, wanted %q"):format(got, want))
end

-- the line of what is wrong, in tags of several lines as well
fails("^template, line 3: 'nothing' is undefined$", "a\nb\n{{ nothing.x }}")
fails("^template, line 2: unknown filter 'uper'; did you mean 'upper'%?$", "\n{{ 'x' | uper }}")
fails("^template, line 4: unexpected '}', expected '%)'$", "{% if\n  true\n%}\n{{ (1 }}{% endif %}")
fails("^template, line 2: a tag here has no end: 'elif' or 'else' or 'endif' is missing$", "x\n{% if true %}\ny\n")
fails("^template, line 1: strftime_now: unknown conversion in", "{{ strftime_now('%') }}")
fails("^template, line 1: strftime_now: unknown conversion in", "{{ strftime_now('%d%%%') }}")
fails("^template, line 1: strftime_now: unknown conversion in", "{{ strftime_now('%Ed') }}")
gives("%", "{{ strftime_now('%%') }}")
fails("^template, line 3: stop here$", "\n\n{{ raise_exception('stop here') }}")
fails("^template, line 1: the tag 'include' is not supported$", "{% include 'x' %}")
fails("^template, line 1: unexpected tag 'endfor'$", "{% endfor %}")
fails("not UTF%-8", "\xff")
fails("a string that was given is not UTF%-8", "{{ x }}", { x = "\xff" })

-- bounds
fails("nested more than 100 deep", "{{ " .. ("("):rep(2000) .. "1" .. (")"):rep(2000) .. " }}")
fails("nested more than 100 deep", ("{% if 1 %}"):rep(2000) .. ("{% endif %}"):rep(2000))
fails("nested more than 100 deep", "{{ " .. ("not "):rep(5000) .. "1 }}")
fails("nested more than 100 deep", "{{ " .. ("-"):rep(5000) .. "1 }}")
fails("more than 100 operators in a row", "{{ 1" .. (" + 1"):rep(5000) .. " }}")
fails("more than 100 filters in a row", "{{ 1" .. ("|d"):rep(5000) .. " }}")
fails("too long a chain", "{{ a" .. (".a"):rep(5000) .. " }}")
fails("range of more than 100000 numbers", "{% for i in range(100001) %}{% endfor %}")
fails("takes more work than a template may: 50 ms and 8 MiB .* limit = 10 allows ten times",
  ("{% for i in range(1000) %}"):rep(4) .. ("{% endfor %}"):rep(4))
fails("a string of more than %d+ bytes", "{{ 'abc' * 99999999 }}")
fails("a string of %d+ bytes, at most %d+ are made",
  "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}")
fails("a list of %d+ entries, at most %d+ are made",
  "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}")
fails("writes more than %d+ bytes", "{% set s = 'x' * 1000000 %}{% for i in range(99) %}{{ s }}{% endfor %}")
fails("macros call each other more than 30 deep", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}")
fails("bytes, at most %d+ are read", ("x"):rep((1 << 17) + 1))
fails("more than 20000 words and marks", "{{ [" .. ("1,"):rep(30000) .. "] }}")
fails("the integer is too large", "{{ 2 ** 63 }}")

-- What short templates could do to a machine: each ends within its bound of work, which stands for time and memory.
do
  local attacks <const> = {
    "{% set ns=namespace(x='a') %}{% for i in range(60) %}{% set ns.x=ns.x|replace('a','aaaaaaaaaa') %}{% endfor %}{{ ns.x|length }}",
    "{% set x='a'*200000 %}{% set y='a'*50000~'b' %}{% for i in range(1000) %}{{ y in x }}{% endfor %}",
    "{% set x='\u{e9}'*100000 %}{% for i in range(100000) %}{% set y=x|length %}{% endfor %}",
    "{% set x='a'*200000 %}{% set y='a'*199999~'b' %}{% for i in range(100000) %}{% set z= x<y %}{% endfor %}",
    "{% set x='\u{e9}'*100000 %}{% for i in range(100000) %}{% set y=x.upper() %}{% endfor %}",
    "{% set x='1'*200000~'x' %}{{ x|int }}{{ x|float }}",
    "{% set x='\n'*20000 %}{% for i in range(1000) %}{% set y=x|indent(1000) %}{% endfor %}",
    "{% set ns=namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x=[ns.x,ns.x] %}{% endfor %}{{ ns.x|tojson }}",
    "{% set x=' '*900000 %}{% for i in range(100000) %}{% set y=x|trim %}{% endfor %}",
    "{% set x='ab'*400000 %}{% for i in range(100000) %}{% set y=x.strip('ab'*100000) %}{% endfor %}",
    "{% set x='a '*200000 %}{% for i in range(100) %}{% set y=x.split() %}{% endfor %}",
    "{% for i in range(100) %}{% set y=range(90000)|sort(reverse=true) %}{% endfor %}",
    "{% macro m(a) %}{{ a }}{{ a }}{% endmacro %}{% for i in range(100000) %}{% set x=m('a'*1000) %}{% endfor %}",
    "{% set x='a '*300000 %}{% for i in range(1000) %}{% set y=x|title %}{% endfor %}",
    "{{ 1 }}" .. (" "):rep(120000) .. "x{%- if 1 %}{% endif %}",
    "{% set x='<'*100000 %}{% for i in range(1000) %}{% set y=x|escape %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(1000) %}aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa{% endfor %}{% endfor %}",
  }
  for _, source in ipairs(attacks) do
    local best, most = math.huge, 0
    for _ = 1, 5 do -- others may use the machine: caches that they empty count as time of the processor
      collectgarbage()
      local before, began = collectgarbage "count", os.clock()
      local made = accel.text.Template.parse(source)
      local text = made and made:try_render {} or ""
      local took = (os.clock() - began) / (1 + #text / 16384)
      best, most = math.min(best, took), math.max(most, collectgarbage "count" - before)
      if best < 0.1 then break end
    end
    assert(best < 0.1, ("%.3f s for %s"):format(best, source:sub(1, 120)))
    assert(most < 16 * 1024, ("%.1f MiB for %s"):format(most / 1024, source:sub(1, 120)))
  end
  -- The bound grows with what is read and written, and by an option.
  local count = accel.text.Template "{% set ns=namespace(n=0) %}{% for i in range(100000) %}{% set ns.n=ns.n+1 %}{% endfor %}{{ ns.n }}"
  assert(not count:try_render {} and count:render({}, { limit = 10 }) == "100000")
  local messages = {}
  for i = 1, 5000 do messages[i] = { role = "user", content = ("word "):rep(20) } end
  local chat = accel.text.Template "{% for m in messages %}<{{ m.role }}>{{ m['content']|trim }}\n{% endfor %}"
  assert(#chat:render { messages = messages } > 500000)
  for _, limit in ipairs { 0, -1, 0 / 0, 1e9 } do assert(not pcall(chat.render, chat, {}, { limit = limit })) end
end
gives("99999999999999999999 99999999999999999999", "{% set n = 99999999999999999999 %}{{ n }} {{ n | tojson }}")
fails("the integer '99999999999999999999' is too large to reckon with", "{{ 99999999999999999999 + 1 }}")
fails("the integer '99999999999999999999' is too large to order", "{{ 99999999999999999999 < 1 }}")
fails("the integer .* is too large", "{{ " .. ("9"):rep(5000) .. " }}")
do
  local deep = {}
  for _ = 1, 100 do deep = { deep } end
  fails("the input is nested more than 64 deep", "{{ x }}", { x = deep })
  local cycle = {}
  cycle[1] = cycle
  fails("nested more than 64 deep", "{{ x }}", { x = cycle })
  fails("a userdata was given", "{{ x }}", { x = accel.ones(1) })
end

-- nothing of Lua or Python is behind a value
for _, name in ipairs { "__class__", "__index", "metatable", "format", "rep", "gsub", "kind", "items", "map", "keys" } do
  gives("", ("{{ 'x'.%s if 'x'.%s is undefined }}{{ [].%s if [].%s is undefined }}"):format(name, name, name, name))
end
for _, name in ipairs { "require", "os", "io", "accel", "_G", "string", "load" } do
  gives("undefined", "{{ 'undefined' if " .. name .. " is undefined }}")
end
fails("is not callable", "{{ 'x'() }}")
fails("is undefined", "{{ x.update({}) }}", { x = { a = 1 } })

-- values from Lua: lists, dictionaries in sorted or their own order, functions, none
gives("[1, 2]{'a': 1, 'b': [], 'z': None}", "{{ l }}{{ d }}", { l = { 1, 2 }, d = { z = accel.json.null, a = 1, b = {} } })
do
  local d = ordered()
  d.z = 1
  d.a = 2
  gives('{"z": 1, "a": 2}', "{{ d | tojson }}", { d = d })
end
gives("[5, 'x']", "{{ f(2, 'x') }}", { f = function(n, s) return { n + 3, s } end })
gives("1", "{{ x }}", { x = 1 })
gives("1.0", "{{ x }}", { x = 1.0 })
gives("", "{{ missing }}")

-- a template is used many times, each with its own variables
local t = Template "{% set n = n + 1 %}{{ n }}"
assert(t:render { n = 1 } == "2" and t:render { n = 5 } == "6")

-- formatting as Python has it: jinja2 3.1 gave these
gives("[end| 3.14|42]", "{{ '[%s|%5.2f|%d]' | format('end', 3.14159, 42) }}")
gives("a   |   a|+7|007|-07|0x1f|%|1e+03|x|  2.50|'q'",
  "{{ '%-4s|%4s|%+d|%03d|%03d|%#x|%%|%.0e|%c|%6.2f|%r' | format('a', 'a', 7, 7, -7, 31, 1000, 'x', 2.5, 'q') }}")
gives("v=3 w=x", "{{ 'v=%(v)d w=%(w)s' | format(v=3.9, w='x') }}")
gives("1-[2] {'a': 1} True", "{{ '%s-%s' % (1, [2]) }} {{ '%s' % {'a': 1} }} {{ '%s' % true }}")
gives("h\u{e9}|\u{4e16}  ", "{{ '%.2s|%-3s' | format('h\u{e9}llo', '\u{4e16}') }}")
fails("format: 1 values are not enough", "{{ '%s %s' | format('a') }}")
fails("format: 2 values, but '%%s' takes 1", "{{ '%s' | format('a', 'b') }}")
fails("%%d needs an integer, got str", "{{ '%d' | format('a') }}")
fails("unknown conversion '%%y'", "{{ '%y' | format('a') }}")
fails("a width or precision that is too large", "{{ '%99999s' | format('a') }}")
fails("there is no value for '%%%(b%)'", "{{ '%(b)s' | format(a=1) }}")
fails("in order or by name, not both", "{{ '%s' | format(1, a=1) }}")
gives("abcdefghijk|abcdefgh|ab...|a...", "{{ 'abcdefghijk' | truncate(6, true) }}|{{ 'abcdefgh' | truncate(6) }}|"
  .. "{{ 'ab def ghij klmn' | truncate(9) }}|{{ 'a b c d e f g h' | truncate(5, leeway=0) }}")
fails("length must be at least that of end", "{{ 'abcdefghijk' | truncate(1) }}")

do -- the parts that {% generation %} marks, in characters
  local t = Template "\u{e9}{% for x in l %}<{% generation %}{{ x }}!{% endgeneration %}>{% endfor %}"
  local text, spans = t:render({ l = { "\u{4e16}", "" } }, { generation_spans = true })
  assert(text == "\u{e9}<\u{4e16}!><!>" and #spans == 2 and spans[1][1] == 2 and spans[1][2] == 4 and spans[2][1] == 6 and spans[2][2] == 7)
  assert(select("#", t:render { l = {} }) == 1)
  assert(t:generates() and not Template("{{ x }}"):generates() and t:reads "l" and not t:reads "y")
end
