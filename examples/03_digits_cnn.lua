--- A convolutional network that reads handwritten digits:
---
---   accel-run examples/03_digits_cnn.lua [options] [DIR]
---
--- DIR holds four files in the IDX format, named like MNIST's (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-... or
--- test-...). The default is the 8 x 8 digits in this script's folder. Shows IDX, Conv2d, BatchNorm2d, OneCycleLR, a progress bar, a
--- loss curve and a picture of the confusions.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data
local Confusion, Progress, plot = accel.util.Confusion, accel.util.Progress, accel.util.plot

local declared = {
  name = "03_digits_cnn.lua", usage = "[options] [DIR]",
  summary = "Trains a convolutional network to read the digits of DIR (MNIST's files), or small built-in ones.",
  { "epochs", "int", 20, "N", "passes over the data" },
  { "batch", "int", 32, "N", "pictures a step" },
  { "lr", "number", 4e-3, "X", "highest learning rate" },
  { "width", "int", 32, "N", "channels of the first layers" },
  { "seed", "int", 1, "N", "of weights and order" },
  { "out", "string", nil, "FILE", "save the weights here" },
  { "svg", "string", nil, "FILE", "write the picture of confusions here as well" },
}
local o, dirs = accel.util.cli(declared)

local function fail(fmt, ...)
  io.stderr:write(declared.name, ": ", fmt:format(...), "\n")
  os.exit(1, true)
end
for _, key in ipairs { "epochs", "batch", "width" } do
  if o[key] < 1 then accel.util.cli.fail(declared, ("option '--%s' must be positive, got %d"):format(key, o[key])) end
end
if o.lr <= 0 then accel.util.cli.fail(declared, ("option '--lr' must be positive, got %g"):format(o.lr)) end
if #dirs > 1 then accel.util.cli.fail(declared, "one folder at most") end

-- Data -------------------------------------------------------------------------------------------

local dir = dirs[1] or arg[0]:match "^(.*)/[^/]*$" .. "/digits"
local function open(...)
  local first
  for _, part in ipairs { ... } do
    local set, message, code = data.IDX.open(("%s/%s-images-idx3-ubyte"):format(dir, part), ("%s/%s-labels-idx1-ubyte"):format(dir, part))
    if set then return set end
    if code ~= "not_found" then fail("%s", message) end
    first = first or message
  end
  fail("%s", first)
end
local train, test = open "train", open("t10k", "test")
for _, set in ipairs { train, test } do
  set.scale = math.max(1, train.images:max():item()) -- 16 or 255
end
local rows, columns = train.images.shape[2], train.images.shape[3]
local n_classes = train.labels:max():item() + 1

-- Model ------------------------------------------------------------------------------------------

accel.manual_seed(o.seed)
local function block(from, to)
  return nn.Sequential(nn.Conv2d(from, to, 3, { padding = 1, bias = false }), nn.BatchNorm2d(to), nn.ReLU())
end
local model = nn.Sequential(
  block(1, o.width), block(o.width, o.width), nn.MaxPool2d(2),
  block(o.width, 2 * o.width), block(2 * o.width, 2 * o.width), nn.AdaptiveAvgPool2d(2),
  nn.Flatten(), nn.Dropout(0.3), nn.Linear(8 * o.width, n_classes)
)
local n_parameters = 0
for _, p in ipairs(model:parameters()) do n_parameters = n_parameters + p:numel() end
print(("%d training pictures of %d x %d, %d test pictures; %d parameters"):format(#train, rows, columns, #test, n_parameters))

--- Pictures moved by up to one pixel each way, which must not change the digit.
local random = accel.util.Random(o.seed, 2)
local function shifted(x)
  local up, left = random:below(3), random:below(3)
  return nn.functional.pad(x, { 1, 1, 1, 1 }):narrow(3, 1 + up, rows):narrow(4, 1 + left, columns)
end

-- Training ---------------------------------------------------------------------------------------

local loader = data.DataLoader { dataset = train, batch_size = o.batch, shuffle = true, drop_last = #train > o.batch, seed = o.seed }
local optimizer = optim.AdamW(model:parameters(), { weight_decay = 0.02 })
local steps = o.epochs * #loader
local schedule = optim.lr_scheduler.OneCycleLR(optimizer, { max_lr = o.lr, total_steps = steps })

--- Confusions on the test pictures.
local function evaluate()
  local names = {}
  for i = 1, n_classes do names[i] = tostring(i - 1) end
  local confusion = Confusion(names)
  local _ <close> = accel.no_grad()
  model:eval()
  for batch in data.DataLoader({ dataset = test, batch_size = 256 })() do confusion:add(batch[2], model(batch[1]):argmax(2)) end
  model:train()
  return confusion
end

local curves = { { name = "training loss", x = {}, y = {} }, { name = "test error", x = {}, y = {} } }
local bar = Progress { label = "train", unit = "img" }
local step, sum = 0, nil
for epoch = 1, o.epochs do
  for batch in loader() do
    local loss = nn.functional.cross_entropy(model(shifted(batch[1])), batch[2], { label_smoothing = 0.05 })
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    step = step + 1
    if step < steps then schedule:step() end
    sum = sum and 0.95 * sum + 0.05 * loss:detach() or loss:detach()
    if step % math.max(1, steps // 100) == 0 or bar:due() then
      local value = sum:item()
      if value ~= value then fail("the loss is NaN at step %d; a lower --lr may help", step) end
      local c = curves[1]
      c.x[#c.x + 1], c.y[#c.y + 1] = step, value
      if bar:due() then bar:update(step / steps, step * o.batch, { { "loss", value } }) end
    end
  end
  if epoch % math.max(1, o.epochs // 10) == 0 then
    local c = curves[2]
    c.x[#c.x + 1], c.y[#c.y + 1] = step, 1 - evaluate():accuracy()
  end
end
bar:finish()

-- Results ----------------------------------------------------------------------------------------

local confusion = evaluate()
io.stdout:write("\n", plot.text(curves), "\n", confusion:text())
print(("\ntest accuracy: %.2f %% of %d pictures"):format(100 * confusion:accuracy(), #test))
if o.svg then
  local ok, message = accel.write_file(o.svg, confusion:svg { title = "Digits" })
  if not ok then fail("the picture was not written: %s", message) end
end
if o.out then
  local ok, message = accel.save(o.out, model:state_dict())
  if not ok then fail("the weights were not saved: %s", message) end
end
