--- Keyword spotting: a classifier of sounds on Whisper's features and encoder, trained on folders of WAV files.
---
---   accel-run [--num-processes N] examples/42_keyword_spotting.lua [--epochs N] [DIR]
---
--- DIR holds train/WORD/*.wav and test/WORD/*.wav of 16 kHz (any format that accel reads), one second each at most. Without it, the
--- script makes "words" of two tones in noise and writes them into the folder "sounds" first. Whisper's feature extractor turns a
--- second of sound into 100 frames of 40 mel bands, which are kept in memory. SpecAugment masks some of them, the encoder reads them,
--- and a linear layer decides by their mean. Prints loss and accuracy, which differ only by rounding on 1, 2 and 4 ranks. In Python: Transformers'
--- run_audio_classification.py.
local accel = require "accel"
local nn, optim, data, audio = accel.nn, accel.optim, accel.data, accel.audio

local declared = {
  name = "42_keyword_spotting.lua", usage = "[options] [DIR]", summary = "Learns spoken commands from folders of sounds.",
  { "epochs", "int", 6, "N", "passes over the data", least = 1 },
  { "batch", "int", 16, "N", "sounds a step, over all ranks", least = 1 },
  { "lr", "number", 3e-3, "X", "highest learning rate" },
  { "sounds", "int", 32, "N", "training sounds of each word, if they are made", least = 1 },
  { "seed", "int", 1, "N", "of weights, order and masks" },
}
local o, dirs = accel.util.cli(declared)
local accelerator = accel.Accelerator { split_batches = true }

-- Sounds -------------------------------------------------------------------------------------------

local RATE <const> = 16000
local words = { yes = { 400, 1900 }, no = { 800, 300 }, stop = { 1500, 1500 }, go = { 250, 250 } } -- Hz of the first and second half

--- One word of 0.4 to 0.6 seconds, i16 [1, frames]: two tones at a random pitch and volume, in noise.
local function speak(tones)
  local pitch, volume, n = 0.85 + 0.3 * math.random(), 3000 + 6000 * math.random(), RATE * (20 + math.random(10)) // 100
  local parts = {}
  for i, hz in ipairs(tones) do
    local phase = accel.arange(n):to "f32" * (2 * math.pi * hz * pitch / RATE)
    parts[i] = (phase:sin() + 0.4 * (phase * 2):sin()) * accel.hann_window(n)
  end
  local sound = accel.cat(parts, 1) * volume + accel.randn(2 * n) * 400
  return sound:clamp(-32768, 32767):round():to("i16"):unsqueeze(1)
end

--- Writes all sounds into `folder`, which appears when it is complete.
local function speak_all(folder)
  local _ <close> = accel.device "cpu" -- files need values, which other devices have not in a dry run
  local parent = assert(accel.mkdtemp(folder .. ".part-"))
  accel.manual_seed(7)
  for word, tones in accel.pairs(words) do
    for part, n in accel.pairs { train = o.sounds, test = 13 } do
      local dir = ("%s/%s/%s"):format(parent, part, word)
      assert(accel.makedirs(dir))
      for i = 1, n do assert(audio.save(("%s/%03d.wav"):format(dir, i), speak(tones), RATE)) end
    end
  end
  if not os.rename(parent, folder) then os.execute(("rm -r '%s'"):format(parent)) end -- ranks of a dry run do not wait: another was first
end

local dir = dirs[1] or "sounds"
if not dirs[1] then
  accelerator:local_main_process_first(function() -- the others find the folder
    if not accel.listdir(dir) then speak_all(dir) end
  end)
end

-- Features -----------------------------------------------------------------------------------------

local BANDS <const>, FRAMES <const> = 40, 100
local extract = audio.WhisperFeatureExtractor { feature_size = BANDS, chunk_length = 1 }

--- f32 [channels, samples] -> f32 [BANDS, FRAMES]
local function features(sound) return extract(sound:mean { 1 }, { sampling_rate = RATE }).input_features[1] end

local function open(part)
  local folder = dir .. "/" .. part
  local found, message = accel.listdir(folder)
  if not found then accel.util.cli.fail(declared, message) end
  return audio.AudioFolder(folder, { transform = features, sample_rate = RATE })
end

local train, test = open "train", open "test"
if #train < o.batch then
  accel.util.cli.fail(declared, ("option '--batch' must be at most the %d sounds of %s/train, got %d"):format(#train, dir, o.batch))
end
if table.concat(train.classes, "/") ~= table.concat(test.classes, "/") then
  accel.util.cli.fail(declared, ("%s: train has the words %s, test has %s; both need the same folders"):format(dir,
    table.concat(train.classes, ", "), table.concat(test.classes, ", ")))
end
local mask_time, mask_bands = audio.transforms.TimeMasking(10), audio.transforms.FrequencyMasking(4)
local masked = train:cache():map(function(sample) return { mask_bands(mask_time(sample[1])), sample[2] } end)
local train_loader = data.DataLoader(masked, { batch_size = o.batch, shuffle = true, drop_last = true, seed = o.seed })
local test_loader = data.DataLoader(test:cache(), { batch_size = o.batch })
accelerator:print(("%d training and %d test sounds of %s"):format(#train, #test, table.concat(train.classes, ", ")))

-- Model --------------------------------------------------------------------------------------------

--- Whisper's encoder, and a linear layer on the mean of its states.
local Spotter = nn.Module:extend "Spotter"

function Spotter:init(n_words)
  self.whisper = accel.models.WhisperModel {
    num_mel_bins = BANDS, max_source_positions = FRAMES // 2, d_model = 32, encoder_layers = 2, encoder_attention_heads = 4,
    encoder_ffn_dim = 64, decoder_layers = 1, decoder_attention_heads = 4, decoder_ffn_dim = 32, vocab_size = 4,
    max_target_positions = 4, pad_token_id = 0, bos_token_id = 1, eos_token_id = 2, decoder_start_token_id = 1,
  }
  self.whisper.decoder:requires_grad_(false) -- it writes text, which is not asked for
  self.classifier = nn.Linear(32, n_words)
end

function Spotter:forward(x) return self.classifier(self.whisper:encode(x):mean { 2 }) end

accel.manual_seed(o.seed)
local model = Spotter(#train.classes)
local trained = {}
for _, p in ipairs(model:parameters()) do
  if p.requires_grad then trained[#trained + 1] = p end
end
local optimizer = optim.AdamW(trained, { weight_decay = 0.01 })
local scheduler = optim.lr_scheduler.OneCycleLR(optimizer, { max_lr = o.lr, total_steps = o.epochs * #train_loader })
model, optimizer, scheduler, train_loader, test_loader =
  accelerator:prepare(model, optimizer, scheduler, train_loader, test_loader)

-- Training -----------------------------------------------------------------------------------------

for epoch = 1, o.epochs do
  model:train()
  local sum = accel.zeros {}
  for batch in train_loader() do
    local loss = nn.functional.cross_entropy(model(batch[1]), batch[2])
    accelerator:backward(loss)
    accelerator:clip_grad_norm_(trained, 1.0)
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
    sum = sum + loss:detach()
  end

  model:eval()
  local right, n = 0, 0
  for batch in test_loader() do
    local guesses = accel.no_grad(function() return model(batch[1]):argmax(2) end)
    local all = accelerator:gather_for_metrics { guesses = guesses, labels = batch[2] }
    right, n = right + all.guesses:eq(all.labels):sum():item(), n + #all.labels
  end
  accelerator:print(("epoch %d: loss %.2f, accuracy %.1f %% of %d sounds"):format(epoch,
    accelerator:reduce(sum / #train_loader, "mean"):item(), 100 * right / n, n))
end
accelerator:end_training()
