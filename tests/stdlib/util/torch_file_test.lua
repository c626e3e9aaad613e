-- accel.util.torch_file: trees that accel.save writes in PyTorch's format come back from accel.load with their types, order, dtypes,
-- views and shared storages, are pickles of protocol 2, and load in torch with weights_only = True where torch is installed. What such a
-- file cannot hold raises by its place, and no file is left.
--   accel-run tests/stdlib/util/torch_file_test.lua
local accel = require "accel"
local ordered = require "accel.util.ordered"
local pickle = require "accel.util.pickle"
local writer = require "accel.util.writer"
local zip_write = require "accel.util.zip_write"
local null = accel.json.null

local dir = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/torch-file-"))
local function at(name) return dir .. "/" .. name end
local function exists(path)
  local f = io.open(path, "rb")
  if f then f:close() end
  return f ~= nil
end
local function keys(t)
  local list = {}
  for key in pairs(t) do list[#list + 1] = tostring(key) end
  return table.concat(list, " ")
end

-- ---- plain values ----
local state = ordered()
state.z = 1
state.a = accel.arange(3)
local shared = { 1, 2 }
local tree = ordered()
for key, value in pairs {
  int = 7, small = -1, large = 2 ^ 40 // 1 | 0, least = math.mininteger, float = 1.0, inf = -math.huge, yes = true, text = "a\u{e9}\0z",
  bytes = "\xff\0\x80", forced = pickle.bytes "ab", list = { 1, "b", { 3 } }, empty_list = accel.json.array {}, empty = {},
  hole = pickle.list { 1, null, 3 },
  state = state, numbered = { [0] = "x", [1] = "y" }, forced_dict = pickle.dict { "a", "b" }, odict = pickle.odict { q = 2 },
  tuple = pickle.tuple { 1, 2, 3, 4 },
  set = pickle.set { 5, 6 }, size = pickle.size { 2, 3 }, dtype = pickle.global("torch", "float16"), one = shared, two = shared,
  long = ("x"):rep(70000),
  huge = ("\xff"):rep(3 << 19), -- as NumPy arrays in a pickle may be
} do tree[key] = value end
assert(accel.save(at "plain.pt", tree))
local back = assert(accel.load(at "plain.pt"))
assert(math.type(back.int) == "integer" and back.small == -1 and back.large == 1 << 40 and back.least == math.mininteger)
assert(math.type(back.float) == "float" and back.float == 1.0 and back.inf == -math.huge and back.yes == true)
assert(back.text == "a\u{e9}\0z" and back.bytes == "\xff\0\x80" and back.forced == "ab")
assert(back.long == tree.long and back.huge == tree.huge)
assert(back.list[2] == "b" and back.list[3][1] == 3 and #back.empty_list == 0)
assert(not ordered.is(back.empty_list) and ordered.is(back.empty))
assert(back.hole[2] == null and back.hole[3] == 3 and #back.tuple == 4 and back.set[1] == 5 and back.size[2] == 3 and back.dtype == "f16")
assert(keys(back.state) == "z a" and keys(back.numbered) == "0 1" and back.numbered[0] == "x" and back.forced_dict[2] == "b")
assert(back.odict.q == 2)
assert(back.one == back.two and keys(back) == keys(tree))
for _, value in ipairs { "text", false } do
  assert(accel.save(at "root.pt", value) and accel.load(at "root.pt") == value)
end
do -- the pickle adds items in parts
  local counts, lists, dicts = { 0, 1, 3, 4, 999, 1000, 1001, 2500 }, {}, {}
  for k, count in ipairs(counts) do
    lists[k], dicts[k] = accel.json.array {}, ordered()
    for i = 1, count do lists[k][i], dicts[k]["k" .. i] = i, i end
  end
  assert(accel.save(at "many.pt", { lists = lists, dicts = dicts }))
  local got = accel.load(at "many.pt")
  for k, count in ipairs(counts) do
    assert(#got.lists[k] == count and (count == 0 or got.lists[k][count] == count and got.dicts[k]["k" .. count] == count))
  end
end

-- ---- tensors ----
local base = accel.arange(24, { dtype = "f32" })
local list = {
  base = base, row = base:narrow(1, 5, 4), turned = base:view(4, 6):transpose(1, 2), expanded = accel.ones(1, 3):expand(4, 3),
  scalar = accel.tensor(2.5),
  none = accel.zeros(0, 3), leaf = accel.ones(2):requires_grad_(), alone = accel.arange(5),
}
for _, dtype in ipairs { "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool", "u16", "u32", "f8_e4m3", "f8_e5m2" } do
  list["of_" .. dtype] = accel.tensor({ { 0, 1, 1 }, { 1, 0, 1 } }):to(dtype)
end
assert(accel.save(at "tensors.bin", list))
local got = assert(accel.load(at "tensors.bin", { device = "cpu" }))
for name, t in pairs(list) do
  local g = got[name]
  assert(g.dtype == t.dtype and g.shape == t.shape and g:detach():to_bytes() == t:detach():to_bytes(), name)
  assert(g.requires_grad == t.requires_grad, name)
end
got.row:zero_()
assert(got.base[5]:item() == 0 and got.turned[5][1]:item() == 0 and got.base[4]:item() == 3, "views share a storage")
assert(got.turned:stride()[1] == 1 and got.expanded:stride()[1] == 0, "strides are kept")
assert(accel.save(at "plain_tensor.pth", base) and accel.equal(accel.load(at "plain_tensor.pth"), base))
local parts = accel.zeros(1 << 20) -- of a large buffer only what tensors see
assert(accel.save(at "parts.pt", { a = parts:narrow(1, 100, 10), b = parts:narrow(1, 5000, 10) }))
local file <close> = io.open(at "parts.pt", "rb")
assert(file:seek "end" < 3000)
do -- one storage of two dtypes
  local one = writer.create(at "first.pt")
  local zip, untyped = zip_write(one), pickle.global("torch", "UntypedStorage")
  local storage = pickle.persistent(pickle.tuple { "storage", untyped, "0", "cpu", 16 })
  local function view(dtype)
    return pickle.call("torch._utils", "_rebuild_tensor_v3", { storage, 0, pickle.tuple { 4 }, pickle.tuple { 1 }, false, pickle.odict {},
      pickle.global("torch", dtype) })
  end
  assert(zip:entry("archive/data.pkl", pickle.encode { f = view "float32", i = view "int32" }))
  assert(zip:entry("archive/data/0", accel.arange(4, { dtype = "f32" }):to_bytes()) and zip:finish() and one:commit())
  assert(accel.save(at "bits.pt", accel.load(at "first.pt")))
  local two = accel.load(at "bits.pt")
  assert(two.i.dtype == "i32" and two.f[4]:item() == 3 and two.i:to_bytes() == two.f:to_bytes() and two.f:data_ptr() == two.i:data_ptr())
end
assert(accel.save(at "p.pt", { w = pickle.parameter(accel.ones(2):requires_grad_()) }))
assert(accel.load(at "p.pt").w.requires_grad)

-- ---- names and formats ----
assert(accel.save(at "any", { w = base }, { format = "torch" }) and assert(accel.load(at "any")).w.shape[1] == 24)
assert(accel.save(at "safe.bin", { w = base }, { format = "safetensors" }))
assert(accel.open_safetensors(at "safe.bin"):metadata().format == "pt", "asked for, safetensors are written under any name")
local set = assert(writer.set(at "set"))
assert(accel.save("a.bin", { w = base }, nil, set) and set:write("b", "text") and set:commit())
assert(accel.load(at "set/a.bin").w.shape[1] == 24)
local ok, message, code = accel.save(at "no/folder/x.pt", { 1 })
assert(not ok and code and message:find "no/folder", message)

-- ---- what raises ----
local function raises(want, name, ...)
  local good, err = pcall(accel.save, at(name), ...)
  assert(not good and tostring(err):find(want, 1, true), tostring(err))
  assert(not exists(at(name)), name)
end
local cycle = {}
cycle.inner = { cycle }
raises("inner.1: it contains itself", "x.pt", cycle)
raises("f: a function cannot be stored", "x.pt", { f = print })
raises("m.w: the tensor is on the meta device", "x.pt", { m = { w = accel.empty(2, { device = "meta" }) } })
raises("model: expected plain data and tensors, got", "x.pt", { model = accel.nn.Linear(2, 2) })
raises("state_dict()", "x.pt", accel.nn.Linear(2, 2))
raises("have no metadata", "x.pt", { base }, { note = "a" })
raises("does not fit the name", "x.safetensors", { base }, { format = "torch" })
raises("expected table of tensors", "x.safetensors", 3)
local deep = {}
for _ = 1, 300 do deep = { deep } end
raises("more than 250 values inside each other", "x.pt", deep)

-- ---- the archive ----
local zip_file = assert(writer.create(at "many.zip"))
local zip = zip_write(zip_file) -- more entries than 16 bits count: the directory's end is a zip64 one
assert(zip:entry("archive/data.pkl", pickle.encode(3)))
for i = 0, 65540 do assert(zip:entry("archive/data/" .. i, "")) end
assert(zip:finish() and zip_file:commit())
assert(accel.load(at "many.zip") == 3)

-- ---- other programs ----
local function python(program, ...)
  local path = at "program.py"
  assert(accel.write_file(path, program))
  local pipe = assert(io.popen(("python3 '%s' '%s' 2>&1"):format(path, table.concat({ ... }, "' '"))))
  local text = pipe:read "a"
  return pipe:close() and text or error(text)
end
if not os.execute "command -v python3 >/dev/null" then
  print "skipped: the parts with Python need python3"
  return
end
local text = python([[
import io, pickletools, sys, zipfile
for path in sys.argv[1:]:
    archive = zipfile.ZipFile(path)
    assert archive.testzip() is None, path
    out = io.StringIO()
    pickletools.dis(archive.read("archive/data.pkl"), out)
    assert out.getvalue().endswith("highest protocol among opcodes = 2\n"), path
    for entry in archive.infolist():
        archive.fp.seek(entry.header_offset)
        head = archive.fp.read(30)
        at = entry.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        assert at % 64 == 0, (path, entry.filename, at)
print("fine")
]], at "plain.pt", at "tensors.bin", at "parts.pt", at "bits.pt", at "p.pt")
assert(text == "fine\n", text)
if not os.execute "python3 -c 'import torch' >/dev/null 2>&1" then
  print "skipped: the comparison with torch.load needs torch"
  return
end
text = python([==[
import sys, torch
folder = sys.argv[1]
def load(name, **k): return torch.load(folder + "/" + name, weights_only=True, **k)
t = load("plain.pt")
assert t["int"] == 7 and t["large"] == 2**40 and t["least"] == -2**63 and type(t["float"]) is float and t["bytes"] == b"\xff\0\x80"
assert t["forced"] == b"ab" and t["list"] == [1, "b", [3]] and t["empty_list"] == [] and t["empty"] == {} and t["hole"] == [1, None, 3]
assert list(t["state"]) == ["z", "a"] and t["numbered"] == {0: "x", 1: "y"} and t["forced_dict"] == {1: "a", 2: "b"}
assert type(t["odict"]).__name__ == "OrderedDict" and t["tuple"] == (1, 2, 3, 4) and t["set"] == {5, 6} and t["size"] == torch.Size([2, 3])
assert t["dtype"] is torch.float16 and t["one"] is t["two"] and t["text"] == "a\u00e9\0z"
for m in (False, True):
    t = load("tensors.bin", mmap=m)
    assert t["row"].untyped_storage().data_ptr() == t["base"].untyped_storage().data_ptr() and t["row"].tolist() == [4, 5, 6, 7]
    assert t["turned"].stride() == (1, 6) and t["expanded"].stride() == (0, 1) and t["none"].shape == (0, 3) and t["leaf"].requires_grad
    for name in "uint16 uint32 float8_e4m3fn float8_e5m2".split():
        short = {"uint16": "u16", "uint32": "u32", "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2"}[name]
        x = t["of_" + short]
        assert x.dtype is getattr(torch, name) and x.to(torch.float32).tolist() == [[0, 1, 1], [1, 0, 1]], name
    assert t["of_bool"].dtype is torch.bool and t["of_bf16"].dtype is torch.bfloat16
assert isinstance(load("p.pt")["w"], torch.nn.Parameter)
b = load("bits.pt")
assert b["i"].tolist() == b["f"].view(torch.int32).tolist()
print("fine")
]==], dir)
assert(text == "fine\n", text)
