-- stft and istft: a round trip for windows that leave no gap, closed forms of tones, derivatives of both orders, and what is refused.
-- calls/fft compares arguments and values with PyTorch.
local accel = require "accel"
accel.manual_seed(7)
local function most(t) return t:abs():max():item() end

local x = accel.randn(2, 200, { dtype = "f64" })
for _, name in ipairs { "hann", "hamming", "blackman", "kaiser" } do
  local window = accel[name .. "_window"](32, { dtype = "f64" })
  for _, hop in ipairs { 4, 8, 11 } do
    local s = x:stft(32, hop, { window = window, return_complex = true })
    local y = accel.istft(s, 32, hop, { window = window, length = 200 })
    assert(most(y:narrow(2, 1, 190) - x:narrow(2, 1, 190)) < 1e-12, name .. hop)
  end
end

-- A tone on frequency 5 of 32 has its energy there.
local t = accel.arange(320):to "f64"
local tone = (t * (2 * math.pi * 5 / 32)):cos()
local power = tone:stft(32, { center = false, return_complex = true }):abs()
assert(most(power[6] - 16) < 1e-11 and most(power:narrow(1, 1, 5)) < 1e-11 and most(power:narrow(1, 7, 11)) < 1e-11)

local signal = accel.randn(14, { dtype = "f64", requires_grad = true })
local w = accel.hann_window(6, { dtype = "f64" })
local function back(v) return accel.istft(v:stft(6, 2, { window = w, return_complex = true }):square(), 6, 2, { window = w }) end
assert(accel.autograd.gradcheck(back, signal))
assert(accel.autograd.gradgradcheck(back, signal))

local function refused(text, f, ...)
  local ok, why = pcall(f, ...)
  assert(not ok and tostring(why):find(text, 1, true), tostring(why))
end
refused("return_complex must be given", accel.stft, x, 32)
refused("onesided is for real", accel.stft, accel.zeros(64, { dtype = "c64" }), 32, { onesided = true })
refused("too short to be reflected", accel.stft, x:narrow(2, 1, 16), 32, { return_complex = true })
refused("expected 17 frequencies", accel.istft, accel.zeros(16, 4, { dtype = "c64" }), 32, { onesided = true })
refused("without weight", accel.istft, accel.zeros(17, 4, { dtype = "c64" }), 32, 32, { window = accel.hann_window(32), center = false })
refused("did you mean 'n_fft'", accel.stft, x, { nfft = 3 })
print "ok"
