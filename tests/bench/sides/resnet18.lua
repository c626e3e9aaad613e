-- Training step of a ResNet-18 for images of 32x32 (stem of 3x3, no pooling behind it), with SGD and momentum. Names of
-- weights are torchvision's. --make FOLDER writes weights and images.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local nn = accel.nn
local o = side.options { batch = 64, width = 64, dtype = "f32", steps = 6, drop = 2, data = "", make = "", lr = 1e-3,
  compile = false }

local relu = accel.relu
local function conv(from, to, kernel, stride)
  return nn.Conv2d(from, to, kernel, { stride = stride, padding = kernel // 2, bias = false })
end

local Block = nn.Module:extend "Block"
function Block:init(from, to, stride)
  self.conv1, self.bn1 = conv(from, to, 3, stride), nn.BatchNorm2d(to)
  self.conv2, self.bn2 = conv(to, to, 3, 1), nn.BatchNorm2d(to)
  if stride ~= 1 or from ~= to then self.downsample = nn.Sequential(conv(from, to, 1, stride), nn.BatchNorm2d(to)) end
end
function Block:forward(x)
  local y = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
  return relu(y + (self.downsample and self.downsample(x) or x))
end

local ResNet18 = nn.Module:extend "ResNet18"
function ResNet18:init(width, classes)
  self.conv1, self.bn1 = conv(3, width, 3, 1), nn.BatchNorm2d(width)
  local from = width
  for i = 1, 4 do
    local to = width << (i - 1)
    self["layer" .. i] = nn.Sequential(Block(from, to, i > 1 and 2 or 1), Block(to, to, 1))
    from = to
  end
  self.fc = nn.Linear(from, classes)
end
function ResNet18:forward(x)
  x = relu(self.bn1(self.conv1(x)))
  for i = 1, 4 do x = self["layer" .. i](x) end
  return self.fc(x:mean { 3, 4 })
end

accel.manual_seed(1)
local model = ResNet18(o.width, 10)
if o.make ~= "" then
  side.save(o.make, "weights", model:state_dict())
  side.save(o.make, "images", { x = accel.randn(o.batch, 3, 32, 32), y = accel.randint(0, 10, { o.batch }) })
  return
end
model:load_state_dict(side.load(o.data, "weights"))
if o.compile then accel.compile(model) end
local images = side.load(o.data, "images")
local x, y = images.x, images.y
local opt = accel.optim.SGD(model:parameters(), { lr = o.lr, momentum = 0.9, weight_decay = 5e-4 })
local clock = accel.clock
side.finish(side.train(o.steps, o.drop, function()
  local loss
  do
    local _ <close> = accel.autocast { device = "cpu", dtype = "bf16", enabled = o.dtype == "bf16" }
    loss = accel.cross_entropy(model(x), y)
  end
  local forward = clock()
  loss:backward()
  local backward = clock()
  opt:step()
  opt:zero_grad()
  return loss, forward, backward
end))
