-- Ops that move pieces, as the reference's PyTorch calls spell them. See ops_adapters.lua.
local accel = require "accel"

return function(def, dim, dims)
  def("torch.flip", "flip", function(a) return a[1]:flip(dims(a[2])) end)
  def("torch.roll", "roll", function(a) return a[1]:roll(a[2], dim(a[3])) end)
  def("torch.Tensor.repeat", "tile", function(a) return a[1]:tile { table.unpack(a, 2) } end)
  def("torch.repeat_interleave", "repeat_interleave", function(a, k)
    return a[1]:repeat_interleave(a[2], dim(k.dim))
  end)
  def("torch.diagonal", "diagonal", function(a, k) return a[1]:diagonal(k.offset) end)
  def("x[:, ::2]", "slice", function(a) return a[1][{ {}, { 1, -1, 2 } }] end)
  def("torch.scatter", "scatter", function(a) return a[1]:scatter(dim(a[2]), a[3], a[4]) end)
  def("F.pad", "pad", function(a, k) return a[1]:pad(a[2], { mode = k.mode, value = k.value }) end)
  def("F.interpolate", "interpolate", function(a, k)
    return accel.interpolate(a[1], {
      size = k.size, scale_factor = k.scale_factor, mode = k.mode, align_corners = k.align_corners,
    })
  end)
end
