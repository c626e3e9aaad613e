--- accel.audio.transforms: torchaudio's transforms of sounds and spectrograms, with its arguments. They are modules: call them with a tensor
--- of shape (..., samples) or (..., frequencies, frames), and move them to a device by `to`.
---
---   local S = accel.audio.transforms
---   local mel = S.MelSpectrogram { sample_rate = 16000 }
---   local features = accel.nn.Sequential(mel, S.AmplitudeToDB("power", 80))
local accel = require "accel"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local F = require "accel.audio.functional"
local nn = require "accel.nn"
local raise = require "accel.util.raise"

local M = {}

local function define(name, ...)
  local class, parse = nn.Module:extend("accel.audio.transforms." .. name), arguments(name, ...)
  M[name] = class
  return class, parse
end

local function window_of(o, length)
  return (o.window_fn or accel.hann_window)(length, o.wkwargs)
end

--- A sound at another sample rate.
--- - orig_freq, new_freq: the rates of input and result, in Hz
--- - resampling_method: "sinc_interp_hann" or "sinc_interp_kaiser", whose window has the shape beta
--- - lowpass_filter_width, rolloff: zeros of the filter on each side, and its cutoff as a share of the lower rate's half
--- example: accel.audio.transforms.Resample(16000, 8000)(accel.ones(1, 100)).shape --> { 1, 50 }
---@class accel.audio.transforms.Resample : accel.nn.Module
local Resample, resample_arguments = define("Resample", { "orig_freq", 16000 }, { "new_freq", 16000 },
  { "resampling_method", "sinc_interp_hann" }, { "lowpass_filter_width", 6 }, { "rolloff", 0.99 }, { "beta" })
function Resample:init(...)
  local o = resample_arguments(...)
  check.positive("Resample", "orig_freq", o.orig_freq)
  check.positive("Resample", "new_freq", o.new_freq)
  self.options = o
end
function Resample:forward(x)
  local o = self.options
  return F.resample(x, o.orig_freq, o.new_freq, { lowpass_filter_width = o.lowpass_filter_width, rolloff = o.rolloff,
    resampling_method = o.resampling_method, beta = o.beta })
end

--- The spectrogram of a sound: (..., n_fft // 2 + 1, frames).
--- - win_length, hop_length: samples of a window, n_fft by default, and between windows, half of win_length by default
--- - window_fn: makes the window from its length and wkwargs. The default is accel.hann_window
--- - power: 2 for power, 1 for magnitude, false for complex numbers
--- - normalized: true or "window" divides by the root of the window's energy, "frame_length" by the root of n_fft
--- - pad: zeros on both sides of the sound. center, pad_mode, onesided: as accel.stft has them
--- example: accel.audio.transforms.Spectrogram({ n_fft = 8 })(accel.ones(1, 32)).shape --> { 1, 5, 9 }
---@class accel.audio.transforms.Spectrogram : accel.nn.Module
local Spectrogram, spectrogram_arguments = define("Spectrogram", { "n_fft", 400 }, { "win_length" }, { "hop_length" }, { "pad", 0 },
  { "window_fn" }, { "power", 2.0, any = true }, { "normalized", false, any = true }, { "wkwargs", any = true }, { "center", true },
  { "pad_mode", "reflect" }, { "onesided", true })
function Spectrogram:init(...)
  local o = spectrogram_arguments(...)
  o.win_length = o.win_length or o.n_fft
  o.hop_length = o.hop_length or o.win_length // 2
  self:register_buffer("window", window_of(o, o.win_length))
  self.options = { pad = o.pad, n_fft = o.n_fft, hop_length = o.hop_length, win_length = o.win_length, power = o.power,
    normalized = o.normalized, center = o.center, pad_mode = o.pad_mode, onesided = o.onesided }
end
function Spectrogram:forward(x)
  local o = { window = self.window }
  for k, v in pairs(self.options) do o[k] = v end
  return F.spectrogram(x, o)
end

--- A spectrogram in n_mels bands of the mel scale.
--- - f_min, f_max: the range of frequencies in Hz. f_max is half of the sample rate by default
--- - n_stft: frequencies of the spectrogram, n_fft // 2 + 1
--- - norm: "slaney" gives each band the same area
--- - mel_scale: "htk" or "slaney"
--- example: accel.audio.transforms.MelScale({ n_mels = 4, n_stft = 33 })(accel.ones(33, 7)).shape --> { 4, 7 }
---@class accel.audio.transforms.MelScale : accel.nn.Module
local MelScale, mel_arguments = define("MelScale", { "n_mels", 128 }, { "sample_rate", 16000 }, { "f_min", 0.0 }, { "f_max" },
  { "n_stft", 201 }, { "norm" }, { "mel_scale", "htk" })
function MelScale:init(...)
  local o = mel_arguments(...)
  local top = o.f_max or o.sample_rate // 2
  if o.f_min > top then raise("MelScale: f_min is %g, above f_max, %g", o.f_min, top) end
  self:register_buffer("fb", F.melscale_fbanks(o.n_stft, o.f_min, top, o.n_mels, o.sample_rate, { norm = o.norm, mel_scale = o.mel_scale }))
end
function MelScale:forward(x) return x:transpose(-1, -2):matmul(self.fb:to(x.dtype)):transpose(-1, -2) end

local MEL <const> = { { "sample_rate", 16000 }, { "n_fft", 400 }, { "win_length" }, { "hop_length" }, { "f_min", 0.0 }, { "f_max" },
  { "pad", 0 }, { "n_mels", 128 }, { "window_fn" }, { "power", 2.0, any = true }, { "normalized", false, any = true },
  { "wkwargs", any = true }, { "center", true }, { "pad_mode", "reflect" }, { "onesided", true }, { "norm" }, { "mel_scale", "htk" } }

--- The spectrogram of a sound in mel bands: (..., n_mels, frames). The arguments are those of Spectrogram and MelScale.
--- example: accel.audio.transforms.MelSpectrogram({ n_fft = 64, n_mels = 8 })(accel.ones(1, 320)).shape --> { 1, 8, 11 }
---@class accel.audio.transforms.MelSpectrogram : accel.nn.Module
local MelSpectrogram, mel_spectrogram_arguments = define("MelSpectrogram", table.unpack(MEL))
function MelSpectrogram:init(...)
  local o = mel_spectrogram_arguments(...)
  self.spectrogram = Spectrogram { n_fft = o.n_fft, win_length = o.win_length, hop_length = o.hop_length, pad = o.pad,
    window_fn = o.window_fn, power = o.power, normalized = o.normalized, wkwargs = o.wkwargs, center = o.center, pad_mode = o.pad_mode,
    onesided = o.onesided }
  self.mel_scale = MelScale { n_mels = o.n_mels, sample_rate = o.sample_rate, f_min = o.f_min, f_max = o.f_max,
    n_stft = o.n_fft // 2 + 1, norm = o.norm, mel_scale = o.mel_scale }
end
function MelSpectrogram:forward(x) return self.mel_scale(self.spectrogram(x)) end

--- A spectrogram in decibels.
--- - stype: "power" or "magnitude", what the spectrogram holds
--- - top_db: values further below the loudest are raised to this distance
--- example: accel.audio.transforms.AmplitudeToDB("power")(accel.tensor { 1.0, 100.0 }) --> { 0, 20 }
---@class accel.audio.transforms.AmplitudeToDB : accel.nn.Module
local AmplitudeToDB, db_arguments = define("AmplitudeToDB", { "stype", "power" }, { "top_db" })
function AmplitudeToDB:init(...)
  local o = db_arguments(...)
  check.word("AmplitudeToDB", "stype", o.stype, { "power", "magnitude" })
  if o.top_db and o.top_db < 0 then raise("AmplitudeToDB: top_db must not be negative, got %g", o.top_db) end
  self.stype, self.top_db = o.stype, o.top_db
end
function AmplitudeToDB:forward(x) return F.amplitude_to_DB(x, self.stype == "power" and 10 or 20, 1e-10, 0, self.top_db) end

--- The first n_mfcc mel-frequency cepstrum coefficients of a sound: (..., n_mfcc, frames).
--- - melkwargs: arguments of MelSpectrogram
--- - log_mels: take the logarithm of the bands instead of decibels
--- - norm: "ortho" makes the cosine transform orthonormal. dct_type must be 2
--- example: accel.audio.transforms.MFCC({ n_mfcc = 5, melkwargs = { n_fft = 64, n_mels = 8 } })(accel.ones(1, 320)).shape --> { 1, 5, 11 }
---@class accel.audio.transforms.MFCC : accel.nn.Module
local MFCC, mfcc_arguments = define("MFCC", { "sample_rate", 16000 }, { "n_mfcc", 40 }, { "dct_type", 2 }, { "norm", "ortho" },
  { "log_mels", false }, { "melkwargs", any = true })
function MFCC:init(...)
  local o = mfcc_arguments(...)
  if o.dct_type ~= 2 then raise("MFCC: dct_type is %d; type 2 is supported", o.dct_type) end
  local mel = { sample_rate = o.sample_rate }
  for k, v in pairs(o.melkwargs or {}) do mel[k] = v end
  local bands = mel.n_mels or 128
  if o.n_mfcc > bands then raise("MFCC: n_mfcc is %d, above n_mels, %d", o.n_mfcc, bands) end
  self.MelSpectrogram = MelSpectrogram(mel)
  self.amplitude_to_DB = AmplitudeToDB("power", 80.0)
  self.log_mels = o.log_mels
  self:register_buffer("dct_mat", F.create_dct(o.n_mfcc, bands, o.norm))
end
function MFCC:forward(x)
  local y = self.MelSpectrogram(x)
  y = self.log_mels and (y + 1e-6):log() or self.amplitude_to_DB(y)
  return y:transpose(-1, -2):matmul(self.dct_mat:to(y.dtype)):transpose(-1, -2)
end

-- SpecAugment (Park and others): values of a random range of a spectrogram's axis are replaced.
local function masking(name, axis, mask_param, ...)
  local class, parse = define(name, { mask_param }, ...)
  function class:init(...)
    local o = parse(...)
    self.mask_param = check.count(name, mask_param, o[mask_param])
    self.iid_masks, self.p = o.iid_masks, o.p
    if o.p and (o.p < 0 or o.p > 1) then raise("%s: p must be from 0 to 1, got %g", name, o.p) end
  end
  function class:forward(x, mask_value)
    if self.iid_masks and x:dim() < 3 then raise("%s: iid_masks needs (..., channel, frequencies, frames)", name) end
    return F.mask_along_axis(x, self.mask_param, mask_value or 0.0, axis, self.iid_masks, self.p)
  end
end

--- Masks a random range of frequencies of a spectrogram (SpecAugment): mask(x, mask_value = 0).
--- - freq_mask_param: the range has fewer frequencies than this
--- - iid_masks: draw a range for each spectrogram of a batch
--- example: accel.audio.transforms.FrequencyMasking(0)(accel.ones(1, 2, 1)) --> { { { 1 }, { 1 } } }
---@class accel.audio.transforms.FrequencyMasking : accel.nn.Module
masking("FrequencyMasking", -2, "freq_mask_param", { "iid_masks", false })

--- Masks a random range of frames of a spectrogram (SpecAugment): mask(x, mask_value = 0).
--- - time_mask_param: the range has fewer frames than this
--- - iid_masks: draw a range for each spectrogram of a batch
--- - p: at most this share of the frames is masked
--- example: accel.audio.transforms.TimeMasking(0)(accel.ones(1, 1, 2)) --> { { { 1, 1 } } }
---@class accel.audio.transforms.TimeMasking : accel.nn.Module
masking("TimeMasking", -1, "time_mask_param", { "iid_masks", false }, { "p", 1.0 })

return require "accel.util.lazy"("accel.audio.transforms", {}, M)
