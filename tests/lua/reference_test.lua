-- The reference pages. Every public op, every function that is not an op and every public class of the training
-- library has an example, and every example, of functions too, gives what it says; the pages hold all of them,
-- with dtypes that are true.
--   accel-run tests/lua/reference_test.lua [NAME]
local accel = require "accel"
local source, build = os.getenv "ACCEL_TEST_SRC", os.getenv "ACCEL_TEST_BUILD"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
source, build = source or here .. "/../..", build or "build/dev"
package.path = source .. "/lua/gen/?.lua;" .. package.path
local checked = require "accel.util.checked"
local dtypes = require "reference.dtypes"
local examples = require "reference.examples"
local markdown = require "reference.markdown"
local options = require "reference.options"
local stdlib = require "reference.stdlib"
local stubs = require "reference.stubs"

local only, failed, n_run = arg[1], 0, 0
local function fail(fmt, ...)
  failed = failed + 1
  print("FAIL " .. fmt:format(...))
end

-- Where an example may write files.
local function check(name, lines)
  for _, line in ipairs(lines) do
    local ok, why = examples.run(accel, line)
    n_run = n_run + 1
    if not ok then fail("%s: %s: %s", name, line, why) end
    if not accel.is_grad_enabled() then fail("%s: %s: gradients are left off", name, line) end
  end
end

local function read(path)
  local f = assert(io.open(path, "rb"))
  local text = f:read "a"
  f:close()
  return text
end

-- ---- ops ----
local ops, by_name = {}, {}
local other_names = {} -- aliases and functions of accel.functional, which are entered at the root when they are first used
for name in next, getmetatable(accel.functional).__names do other_names[name] = true end
for _, op in ipairs(accel.json.decode(read(build .. "/gen/ops.json")).ops) do
  if not op.hidden then
    ops[#ops + 1], by_name[op.name] = op, op
    for word in op.alias:gmatch "%S+" do other_names[word], other_names[word .. "_"] = true, true end
    if not only or only == op.name then
      if #op.examples == 0 then fail("op %s (host/ops/%s) has no example in its head comment", op.name, op.file) end
      check(op.name, op.examples)
    end
  end
end

-- ---- classes and functions ----
local entries = {}
for _, module in ipairs(stdlib.modules(source .. "/stdlib/accel")) do
  local list, failures = stdlib.entries(accel, source .. "/stdlib/accel", module)
  for _, why in ipairs(failures) do fail("%s", why) end
  for _, entry in ipairs(list) do
    entries[#entries + 1] = entry
    if not only or only == entry.name then
      if entry.kind == "class" and #entry.examples == 0 then
        local where = entry.path and entry.path:match "stdlib/.*$" or "no ---@class names it"
        fail("class %s (%s) has no example in its comment", entry.name, where)
      end
      check(entry.name, entry.examples)
      for _, m in ipairs(entry.methods or {}) do check(entry.name .. ":" .. m.name, m.examples) end
    end
  end
end

-- ---- methods ----
-- What scripts call on an object says what it does, in its class or in one that this is built on. Left out: forward, names of other
-- libraries that raise with their replacement, and what classes define for their own bases: batches and shards of data sets, sums of
-- metrics, steps of optimizers, orders of samplers.
local OF_THE_LIBRARY = { forward = true, get_batch = true, worker_spec = true, open_shard = true, add = true, elements = true,
  result = true, share = true, spends = true, step_op = true, extra_repr = true, order = true, iterate = true }
for _, entry in ipairs(only and {} or entries) do
  local known = {}
  for _, class in ipairs { entry, table.unpack(entry.bases or {}) } do
    for _, m in ipairs(class.methods or {}) do known[m.name] = true end
  end
  for name, f in pairs(entry.class or {}) do
    local refused = type(f) == "function" and debug.getinfo(checked.original(f), "S").source:find("util/absent", 1, true)
    local called = type(f) == "function" and not refused and type(name) == "string" and not name:find "^_" and name ~= "init" and name ~= "alloc"
    if called and not known[name] and not OF_THE_LIBRARY[name] then fail("%s:%s says nothing of itself", entry.name, name) end
  end
end

-- ---- options ----
-- Where a comment lists options, all are there, with the defaults that the code has.
local function check_options(name, annotations, declared)
  local listed = false
  for _, a in ipairs(annotations) do
    local rest = declared and a:match "^param%s+opt%S*%s+(.*)$"
    local known, whole = {}, false
    for _, o in ipairs(rest and select(3, options.parse(rest)) or {}) do
      known[o.name], whole = o, whole or o.about ~= nil
    end
    for key, default in pairs(whole and declared or {}) do
      local o = known[key]
      if not o then fail("%s: the comment lacks option '%s'", name, key)
      elseif default and not (o.default and options.same(o.default, default)) then
        fail("%s: the default of '%s' is %s, the comment says %s", name, key, default, tostring(o.default))
      end
    end
    for key in pairs(whole and known or {}) do
      if declared[key] == nil then fail("%s: there is no option '%s'", name, key) end
    end
    listed = listed or whole
  end
  return listed
end
for _, entry in ipairs(entries) do
  local from = entry.constructor or entry
  local listed = check_options(entry.name, from.annotations, entry.declared)
  local must = entry.name == "accel.data.DataLoader" or entry.class and entry.name:find "^accel%.optim%.%w+$"
    and options.of_class(entry.class)
  if must and not listed then fail("%s: the comment of init does not list the options", entry.name) end
  for _, m in ipairs(entry.methods or {}) do check_options(entry.name .. ":" .. m.name, m.annotations, m.declared) end
end
if not only then
  local kind, about, list = options.parse("table what\n a integer = 1: first\n   of all\n b {x: integer}: second\nmore", {})
  assert(kind == "table" and about == "what more" and #list == 2, about)
  assert(list[1].default == "1" and list[1].about == "first of all" and list[2].type == "{x: integer}" and not list[2].default)
  kind, about, list = options.parse("{a: integer?, f: fun(x: any, y: any): table<string, integer>?} told\n so")
  assert(kind == "table" and about == "told so" and list[1].name == "a" and list[2].type:find "^fun.*integer>$")
  local code = { "local o = options(\"X\", given, { -- don't", "  a = 1e-3, b = options.none, c = { 1, 2 }, d = f(1, 2),", "})" }
  local declared = options.declared(code, 1, 3)
  assert(declared.a == "0.001" and declared.b == false and declared.c == "{ 1, 2 }" and declared.d == false)
  assert(options.same("1e-3", "0.001") and not options.same("1", "2"))
  -- examples, annotations and code in comments keep their lines
  local doc = stdlib.sort_out { "--- Text:", "---", "---   for i = 1, 2 do", "---     f(i)", "---   end", "--- more", "---@param o table x",
    "---  k integer = 1: key", "--- example: local t = {", "---     1,", "---   }", "---   return t --> { 1 }" }
  assert(doc.annotations[1] == "param o table x\n k integer = 1: key", doc.annotations[1])
  assert(doc.examples[1] == "local t = {\n  1,\n}\nreturn t --> { 1 }", doc.examples[1])
  local text = markdown.text(doc.text)
  assert(text == "Text:\n\n```lua\nfor i = 1, 2 do\n  f(i)\nend\n```\n\nmore", text)
end

-- ---- functions and methods that are no ops ----
local core, documented = stubs.entries(source .. "/lua/meta", stdlib.sort_out), {}
local all_stubs, natives = { table.unpack(core) }, {}
for module, file in pairs(stubs.modules) do
  natives[module] = stubs.entries(source .. "/lua/meta", stdlib.sort_out, { file })
  table.move(natives[module], 1, #natives[module], #all_stubs + 1, all_stubs)
end
for _, entry in ipairs(all_stubs) do
  documented[entry.name:gsub("^Tensor:", "Tensor.")] = true
  if not only or only == entry.name then
    if #entry.text == 0 then fail("%s says nothing of itself", entry.name) end
    if #entry.examples == 0 and not entry.field then fail("%s has no example in lua/meta", entry.name) end
    check(entry.name, entry.examples)
  end
  if not entry.field and stubs.find(accel, entry.name) == nil then fail("lua/meta has %s, accel has not", entry.name) end
end
for prefix, names in pairs {
  ["accel."] = accel, ["Tensor."] = accel.Tensor, ["accel.json."] = accel.json, ["accel.dist."] = accel.dist,
} do
  for name, value in next, names do
    local is_op = by_name[name] or by_name[tostring(name):gsub("_$", "")] or other_names[name]
    local public = (type(value) == "function" or prefix == "Tensor.") and not (stubs.private[name] or is_op)
    -- functions in Lua have their comments
    if prefix == "accel.dist." then
      public = type(value) == "function" and debug.getinfo(value, "S").what == "C" and not stubs.private[name]
    end
    if public and not documented[prefix .. name] and name ~= "deepcopy" then
      fail("lua/meta lacks %s%s", prefix, name)
    end
  end
end

-- ---- an example that is wrong is found ----
local function refuses(pattern, line)
  local ok, why = examples.run(accel, line)
  if ok or not why:find(pattern) then fail("%s: taken, or not because of %s: %s", line, pattern, tostring(why)) end
end
if not only then
  refuses("result 1 is { 2 }, not { 3 }", "accel.tensor { 2 } --> { 3 }")
  refuses("result 1 is { 2 }, not { 2, 2 }", "accel.tensor { 2 } --> { 2, 2 }")
  refuses("result 1 is { 2, 2 }, not { 2 }", "accel.tensor { 2, 2 } --> { 2 }")
  refuses("result 1 is 2, not { 2 }", "accel.tensor { 2 }:sum() --> { 2 }")
  refuses("result 1 is 1.001, not 1", "1.001 --> 1")
  refuses("result 1 is true, not 1", "true --> 1")
  refuses("2 results, not 1", "return 1, 2 --> 1")
  refuses("0 results, not 1", "local x = 1 --> 1")
  refuses("no ' %-%-> '", "accel.tensor { 2 }")
  refuses("near", "accel.tensor { --> 1")
  refuses("not Lua", "1 --> {")
  refuses("nothing_such", "accel.nothing_such(1) --> 1")
  assert(examples.run(accel, "accel.tensor { math.huge, 0 / 0, 1.00001 } --> { inf, nan, 1 }"))
  assert(examples.run(accel, 'local t = { accel.ones(1), a = "-->" } return t, nil --> { { 1 }, a = "-->" }, nil'))
end

-- ---- dtypes ----
if not only then
  local function says(name, want)
    local line = dtypes.line(accel, by_name[name])
    if line ~= want then fail("dtypes of %s: %s instead of %s", name, tostring(line), want) end
  end
  says("relu", "Dtypes: `x` floats and integers.")
  says("exp", "Dtypes: `x` floats and complex; integers and bool (gives f32).")
  says("eq", "Dtypes: `x`, `other` every dtype (gives bool).")
  says("argmax", "Dtypes: `x` every real dtype (gives i64).")
  says("gather", "Dtypes: `x` every dtype. `index` i64 and i32.")
  says("embedding", "Dtypes: `ids` i64 and i32. `weight` every dtype.")
  says("masked_fill", "Dtypes: `x` every dtype. `mask` bool.")
  says("bincount", "Dtypes: `x` integers. `weights` f64 and f32; integers, f16, bf16 and bool (gives f64).")
  says("to", "Dtypes: `x` every dtype.")
end

-- ---- the pages ----
if not only then
  local tmp = os.getenv "ACCEL_TEST_TMP" or os.tmpname():gsub("^(.*)/[^/]*$", "%1")
  local dir = tmp .. "/reference"
  local command = ("mkdir -p '%s' && '%s/bin/accel-run' '%s/lua/gen/reference.lua' '%s' '%s/gen' '%s'"):format(dir, build,
    source, source, build, dir)
  assert(os.execute(command), "the generator failed")
  local page = read(dir .. "/ops.md")
  for _, op in ipairs(ops) do
    local from = page:find("\n### " .. op.name .. "\n", 1, true)
    local section = from and page:sub(from, page:find("\n### ", from + 5, true))
    if not section then
      fail("ops.md has no section on %s", op.name)
    else
      local takes = false
      for _, p in ipairs(op.params) do takes = takes or p.type:match "^tensor" or p.type == "operand" end
      if takes and not section:find("\nDtypes: ", 1, true) then fail("ops.md has no dtypes of %s", op.name) end
      if section:find("as in the example", 1, true) then fail("no dtype fits the example of %s", op.name) end
      if not section:find("```text", 1, true) then fail("ops.md has no formula of %s", op.name) end
      for _, line in ipairs(op.examples) do
        if not section:find(line, 1, true) then fail("ops.md lacks an example of %s", op.name) end
      end
    end
  end
  local text_of_core = read(dir .. "/core.md")
  for _, entry in ipairs(core) do
    local heading = entry.field and "\n- `x." .. entry.name:match "%.(.*)$" or "\n### " .. entry.name:gsub("^accel%.", "")
    if not text_of_core:find(heading, 1, true) then fail("core.md has nothing on %s", entry.name) end
  end
  for module, list in pairs(natives) do
    local text = read(("%s/%s.md"):format(dir, module))
    for _, entry in ipairs(list) do
      if not text:find("\n### " .. entry.name:gsub("^accel%.", "") .. "\n", 1, true) then
        fail("%s.md has nothing on %s", module, entry.name)
      end
    end
  end
  for _, entry in ipairs(entries) do
    local module = entry.name:match "^accel%.([%w_]+)"
    local text = read(("%s/%s.md"):format(dir, module))
    if not text:find("\n### " .. entry.name:gsub("^accel%.", "") .. "\n", 1, true) then
      fail("%s.md has no section on %s", module, entry.name)
    end
    if entry.kind == "class" and #entry.text == 0 then fail("class %s says nothing of itself", entry.name) end
  end
end

print(("%d examples, %d failed"):format(n_run, failed))
if failed > 0 then os.exit(1, true) end
