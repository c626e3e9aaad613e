-- The reference's norms over channels and of vectors: see ops_adapters.lua.
local accel = require "accel"

return function(def, dim)
  def("F.group_norm", "group_norm", function(a, k)
    return accel.group_norm(a[1], a[2], a[3], a[4], { eps = k.eps or 1e-5 })
  end)
  -- x, weight, bias, running mean and variance, which are written in place and returned
  def("F.batch_norm -> y, running_mean, running_var", "batch_norm", function(a)
    local y = accel.batch_norm(a[1], a[4], a[5], a[2], a[3], { training = a[6] })
    return y, a[4], a[5]
  end)
  def("F.normalize", "normalize", function(a, k)
    return accel.normalize(a[1], { dim = dim(k.dim or 1), p = k.p or 2 })
  end)
end
