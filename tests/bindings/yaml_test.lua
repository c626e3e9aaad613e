-- accel.yaml: what libyaml's events become, the bounds of host/base/yaml.h, and the time that hostile texts take.
local accel = require "accel"
local yaml = accel.yaml

if not yaml.available() then
  print "skipped: no libyaml here"
  os.exit(77)
end

local function refused(part, text)
  local value, message, code = yaml.decode(text)
  assert(value == nil and code == "parse", text:sub(1, 40))
  assert(message:find(part, 1, true), message)
  return message
end

-- Kinds, styles, tags and places.
local root = yaml.decode "a: 010\n'b': [x, \"1\"]\nc: {d: ~}\ne: !!str 1\nf: |\n  t\n"
assert(root.kind == "map" and #root == 5 and root[1].key == "a" and root[1].line == 1 and root[1].column == 1)
assert(root[1].value.text == "010" and root[1].value.style == "plain" and root[1].value.column == 4)
assert(root[2].line == 2 and root[2].value.kind == "list" and root[2].value[2].style == "quoted")
assert(root[3].value[1].value.text == "~" and root[4].value.tag == "str" and root[5].value.style == "block")
assert(root[5].value.text == "t\n" and root[5].value.line == 5)
assert(yaml.decode "" == nil and select("#", yaml.decode "# nothing\n") == 1)
assert(yaml.decode("a: 'x\0'") == nil, "a zero byte is not one of YAML's characters")

-- Aliases are copies of what they name.
local aliased = yaml.decode "x: &a {k: [1]}\ny: *a\nz: *a\n"
assert(aliased[2].value[1].value[1].text == "1" and aliased[2].value ~= aliased[3].value)
refused("names no anchor", "a: *b")
refused("inside the node that it names", "a: &a [*a]")
refused("aliases make it more than 100000 nodes", (function()
  local lines = { "a0: &a0 [x, x, x, x, x, x, x, x, x, x]" }
  for i = 1, 9 do
    lines[#lines + 1] = ("a%d: &a%d [%s]"):format(i, i, ("*a%d, "):format(i - 1):rep(10))
  end
  return table.concat(lines, "\n")
end)())

-- What is not read at all.
refused("line 3, column 1: duplicate key 'a'", "a: 1\nb: 2\na: 3\n")
refused("duplicate key", "s: {k: 1, k: 2}")
refused("second document", "a: 1\n---\nb: 2\n")
refused("a key must be a word", "? [a]\n: 1\n")
refused("not one of YAML's own", "a: !!python/object/apply:os.system ['true']")
refused("not one of YAML's own", "a: !local x")
refused("line 1, column 4", "a: @x")
refused("1 MiB", ("# comment\n"):rep(200000))
assert(yaml.decode "<<: {a: 1}"[1].key == "<<", "no merging")

-- Depth, anchors, aliases, nodes: refused before the rest is read, in a time that does not grow with it.
local function quick(part, text)
  local began = accel.clock()
  refused(part, text)
  assert(accel.clock() - began < 0.5, part)
end
quick("64 levels", ("["):rep(1000000))
quick("64 levels", ("{a: "):rep(300))
quick("64 levels", ("- "):rep(500000))
quick("64 levels", (function() -- levels through aliases
  local lines = { "a0: &a0 " .. ("["):rep(60) .. ("]"):rep(60) }
  for i = 1, 9 do lines[#lines + 1] = ("a%d: &a%d [*a%d]"):format(i, i, i - 1) end
  return table.concat(lines, "\n")
end)())
local anchors = {}
for i = 1, 1001 do anchors[i] = ("- &n%d x"):format(i) end
quick("1000 anchors", table.concat(anchors, "\n"))
quick("1000 aliases", "a: &a x\nb: [" .. ("*a, "):rep(1001) .. "]")
quick("more than 100000 nodes", "[" .. ("x,"):rep(110000) .. "]")
assert(select(2, yaml.decode("[a, b, c]", { max_nodes = 3 })):find "more than 3 nodes" and yaml.decode("[a, b]", { max_nodes = 3 }))
assert(not pcall(yaml.decode, "a: 1", { max_nodes = 0 }) and not pcall(yaml.decode, "a: 1", { most = 1 }))
assert(yaml.decode(("["):rep(64) .. ("]"):rep(64)))
print "ok"
