-- Bad input from scripts and files: each is a Lua error that names the op, the operands and the script's line
-- (or nil and a message, for files), and afterwards the process and every other tensor are as they were.
local accel = require "accel"

local SCRIPT = debug.getinfo(1, "S").short_src
local TMP = os.getenv "ACCEL_TEST_TMP"
local RUN = os.getenv "ACCEL_TEST_BUILD" .. "/bin/accel-run"

-- What must survive everything below.
local witness = accel.arange(6):view(2, 3)
local function unharmed()
  assert(table.concat(witness:view(-1):tolist(), " ") == "0 1 2 3 4 5")
  assert(accel.is_grad_enabled() and not accel.is_autocast_enabled())
end

local function contains(text, parts)
  for _, part in ipairs(parts) do
    assert(text:find(part, 1, true), ("'%s' is not in: %s"):format(part, text))
  end
end

local n_cases = 0
-- f is written on the line that the error has to name.
local function refused(code, parts, f)
  local before = accel.live()
  local ok, err = pcall(f)
  local line = SCRIPT .. ":" .. debug.getinfo(f, "S").linedefined
  assert(not ok, line .. ": no error")
  assert(type(err) == "table", line .. ": a plain error: " .. tostring(err))
  local text = tostring(err)
  assert(err.code == code, ("%s: %s, not %s: %s"):format(line, err.code, code, text))
  assert(err.where == line and text:sub(1, #line + 2) == line .. ": ", line .. " is not named: " .. text)
  assert(#err.traceback > 0)
  contains(text, parts)
  unharmed()
  collectgarbage()
  collectgarbage()
  assert(accel.live() <= before, line .. ": something is left behind")
  n_cases = n_cases + 1
end

local a, b = accel.zeros(2, 3), accel.zeros(4, 5)
local f64, i64 = accel.zeros(2, 3, { dtype = "f64" }), accel.zeros(2, 3, { dtype = "i64" })
local meta = accel.zeros(2, 3, { device = "meta" })
local classes = accel.zeros(2, { dtype = "i64" })
local gone = accel.zeros(2, 3)
gone:release()
local function ids(t) return accel.tensor(t, { dtype = "i64" }) end

-- ---- shapes ----
local q, k = accel.zeros(1, 2, 3, 4), accel.zeros(1, 2, 3, 5)
local attention = accel.scaled_dot_product_attention
refused("shape", { "add: ", "(2, 3)", "(4, 5)" }, function() return a + b end)
refused("shape", { "mul: ", "(2, 3)", "(4, 5)" }, function() return b * a end)
refused("shape", { "matmul: ", "(2, 3)", "(4, 5)" }, function() return a:matmul(b) end)
refused("shape", { "linear: ", "(2, 3)", "(4, 5)" }, function() return accel.linear(a, b) end)
refused("shape", { "linear: ", "(4)" },
  function() return accel.linear(a, accel.zeros(5, 3), accel.zeros(4)) end)
refused("shape", { "addmm: ", "(2, 3)", "(4, 5)" },
  function() return accel.addmm(accel.zeros(1), a, b) end)
refused("shape", { "cat: ", "(2, 3)", "(4, 5)" }, function() return accel.cat { a, b } end)
refused("shape", { "stack: ", "(2, 3)", "(4, 5)" }, function() return accel.stack { a, b } end)
refused("shape", { "view: ", "(2, 3)", "(5)" }, function() return a:view(5) end)
refused("shape", { "expand: ", "(2, 3)", "(2, 4)" }, function() return a:expand(2, 4) end)
refused("shape", { "add_: ", "(2, 2, 3)", "(2, 3)" },
  function() return a:add_(accel.zeros(2, 1, 3)) end)
refused("shape", { "copy_: ", "(2, 3)", "(4, 5)" }, function() return a:copy_(b) end)
refused("shape", { "layer_norm: ", "(2, 3)", "(4)" },
  function() return accel.layer_norm(a, { 4 }) end)
refused("shape", { "rms_norm: ", "(2, 3)", "(4)" }, function() return accel.rms_norm(a, { 4 }) end)
refused("shape", { "where: ", "(2, 3)", "(4, 5)" },
  function() return accel.where(a:eq(0), b, 1) end)
refused("shape", { "cross_entropy: ", "(2, 3)", "(3)" },
  function() return accel.cross_entropy(a, ids { 0, 0, 0 }) end)
refused("shape", { "scaled_dot_product_attention: ", "(1, 2, 3, 4)", "(1, 2, 3, 5)" },
  function() return attention(q, k, q) end)
refused("shape", { "zeros", "-1" }, function() return accel.zeros(-1) end)
refused("shape", { "zeros: ", "more elements than can be counted" },
  function() return accel.zeros(2 ^ 40, 2 ^ 40) end)
refused("shape", { "item: ", "(2, 3)" }, function() return a:item() end)
refused("shape", { "tensor: ", "ragged" }, function() return accel.tensor { { 1, 2 }, { 3 } } end)

-- ---- dtypes and devices ----
refused("dtype", { "matmul: ", "f32 (2, 3)", "f64 (3, 2)" },
  function() return a:matmul(f64:t()) end)
refused("dtype", { "embedding: ", "f32" }, function() return accel.embedding(a, b) end)
refused("dtype", { "add_: ", "f32", "i64" }, function() return i64:add_(1.5) end)
refused("dtype", { "cross_entropy: ", "i64" },
  function() return accel.cross_entropy(i64, ids { 0, 0 }) end)
refused("device", { "add: ", "cpu", "meta" }, function() return a + meta end)
refused("device", { "matmul: ", "cpu", "meta" }, function() return meta:matmul(a:t()) end)
refused("device", { "'device' to 'zeros'", "'cuda'", "cpu, meta" },
  function() return accel.zeros(2, { device = "cuda" }) end)
refused("invalid_argument", { "'dtype' to 'zeros'", "'f33'", "f64 f32" },
  function() return accel.zeros(2, { dtype = "f33" }) end)

-- ---- positions and values ----
refused("index_out_of_range", { "sum: ", "dim 3", "2 dims" }, function() return a:sum(3) end)
refused("index_out_of_range", { "'dim' to 'sum'", "count from 1" }, function() return a:sum(0) end)
refused("index_out_of_range", { "transpose: ", "dim0 -3", "2 dims" },
  function() return a:transpose(-3, 1) end)
refused("index_out_of_range", { "index: ", "count from 1" }, function() return a[0] end)
refused("index_out_of_range", { "select: ", "5", "(2, 3)" }, function() return a:select(1, 5) end)
refused("index_out_of_range", { "narrow: ", "(2, 3)" }, function() return a:narrow(2, 2, 3) end)
refused("index_out_of_range", { "embedding: ", "7", "4 rows" },
  function() return accel.embedding(ids { 0, 7 }, b) end)
refused("index_out_of_range", { "embedding: ", "-1", "4 rows" },
  function() return accel.embedding(ids { -1 }, b) end)
refused("index_out_of_range", { "cross_entropy: ", "target 3", "3 classes" },
  function() return accel.cross_entropy(a, ids { 0, 3 }) end)
refused("index_out_of_range", { "gather: ", "5", "(1, 2)" },
  function() return a:gather(1, ids { { 0, 5, 0 } }) end)
refused("index_out_of_range", { "index_select: ", "9" },
  function() return a:index_select(2, ids { 9 }) end)

-- ---- what is not a tensor, no option, no method ----
refused("released", { "'add'", "was released at " .. SCRIPT }, function() return gone + a end)
refused("released", { "'add'", "was released at " .. SCRIPT }, function() return a + gone end)
refused("released", { "'tensors' to 'cat'", "was released" },
  function() return accel.cat { a, gone } end)
refused("released", { "was released" }, function() return gone.shape end)
refused("released", { "was released" }, function() return gone:backward() end)
refused("invalid_argument", { "'other' to 'add'", "string" }, function() return a + "x" end)
refused("invalid_argument", { "'other' to 'add'", "tensor or number", "function" },
  function() return a + print end)
refused("invalid_argument", { "'other' to 'matmul'", "no value" }, function() return a:matmul() end)
refused("invalid_argument", { "'tensors' to 'cat'", "entry 2", "integer 3" },
  function() return accel.cat({ a, 3 }, 1) end)
refused("invalid_argument", { "'dimm' to 'sum'", "did you mean 'dim'?" },
  function() return a:sum { dimm = 1 } end)
refused("invalid_argument", { "'dtyp' to 'zeros'", "did you mean 'dtype'?" },
  function() return accel.zeros(2, { dtyp = "f32" }) end)
refused("invalid_argument", { "no field or method 'mathmul'", "did you mean 'matmul'?" },
  function() return a:mathmul(b) end)
refused("invalid_argument", { "'reduction' to 'cross_entropy'", "avg", "mean" },
  function() return accel.cross_entropy(a, classes, { reduction = "avg" }) end)
refused("invalid_argument", { "'path' to 'load'", "integer 1" },
  function() return accel.load(1) end)
refused("invalid_argument", { "'devic' to 'load'", "did you mean 'device'?" },
  function() return accel.load("x", { devic = "cpu" }) end)
refused("invalid_argument", { "save: ", "'w'", "integer 1" },
  function() return accel.save(TMP .. "/never", { w = 1 }) end)
refused("invalid_argument", { "'other' to 'add'", "tensor or number, got nil" },
  function() return a + nil end)
refused("invalid_argument", { "'x' to 'add'", "tensor or number, got nil" }, function() return nil + a end)
-- a table with names is one of options, wherever it stands
refused("invalid_argument", { "'first' to 'add'", "no such option", "other, alpha" }, function() return a + { first = 1 } end)
refused("invalid_argument", { "'out' to 'add'", "assign the result" }, function() return accel.add(a, a, { out = a }) end)
refused("invalid_argument", { "to 'mul'", "accel.tensor { real = 0, imag = 1 }" }, function() return a * { real = 0, imag = 1 } end)
refused("invalid_argument", { "'dtype' is in the list", "second table" }, function() return accel.tensor { 1, 2, dtype = "f64" } end)
refused("invalid_argument", { "the key 're'", "{ real =, imag = }" }, function() return accel.tensor { { re = 1 } } end)
for _, list in ipairs { {}, { 1 } } do
  refused("invalid_argument", { "'other' to 'add'", "tensor or number, got table" },
    function() return a + list end)
end
refused("index_out_of_range", { "index: 3", "(2, 3)" }, function() a[3] = 1 end)
refused("index_out_of_range", { "index: ", "entries for 3 dims", "(2, 3)" }, function() return a[{ 1, 2, 1 }] end)
refused("index_out_of_range", { "index: ", "got function", "{ {1, 3}, {}, -1 }" }, function() return a[print] end)
refused("shape", { "index: ", "a mask of shape (4, 5)", "(2, 3)" }, function() return a[b:eq(0)] end)
refused("shape", { "index: ", "a mask of shape (4, 5)", "(2, 3)" }, function() a[b:eq(0)] = 1 end)
refused("dtype", { "cross_entropy: class labels must be integers (i64), got f32", "(2)", "(2, 3)" },
  function() return accel.cross_entropy(a, accel.zeros(2)) end)
refused("unsupported", { "a:lt(b)" }, function() return a < b end)

-- ---- every op, with everything wrong: an error with its code and line, or a result; never less ----
local function wrong(f, ...)
  local ok, err = pcall(f, ...)
  if ok then return end
  assert(type(err) == "table" and err.code and err.code ~= "internal", tostring(err))
  n_cases = n_cases + 1
end
local huge, odd = 2 ^ 53, { 0, -1, 2.5, "x", {}, print, true }
for _, op in ipairs(accel.ops()) do
  local f = accel[op.name]
  if f and not op.hidden then
    wrong(f)
    for _, v in ipairs(odd) do wrong(f, v); wrong(f, a, v); wrong(f, a, b, v); wrong(f, v, a) end
    wrong(f, gone); wrong(f, a, gone); wrong(f, { gone }); wrong(f, { a, gone }, 1)
    wrong(f, meta, a); wrong(f, a, meta); wrong(f, { a, meta })
    wrong(f, i64, f64, b); wrong(f, a, i64, b); wrong(f, a, huge); wrong(f, a, -huge); wrong(f, a, huge, huge)
    wrong(f, a, a, a, a, a, a, a, a); wrong(f, accel.zeros(0, 3)); wrong(f, accel.zeros(0), accel.zeros(0))
    wrong(f, accel.tensor(1.0)); wrong(f, accel.tensor(1.0), 1); wrong(f, a, { nosuchoption = 1 })
    local ok, err = pcall(f, a, { nosuchoption = 1 })
    assert(not ok and type(err) == "table", op.name .. " takes any option")
    local two = op.signature:match "%(%w+: operand, %w+: operand"
    if two then
      ok, err = pcall(f, a, b)
      if not ok and err.code == "dtype" then ok, err = pcall(f, i64, b:to "i64") end
      local text = tostring(err)
      assert(not ok and err.code == "shape" and text:find(op.name .. ": ", 1, true), text)
      assert(text:find("(2, 3)", 1, true) and text:find("(4, 5)", 1, true), text)
    end
    unharmed()
  end
end
-- in-place ops of the sweep may have written these
a, b = accel.zeros(2, 3), accel.zeros(4, 5)

-- ---- files: nil, message, code ----
local path = TMP .. "/bad_input.safetensors"
local function put(bytes)
  local f <close> = assert(io.open(path, "wb"))
  f:write(bytes)
end
local function no_file(code, parts, value, message, got)
  assert(value == nil and type(message) == "string", tostring(value))
  assert(got == code, tostring(got) .. ": " .. message)
  contains(message, parts)
  unharmed()
  n_cases = n_cases + 1
end
local function header(text, data) put(("<I8"):pack(#text) .. text .. (data or "")) end
local good = '{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'

os.remove(path)
no_file("not_found", { path, "No such file" }, accel.load(path))
no_file("not_found", { path }, accel.open_safetensors(path))
no_file("not_found", { path }, accel.open_tokens(path))
no_file("not_found", { TMP, "folder", "not a checkpoint" }, accel.load(TMP))
no_file("not_found", { "/none/" }, accel.save(TMP .. "/none/x", { a = a }))
no_file("io", { TMP, "folder" }, accel.save(TMP, { a = a }))
put "abc"
no_file("parse", { path, "rule R1 at byte 3" }, accel.load(path))
no_file("parse", { "3 bytes are not a whole number of u16" }, accel.open_tokens(path))
put(("<I8"):pack(100) .. good)
no_file("parse", { "rule R3 at byte 0" }, accel.load(path))
header("[]")
no_file("parse", { "rule R5 at byte 8" }, accel.load(path))
header('{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,3]}}', "abc")
no_file("parse", { "rule R9 at byte", "'w'" }, accel.load(path))
header(good, "abc")
no_file("parse", { "rule R11 at byte", "'w'" }, accel.load(path))
header(good, "ab")
assert(table.concat(accel.load(path).w:tolist(), " ") == "97 98")
local file <close> = assert(accel.open_safetensors(path))
put "cut"
no_file("io", { path, "too early" }, file:get "w")
refused("not_found", { "no tensor 'v'" }, function() return file:get "v" end)
assert(accel.save(path, { w = accel.ones(8) }))
do -- one bit of the data rots
  local f <close> = assert(io.open(path, "r+b"))
  f:seek("end", -1)
  f:write "\1"
end
no_file("parse", { "rule R15", "'w' does not match its checksum" }, accel.load(path))
put "abcdef"
local tokens <close> = assert(accel.open_tokens(path))
refused("index_out_of_range", { "row 0", "token 2", "there are 3" },
  function() return tokens:batch({ 2 }, 2) end)
os.remove(path)

-- ---- memory: refused in a process with a limit, which goes on ----
local child = TMP .. "/limit.lua"
do
  local f <close> = assert(io.open(child, "w"))
  f:write [[
local accel = require "accel"
local keep, held = accel.ones(1000), {}
local ok, err = pcall(function() return accel.zeros(1024, 1024, 64) end)
assert(not ok and err.code == "out_of_memory", tostring(err))
local text = tostring(err)
assert(text:find("limit.lua:3: zeros: ", 1, true), text)
assert(text:find("asked for 256 MiB", 1, true) and text:find("limit 64 MiB", 1, true), text)
for i = 1, 1000 do -- until it is full
  ok, err = pcall(function() held[i] = accel.zeros(1024, 1024) end)
  if not ok then break end
end
assert(not ok and err.code == "out_of_memory" and #held >= 8 and #held <= 16, #held)
assert(not pcall(function() return held[1] + held[2] end))
assert(keep:sum():item() == 1000 and held[#held]:sum():item() == 0)
held = nil
for _ = 1, 100 do -- garbage is collected before memory is out
  assert(accel.zeros(1024, 1024, 8):sum():item() == 0)
end
print "went on"
]]
end
local out = assert(io.popen("ACCEL_MEM_LIMIT=64M '" .. RUN .. "' '" .. child .. "' 2>&1"))
local said = out:read "a"
out:close()
assert(said == "went on\n", said)
os.remove(child)

-- ---- and training still works ----
local w = accel.ones(3, 1, { requires_grad = true })
local loss = (a + 1):matmul(w):sum()
loss:backward()
assert(loss:item() == 6 and table.concat(w.grad:view(-1):tolist(), " ") == "2.0 2.0 2.0")
unharmed()
print(n_cases .. " refusals")
