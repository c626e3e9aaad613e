-- Convolutions and pools as the reference's PyTorch calls name them: see ops_adapters.lua.
local accel = require "accel"

return function(def)
  for _, n in ipairs { 1, 2, 3 } do
    local name = ("conv%dd"):format(n)
    def("F." .. name, name, function(a, k)
      return accel[name](a[1], a[2], a[3], {
        stride = k.stride, padding = k.padding, dilation = k.dilation, groups = k.groups or 1,
      })
    end)
    local transposed = ("conv_transpose%dd"):format(n)
    def("F." .. transposed, transposed, function(a, k)
      return accel[transposed](a[1], a[2], a[3], {
        stride = k.stride, padding = k.padding, output_padding = k.output_padding, groups = k.groups or 1,
        dilation = k.dilation,
      })
    end)
  end
  for _, n in ipairs { 1, 2 } do
    local max, avg = ("max_pool%dd"):format(n), ("avg_pool%dd"):format(n)
    def("F." .. max, max, function(a, k)
      return accel[max](a[1], a[2], {
        stride = k.stride, padding = k.padding, dilation = k.dilation, ceil_mode = k.ceil_mode or false,
      })
    end)
    def("F." .. avg, avg, function(a, k)
      return accel[avg](a[1], a[2], {
        stride = k.stride, padding = k.padding, ceil_mode = k.ceil_mode or false,
        count_include_pad = k.count_include_pad, divisor_override = k.divisor_override,
      })
    end)
    local adaptive = "adaptive_" .. avg
    def("F." .. adaptive, adaptive, function(a) return accel[adaptive](a[1], a[2]) end)
  end
end
