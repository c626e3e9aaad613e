--- nn.functional: the functions of the modules, with PyTorch's names. Dimensions are 1-based here as everywhere. Most are
--- ops, the same as accel.<name>. Functions of more than one op are in nn/functional/, loaded on first use.
local accel = require "accel"

local F = {}

-- Ops, by the part of PyTorch's page that lists them.
local ops = {
  -- convolution
  "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "unfold", "fold",
  -- pooling
  "max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
  "adaptive_max_pool1d", "adaptive_max_pool2d",
  "max_pool3d", "avg_pool3d", "adaptive_avg_pool3d", "adaptive_max_pool3d",
  -- attention and positions
  "scaled_dot_product_attention", "rope",
  -- activation
  "relu", "relu6", "gelu", "silu", "sigmoid", "tanh", "softmax", "log_softmax", "logsigmoid", "softplus",
  "leaky_relu", "elu", "celu", "selu", "mish", "hardtanh", "hardsigmoid", "hardswish", "swiglu", "softsign", "tanhshrink",
  "hardshrink", "softshrink", "threshold", "prelu", "glu",
  -- linear
  "linear",
  -- normalisation
  "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm", "normalize",
  -- classes and distances
  "one_hot", "cosine_similarity",
  -- padding and resampling
  "pad", "interpolate", "grid_sample",
  -- losses
  "cross_entropy", "linear_cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
  "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "cosine_embedding_loss",
  "margin_ranking_loss", "triplet_margin_loss", "poisson_nll_loss", "gaussian_nll_loss", "hinge_embedding_loss",
  "soft_margin_loss", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss",
}

for _, name in ipairs(ops) do F[name] = accel[name] end

-- By its name, under which context parallelism puts its own.
function F.scaled_dot_product_attention(...) return accel.scaled_dot_product_attention(...) end

return require "accel.util.lazy" ("accel.nn.functional", {
  softmin = "activation", gumbel_softmax = "activation", rrelu = "activation",
  conv1d = "conv", conv2d = "conv", conv3d = "conv", bilinear = "conv",
  dropout = "dropout", dropout1d = "dropout", dropout2d = "dropout", dropout3d = "dropout", alpha_dropout = "dropout",
  feature_alpha_dropout = "dropout",
  max_pool1d_with_indices = "pool", max_pool2d_with_indices = "pool", max_pool3d_with_indices = "pool",
  adaptive_max_pool1d_with_indices = "pool", adaptive_max_pool2d_with_indices = "pool", adaptive_max_pool3d_with_indices = "pool",
  max_unpool1d = "pool", max_unpool2d = "pool", max_unpool3d = "pool",
  lp_pool1d = "pool", lp_pool2d = "pool", lp_pool3d = "pool", local_response_norm = "pool",
  fractional_max_pool2d = "pool", fractional_max_pool3d = "pool",
  fractional_max_pool2d_with_indices = "pool", fractional_max_pool3d_with_indices = "pool",
  affine_grid = "sampling", upsample_bilinear = "sampling", upsample_nearest = "sampling",
  embedding = "embedding", embedding_bag = "embedding",
  ctc_loss = "ctc", pairwise_distance = "distance", triplet_margin_with_distance_loss = "distance", alibi_slopes = "distance",
  pixel_shuffle = "vision", pixel_unshuffle = "vision", channel_shuffle = "vision", upsample = "vision",
}, F)
