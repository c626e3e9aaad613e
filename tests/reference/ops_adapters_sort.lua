-- PyTorch's calls that order, search and select, as ops_adapters.lua takes them.
local accel = require "accel"

return function(def, dim)
  def("F.one_hot", "one_hot", function(a) return accel.one_hot(a[1], a[2]) end)
  def("torch.sort", "sort", function(a, k) return a[1]:sort { dim = dim(k.dim), descending = k.descending } end)
  def("torch.topk", "topk", function(a, k) return a[1]:topk(a[2], { dim = dim(k.dim) }) end)
  def("torch.masked_select", "masked_select", function(a) return a[1]:masked_select(a[2]) end)
  def("torch.nonzero", "nonzero", function(a) return a[1]:nonzero() end)
  def("torch.bincount", "bincount", function(a) return accel.bincount(a[1]) end)
  def("torch.searchsorted", "searchsorted", function(a) return accel.searchsorted(a[1], a[2]) end)
end
