--- accel.audio.functional: functions on sounds, (..., samples), and spectrograms, (..., frequencies, frames), by torchaudio's names.
local accel = require "accel"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local function floats(who, x)
  if not tensors.is_tensor(x) then raise("%s: expected a tensor, got %s", who, check.shown(x)) end
  if not x:is_floating_point() then raise("%s: expected floats, got %s; scale integers to -1 .. 1 first", who, x.dtype) end
  return x
end

--- (rows, size of the last dim), and the shape to return to with another last dim.
local function rows_of(x)
  local shape, n = x.shape, 1
  for i = 1, #shape - 1 do n = n * shape[i] end
  return x:reshape(n, shape[#shape]), function(y)
    shape[#shape] = y.shape[2]
    return y:reshape(shape)
  end
end

local spectrogram_arguments = arguments("spectrogram", { "waveform" }, { "pad", 0 }, { "window" }, { "n_fft" }, { "hop_length" },
  { "win_length" }, { "power", any = true }, { "normalized", false, any = true }, { "center", true }, { "pad_mode", "reflect" },
  { "onesided", true })

--- The spectrogram of a sound: magnitudes to a power, or complex numbers if power is false. normalized: true or "window" divides by the
--- root of the window's energy, "frame_length" by the root of n_fft.
---@param ... any waveform, pad = 0, window, n_fft, hop_length, win_length, power = 2, normalized = false, center, pad_mode, onesided
---@return accel.Tensor
function M.spectrogram(...)
  local o = spectrogram_arguments(...)
  local x, power, normalized = floats("spectrogram", o.waveform), o.power, o.normalized
  if power == nil then power = 2.0 end
  if normalized ~= true and normalized ~= false and normalized ~= "window" and normalized ~= "frame_length" then
    raise("spectrogram: normalized must be true, false, \"window\" or \"frame_length\", got %s", check.shown(normalized))
  end
  if not tensors.is_tensor(o.window) then
    raise("spectrogram: window must be a tensor of win_length values, such as accel.hann_window(400), got %s", check.shown(o.window))
  end
  if o.pad > 0 then x = accel.pad(x, { o.pad, o.pad }) end
  local rows = rows_of(x)
  local window = o.window:to(x.dtype)
  local y = rows:stft(o.n_fft, o.hop_length, o.win_length, window, { center = o.center, pad_mode = o.pad_mode,
    normalized = normalized == "frame_length", onesided = o.onesided, return_complex = true })
  local shape = table.move(x.shape, 1, x:dim() - 1, 1, {})
  shape[#shape + 1], shape[#shape + 2] = y.shape[2], y.shape[3]
  y = y:reshape(shape)
  if normalized == true or normalized == "window" then y = y / window:square():sum():sqrt() end
  if not power then return y end
  y = y:abs()
  return power == 1 and y or power == 2 and y:square() or y:pow(power)
end

-- ---- mel scale ----

local function to_mel(f, scale)
  if scale == "htk" then return 2595 * math.log(1 + f / 700, 10) end
  return f < 1000 and f * 3 / 200 or 15 + math.log(f / 1000) * 27 / math.log(6.4)
end
local function of_mel(m, scale)
  if scale == "htk" then return 700 * (10 ^ (m / 2595) - 1) end
  return m < 15 and m * 200 / 3 or 1000 * math.exp(math.log(6.4) / 27 * (m - 15))
end

local fbanks_arguments = arguments("melscale_fbanks", { "n_freqs" }, { "f_min" }, { "f_max" }, { "n_mels" }, { "sample_rate" }, { "norm" },
  { "mel_scale", "htk" })

--- Triangular filters (n_freqs, n_mels) that sum frequencies up to half of sample_rate into bands of equal width on the mel scale.
---@param ... any n_freqs, f_min, f_max, n_mels, sample_rate, norm (nil or "slaney": each filter has the same area), mel_scale = "htk" | "slaney"
---@return accel.Tensor
function M.melscale_fbanks(...)
  local o = fbanks_arguments(...)
  local who = "melscale_fbanks"
  check.word(who, "mel_scale", o.mel_scale, { "htk", "slaney" })
  if o.norm ~= nil then check.word(who, "norm", o.norm, { "slaney" }) end
  local n, bands = check.positive(who, "n_freqs", o.n_freqs), check.positive(who, "n_mels", o.n_mels)
  local low, high, at = to_mel(o.f_min, o.mel_scale), to_mel(o.f_max, o.mel_scale), {}
  for i = 0, bands + 1 do at[i] = of_mel(low + (high - low) * i / (bands + 1), o.mel_scale) end
  local values, empty = {}, true
  for k = 0, n - 1 do
    local f = (o.sample_rate // 2) * k / math.max(n - 1, 1)
    for b = 1, bands do
      local v = math.max(0, math.min((f - at[b - 1]) / (at[b] - at[b - 1]), (at[b + 1] - f) / (at[b + 1] - at[b])))
      if o.norm then v = v * 2 / (at[b + 1] - at[b - 1]) end
      empty = empty and v == 0
      values[k * bands + b] = v
    end
  end
  if empty then warn(("melscale_fbanks: no frequency of %d is in any of %d bands; use more of them, or fewer bands"):format(n, bands)) end
  return accel.tensor(values):reshape(n, bands)
end

--- The matrix (n_mels, n_mfcc) of the discrete cosine transform. norm: nil or "ortho".
---@param n_mfcc integer
---@param n_mels integer
---@param norm? "ortho"
---@return accel.Tensor
function M.create_dct(n_mfcc, n_mels, norm)
  local values = {}
  if norm ~= nil then check.word("create_dct", "norm", norm, { "ortho" }) end
  for n = 0, n_mels - 1 do
    for k = 0, n_mfcc - 1 do
      local v = math.cos(math.pi / n_mels * (n + 0.5) * k)
      values[n * n_mfcc + k + 1] = norm and v * math.sqrt((k == 0 and 1 or 2) / n_mels) or 2 * v
    end
  end
  return accel.tensor(values):reshape(n_mels, n_mfcc)
end

--- Decibels of powers (multiplier 10) or amplitudes (20), at least amin, and at most top_db below the loudest of each sound.
---@param x accel.Tensor
---@param multiplier number
---@param amin number
---@param db_multiplier number
---@param top_db? number
---@return accel.Tensor
function M.amplitude_to_DB(x, multiplier, amin, db_multiplier, top_db)
  local y = floats("amplitude_to_DB", x):clamp(amin):log10() * multiplier - multiplier * db_multiplier
  if not top_db then return y end
  local shape = y.shape
  local n = #shape
  if n < 2 then raise("amplitude_to_DB: top_db is of spectrograms, (..., frequencies, frames); the shape is %s", tensors.shape_string(x)) end
  local packed = y:reshape(-1, n > 2 and shape[n - 2] or 1, shape[n - 1], shape[n])
  return packed:maximum(packed:amax({ 2, 3, 4 }, true) - top_db):reshape(shape)
end

-- ---- samples ----

local resample_arguments = arguments("resample", { "waveform" }, { "orig_freq" }, { "new_freq" }, { "lowpass_filter_width", 6 },
  { "rolloff", 0.99 }, { "resampling_method", "sinc_interp_hann" }, { "beta" })

local function gcd(a, b) return b == 0 and a or gcd(b, a % b) end

--- I0 by its series, in doubles.
local function bessel(x)
  local quarter, sum, term = x:square() / 4, accel.ones_like(x), accel.ones_like(x)
  for k = 1, 60 do
    term = term * quarter / (k * k)
    sum = sum + term
  end
  return sum
end

--- The filter (new, 1, 2 width + orig) and its width.
local function kernel(o, orig, new)
  local base, wide = math.min(orig, new) * o.rolloff, o.lowpass_filter_width
  local width = math.ceil(wide * orig / base)
  local at = accel.arange(-width, width + orig):to "f64" / orig
  local t = ((accel.arange(new):to "f64" / -new):unsqueeze(2) + at:unsqueeze(1)) * base
  t = t:clamp(-wide, wide)
  local window
  if o.resampling_method == "sinc_interp_hann" then
    window = (t * (math.pi / wide / 2)):cos():square()
  else
    local beta = accel.tensor(o.beta or 14.769656459379492, { dtype = "f64" })
    window = bessel((1 - (t / wide):square()):clamp(0):sqrt() * beta) / bessel(beta)
  end
  t = t * math.pi
  local zero = t:eq(0)
  local sinc = accel.where(zero, 1.0, t:sin() / accel.where(zero, 1.0, t))
  return (sinc * window * (base / orig)):unsqueeze(2), width
end

--- A sound at another rate, by a windowed sinc (Smith, "Digital Audio Resampling").
--- example: accel.audio.functional.resample(accel.ones(8), 16000, 8000).shape --> { 4 }
---@param ... any waveform, orig_freq, new_freq, lowpass_filter_width = 6, rolloff = 0.99, resampling_method, beta
---@return accel.Tensor
function M.resample(...)
  local o = resample_arguments(...)
  local x = floats("resample", o.waveform)
  check.word("resample", "resampling_method", o.resampling_method, { "sinc_interp_hann", "sinc_interp_kaiser" })
  local orig, new = check.positive("resample", "orig_freq", o.orig_freq), check.positive("resample", "new_freq", o.new_freq)
  if orig == new then return x end
  local common = gcd(orig, new)
  orig, new = orig // common, new // common
  local weight, width = accel.device(x.device, kernel, o, orig, new)
  local rows, back = rows_of(x)
  local samples = rows.shape[2]
  local y = accel.conv1d(accel.pad(rows, { width, width + orig }):unsqueeze(2), weight:to(x.dtype), { stride = { orig } })
  y = y:transpose(2, 3):reshape(rows.shape[1], -1)
  return back(y:narrow(2, 1, math.min(y.shape[2], -(-new * samples // orig))))
end

--- Mu-law: samples from -1 to 1 as integers below quantization_channels.
---@param x accel.Tensor
---@param quantization_channels integer
---@return accel.Tensor
function M.mu_law_encoding(x, quantization_channels)
  local mu = quantization_channels - 1
  local y = floats("mu_law_encoding", x):sign() * (x:abs() * mu):log1p() / math.log(1 + mu)
  return ((y + 1) / 2 * mu + 0.5):to "i64"
end

--- The samples that mu_law_encoding's integers stand for.
---@param x accel.Tensor
---@param quantization_channels integer
---@return accel.Tensor
function M.mu_law_decoding(x, quantization_channels)
  local mu = quantization_channels - 1
  local y = (x:is_floating_point() and x or x:to "f32") / mu * 2 - 1
  return y:sign() * ((y:abs() * math.log(1 + mu)):exp() - 1) / mu
end

--- Each sample less coeff times the one before it.
--- example: accel.audio.functional.preemphasis(accel.tensor { 1.0, 2.0, 3.0 }, 0.5) --> { 1, 1.5, 2 }
---@param x accel.Tensor
---@param coeff? number 0.97
---@return accel.Tensor
function M.preemphasis(x, coeff)
  local n = floats("preemphasis", x).shape[x:dim()]
  return x - accel.pad(x:narrow(-1, 1, n - 1), { 1, 0 }) * (coeff or 0.97)
end

--- Sets a random range of up to mask_param positions of a dim to mask_value: one for all, or with iid one for each (batch, channel).
---@param x accel.Tensor
---@param mask_param integer
---@param mask_value number
---@param axis integer of the frequencies or frames
---@param iid? boolean
---@param p? number at most this part of the positions
---@return accel.Tensor
function M.mask_along_axis(x, mask_param, mask_value, axis, iid, p)
  local shape = x.shape
  local n, size = #shape, shape[axis < 0 and axis + #shape + 1 or axis]
  if p and p < 1 then mask_param = math.min(mask_param, math.floor(size * p)) end
  if mask_param < 1 then return x end
  local lead = {}
  for i = 1, n do lead[i] = iid and i <= n - 2 and shape[i] or 1 end
  local value = accel.rand(lead, { device = x.device }) * mask_param
  local start = (accel.rand(lead, { device = x.device }) * (size - value)):floor()
  local form = {}
  for i = 1, n do form[i] = 1 end
  form[axis < 0 and axis + n + 1 or axis] = size
  local at = accel.arange(size, { device = x.device }):to("f32"):reshape(form)
  return x:masked_fill(at:ge(start):logical_and(at:lt(start + value:floor())), mask_value)
end

return M
