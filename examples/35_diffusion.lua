--- Diffusion: digits drawn out of noise. A network learns how much noise is in a picture, and takes it away step by step.
---
---   accel-run [--num-processes N] examples/35_diffusion.lua [--steps N] [--digits 2026] [DIR]
---
--- Training mixes pictures with noise, at one of --levels strengths each, and predicts the noise. The network gets the strength and the
--- digit. Drawing begins with noise alone and takes, level by level, the noise away that the network sees. Prints the loss as it falls,
--- the digits in --digits, and how many of 200 drawn ones are nearest to the mean of their own digit: nearly all, compared with 92 % of
--- the training pictures. The losses are the same on 1, 2 and 4 ranks. It takes half a minute. It takes half a minute. In Python: Ho
--- and others, "Denoising Diffusion Probabilistic Models", and DDPMScheduler of Hugging Face's Diffusers.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "35_diffusion.lua", usage = "[options] [DIR]", summary = "Learns to draw digits.",
  { "steps", "int", 2000, "N", "updates" },
  { "batch", "int", 128, "N", "pictures a step, over all ranks" },
  { "levels", "int", 100, "N", "strengths of noise" },
  { "width", "int", 256, "N", "units of the network's layers" },
  { "lr", "number", 2e-3, "X", "learning rate at the start" },
  { "digits", "string", "0123456789", "TEXT", "the digits to draw" },
  { "seed", "int", 1, "N", "of weights, order and noise" },
}
local o, dirs = accel.util.cli(declared)
for _, name in ipairs { "steps", "batch", "levels", "width" } do
  if o[name] < 1 then accel.util.cli.fail(declared, ("option '--%s' must be positive, got %d"):format(name, o[name])) end
end
if not o.digits:find "^%d+$" then
  accel.util.cli.fail(declared, ("option '--digits' must be digits, got '%s'"):format(o.digits))
end

local accelerator = accel.Accelerator { split_batches = true }
if o.batch % accelerator.num_processes > 0 then
  accel.util.cli.fail(declared, ("option '--batch' must be a multiple of %d ranks, got %d"):format(accelerator.num_processes, o.batch))
end

local dir = dirs[1] or (arg[0]:match "^.*/" or "") .. "digits"
local set, message = data.IDX.open(dir .. "/train-images-idx3-ubyte", dir .. "/train-labels-idx1-ubyte", { scale = 16 })
if not set then accel.util.cli.fail(declared, message) end
local loader = data.DataLoader(set, { batch_size = o.batch, shuffle = true, drop_last = true, seed = o.seed })

-- How much of the picture is left at each level: the product of 1 - beta, with betas that grow evenly. -------------
local beta = accel.linspace(0.1 / o.levels, math.min(20 / o.levels, 0.999), o.levels)
local kept = (1 - beta):cumprod(1)

--- Takes pictures (rows, 64) at levels (rows) of digits (rows), both counted from 0. Returns the noise in them.
local Network = nn.Module:extend "Network"

function Network:init(width)
  self.level = nn.Embedding(o.levels, width)
  self.digit = nn.Embedding(10, width)
  self.enter = nn.Linear(64, width)
  self.inner = nn.ModuleList {}
  self.leave = nn.Linear(width, 64)
  for i = 1, 3 do self.inner[i] = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)) end
end

function Network:forward(x, level, digit)
  local told, h = self.level(level) + self.digit(digit), self.enter(x)
  for _, block in ipairs(self.inner) do h = h + block(h + told) end
  return self.leave(h)
end

accel.manual_seed(o.seed)
local model = Network(o.width)
local optimizer = optim.AdamW(model:parameters(), { lr = o.lr })
local scheduler = optim.lr_scheduler.get_scheduler("cosine", optimizer, { num_warmup_steps = 0, num_training_steps = o.steps })
model, optimizer, scheduler, loader = accelerator:prepare(model, optimizer, scheduler, loader)

-- Every rank draws the noise of the whole batch and takes the rows that are its own: so it does not depend on their number.
local random, own = accel.Generator(o.seed), o.batch // accelerator.num_processes
local function mine(t) return t:narrow(1, 1 + accelerator.process_index * own, own) end

local step, sum, shown = 0, 0, math.max(o.steps // 5, 1)
while step < o.steps do
  for batch in loader() do
    local x = batch[1]:view(-1, 64) * 2 - 1
    local noise = mine(accel.randn(o.batch, 64, { generator = random }))
    local level = mine(accel.randint(0, o.levels, { o.batch }, { generator = random }))
    local left = kept:index_select(1, level):unsqueeze(2)
    local loss = nn.functional.mse_loss(model(left:sqrt() * x + (1 - left):sqrt() * noise, level, batch[2]), noise)
    accelerator:backward(loss)
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
    step, sum = step + 1, sum + loss:detach()
    if step % shown == 0 then
      accelerator:print(("step %4d  loss %.3f"):format(step, accelerator:reduce(sum / shown, "mean"):item()))
      sum = 0
    end
    if step == o.steps then break end
  end
end

--- Pictures (rows, 64) in 0 .. 1 of the digits of a list: from noise down to the weakest level. --------------------
local function draw(network, digits)
  local label = accel.tensor(digits)
  local x = accel.randn(#digits, 64, { generator = random })
  for i = o.levels, 1, -1 do
    local left, before = kept[i], i > 1 and kept[i - 1] or accel.ones_like(kept[i])
    local noise = network(x, accel.full_like(label, i - 1), label)
    local clean = ((x - (1 - left):sqrt() * noise) / left:sqrt()):clamp(-1, 1) -- the origin of this noise
    x = (before:sqrt() * beta[i] * clean + (1 - beta[i]):sqrt() * (1 - before) * x) / (1 - left)
    if i > 1 then x = x + (beta[i] * (1 - before) / (1 - left)):sqrt() * accel.randn(#digits, 64, { generator = random }) end
  end
  return ((x + 1) / 2):clamp(0, 1)
end

--- Rows of pictures side by side, two characters a pixel.
local function show(pictures)
  local shades = { "  ", "..", "::", "++", "##" }
  for y = 0, 7 do
    local line = {}
    for _, picture in ipairs(pictures) do
      for x = 1, 8 do line[#line + 1] = shades[1 + math.floor(picture[y * 8 + x] * 4.999)] end
      line[#line + 1] = " "
    end
    print((table.concat(line):gsub("%s+$", "")))
  end
end

if accelerator.is_main_process then
  accel.no_grad(function()
    local network, digits = accelerator:unwrap_model(model), {}
    network:eval()
    for d in o.digits:gmatch "%d" do digits[#digits + 1] = tonumber(d) end
    local pictures = draw(network, digits):tolist()
    for at = 1, #pictures, 6 do show(table.move(pictures, at, math.min(at + 5, #pictures), 1, {})) end

    local seen, labels = set.images:to(accelerator.device, "f32"):view(-1, 64) / 16, set.labels:to(accelerator.device)
    local means = accel.zeros(10, 64):index_add(1, labels, seen) / accel.bincount(labels):unsqueeze(2)
    local function right(guessed, wanted)
      return 100 * accel.cdist(guessed, means):argmin(2):eq(wanted):to("f32"):mean():item()
    end
    digits = {}
    for i = 1, 200 do digits[i] = i % 10 end
    print(("nearest to the mean of their own digit: %.0f %% of drawn ones, %.0f %% of the training pictures"):format(
      right(draw(network, digits), accel.tensor(digits)), right(seen, labels)))
  end)
end
