-- Three models ported from PyTorch, with its losses (tests/reference/ports.json by make/ports.py, the same models): a spatial transformer
-- (grid_sample), a recogniser of tones (CTC, packed sequences), which must then learn to spell, and a small diffusion UNet (antialiased
-- resize, attention).
--   accel-run tests/stdlib/nn/ports_test.lua
local accel = require "accel"
local nn, F = accel.nn, accel.nn.functional

local here = arg[0]:match "^(.*)/[^/]*$" or "."
local want
do
  local file <close> = assert(io.open(here .. "/../../reference/ports.json", "rb"))
  want = assert(accel.json.decode(file:read "a"))
end
local F64 <const> = { dtype = "f64" }

--- Every layer in f64.
local f64 = setmetatable({}, { __index = function(_, name)
  return function(...)
    local args = { ... }
    local last = args[#args]
    if type(last) == "table" and #last == 0 then last.dtype = "f64" else args[#args + 1] = { dtype = "f64" } end
    return nn[name](table.unpack(args))
  end
end })

--- Parameter k (from 0) is sin(0.37 j + k) / sqrt(fan in).
local function fill(model)
  local _ <close> = accel.no_grad()
  for k, p in ipairs(model:parameters()) do
    local fan = p.ndim > 1 and p:numel() // p.shape[1] or 4
    p:copy_((accel.arange(p:numel(), F64) * 0.37 + (k - 1)):sin():reshape(p.shape) / math.sqrt(fan))
  end
  return model
end

local function wave(shape, by, plus)
  local n = 1
  for _, extent in ipairs(shape) do n = n * extent end
  return (accel.arange(n, F64) * (by or 0.7) + (plus or 0)):sin():reshape(shape)
end

local function near(got, expected, what)
  assert(math.abs(got - expected) <= 1e-9 * math.max(1, math.abs(expected)), ("%s: %.12g, PyTorch has %.12g"):format(what, got, expected))
end

local function train(name, model, loss_of, lr)
  local sgd, record = accel.optim.SGD(model:parameters(), { lr = lr }), want[name]
  for step, expected in ipairs(record.losses) do
    sgd:zero_grad()
    local loss = loss_of(model, step - 1)
    loss:backward()
    near(loss:item(), expected, ("%s, loss of step %d"):format(name, step))
    if step == 1 then
      local sum = 0
      for _, p in ipairs(model:parameters()) do sum = sum + p.grad:square():sum():item() end
      near(math.sqrt(sum), record.norm, name .. ", norm of the gradient")
    end
    sgd:step()
  end
end

-- ---- a spatial transformer ----
do
  local Net = nn.Module:extend "SpatialTransformer"
  function Net:init()
    self.localization = nn.Sequential(f64.Conv2d(1, 4, 5), nn.MaxPool2d(2, { stride = 2 }), nn.ReLU(), f64.Conv2d(4, 6, 3),
      nn.MaxPool2d(2, { stride = 2 }), nn.ReLU())
    self.fc_loc = nn.Sequential(f64.Linear(24, 8), nn.ReLU(), f64.Linear(8, 6))
    self.conv = f64.Conv2d(1, 4, 5)
    self.fc = f64.Linear(144, 5)
  end
  function Net:forward(x)
    local theta = self.fc_loc(self.localization(x):flatten(2)):view(-1, 2, 3)
    theta = theta * 0.3 + accel.tensor({ { 1.0, 0, 0 }, { 0, 1, 0 } }, F64)
    x = F.grid_sample(x, F.affine_grid(theta, x.shape))
    return self.fc(F.relu(F.max_pool2d(self.conv(x), 2)):flatten(2))
  end
  local x, labels = wave { 6, 1, 16, 16 }, accel.tensor { 0, 3, 1, 4, 2, 0 }
  train("spatial_transformer", fill(Net()), function(m) return F.cross_entropy(m(x), labels) end, 0.2)
end

-- ---- tones to text ----
do
  local rnn = nn.utils.rnn
  --- A tone for each class, with silence between.
  local function tones(text)
    local parts, t = {}, accel.arange(16, F64) / 64
    for _, c in ipairs(text) do
      parts[#parts + 1] = (t * (2 * math.pi * (8 + 4 * c))):sin()
      parts[#parts + 1] = accel.zeros(8, F64)
    end
    return accel.cat(parts, 1)
  end
  --- Magnitudes of windowed frames, (N, size / 2 + 1, frames).
  local function spectrogram(x)
    return accel.stft(x, 16, { hop_length = 4, window = accel.hann_window(16, F64), center = false, return_complex = true }):abs()
  end
  local Net = nn.Module:extend "Recogniser"
  function Net:init()
    self.conv = f64.Conv1d(9, 12, 3, { padding = 1 })
    self.rnn = f64.GRU(12, 10, { bidirectional = true })
    self.out = f64.Linear(20, 5)
  end
  function Net:forward(x, lengths)
    local h = F.relu(self.conv(x)):permute(3, 1, 2)
    local packed = rnn.pack_padded_sequence(h, lengths, { enforce_sorted = false })
    local out = rnn.pad_packed_sequence((self.rnn(packed)))
    return self.out(out):log_softmax(3)
  end
  local texts, sounds, lengths, flat, counts = { { 1, 2, 3 }, { 3, 3, 1, 4 }, { 2 }, { 4, 1 } }, {}, {}, {}, {}
  for i, text in ipairs(texts) do
    sounds[i] = F.pad(tones(text), { 0, 24 * (4 - #text) })
    lengths[i], counts[i] = (24 * #text - 16) // 4 + 1, #text
    table.move(text, 1, #text, #flat + 1, flat)
  end
  local features, targets = spectrogram(accel.stack(sounds, 1)), accel.tensor(flat)
  local model = fill(Net())
  local function loss_of(m) return F.ctc_loss(m(features, lengths), targets, lengths, counts) end
  train("recogniser", model, loss_of, 0.3)
  local adam = accel.optim.Adam(model:parameters(), { lr = 0.02 })
  for _ = 1, 60 do
    adam:zero_grad()
    loss_of(model):backward()
    adam:step()
  end
  local best = model(features, lengths):argmax(3):t():tolist()
  for i, text in ipairs(texts) do
    local spelt, last = {}, 0
    for t = 1, lengths[i] do
      local c = best[i][t]
      if c ~= last and c ~= 0 then spelt[#spelt + 1] = c end
      last = c
    end
    assert(table.concat(spelt) == table.concat(text), ("sound %d is spelt %s, not %s"):format(i, table.concat(spelt), table.concat(text)))
  end
end

-- ---- a diffusion UNet ----
do
  local Block = nn.Module:extend "Block"
  function Block:init(channels, out, time)
    self.norm1 = f64.GroupNorm(2, channels)
    self.conv1 = f64.Conv2d(channels, out, 3, { padding = 1 })
    self.time = f64.Linear(time, out)
    self.norm2 = f64.GroupNorm(2, out)
    self.conv2 = f64.Conv2d(out, out, 3, { padding = 1 })
    self.skip = f64.Conv2d(channels, out, 1)
  end
  function Block:forward(x, t)
    local h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t)):unsqueeze(3):unsqueeze(4)
    return self.conv2(F.silu(self.norm2(h))) + self.skip(x)
  end
  local Net = nn.Module:extend "UNet"
  function Net:init()
    self.embed = f64.Linear(8, 8)
    self.first = f64.Conv2d(2, 4, 3, { padding = 1 })
    self.down = Block(4, 4, 8)
    self.middle = Block(4, 8, 8)
    self.attention = f64.MultiheadAttention(8, 2, { batch_first = true })
    self.up = Block(12, 4, 8)
    self.last = f64.Conv2d(4, 2, 3, { padding = 1 })
  end
  function Net:forward(x, t)
    local angle = t:unsqueeze(2) * (accel.arange(4, F64) * (-math.log(100) / 4)):exp()
    t = self.embed(accel.cat({ angle:sin(), angle:cos() }, 2))
    local a = self.down(self.first(x), t)
    local b = self.middle(F.interpolate(a, { scale_factor = 0.5, mode = "bilinear", antialias = true }), t)
    local tokens = b:flatten(3):transpose(2, 3)
    local seen = self.attention(tokens, tokens, tokens, { need_weights = false })
    b = b + seen:transpose(2, 3):reshape(b.shape)
    local up = F.interpolate(b, { size = { a.shape[3], a.shape[4] }, mode = "bicubic" })
    return self.last(self.up(accel.cat({ up, a }, 2), t))
  end
  local clean, noise, times = wave { 3, 2, 8, 8 }, wave({ 3, 2, 8, 8 }, 1.3, 0.5), accel.tensor({ 0.1, 0.5, 0.9 }, F64)
  train("unet", fill(Net()), function(m, step)
    local keep = (times * -1 + 1):reshape(3, 1, 1, 1)
    return F.mse_loss(m(clean * keep:sqrt() + noise * (keep * -1 + 1):sqrt(), times * 10 + step), noise)
  end, 0.05)
end
