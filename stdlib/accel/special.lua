--- accel.special: torch.special's names. Each is a function of accel, most under the same name: accel.special.expit is accel.sigmoid. Loaded on
--- first use.
local accel = require "accel.core"
local listed = require "accel.util.listed"
local raise = require "accel.util.raise"

--- Names that accel spells otherwise.
local OTHER <const> = { expit = "sigmoid", gammainc = "igamma", gammaincc = "igammac", gammaln = "lgamma", multigammaln = "mvlgamma",
  psi = "digamma" }
local SAME <const> = {}
for name in ([[digamma entr erf erfc erfcx erfinv exp2 expm1 i0 i0e i1 i1e log1p log_ndtr log_softmax logit logsumexp ndtr ndtri polygamma
  round sinc softmax xlog1py xlogy zeta]]):gmatch "%S+" do SAME[name] = name end
for name in next, OTHER do SAME[name] = OTHER[name] end

--- Bessel and Airy functions, which accel lacks.
local ABSENT <const> = { airy_ai = true, bessel_j0 = true, bessel_j1 = true, bessel_y0 = true, bessel_y1 = true, modified_bessel_i0 = "i0",
  modified_bessel_i1 = "i1", modified_bessel_k0 = true, modified_bessel_k1 = true, scaled_modified_bessel_k0 = true,
  scaled_modified_bessel_k1 = true, spherical_bessel_j0 = true }

return setmetatable({}, {
  __index = function(t, key)
    local name = SAME[key]
    if name then
      local fn = accel[name]
      rawset(t, key, fn)
      return fn
    elseif ABSENT[key] then
      raise("accel.special.%s is not in accel; %s", key, ABSENT[key] ~= true and "accel.special." .. ABSENT[key] .. " is the same function"
        or "there are " .. listed { "i0", "i1", "i0e", "i1e" } .. " of the Bessel functions")
    end
    return nil
  end,
  __names = SAME,
})
