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

s:finish()
