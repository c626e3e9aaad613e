--- Photographs: fine-tunes a vision transformer on folders of JPEG files, with augmentation in loader workers.
---
---   accel-run [--num-processes N] examples/39_photographs.lua [--model FOLDER] [--out FOLDER] [--num-workers N] [DIR]
---
--- DIR holds train/CLASS/*.jpg and val/CLASS/*.jpg of any classes. Without it, the script draws pictures of four textures into
--- the folder "photographs" first. Training crops, mirrors and recolours each picture at random. The random numbers belong to
--- the epoch and the sample, so any number of ranks and workers sees the same pictures. --model continues from a folder of
--- Hugging Face's (ViT, DeiT, BEiT, DINOv2, Swin, ConvNeXt, ResNet) with a new classifier, otherwise a small ViT starts from scratch. Prints
--- loss and accuracy of each epoch, which differ only by rounding on 1, 2 and 4 ranks. In Python: examples/cv_example.py.
local accel = require "accel"
local nn, optim, data, models = accel.nn, accel.optim, accel.data, accel.models
local T = accel.vision.transforms

local declared = {
  name = "39_photographs.lua", usage = "[options] [DIR]", summary = "Fine-tunes a vision transformer on folders of photographs.",
  { "model", "string", nil, "FOLDER", "start from this model instead of initial values" },
  { "out", "string", nil, "FOLDER", "save the model there" },
  { "num-workers", "int", 2, "N", "threads of each rank that decode and augment pictures", least = 0 },
  { "epochs", "int", 8, "N", "passes over the data", least = 1 },
  { "batch", "int", 16, "N", "pictures a step, over all ranks", least = 1 },
  { "lr", "number", 3e-3, "X", "highest learning rate" },
  { "pictures", "int", 64, "N", "training pictures of each class, if they are drawn", least = 1 },
  { "seed", "int", 1, "N", "of weights, order and augmentation" },
}
local o, dirs = accel.util.cli(declared)
local accelerator = accel.Accelerator { split_batches = true }

-- Pictures -----------------------------------------------------------------------------------------

local HEIGHT <const>, WIDTH <const> = 48, 64

-- Values in 0..1 over the picture: x and y are rotated and scaled coordinates.
local textures = {
  stripes = function(x) return x:sin():mul(4):sigmoid() end,
  checks = function(x, y) return (x:sin() * y:sin()):mul(12):sigmoid() end,
  discs = function(x, y) return (x:sin():square() + y:sin():square() - 0.7):mul(-8):sigmoid() end,
  clouds = function()
    local coarse = accel.randn(1, 1, 4, 5)
    return accel.interpolate(coarse, { HEIGHT, WIDTH }, { mode = "bicubic" }):view(HEIGHT, WIDTH):mul(4):sigmoid()
  end,
}

--- One photograph of a texture in two colours under uneven light, u8 [3, HEIGHT, WIDTH].
local function draw(texture)
  local angle, scale = math.random() * math.pi, 0.35 + 0.3 * math.random()
  local across, down = accel.arange(WIDTH):to("f32"):view(1, WIDTH), accel.arange(HEIGHT):to("f32"):view(HEIGHT, 1)
  local x = (across * math.cos(angle) + down * math.sin(angle)) * scale
  local y = (down * math.cos(angle) - across * math.sin(angle)) * scale
  local mask, bright, dark = texture(x, y), accel.rand(3, 1, 1) * 120 + 130, accel.rand(3, 1, 1) * 110
  local light = (across / WIDTH) * (0.6 * math.random() - 0.3) + 1
  local picture = (mask * bright + (1 - mask) * dark) * light + accel.randn(3, HEIGHT, WIDTH) * 10
  return picture:clamp(0, 255):round():to "u8"
end

--- Draws all pictures into `folder`, which appears when it is complete.
local function draw_all(folder)
  local _ <close> = accel.device "cpu" -- files need values, which other devices have not in a dry run
  local parent = assert(accel.mkdtemp(folder .. ".part-"))
  accel.manual_seed(7)
  for name, texture in accel.pairs(textures) do
    for part, n in accel.pairs { train = o.pictures, val = 25 } do
      local dir = ("%s/%s/%s"):format(parent, part, name)
      assert(accel.makedirs(dir))
      for i = 1, n do assert(accel.vision.io.write_jpeg(draw(texture), ("%s/%04d.jpg"):format(dir, i), 90)) end
    end
  end
  if not os.rename(parent, folder) then os.execute(("rm -r '%s'"):format(parent)) end -- ranks of a dry run do not wait: another was first
end

local dir = dirs[1] or "photographs"
if not dirs[1] then
  accelerator:local_main_process_first(function() -- the others find the folder
    if not accel.listdir(dir) then draw_all(dir) end
  end)
end

-- Model --------------------------------------------------------------------------------------------

local function folder(part)
  local path = dir .. "/" .. part
  local found, message = accel.listdir(path)
  return found and path or accel.util.cli.fail(declared, message)
end

accel.manual_seed(o.seed)
local classes, id2label, label2id = accel.vision.ImageFolder(folder "train").classes, {}, {}
for i, class in ipairs(classes) do id2label[tostring(i - 1)], label2id[class] = class, i - 1 end
local model, message
local mean, std = { 0.5, 0.5, 0.5 }, { 0.5, 0.5, 0.5 }
if o.model then -- the classifier of other classes has another shape, and starts from initial values
  model, message = models.AutoModelForImageClassification.from_pretrained(o.model, {
    config = { num_labels = #classes, id2label = id2label, label2id = label2id }, ignore_mismatched_sizes = true,
  })
  if not model then accel.util.cli.fail(declared, message) end
  local processor = accel.vision.AutoImageProcessor.from_pretrained(o.model) -- of preprocessor_config.json, if there is one
  if processor then mean, std = processor.config.image_mean, processor.config.image_std end
else
  model = models.ViTForImageClassification {
    image_size = 32, patch_size = 8, hidden_size = 48, num_hidden_layers = 2, num_attention_heads = 4, intermediate_size = 96,
    num_labels = #classes, id2label = id2label, label2id = label2id,
  }
end

-- Data ---------------------------------------------------------------------------------------------

local size = model.config.image_size or 224
local to_model = { T.ToTensor(), T.Normalize(mean, std) }
local train = accel.vision.ImageFolder(folder "train", { transform = T.Compose {
  T.RandomResizedCrop(size, { scale = { 0.5, 1 } }), T.RandomHorizontalFlip(),
  T.ColorJitter { brightness = 0.2, contrast = 0.2, saturation = 0.2 }, table.unpack(to_model),
} })
local val = accel.vision.ImageFolder(folder "val", { transform = T.Compose { T.Resize(size), T.CenterCrop(size), table.unpack(to_model) } })
if #train < o.batch then
  accel.util.cli.fail(declared, ("option '--batch' must be at most the %d pictures of %s/train, got %d"):format(#train, dir, o.batch))
end
if table.concat(classes, "/") ~= table.concat(val.classes, "/") then
  accel.util.cli.fail(declared, ("%s: train has the classes %s, val has %s; both need the same folders"):format(dir,
    table.concat(classes, ", "), table.concat(val.classes, ", ")))
end
local train_loader = data.DataLoader(train, {
  batch_size = o.batch, shuffle = true, drop_last = true, seed = o.seed, num_workers = o.num_workers,
})
local val_loader = data.DataLoader(val, { batch_size = o.batch, num_workers = o.num_workers })
accelerator:print(("%d training and %d validation pictures of %s"):format(#train, #val, table.concat(classes, ", ")))

local optimizer = optim.AdamW(model:parameters(), { weight_decay = 0.05 })
local scheduler = optim.lr_scheduler.OneCycleLR(optimizer, { max_lr = o.lr, total_steps = o.epochs * #train_loader })
model, optimizer, scheduler, train_loader, val_loader =
  accelerator:prepare(model, optimizer, scheduler, train_loader, val_loader)

-- Training -----------------------------------------------------------------------------------------

for epoch = 1, o.epochs do
  model:train()
  local sum = accel.zeros {}
  for batch in train_loader() do
    local loss = nn.functional.cross_entropy(model(batch[1]), batch[2])
    accelerator:backward(loss)
    accelerator:clip_grad_norm_(model:parameters(), 1.0)
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
    sum = sum + loss:detach()
  end

  model:eval()
  local right, n = 0, 0
  for batch in val_loader() do
    local guesses = accel.no_grad(function() return model(batch[1]):argmax(2) end)
    local all = accelerator:gather_for_metrics { guesses = guesses, labels = batch[2] } -- without the rows that fill the last batch
    right, n = right + all.guesses:eq(all.labels):sum():item(), n + #all.labels
  end
  local loss = accelerator:reduce(sum / #train_loader, "mean"):item()
  accelerator:print(("epoch %d: loss %.2f, accuracy %.1f %% of %d pictures"):format(epoch, loss, 100 * right / n, n))
end

if o.out then
  accelerator:wait_for_everyone()
  local saved, why = accelerator:unwrap_model(model):save_pretrained(o.out, { is_main_process = accelerator.is_main_process })
  if not saved then accel.util.cli.fail(declared, why) end
end
accelerator:end_training()
