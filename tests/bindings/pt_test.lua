-- accel.load of torch.save files and of torch.distributed.checkpoint's folders, accel.open_sharded: bindings/file/lac_pt.c,
-- lac_sharded.c (every recorded file is compared by tests/reference/pt.lua and dcp.lua, the rules by tests/host/file).
local accel = require "accel"
local core = require "accel.file.core"
local here = arg[0]:match "^.*/" or ""
local reference = here .. "../reference/"
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"

local function fails(code, part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and err.code == code and tostring(err):find(part, 1, true), tostring(err))
end
local function refuses(code, part, value, message, got)
  assert(value == nil and got == code and message:find(part, 1, true), message)
end

-- both layouts hold the same, and what is recorded
local want = assert(accel.load(reference .. "files/pt/expected.safetensors"))
for _, name in ipairs { "state_dict.pt", "state_dict_legacy.pt" } do
  local got = assert(accel.load(reference .. "files/pt/" .. name))
  local order = {}
  for key, t in pairs(got) do
    order[#order + 1] = key
    assert(t.dtype == want[key].dtype and t:detach():to_bytes() == want[key]:to_bytes(), key)
  end
  assert(order[1] == "whole" and order[#order] == "param" and #order == 11)
  assert(got.param.requires_grad and not got.whole.requires_grad)
  got.whole:fill_(9) -- views of one storage in the file are so here
  assert(got.column_view:tolist()[3] == 9 and got.transposed:tolist()[1][2] == 9 and got.half:tolist()[1] ~= 9)
  local ghost = assert(accel.load(reference .. "files/pt/" .. name, { device = "meta" }))
  assert(ghost.transposed.device == "meta" and ghost.transposed.shape[1] == 6)
end

-- nested plain data
do
  local t = assert(accel.load(reference .. "files/pt/training.pt"))
  assert(t.epoch == 3 and t.name == "x" and t.nested[1] == 1 and t.nested[2][1] == 2.5 and t.nested[2][3] == true)
  assert(t.nested[2][2] == accel.json.null and #t.nested[2] == 3 and t.nested[3].k == "v")
  assert(t.model.weight.shape[2] == 3 and t.optimizer.state[0].exp_avg.shape[1] == 2)
  assert(t.optimizer.param_groups[1].foreach == nil) -- None in a dict
  local m = accel.nn.Linear(3, 2)
  m:load_state_dict(t.model)
end

refuses("parse", "rule unknown_global at byte 130: torch.nn.modules.linear.Linear",
  accel.load(reference .. "files/pt/whole_module_must_be_refused.pt"))
refuses("not_found", "x.pt", accel.load(tmp .. "/x.pt"))
fails("invalid_argument", "devise", accel.load, reference .. "files/pt/training.pt", { devise = "cpu" })
-- safetensors under another name are read as what they are, text as nothing
do
  local path = tmp .. "/model.bin"
  assert(accel.save(path, { w = accel.ones(2) }, { format = "safetensors" }))
  assert(accel.load(path).w:tolist()[2] == 1)
  assert(accel.write_file(path, "hello"))
  refuses("parse", "rule format at byte 0", accel.load(path))
end

-- parts of files, and what asks for them outside
do
  local dir = reference .. "dcp/distcp_2"
  refuses("parse", "rule truncated", core.load_part(dir .. "/__0_0.distcp", 1 << 40, 10))
  refuses("parse", "rule ", core.load_part(dir .. "/__0_0.distcp", 1, 100))
  refuses("not_found", "nowhere", accel.load(tmp .. "/nowhere"))
  local empty = tmp .. "/empty"
  assert(accel.makedirs(empty))
  refuses("not_found", "not a checkpoint that accel.load reads", accel.load(empty))
end

-- a folder whose metadata or parts are damaged: every part that is cut or missing is named
do
  local from, dir = reference .. "dcp/distcp_2/", tmp .. "/damaged"
  assert(accel.makedirs(dir))
  local function read(name)
    local f = assert(io.open(from .. name, "rb"))
    local bytes = f:read "a"
    f:close()
    return bytes
  end
  local metadata, first, second = read ".metadata", read "__0_0.distcp", read "__1_0.distcp"
  local function put(a, b, c)
    for name, bytes in pairs { [".metadata"] = a, ["__0_0.distcp"] = b, ["__1_0.distcp"] = c } do
      assert(accel.write_file(dir .. "/" .. name, bytes))
    end
  end
  put(metadata, first, second)
  assert(accel.load(dir).epoch == 3)
  put(metadata, first:sub(1, 20000), second)
  refuses("parse", "__0_0.distcp: not a torch.save file", accel.load(dir))
  put(metadata:sub(1, 9000), first, second)
  refuses("parse", ".metadata: not a torch.save file that can be read: rule truncated", accel.load(dir))
  put((metadata:gsub("__0_0.distcp", "../../secret")), first, second)
  refuses("parse", "'../../secret' is not the name of a file in the folder", accel.load(dir))
  put((metadata:gsub("ChunkStorageMetadata", "ChunkStorageMetadatb")), first, second)
  refuses("parse", "ChunkStorageMetadatb, which is not one of the names", accel.load(dir))
  put(metadata, second, first) -- parts of the wrong file
  refuses("parse", "", accel.load(dir))
  -- a chunk of another size than the part: (7, 10) becomes (6, 10), which leaves a hole
  local hole, n = metadata:gsub("K\7K\10", "K\6K\10", 1)
  if n == 1 then
    put(hole, first, second)
    refuses("parse", "model.emb.weight", accel.load(dir))
  end
end

-- boxes
do
  local files <close> = assert(accel.open_sharded(reference .. "dcp/hf_sharded_2"))
  local info = files:info "model.emb.weight"
  assert(info.dtype == "f32" and info.shape[1] == 13 and info.shape[2] == 10 and #info.chunks == 2)
  assert(info.chunks[2].offset[1] == 7 and info.chunks[2].file == 2 and info.chunks[2].shape[1] == 6)
  local whole = files:get "model.emb.weight"
  local box = files:get("model.emb.weight", { 6, 3 }, { 4, 2 }) -- over both files
  assert(box:to_bytes() == whole:narrow(1, 6, 4):narrow(2, 3, 2):contiguous():to_bytes())
  assert(accel.device("meta", files.get, files, "model.gain").device == "meta")
  fails("index_out_of_range", "4 elements from 11 on in dim 1", files.get, files, "model.emb.weight", { 11, 1 }, { 4, 2 })
  fails("index_out_of_range", "integers from 1 on", files.get, files, "model.emb.weight", { 0, 1 }, { 4, 2 })
  fails("shape", "list of 2 integers", files.get, files, "model.emb.weight", { 1 }, { 4, 2 })
  fails("not_found", "no tensor 'v'", files.get, files, "v")
  files:close()
  fails("released", "closed", files.keys, files)
  assert(tostring(select(2, pcall(accel.open_sharded, 3))):find "folder or a list of paths, got number")
  refuses("not_found", "nowhere", accel.open_sharded(tmp .. "/nowhere"))
  local one = reference .. "dcp/hf_sharded_2/shard-00001-model-00001-of-00001.safetensors"
  refuses("parse", "rule C5: tensor", accel.open_sharded { one, one })
  local count = select(2, pcall(function() return #accel.open_sharded({}):keys() end))
  assert(count == 0)
end

-- types that accel lacks: elements, complex numbers, objects as tables of their fields
do
  local pickle, writer, zip_write = require "accel.util.pickle", require "accel.util.writer", require "accel.util.zip_write"
  local path = tmp .. "/types.pt"
  local function load(value, ...)
    local file = assert(writer.create(path))
    local zip = zip_write(file)
    assert(zip:entry("a/data.pkl", pickle.encode(value)))
    for i, bytes in ipairs { ... } do assert(zip:entry("a/data/" .. i - 1, bytes)) end
    assert(zip:finish() and file:commit())
    return accel.load(path)
  end
  local function tensor(dtype, bytes, size, stride, key)
    local storage = pickle.persistent(pickle.tuple { "storage", pickle.global("torch.storage", "UntypedStorage"), key or "0", "cpu", bytes })
    return pickle.call("torch._utils", "_rebuild_tensor_v3", { storage, 0, pickle.tuple(size), pickle.tuple(stride), false, accel.json.null,
      pickle.global("torch", dtype) })
  end
  local t = load(tensor("uint64", 16, { 2 }, { 1 }), ("<I8I8"):pack(7, math.maxinteger))
  assert(t.dtype == "i64" and t[1]:item() == 7 and t[2]:item() == math.maxinteger)
  refuses("parse", "a uint64 in storage '0' that no dtype holds", load(tensor("uint64", 8, { 1 }, { 1 }), ("<I8"):pack(-1)))
  -- many storages of which each is converted, and one that is named again after their table grew
  local list, contents = {}, {}
  for i = 1, 40 do list[i], contents[i] = tensor("uint64", 8, { 1 }, { 1 }, tostring(i - 1)), ("<I8"):pack(i) end
  list[41] = tensor("uint64", 8, { 1 }, { 1 }, "0")
  t = load(list, table.unpack(contents))
  assert(t[40]:item() == 40 and t[41]:item() == 1)
  -- one storage as two types by turns is converted once for each
  list = {}
  for i = 1, 200 do list[i] = tensor(i % 2 == 0 and "float8_e8m0fnu" or "float8_e5m2fnuz", 1 << 16, { 1 }, { 1 }) end
  accel.collect()
  local before = accel.mem_stats("cpu").live_bytes
  t = load(list, ("\x7f"):rep(1 << 16))
  assert(t[2]:item() == 1 and t[200]:item() == 1 and t[1]:item() == t[199]:item())
  assert(accel.mem_stats("cpu").live_bytes - before < 4 * (1 << 18), "each tensor has a copy of its storage")
  t = load(tensor("complex64", 32, { 2, 2 }, { 1, 2 }), ("<ffffffff"):pack(1, 2, 3, 4, 5, 6, 7, 8)) -- transposed
  assert(t.dtype == "c64" and #t.shape == 2 and t[1][2]:item().imag == 6 and t[2][1]:item().real == 3)
  t = load(tensor("float8_e4m3fnuz", 3, { 3 }, { 1 }), "\x40\xc0\x80")
  assert(t.dtype == "f32" and t[1]:item() == 1 and t[2]:item() == -1 and t[3]:item() ~= t[3]:item())
  t = load(tensor("float4_e2m1fn_x2", 2, { 1, 2 }, { 2, 1 }), "\x21\xf7")
  assert(t.shape[2] == 4 and t[1]:tolist()[1] == 0.5 and t[1]:tolist()[2] == 1 and t[1]:tolist()[3] == 6 and t[1]:tolist()[4] == -6)
  refuses("parse", "whose last dim is not dense", load(tensor("float4_e2m1fn_x2", 4, { 2, 2 }, { 1, 2 }), "abcd"))
  local args = load({ args = pickle.object("argparse", "Namespace", { lr = 0.5, name = "x" }) }, "").args
  assert(args.class == "Namespace" and args.lr == 0.5 and args.name == "x")
  local placement = pickle.object("torch.distributed.tensor.placement_types", "Shard", { dim = 1 })
  local d = load(pickle.call("torch._tensor", "_rebuild_from_type_v2", { pickle.global("torch._utils", "_rebuild_wrapper_subclass"),
    pickle.global("torch.distributed.tensor", "DTensor"), pickle.tuple { 1, 2, pickle.tuple { 4, 6 } }, { _spec = { placement } } }), "")
  assert(d.class == "DTensor" and d.size[2] == 6 and d._spec[1].class == "Shard" and d._spec[1].dim == 1)
end
