--- stft and istft: transforms of the frames of a signal, and their inverse, with PyTorch's arguments.
local accel = require "accel"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local fft = require "accel.fft"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local stft_arguments = arguments("stft", { "input" }, { "n_fft" }, { "hop_length" }, { "win_length" }, { "window" }, { "center", true },
  { "pad_mode", "reflect" }, { "normalized", false }, { "onesided", any = true }, { "return_complex", any = true })
local istft_arguments = arguments("istft", { "input" }, { "n_fft" }, { "hop_length" }, { "win_length" }, { "window" }, { "center", true },
  { "normalized", false }, { "onesided", any = true }, { "length" }, { "return_complex", false })

--- hop_length, win_length and the window of n_fft points, or nil for ones.
local function frame(who, o, x)
  if not tensors.is_tensor(x) then raise("%s: input must be a tensor, got %s", who, check.shown(x)) end
  local n = check.positive(who, "n_fft", o.n_fft)
  local hop = check.positive(who, "hop_length", o.hop_length or math.max(n // 4, 1))
  local wide = check.integer(who, "win_length", o.win_length or n, 1, n)
  local window = o.window
  if window ~= nil then
    if not tensors.is_tensor(window) or window:dim() ~= 1 or window.shape[1] ~= wide then
      raise("%s: window must be a tensor of shape (%d), win_length points, got %s", who, wide,
        tensors.is_tensor(window) and tensors.shape_string(window) or check.shown(window))
    end
  elseif wide < n then
    window = accel.ones(wide, { dtype = (x.dtype == "f64" or x.dtype == "c128") and "f64" or "f32", device = x.device })
  end
  if window and wide < n then
    local left = (n - wide) // 2
    window = accel.pad(window, { left, n - wide - left })
  end
  return n, hop, window
end

--- Positions in the signal of the elements of the frames, (frames * n), from 0.
local function positions(frames, hop, n, device)
  local start = accel.arange(frames, { device = device }) * hop
  return (start:unsqueeze(2) + accel.arange(n, { device = device }):unsqueeze(1)):reshape(-1)
end

--- The transforms of frames of n_fft samples, hop_length apart: (samples) or (batch, samples) becomes (..., frequencies, frames). Of
--- real signals only n_fft/2 + 1 frequencies are kept (onesided). With center frames are centred, and the signal is padded for it.
--- Options: hop_length = n_fft // 4, win_length = n_fft, window (ones), center = true, pad_mode = "reflect", normalized = false, onesided,
--- return_complex.
--- example: accel.stft(accel.ones(16), 8, { return_complex = true }).shape --> { 5, 9 }
---@param ... any input, n_fft, then the options, by position or in one table
---@return accel.Tensor
function M.stft(...)
  local o = stft_arguments(...)
  local x = o.input
  local n, hop, window = frame("stft", o, x)
  local dims, is_complex = x:dim(), x:is_complex() or (window ~= nil and window:is_complex())
  if dims ~= 1 and dims ~= 2 then raise("stft: expected a signal of 1 or 2 dims, got shape %s", tensors.shape_string(x)) end
  if not x:is_complex() and not x:is_floating_point() then raise("stft: expected floats or complex numbers, got %s", x.dtype) end
  local returns = o.return_complex
  if returns == nil then
    if not is_complex then raise("stft: return_complex must be given for a real signal; use true (false: real and imaginary part as a last dim)") end
    returns = true
  end
  local onesided = o.onesided
  if onesided == nil then onesided = not is_complex end
  if onesided and is_complex then raise("stft: onesided is for real signals and windows; leave it out, or give false") end
  if dims == 1 then x = x:unsqueeze(1) end
  if o.center then
    local pad = n // 2
    if o.pad_mode == "reflect" and pad >= x.shape[2] then
      raise("stft: the signal of %d samples is too short to be reflected by %d; use another pad_mode, or center = false", x.shape[2], pad)
    end
    x = accel.pad(x:unsqueeze(1), { pad, pad }, o.pad_mode):squeeze(1)
  end
  local batch, samples = x.shape[1], x.shape[2]
  if n > samples then raise("stft: n_fft is %d, but the signal has %d samples", n, samples) end
  local frames = 1 + (samples - n) // hop
  local y = x:index_select(2, positions(frames, hop, n, x.device)):reshape(batch, frames, n)
  if window then y = y * window end
  local norm = o.normalized and "ortho" or "backward"
  y = (onesided and fft.rfft(y, { norm = norm }) or fft.fft(y, { norm = norm })):transpose(2, 3)
  if dims == 1 then y = y:squeeze(1) end
  return returns and y or accel.view_as_real(y)
end

--- The signal whose stft is nearest to the input: frames are added up and divided by the sum of their squared windows.
--- Options: hop_length = n_fft // 4, win_length = n_fft, window (ones), center = true, normalized = false, onesided, length,
--- return_complex = false.
--- example: accel.istft(accel.stft(accel.ones(16), 8, { return_complex = true }), 8).shape --> { 16 }
---@param ... any input, n_fft, then the options, by position or in one table
---@return accel.Tensor
function M.istft(...)
  local o = istft_arguments(...)
  local x = o.input
  local n, hop, window = frame("istft", o, x)
  local dims = x:dim()
  if not x:is_complex() then raise("istft: expected complex numbers, got %s; see view_as_complex", x.dtype) end
  if dims ~= 2 and dims ~= 3 then raise("istft: expected (..., frequencies, frames), got shape %s", tensors.shape_string(x)) end
  if dims == 2 then x = x:unsqueeze(1) end
  local batch, bins, frames = x.shape[1], x.shape[2], x.shape[3]
  local onesided = o.onesided
  if onesided == nil then onesided = bins ~= n end
  if bins ~= (onesided and n // 2 + 1 or n) then
    raise("istft: expected %d frequencies for n_fft %d, got %d", onesided and n // 2 + 1 or n, n, bins)
  end
  if onesided and o.return_complex then raise("istft: return_complex needs all frequencies; give onesided = false") end
  if window and window:is_complex() and not o.return_complex then
    raise("istft: a complex window gives a complex signal; give return_complex = true")
  end
  local norm = o.normalized and "ortho" or "backward"
  x = x:transpose(2, 3)
  local y
  if o.return_complex then y = fft.ifft(x, { norm = norm })
  else y = fft.irfft(x, { n = n, norm = norm }) -- of all frequencies the first half counts, as in PyTorch
  end
  local total, at = n + hop * (frames - 1), positions(frames, hop, n, x.device)
  if not window then window = accel.ones(n, { dtype = (x.dtype == "c128") and "f64" or "f32", device = x.device }) end
  y = (y * window):reshape(batch, frames * n)
  y = accel.zeros(batch, total, { dtype = y.dtype, device = x.device }):index_add(2, at, y)
  local square = (window * window):expand(frames, n):reshape(frames * n)
  local weight = accel.zeros(total, { dtype = square.dtype, device = x.device }):index_add(1, at, square)
  local start = o.center and n // 2 or 0
  local stop = o.length and math.min(start + o.length, total) or o.center and total - n // 2 or total
  if stop <= start then raise("istft: %d samples are left; the frames are too few", stop - start) end
  y, weight = y:narrow(2, start + 1, stop - start), weight:narrow(1, start + 1, stop - start)
  if weight.device ~= "meta" and weight:abs():min():item() < 1e-11 then
    raise("istft: the windows leave samples without weight (smallest sum %g); use a smaller hop_length or another window",
      weight:abs():min():item())
  end
  y = y / weight
  local missing = o.length and o.length - (stop - start) or 0
  if missing > 0 then
    warn(("istft: the frames have %d samples, length is %d; zeros fill the rest"):format(stop - start, o.length))
    y = accel.cat({ y, y:new_zeros(batch, missing) }, 2)
  end
  return dims == 2 and y:squeeze(1) or y
end

return M
