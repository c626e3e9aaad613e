-- Transforms of sounds: what the data files of torchaudio do not cover: rates there and back, masks, gradients, options, refusals, and the
-- feature extractors' folders. reference/data_files_audio_features compares values.
local accel = require "accel"
local F, T = accel.audio.functional, accel.audio.transforms
accel.manual_seed(11)
local function most(t) return t:abs():max():item() end

-- A tone keeps its frequency at another rate.
local function tone(rate, n) return (accel.arange(n):to "f64" * (2 * math.pi * 440 / rate)):sin() end
local y = F.resample(tone(16000, 1600), 16000, 12000)
assert(y.shape[1] == 1200 and most((y - tone(12000, 1200)):narrow(1, 100, 1000)) < 1e-3)
local kaiser = T.Resample(16000, 12000, "sinc_interp_kaiser", { lowpass_filter_width = 32 })
assert(most((kaiser(tone(16000, 1600)) - tone(12000, 1200)):narrow(1, 100, 1000)) < 1e-4)
assert(kaiser(accel.zeros(2, 3, 160)).shape[3] == 120)

local mel = T.MelSpectrogram { sample_rate = 8000, n_fft = 64, n_mels = 8, hop_length = 16 }:to "f64"
local x = accel.randn(80, { dtype = "f64", requires_grad = true })
assert(accel.autograd.gradcheck(function(t) return mel(t) end, x))
assert(#mel:state_dict() == 0 or mel:state_dict()["spectrogram.window"] ~= nil)
local complex = T.Spectrogram { n_fft = 64, power = false }(x:detach())
assert(complex.dtype == "c128" and most(complex:abs():square() - T.Spectrogram { n_fft = 64 }(x:detach())) < 1e-12)
assert(most(T.Spectrogram { n_fft = 64, normalized = "frame_length" }(x:detach()) * 64 - T.Spectrogram { n_fft = 64 }(x:detach())) < 1e-10)

-- A mask covers one range of one dim, the same in all sounds, or one in each.
local ones = accel.ones(6, 2, 20, 30)
local seen = {}
for _ = 1, 40 do
  local masked = T.TimeMasking(10)(ones)
  local frames = masked:sum { 1, 2, 3 }
  assert(frames:eq(0):logical_or(frames:eq(240)):all():item())
  local width = frames:eq(0):sum():item()
  assert(width <= 10)
  seen[width] = true
end
assert(next(seen, next(seen)), "all masks have one width")
assert(T.TimeMasking(30, { p = 0.1 })(ones):eq(0):to("f32"):mean():item() <= 0.1)
local each = T.FrequencyMasking(20, true)(ones):sum { 4 }:eq(0):sum { 3 }
assert(each:max():item() > each:min():item(), "all sounds have one mask")

local code = F.mu_law_encoding(x:detach():clamp(-1, 1), 256)
assert(most(F.mu_law_decoding(code, 256) - x:detach():clamp(-1, 1)) < 0.03)

local function refused(text, f, ...)
  local ok, why = pcall(f, ...)
  assert(not ok and tostring(why):find(text, 1, true), tostring(why))
end
refused("expected floats", F.resample, accel.arange(8), 2, 1)
refused("above n_mels", T.MFCC, { n_mfcc = 40, melkwargs = { n_mels = 20 } })
refused("type 2", T.MFCC, { dct_type = 3 })
refused("did you mean 'n_mels'", T.MelScale, { nmels = 3 })
do -- tables of arguments for what a module is made of
  local sound = accel.rand(1, 64)
  local plain, other = T.Spectrogram { n_fft = 8 }, T.Spectrogram { n_fft = 8, wkwargs = { periodic = false } }
  assert(not plain(sound):allclose(other(sound)))
  local mfcc = T.MFCC { n_mfcc = 2, melkwargs = { n_fft = 16, n_mels = 3, hop_length = 4 } }
  assert(tostring(mfcc(sound).shape) == "(1, 2, 17)")
end
refused("orig_freq must be a positive integer, got 0", T.Resample, 0, 8000)
refused("freq_mask_param must be", T.FrequencyMasking)
refused("power", T.AmplitudeToDB, "amplitude")

local dir = assert(os.getenv "ACCEL_TEST_TMP")
local function config(text)
  local f <close> = assert(io.open(dir .. "/preprocessor_config.json", "w"))
  f:write(text)
end
config('{"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80, "hop_length": 160, "n_fft": 400, '
  .. '"chunk_length": 1, "sampling_rate": 16000}')
local extract = assert(accel.audio.AutoFeatureExtractor.from_pretrained(dir))
local features = extract({ accel.randn(9000), accel.randn(1, 20000) }, { sampling_rate = 16000 }).input_features
assert(tostring(features.shape) == "(2, 80, 100)" and features:isfinite():all():item())
local made = accel.audio.WhisperFeatureExtractor { chunk_length = 1 } -- without a folder
local sound = accel.randn(9000)
assert(accel.equal(made(sound, { sampling_rate = 16000 }).input_features, extract(sound, { sampling_rate = 16000 }).input_features))
local small = accel.audio.WhisperFeatureExtractor { feature_size = 20, sampling_rate = 8000, hop_length = 80, n_fft = 200, chunk_length = 2,
  padding_value = 0.5 }
local quiet = small(accel.zeros(16000), { sampling_rate = 8000 }).input_features
local loud = small(accel.zeros(800), { sampling_rate = 8000 }).input_features
assert(tostring(quiet.shape) == "(1, 20, 200)" and most(quiet - loud) > 0, "short sounds are padded with 0.5")
do -- sounds from files are on the CPU, whatever the default device is
  local _ <close> = accel.device "meta"
  local there = accel.audio.WhisperFeatureExtractor { chunk_length = 1 }
  assert(accel.equal(there(sound, { sampling_rate = 16000 }).input_features, made(sound, { sampling_rate = 16000 }).input_features))
  assert(F.resample(sound, 16000, 8000).device == "cpu")
end
refused("hop_length", accel.audio.WhisperFeatureExtractor, { hop_length = 0 })
refused("did you mean 'n_fft'", accel.audio.WhisperFeatureExtractor, { nfft = 3 })
refused("8000 Hz", extract, accel.randn(9000), { sampling_rate = 8000 })
refused("one channel", extract, accel.randn(2, 9000), { sampling_rate = 16000 })
config '{"feature_extractor_type": "ASTFeatureExtractor"}'
local none, message, code_text = accel.audio.AutoFeatureExtractor.from_pretrained(dir)
assert(not none and message:find "ASTFeatureExtractor" and code_text == "unsupported")
assert(select(3, accel.audio.AutoFeatureExtractor.from_pretrained(dir .. "/none")) == "not_found")
print "ok"
