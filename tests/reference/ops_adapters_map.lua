-- How the reference's PyTorch calls of elementwise ops are spelled here (see ops_adapters.lua).
local accel = require "accel"

return function(def)
  def("F.softplus", "softplus", function(a, k) return a[1]:softplus { beta = k.beta, threshold = k.threshold } end)
  def("F.leaky_relu", "leaky_relu", function(a, k) return a[1]:leaky_relu { negative_slope = k.negative_slope } end)
  def("F.elu", "elu", function(a, k) return a[1]:elu { alpha = k.alpha } end)
  def("F.hardtanh", "hardtanh", function(a, k) return a[1]:hardtanh { min_val = k.min_val, max_val = k.max_val } end)
  def("torch.lerp", "lerp", function(a) return a[1]:lerp(a[2], a[3]) end)
  for _, name in ipairs { "addcmul", "addcdiv" } do
    def("torch." .. name, name, function(a, k) return accel[name](a[1], a[2], a[3], { value = k.value or 1 }) end)
  end
  def("silu(x) * y", "swiglu", function(a) return a[1]:swiglu(a[2]) end)
end
