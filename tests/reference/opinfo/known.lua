-- Differences from PyTorch that are meant, each with its reason: known(entry, what, why) returns the reason or nil.
-- A row: {reason, op = pattern or list, dtype = pattern, what = pattern, why = pattern}; every field given must fit. A row never covers
-- a value, gradient or dtype where no reason says why accel's is right.
local rows = {
  -- numbers in place of tensors
  { "a number may stand for either tensor", what = "error", why = "must be Tensor, not int" },
  { "a number may stand for either tensor", what = "error", why = "invalid combination of arguments %- got %(int, Tensor%)" },
  { "a number may stand for either tensor", op = "^__r", what = "error", why = "'int' object" },
  { "max and min with a dim are other functions in PyTorch", op = { "max.binary", "min.binary" }, what = "error", why = "Dimension out of range" },
  -- results
  { "all and any give bool: a 0 of u8 is true in Lua", op = { "all", "any" }, dtype = "u8", what = "result", why = "dtype bool" },
  { "equal elements have no order: another index of the same value", op = "^topk|^kthvalue|^mode", dtype = "16|^[iu]%d|bool",
    what = "result 2|gradient" },
  { "weights are not read before the call: that would wait for the device", op = { "cov" }, what = "error", why = "cannot be negative" },
  { "weights of f32 next to f64: PyTorch adds their gradients in f32 in another order", op = { "cov" }, dtype = "f64", what = "gradient [23]" },
  { "the poles of polygamma: PyTorch's value there is finite", op = "polygamma", dtype = "^[iu]%d", what = "result 1", why = "is inf instead" },
  { "PyTorch divides by six with a constant of f32", op = { "nn.functional.hardsigmoid" }, dtype = "f64", what = "gradient" },
  { "a gradient that cancels to zero", op = { "nn.functional.layer_norm" }, dtype = "f32", what = "gradient", why = "instead of 0 " },
  { "PyTorch's Stirling term of a target of 0, which is left out of the loss, makes the gradient of the target NaN",
    op = { "nn.functional.poisson_nll_loss" }, what = "gradient 2", why = "instead of %-?nan" },
  { "zero_ is called on a copy, which is i64 where the input is bool", op = { "zero_" }, dtype = "bool" },
  -- empty inputs
  { "an empty input gives an empty result", op = { "nn.functional.group_norm", "nn.functional.max_pool1d" }, what = "error",
    why = "[Ee]xpected" },
  { "a tensor of rank 0 takes dim 1 wherever one is due", op = { "roll" }, what = "error" },
  -- what accel refuses with a message where PyTorch computes
  { "refused: layers and pools of integers", op = "^nn%.functional%.", what = "raises", why = "works on floating point" },
  { "refused: losses of integers", op = "_loss$", what = "raises", why = "must be floating point" },
  { "refused: this mode of interpolate for u8", op = "interpolate", dtype = "u8", what = "raises", why = "takes floats" },
  { "refused: a loss of shapes that differ", op = { "nn.functional.gaussian_nll_loss" }, what = "raises", why = "differ in shape" },
  { "refused: factors that are not integers, which PyTorch cuts to 0", op = { "baddbmm" }, what = "raises", why = "need an integer factor" },
  { "refused: a mask with more dims than the input", op = { "masked_scatter" }, what = "raises", why = "does not broadcast" },
  { "refused: several heads in linear_cross_entropy", op = "linear_cross_entropy", what = "raises" },
  { "refused: a weight of rank 1 in linear", op = { "nn.functional.linear" }, what = "raises", why = "weight %(out, in%)" },
  { "refused: enable_gqa of rank 3, which PyTorch ignores", op = { "nn.functional.scaled_dot_product_attention" },
    what = "raises", why = "enable_gqa" },
  { "refused: batch_norm of an input without channels", op = { "nn.functional.batch_norm" }, what = "raises", why = "samples, channels" },
  { "refused: bounds below zero for u8", op = { "nn.functional.hardtanh" }, dtype = "u8", what = "raises", why = "u8 does not have" },
  { "refused: indices of u8", op = { "gather" }, what = "raises", why = "i64 or i32" },
  { "refused: gather and index_copy of a tensor and another one with one dim more", op = { "gather", "index_copy" }, what = "raises",
    why = "source of shape|shape %(%)" },
  { "refused: masks among the indices of index_put", op = { "index_put" }, what = "raises", why = "masks are taken" },
  { "refused: negative values of indices", op = { "take_along_dim" }, what = "raises", why = "count from 0" },
  { "accel's gradients of a triangular factor are zero outside of the triangle that is read", op = { "cholesky_solve", "cholesky_inverse" },
    what = "gradient" },
  { "PyTorch's second derivative of a norm at zero is NaN", op = { "linalg.norm.subgradients_at_zero" }, what = "second", why = "instead of %-?nan" },
  { "a result beyond f16 is infinite, PyTorch's NaN", op = { "matrix_exp" }, dtype = { "f16" }, why = "inf instead of %-?nan" },
  -- complex numbers
  { "refused: this op of complex tensors, in one sentence", dtype = "^c%d", what = "raises", why = "complex tensors have no " },
  { "the diagonal of a factor is real: the imaginary part of its cotangent has no effect", op = { "linalg.cholesky", "linalg.cholesky_ex" },
    dtype = "^c%d", what = "gradient", why = "element %d+ is %-?0 instead of" },
  { "the derivative of a gradient without that imaginary part", op = { "linalg.cholesky", "linalg.cholesky_ex" }, dtype = "c128",
    what = "second gradient" },
  -- modules and optimizers
  { "PyTorch returns the gradient by the logits of a log_softmax in front; accel's is the derivative by log_probs, as differences are",
    op = { "CTCLoss", "nn.functional.ctc_loss" }, what = "gradient 1" },
  { "PyTorch keeps eta and mu of ASGD in f32", op = { "ASGD" }, what = "step", why = "bar" },
  { "products of bf16 summed in another order", op = { "Muon" }, what = "step", why = "bar" },
}

local function fits(pattern, text)
  if pattern == nil then return true end
  if type(pattern) == "table" then
    for _, p in ipairs(pattern) do
      if p == text then return true end
    end
    return false
  end
  for one in pattern:gmatch "[^|]+" do
    if text:find(one) then return true end
  end
  return false
end

return function(entry, what, why)
  for _, row in ipairs(rows) do
    if fits(row.op, entry.full) and fits(row.dtype, entry.dtype) and fits(row.what, what) and fits(row.why, why) then return row[1] end
  end
end
