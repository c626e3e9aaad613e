-- infer_auto_device_map: every parameter and buffer has a device, no device gets more than it has room for, and a model that is
-- loaded by the map computes what the whole one does, also where a block with tensors of its own is cut. The maps themselves are compared
-- with Accelerate's in tests/reference/device_maps.lua.
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local nn, A = accel.nn, accel.accelerator
local device_of = require "accel.accelerator.device_map".device_of

local seed = tonumber(os.getenv "ACCEL_TEST_SEED" or "") or os.time() % 100000
print("ACCEL_TEST_SEED=" .. seed)
math.randomseed(seed)

--- A block of up to three parts with buffers (one that is not saved) and perhaps a parameter of its own.
local Block = nn.Module:extend "Block"
function Block:init(depth)
  self.parts = nn.ModuleList()
  for i = 1, math.random(1, 3) do
    self.parts:append(depth > 0 and math.random() < 0.7 and Block(depth - 1) or nn.Linear(6, 6, { bias = i > 1 }))
  end
  self:register_buffer("scale", accel.rand(math.random() < 0.5 and 1 or 6) + 0.5)
  if math.random() < 0.5 then self:register_buffer("kept", accel.full({ 6 }, 0.25), false) end
  if math.random() < 0.5 then self.shift = nn.Parameter(accel.rand(6)) end
end
function Block:forward(x)
  for _, part in ipairs(self.parts) do x = part(x):tanh() end
  x = x * self.scale
  if self.kept then x = x + self.kept end
  return self.shift and x + self.shift or x
end

local function bytes_of(t) return t:numel() * accel.accelerator.dtype_byte_size(t.dtype) end

local function tensors_of(model)
  local list = {}
  for name, t in pairs(A.named_module_tensors(model, { recurse = true })) do list[#list + 1] = { name, t } end
  return list
end

for round = 1, 40 do
  accel.manual_seed(seed + round)
  local model, x = nn.Sequential(Block(2), nn.Linear(6, 6)), accel.rand(2, 6)
  local total, want = A.compute_module_sizes(model)[""], model(x)
  local room = { [0] = math.random(0, total), [1] = math.random(0, total), cpu = math.random(total // 2, total) }
  local opts = { max_memory = room, clean_result = math.random() < 0.7, offload_buffers = math.random() < 0.5,
    fallback_allocation = math.random() < 0.3 }
  local what = ("round %d, max_memory %s"):format(round, accel.inspect(room))
  local warned, map = warn, nil
  warn = function() end -- luacheck: ignore
  map = A.infer_auto_device_map(model, opts)
  warn = warned -- luacheck: ignore
  local held = {}
  for _, pair in ipairs(tensors_of(model)) do
    local device = device_of(pair[1], map)
    assert(device ~= nil, what .. ": no device for " .. pair[1])
    held[device] = (held[device] or 0) + bytes_of(pair[2])
  end
  for device, bytes in pairs(held) do
    assert(device == "disk" or bytes <= room[device], ("%s: %s holds %d bytes"):format(what, device, bytes))
  end
  A.check_device_map(model, map)
  if round % 4 == 0 then
    local dir = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/map-")
    assert(accel.save(dir .. "/model.safetensors", model:state_dict()))
    for name, device in pairs(map) do map[name] = math.type(device) and 0 or device end -- one device is here
    local loaded = A.load_checkpoint_and_dispatch(accel.deepcopy(model), dir, { device_map = map, offload_folder = dir .. "/offload",
      offload_buffers = opts.offload_buffers })
    assert(accel.equal(loaded(x), want), what .. ": loaded")
    local dispatched = A.dispatch_model(accel.deepcopy(model), map, { offload_dir = dir .. "/second", offload_buffers = opts.offload_buffers })
    assert(accel.equal(dispatched(x), want), what .. ": dispatched")
  end
end

-- the block of accelerate#3956: cut, with a buffer of its own
local Own = nn.Module:extend "Own"
function Own:init()
  self.one = nn.Linear(10, 10)
  self.two = nn.Linear(10, 10)
  self:register_buffer("scale", accel.ones(1))
end
local model = nn.Sequential(Own(), nn.Linear(10, 10))
local map = A.infer_auto_device_map(model, { max_memory = { [0] = 900, cpu = 10 ^ 6 } })
assert(map["0.one"] == 0 and map["0.two"] == "cpu" and map["0.scale"] == "cpu" and map["1"] == "cpu", accel.inspect(map))
case "device maps"
