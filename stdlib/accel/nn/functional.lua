--- nn.functional: the functions behind the modules, with PyTorch's names. Dimensions are 1-based here as
--- everywhere. Most are ops, the same as accel.<name>; what takes more than one op is in nn/functional/.
local accel = require "accel"

local F = {}

-- Ops, by the part of PyTorch's page that lists them.
local ops = {
  -- convolution
  "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "unfold", "fold",
  -- pooling
  "max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
  "adaptive_max_pool1d", "adaptive_max_pool2d",
  -- attention and positions
  "scaled_dot_product_attention", "rope",
  -- activation
  "relu", "relu6", "gelu", "silu", "sigmoid", "tanh", "softmax", "log_softmax", "logsigmoid", "softplus",
  "leaky_relu", "elu", "celu", "selu", "mish", "hardtanh", "hardsigmoid", "hardswish", "swiglu",
  -- linear
  "linear",
  -- normalisation
  "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm", "normalize",
  -- classes and distances
  "one_hot", "cosine_similarity",
  -- padding and resampling
  "pad", "interpolate",
  -- losses
  "cross_entropy", "linear_cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
  "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "cosine_embedding_loss",
  "margin_ranking_loss", "triplet_margin_loss", "poisson_nll_loss", "gaussian_nll_loss", "hinge_embedding_loss",
}

for _, name in ipairs(ops) do F[name] = accel[name] end

for _, part in ipairs { "activation", "conv", "dropout", "embedding", "distance", "vision" } do
  for name, fn in next, (require("accel.nn.functional." .. part)) do F[name] = fn end
end

return F
