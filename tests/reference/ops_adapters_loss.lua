-- The losses of the manifest; see ops_adapters.lua.
local accel = require "accel"

return function(def)
  for _, name in ipairs { "mse_loss", "l1_loss" } do
    def("F." .. name, name, function(a, k) return accel[name](a[1], a[2], { reduction = k.reduction or "mean" }) end)
  end
  def("F.smooth_l1_loss", "smooth_l1_loss", function(a, k)
    return accel.smooth_l1_loss(a[1], a[2], { beta = k.beta or 1.0, reduction = k.reduction or "mean" })
  end)
  def("F.huber_loss", "huber_loss", function(a, k)
    return accel.huber_loss(a[1], a[2], { delta = k.delta or 1.0, reduction = k.reduction or "mean" })
  end)
  def("F.nll_loss", "nll_loss", function(a, k)
    return accel.nll_loss(a[1], a[2], { weight = k.weight, ignore_index = k.ignore_index, reduction = k.reduction })
  end)
  def("F.binary_cross_entropy_with_logits", "binary_cross_entropy_with_logits", function(a, k)
    return accel.binary_cross_entropy_with_logits(a[1], a[2], {
      weight = k.weight, pos_weight = k.pos_weight, reduction = k.reduction,
    })
  end)
  def("F.kl_div", "kl_div", function(a, k)
    return accel.kl_div(a[1], a[2], { reduction = k.reduction or "mean", log_target = k.log_target or false })
  end)
  def("F.cosine_embedding_loss", "cosine_embedding_loss", function(a, k)
    return accel.cosine_embedding_loss(a[1], a[2], a[3], { margin = k.margin or 0.0, reduction = k.reduction })
  end)
end
