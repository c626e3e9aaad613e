-- accel.save, load, open_safetensors: bindings/file/lac_file.c; open_tokens: lac_tokens.c (the rules of the formats are
-- tested with host/file).
local accel = require "accel"

local tmp = os.getenv("ACCEL_TEST_TMP") or "."
local path = tmp .. "/t.safetensors"

local function fails(code, part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and err.code == code and tostring(err):find(part, 1, true), tostring(err))
end

local w = accel.tensor({ { 1, 2 }, { 3, 4.5 } }, { requires_grad = true })
local tensors = {
  w = w, t = w:transpose(1, 2), half = w:to("bf16"), ids = accel.tensor { 1, 2, 3 },
    flag = accel.tensor(true),
  none = accel.zeros(0, 3),
}
assert(accel.save(path, tensors, { step = "12", ["a b"] = "x" }) == true)
assert(accel.is_grad_enabled())
local back, more = accel.load(path)
assert(more == nil)
local meta = accel.open_safetensors(path):metadata()
assert(meta.step == "12" and meta["a b"] == "x")
local n = 0
for name, t in accel.pairs(back) do
  n = n + 1
  assert(t.dtype == tensors[name].dtype and not t.requires_grad)
  assert(accel.inspect(t:tolist()) == accel.inspect(tensors[name]:tolist()), name)
end
assert(n == 6 and back.none.shape[2] == 3)

-- One tensor at a time.
do
  local f <close> = accel.open_safetensors(path)
  assert(#f:keys() == 6 and f:info("w").dtype == "f32" and f:info("none").shape[1] == 0
    and f:metadata().step == "12")
  assert(f:get("t"):tolist()[1][2] == 3)
  fails("not_found", "no tensor 'v'", f.get, f, "v")
  f:close()
  fails("released", "closed", f.keys, f)
end

-- What is not a flat table of tensors is told what to give instead.
fails("invalid_argument", "got accel.nn.Linear; give its state_dict()", accel.save, path, accel.nn.Linear(1, 1))
fails("invalid_argument", "got table; the path comes first: save(path, tensors)", accel.save, { w = accel.ones(1) }, path)
fails("invalid_argument", "'state' is not a tensor but table; a file holds one flat table of tensors", accel.save, path,
  { state = {} })

-- Tables that iterate their own way keep working.
local ordered = setmetatable({}, { __pairs = function()
  local i = 0
  return function()
    i = i + 1
    if i <= 2 then return "k" .. i, accel.full({ 1 }, i) end
  end
end })
assert(accel.save(path, ordered) and accel.load(path).k2:item() == 2)

-- Metadata whose strings live only as long as __pairs hands them out.
local made = setmetatable({}, { __pairs = function()
  local i = 0
  return function()
    i = i + 1
    collectgarbage()
    if i <= 50 then return "key" .. i, ("value"):rep(20) .. i end
  end
end })
assert(accel.save(tmp .. "/meta.safetensors", ordered, made))
local strings = accel.open_safetensors(tmp .. "/meta.safetensors"):metadata()
for i = 1, 50 do assert(strings["key" .. i] == ("value"):rep(20) .. i) end

-- A finalizer that closes the file in the middle of a read ends that read, no more.
for _ = 1, 300 do
  local file = accel.open_safetensors(path)
  setmetatable({}, { __gc = function() file:close() end })
  local ok, got = pcall(file.get, file, "k2")
  assert(ok and got:item() == 2 or got.code == "released")
end

-- Files that fail return nil, message, code; misuse raises.
local r, message, code = accel.load(tmp .. "/missing.safetensors")
assert(r == nil and message:find("missing.safetensors", 1, true) and code == "not_found")
r, message, code = accel.save(tmp .. "/no/such/folder/x", tensors)
assert(r == nil and message:find("no/such/folder", 1, true) and (code == "io" or code == "not_found"))
fails("invalid_argument", "'x' is not a tensor but integer 3", accel.save, path, { x = 3 })
fails("invalid_argument", "names are strings", accel.save, path, { w })
fails("invalid_argument", "metadata", accel.save, path, { w = w }, { step = 3 })
assert(accel.load(path).k1:item() == 1, "a refused save leaves the file alone")
assert(accel.is_grad_enabled())
local bad = assert(io.open(tmp .. "/bad.safetensors", "wb"))
bad:write(string.pack("<I8", 20), '{"a":{"dtype":"F32"}')
bad:close()
r, message, code = accel.load(tmp .. "/bad.safetensors")
assert(r == nil and code == "parse" and message:find("bad.safetensors", 1, true), message)

-- Tokens.
local out = assert(io.open(tmp .. "/tokens.bin", "wb"))
for i = 0, 99 do out:write(string.pack("<I2", i * 600)) end
out:close()
local f = assert(accel.open_tokens(tmp .. "/tokens.bin"))
assert(f:len() == 100 and #f == 100)
local b = f:batch({ 0, 96, 7 }, 4)
assert(b.dtype == "i64" and b.shape[1] == 3 and b.shape[2] == 4)
assert(b[1][2]:item() == 600 and b[2][4]:item() == 59400 and b[3][1]:item() == 4200)
assert(f:batch(accel.tensor { 5 }, 1):item() == 3000 and f:batch({}, 4).shape[1] == 0)
fails("index_out_of_range", "", f.batch, f, { 97 }, 4)
fails("index_out_of_range", "", f.batch, f, { -1 }, 4)
fails("invalid_argument", "expected integer", f.batch, f, { "x" }, 4)
assert(accel.open_tokens(tmp .. "/tokens.bin", { header = 8 }):len() == 96)
r, message, code = accel.open_tokens(tmp .. "/none.bin")
assert(r == nil and message and code == "not_found")
fails("dtype", "f32", accel.open_tokens, tmp .. "/tokens.bin", { dtype = "f32" })
f:close()
fails("released", "closed", f.len, f)

-- Plain files, whole or as they were, and folders.
do
  local function content(name)
    local f = assert(io.open(name, "rb"))
    local text = f:read "a"
    f:close()
    return text
  end
  local deep = tmp .. "/made/by//test/"
  assert(accel.makedirs(deep) == true and accel.makedirs(deep) == true and accel.makedirs "/" and accel.makedirs ".")
  assert(accel.write_file(deep .. "a", "one\0two") == true and content(deep .. "a") == "one\0two")
  assert(accel.write_file(deep .. "a", "") == true and content(deep .. "a") == "")
  local none, message, code = accel.write_file(deep, "x")
  assert(none == nil and code == "io" and message:find("made/by", 1, true), message)
  none, message, code = accel.write_file(tmp .. "/nowhere/a", "x")
  assert(none == nil and code == "not_found" and message:find("nowhere", 1, true))
  none, message, code = accel.makedirs(deep .. "a/b")
  assert(none == nil and code == "io" and message:find("cannot make the folder: Not a directory", 1, true), message)
  none, message, code = accel.makedirs(deep .. "a")
  assert(none == nil and code == "io" and message:find("File exists", 1, true), message)
  -- which of several folders cannot be made decides what is said, not the last one
  assert(os.execute(("chmod 555 '%s'"):format(deep)))
  if not accel.write_file(deep .. "probe", "") then -- root may write anywhere
    none, message = accel.makedirs(deep .. "x/y/z")
    assert(none == nil and message:find("Permission denied", 1, true), message)
  end
  assert(os.execute(("chmod 755 '%s'"):format(deep)))
  none, message, code = accel.makedirs ""
  assert(none == nil and code == "not_found")
  fails("invalid_argument", "has a zero byte", accel.makedirs, "a\0b")
  fails("invalid_argument", "expected string", accel.write_file, "a", 1)
end
