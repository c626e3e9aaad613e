--- Weights in pytorch_model.bin: from_pretrained and load_checkpoint_in_model give what they give of the same tensors in
--- safetensors files, from one file or several with an index; damage names the file and leaves nothing half loaded.
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local torch_file = dofile(here .. "../../support/torch_file.lua")
local reference = here .. "../../reference/files/"
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/torch_weights"

local function read(path)
  local f = assert(io.open(path, "rb"))
  local bytes = f:read "a"
  f:close()
  return bytes
end

local function equal(a, b)
  local n = 0
  for name, t in pairs(a) do
    n = n + 1
    assert(b[name] and b[name].dtype == t.dtype and b[name]:to_bytes() == t:to_bytes(), name)
  end
  for _ in pairs(b) do n = n - 1 end
  assert(n == 0, "other names")
end

--- The folder's tensors, by name, from all of its safetensors files.
local function tensors_of(dir)
  local list = {}
  for _, file in ipairs(accel.listdir(dir)) do
    if file:find "^model.*%.safetensors$" then
      for name, t in pairs(assert(accel.load(dir .. "/" .. file))) do list[#list + 1] = { name, t } end
    end
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list
end

for _, name in ipairs { "gpt2", "llama", "bert", "resnet" } do
  local from, dir = reference .. name, tmp .. "/" .. name
  assert(accel.makedirs(dir))
  local list = tensors_of(from)
  assert(#list > 10)
  assert(accel.write_file(dir .. "/config.json", read(from .. "/config.json")))
  local want = assert(accel.models.from_pretrained(from)):state_dict()
  torch_file.write(dir .. "/pytorch_model.bin", list)
  equal(want, assert(accel.models.from_pretrained(dir)):state_dict())

  -- in two files
  local half, map = #list // 2, {}
  for i, pair in ipairs(list) do map[pair[1]] = i <= half and "a.bin" or "b.bin" end
  torch_file.write(dir .. "/a.bin", table.move(list, 1, half, 1, {}))
  torch_file.write(dir .. "/b.bin", table.move(list, half + 1, #list, 1, {}))
  os.remove(dir .. "/pytorch_model.bin")
  local index = dir .. "/pytorch_model.bin.index.json"
  assert(accel.write_file(index, accel.json.encode { weight_map = map }))
  equal(want, assert(accel.models.from_pretrained(dir)):state_dict())

  -- one flipped bit of a weight
  local bytes = read(dir .. "/b.bin")
  local at = #bytes * 3 // 4
  assert(accel.write_file(dir .. "/b.bin", bytes:sub(1, at - 1) .. string.char(bytes:byte(at) ~ 8) .. bytes:sub(at + 1)))
  local model, message, code = accel.models.from_pretrained(dir)
  assert(model == nil and code == "parse" and message:find("/b.bin: ", 1, true), message)
  assert(message:find "rule %a+ at byte %d+")
  os.remove(index)
end

-- below "state_dict", into a model that is there: transposed copies and views have memory of their own
do
  local a, b = accel.nn.Linear(3, 2), accel.nn.Linear(3, 2)
  local path = tmp .. "/linear.bin"
  torch_file.write(path, { { "weight", a.weight:detach() }, { "bias", a.bias:detach() } }, "state_dict")
  accel.accelerator.load_checkpoint_in_model(b, path)
  assert(b.weight:to_bytes() == a.weight:to_bytes() and b.bias:to_bytes() == a.bias:to_bytes())
  local before = b.weight:to_bytes()
  local bytes = read(path)
  local from = bytes:find("archive/data/1", 1, true)
  assert(accel.write_file(path, bytes:sub(1, from + 13) .. "\0\0\0\0" .. bytes:sub(from + 18)))
  b.weight:detach():fill_(7)
  before = b.weight:to_bytes()
  local ok, err = pcall(accel.accelerator.load_checkpoint_in_model, b, path)
  assert(not ok and tostring(err):find("rule crc", 1, true), tostring(err))
  assert(b.weight:to_bytes() == before, "half loaded")
end
