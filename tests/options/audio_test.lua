-- Options of accel.audio: each one changes samples or files, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/audio_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "audio"
local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/options_audio")

local function seen(t) return { t:contiguous():view({ -1 }):tolist(), tostring(t.shape), t.dtype } end

assert(require("lfs").mkdir(folder .. "/a"))
local wave = accel.sin(accel.arange(0, 20) * 0.3):view { 2, 10 } * 0.9
local path = folder .. "/a/1.wav"
assert(accel.audio.save(path, wave, 8000, { encoding = "PCM_S", bits_per_sample = 16 }))
local bytes = io.open(path, "rb"):read "a"

s:recipe("accel.audio.load", { run = function(call)
  local t, rate = call(path)
  return seen(t), rate
end, values = { frame_offset = { 3 }, num_frames = { 4 }, normalize = { false }, channels_first = { false }, format = { "flac" } },
  raises = { format = "is wav, not flac" } })
s:recipe("accel.audio.decode", { run = function(call) return seen((call(bytes))) end,
  values = { frame_offset = { 3 }, num_frames = { 4 }, channels_first = { false } } })
s:recipe("accel.audio.save", { run = function(call)
  call(folder .. "/out.wav", wave, 8000)
  return io.open(folder .. "/out.wav", "rb"):read "a"
end, values = { channels_first = { false }, format = { "none" }, encoding = { "PCM_U", "PCM_S" }, bits_per_sample = { 16, 64 } },
  raises = { format = "none" } })
s:recipe("accel.audio.AudioFolder", { run = function(call)
  local sample = call(folder):get(1)
  return seen(sample[1]), sample[2]
end, values = { transform = { function(x) return x * 2 end }, target_transform = { function(c) return c + 5 end }, sample_rate = { 16000 },
  num_frames = { 4 } }, raises = { sample_rate = "has a sample rate of 8000, not 16000" },
  elsewhere = { allow_empty = "tests/stdlib/vision/transforms_test.lua" } })
s:recipe("accel.audio.WhisperFeatureExtractor", { run = function(call)
  return seen(call()(wave:select(1, 1), { sampling_rate = 16000 }).input_features)
end, values = { feature_size = { 20 }, sampling_rate = { 8000 }, hop_length = { 320 }, chunk_length = { 2 }, n_fft = { 200 },
  padding_value = { 0.5 } }, raises = { sampling_rate = "the sounds have 16000 Hz and the model takes 8000" } })

-- ---- functions of sounds ----
local function recipe(name, base, values, more)
  local all = { base = function()
    local own = {}
    for key, value in pairs(base) do own[key] = value end
    return own
  end, values = values }
  for key, value in pairs(more or {}) do all[key] = value end
  s:recipe("accel.audio.functional." .. name, all)
end
recipe("spectrogram", { waveform = wave, n_fft = 4, hop_length = 2, win_length = 4, window = accel.tensor { 0.5, 1.0, 2.0, 1.0 } }, {
  pad = { 1 }, hop_length = { 1 }, power = { 1, false }, normalized = { true, "frame_length" }, center = { false }, pad_mode = { "constant" },
  onesided = { false }, win_length = { 3 } }, { raises = { win_length = "window must be a tensor of shape %(3%)" } })
recipe("melscale_fbanks", { n_freqs = 9, f_min = 0, f_max = 4000, n_mels = 4, sample_rate = 8000 }, {
  norm = { "slaney" }, mel_scale = { "slaney" } })
recipe("create_dct", { n_mfcc = 2, n_mels = 3 }, { norm = { "ortho" } })
recipe("amplitude_to_DB", { x = wave:abs(), multiplier = 10, amin = 1e-10, db_multiplier = 0 }, { top_db = { 3 } })
recipe("resample", { waveform = wave, orig_freq = 3, new_freq = 2 }, { lowpass_filter_width = { 3 }, rolloff = { 0.5 },
  resampling_method = { "sinc_interp_kaiser" }, beta = { 2.0 } }, { with = { beta = { resampling_method = "sinc_interp_kaiser" } } })
recipe("preemphasis", { x = wave }, { coeff = { 0.5 } })
recipe("mask_along_axis", { x = accel.ones(2, 2, 8, 8), mask_param = 6, mask_value = 0, axis = 3 }, { iid = { true }, p = { 0.2 } })
s:leave("accel.audio.AutoFeatureExtractor.from_pretrained", "sampling_rate is an option of what it returns: tests/stdlib/audio/transforms_test.lua")

-- ---- transforms ----
local KWARGS <const> = "tests/stdlib/audio/transforms_test.lua"
local long = accel.sin(accel.arange(0, 64) * 0.3):view { 1, 64 }
local function transform(name, base, input, values, more)
  local all = { base = base, values = values, run = function(call)
    accel.manual_seed(3)
    return seen(call()(input):abs())
  end }
  for key, value in pairs(more or {}) do all[key] = value end
  all.elsewhere = { wkwargs = KWARGS, melkwargs = KWARGS } -- a table at the last place holds options
  s:recipe("accel.audio.transforms." .. name, all)
end
local function frames(more)
  local all = { n_fft = { 16 }, win_length = { 6 }, hop_length = { 2 }, pad = { 3 }, window_fn = { accel.hamming_window }, power = { 1 },
    normalized = { true, "frame_length" }, center = { false }, pad_mode = { "constant" } }
  for key, value in pairs(more) do all[key] = value end
  return all
end
transform("Resample", function() return { orig_freq = 3, new_freq = 2 } end, long, { orig_freq = { 4 }, new_freq = { 1 },
  lowpass_filter_width = { 3 }, rolloff = { 0.5 }, resampling_method = { "sinc_interp_kaiser" }, beta = { 2.0 } },
  { with = { beta = { resampling_method = "sinc_interp_kaiser" } } })
transform("Spectrogram", function() return { n_fft = 8 } end, long, frames { onesided = { false } })
transform("MelScale", function() return { n_mels = 4, n_stft = 9, sample_rate = 8000 } end, accel.rand(9, 3), { n_mels = { 3 },
  sample_rate = { 6000 }, f_min = { 500.0 }, f_max = { 2000.0 }, n_stft = { 5 }, norm = { "slaney" }, mel_scale = { "slaney" } },
  { raises = { n_stft = "matmul" } })
transform("MelSpectrogram", function() return { n_fft = 32, n_mels = 3 } end, long, frames { sample_rate = { 8000 }, f_min = { 1000.0 },
  f_max = { 4000.0 }, n_mels = { 2 }, norm = { "slaney" }, mel_scale = { "slaney" }, onesided = { false } },
  { raises = { onesided = "matmul" } })
transform("AmplitudeToDB", function() return {} end, long:abs() + 0.1, { stype = { "magnitude" }, top_db = { 3.0 } })
transform("MFCC", function() return { n_mfcc = 3 } end, accel.rand(1, 500), { sample_rate = { 8000 }, n_mfcc = { 2 }, dct_type = { 3 },
  norm = { "none" }, log_mels = { true } }, { raises = { dct_type = "type 2 is supported", norm = "norm" } })
transform("FrequencyMasking", function() return { freq_mask_param = 6 } end, accel.ones(2, 2, 8, 8), { freq_mask_param = { 2 },
  iid_masks = { true } })
transform("TimeMasking", function() return { time_mask_param = 6 } end, accel.ones(2, 2, 8, 8), { time_mask_param = { 2 }, iid_masks = { true },
  p = { 0.2 } })

s:finish()
