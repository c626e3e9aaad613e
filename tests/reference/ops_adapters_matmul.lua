-- The reference's products in other clothes: see ops_adapters.lua.
local accel = require "accel"

return function(def)
  def("torch.outer", "outer", function(a) return a[1]:outer(a[2]) end)
  def("torch.linalg.multi_dot", "multi_dot", function(_, _, _, inputs) return accel.multi_dot(inputs) end)
  -- the equation is the case's name: einsum_bhid_bhjd_bhij
  def("torch.einsum", "einsum", function(_, _, case, inputs)
    local equation = case.name:gsub("^einsum_", ""):gsub("_(%a+)$", "->%1"):gsub("_", ",")
    return accel.einsum(equation, inputs)
  end)
end
