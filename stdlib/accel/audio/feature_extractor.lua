--- Feature extractors of speech models, from the preprocessor_config.json next to their weights: Whisper's log-mel spectrograms and
--- Wav2Vec2's normalised samples.
---
---   local extractor = accel.audio.AutoFeatureExtractor.from_pretrained "whisper-tiny"        -- a folder
---   local features = extractor(samples, { sampling_rate = 16000 }).input_features            -- (1, 80, 3000)
---
--- WhisperFeatureExtractor makes one without a folder, for models that are trained from scratch.
local accel = require "accel"
local check = require "accel.util.check"
local F = require "accel.audio.functional"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local read_json = require "accel.util.read_json"
local tensors = require "accel.util.tensors"

local M = { AutoFeatureExtractor = {} }

--- A list of sounds as f32 vectors, from one sound or a list.
local function sounds_of(sounds)
  local list = tensors.is_tensor(sounds) and { sounds } or sounds
  if type(list) ~= "table" or #list == 0 then raise("feature extractor: expected samples or a list of them, got %s", check.shown(sounds)) end
  local out = {}
  for i, x in ipairs(list) do
    if not tensors.is_tensor(x) then raise("feature extractor: sound %d is a %s; expected a tensor of samples", i, type(x)) end
    if x:dim() == 2 and x.shape[1] == 1 then x = x:squeeze(1) end
    if x:dim() ~= 1 then raise("feature extractor: sound %d has shape %s; expected one channel", i, tensors.shape_string(x)) end
    out[i] = x:to "f32"
  end
  return out
end

local function fit(x, n, value)
  local have = x.shape[1]
  if have >= n then return x:narrow(1, 1, n) end
  return accel.pad(x, { 0, n - have }, { value = value })
end

--- (sounds, bands, frames): sounds are cut or padded to chunk_length seconds, decibels end 8 decades below each sound's loudest. `kept` has
--- window and filters on the device of the sounds, which need not be the default one.
local function whisper(config, sounds, kept)
  local n = config.n_samples or config.chunk_length * config.sampling_rate
  for i, x in ipairs(sounds) do sounds[i] = fit(x, n, config.padding_value or 0.0) end
  local x = accel.stack(sounds):to "f64"
  if kept.device ~= x.device then
    local _ <close> = accel.device(x.device)
    kept.device, kept.window = x.device, accel.hann_window(config.n_fft, { dtype = "f64" })
    kept.filters = F.melscale_fbanks(1 + config.n_fft // 2, 0.0, 8000.0, config.feature_size, config.sampling_rate,
      { norm = "slaney", mel_scale = "slaney" }):to("f64"):t()
  end
  local s = x:stft(config.n_fft, config.hop_length, { window = kept.window, return_complex = true })
  local power = s:narrow(3, 1, s.shape[3] - 1):abs():square()
  local y = kept.filters:matmul(power):clamp(1e-10):log10()
  y = y:maximum(y:amax({ 2, 3 }, true) - 8)
  return { input_features = ((y + 4) / 4):to "f32" }
end

--- (sounds, samples): mean 0 and variance 1 if the configuration asks for it, then padded to the longest.
local function wav2vec2(config, sounds)
  local longest = 0
  for _, x in ipairs(sounds) do longest = math.max(longest, x.shape[1]) end
  for i, x in ipairs(sounds) do
    if config.do_normalize then x = (x - x:mean()) / (x:var { correction = 0 } + 1e-7):sqrt() end
    sounds[i] = fit(x, longest, config.padding_value or 0.0)
  end
  return { input_values = accel.stack(sounds) }
end

local KINDS <const> = { WhisperFeatureExtractor = whisper, Wav2Vec2FeatureExtractor = wav2vec2 }

--- A function of sounds, which checks their rate.
local function extractor(config, extract)
  local kept = {}
  return function(sounds, opts, ...)
    local o = options("feature extractor", opts, { sampling_rate = options.none }, ...)
    if o.sampling_rate == nil then
      warn("feature extractor: give sampling_rate, so that sounds of another rate are noticed")
    elseif o.sampling_rate ~= config.sampling_rate then
      raise("feature extractor: the sounds have %s Hz and the model takes %d; see accel.audio.functional.resample",
        check.shown(o.sampling_rate), config.sampling_rate)
    end
    return accel.no_grad(function() return extract(config, sounds_of(sounds), kept) end)
  end
end

--- Whisper's feature extractor with these options.
--- - feature_size: mel bands
--- - sampling_rate: of the sounds, in Hz
--- - hop_length: samples between two frames
--- - chunk_length: seconds to which sounds are cut or padded
--- - n_fft: samples of a frame
--- - padding_value: samples after the end of short sounds
--- example: local extract = accel.audio.WhisperFeatureExtractor { feature_size = 40, chunk_length = 1 }
---   return extract(accel.zeros(8000), { sampling_rate = 16000 }).input_features.shape --> {1, 40, 100}
---@param opts? {feature_size: integer?, sampling_rate: integer?, hop_length: integer?, chunk_length: integer?, n_fft: integer?,
--- padding_value: number?}
---@return function extractor called with samples or a list of them, and { sampling_rate = }
function M.WhisperFeatureExtractor(opts, ...)
  local who = "WhisperFeatureExtractor"
  local o = options(who, opts, { feature_size = 80, sampling_rate = 16000, hop_length = 160, chunk_length = 30, n_fft = 400, padding_value = 0.0 },
    ...)
  for _, name in ipairs { "feature_size", "sampling_rate", "hop_length", "chunk_length", "n_fft" } do check.positive(who, name, o[name]) end
  check.number(who, "padding_value", o.padding_value)
  return extractor(o, whisper)
end

--- The feature extractor of a model's folder. nil, message, code if it cannot be read or is of another kind.
---@param folder string
---@return function? extractor called with samples or a list of them, and { sampling_rate = }
---@return string?
---@return string?
function M.AutoFeatureExtractor.from_pretrained(folder)
  local path = folder .. "/preprocessor_config.json"
  local config, message, code = read_json(path)
  if not config then return nil, message, code end
  local kind = config.feature_extractor_type
  local extract = KINDS[kind]
  if not extract then
    return nil, ("%s: feature_extractor_type is %s; expected WhisperFeatureExtractor or Wav2Vec2FeatureExtractor"):format(path,
      check.shown(kind)), "unsupported"
  end
  if config.dither and config.dither ~= 0 then
    return nil, ("%s: dither is %s; random noise is not added, so set it to 0"):format(path, check.shown(config.dither)), "unsupported"
  end
  return extractor(config, extract)
end

return M
