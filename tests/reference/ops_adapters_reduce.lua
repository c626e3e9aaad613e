-- How the reference's PyTorch calls of reductions and scans are spelled here (see ops_adapters.lua).
local accel = require "accel"

return function(def, dim, dims)
  for _, name in ipairs { "prod", "logsumexp", "any", "all" } do
    def("torch." .. name, name, function(a, k)
      return accel[name](a[1], { dim = dims(k.dim), keepdim = k.keepdim or false })
    end)
  end
  for _, name in ipairs { "var", "std" } do
    def("torch." .. name, name, function(a, k)
      return accel[name](a[1], { dim = dims(k.dim), keepdim = k.keepdim or false, correction = k.correction or 1 })
    end)
  end
  def("torch.linalg.vector_norm", "norm", function(a, k)
    local p = k.ord == "inf" and math.huge or k.ord or 2
    return accel.norm(a[1], { p = p, dim = dims(k.dim), keepdim = k.keepdim or false })
  end)
  for _, name in ipairs { "cumsum", "cumprod" } do
    def("torch." .. name, name, function(a, k) return accel[name](a[1], dim(k.dim)) end)
  end
end
