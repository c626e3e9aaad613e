-- Options of accel.fft: each one changes results or raises (support/option_sweep.lua).
--   accel-run tests/options/fft_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "fft"

local x = accel.tensor { { 1.0, -2.0, 0.5, 3.0 }, { 2.0, 0.5, -1.0, 4.0 }, { 0.0, 1.5, 2.5, -3.0 } }
local function recipe(names, base, values)
  local full = {}
  for name in names:gmatch "%S+" do full[#full + 1] = "accel.fft." .. name end
  s:recipe(full, { base = function()
    local own = {}
    for key, value in pairs(base) do own[key] = value end
    return own
  end, values = values })
end
recipe("fft ifft rfft irfft hfft ihfft", { input = x }, { input = { x * 2 }, n = { 3 }, dim = { 1 }, norm = { "ortho", "forward" } })
recipe("fft2 ifft2 rfft2 irfft2 hfft2 ihfft2 fftn ifftn rfftn irfftn hfftn ihfftn", { input = x },
  { input = { x * 2 }, s = { { 2, 5 } }, dim = { 1 }, norm = { "ortho", "forward" } })
recipe("fftshift ifftshift", { input = x }, { dim = { 1, { 2 } } })
recipe("fftfreq rfftfreq", { n = 4 }, { d = { 2.0 }, dtype = { "f64" }, device = { "meta" }, requires_grad = { true } })
s:finish()
