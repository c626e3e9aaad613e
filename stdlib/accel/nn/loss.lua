--- Loss modules: the ops of host/ops/loss with their options kept. margin_loss.lua has those of margins between classes.
local accel = require "accel"
local loss = require "accel.nn.loss_class"
local options = require "accel.util.options"

local M = {}

--- Cross entropy of logits (C) | (N, C) | (N, C, d1, ...) and classes (0-based values) or class probabilities. See accel.cross_entropy.
--- Options: weight (C), ignore_index, reduction, label_smoothing.
--- example: accel.nn.CrossEntropyLoss()(accel.zeros(2, 4), accel.tensor { 0, 3 }) --> 1.386294
---@class accel.nn.CrossEntropyLoss : accel.nn.Module
M.CrossEntropyLoss = loss("CrossEntropyLoss", { weight = options.none, ignore_index = -100, label_smoothing = 0.0 })
function M.CrossEntropyLoss:forward(input, target) return accel.cross_entropy(input, target, self:arguments()) end

--- Connectionist temporal classification. See accel.nn.functional.ctc_loss. Options: blank, reduction, zero_infinity.
--- example: accel.nn.CTCLoss()(accel.log_softmax(accel.zeros(4, 1, 3), 3), accel.tensor { { 1, 2 } }, { 4 }, { 2 }) --> 0.843200
---@class accel.nn.CTCLoss : accel.nn.Module
M.CTCLoss = loss("CTCLoss", { blank = 0, zero_infinity = false })
---@param log_probs accel.Tensor [T, N, C] or [T, C]
---@param targets accel.Tensor
---@param input_lengths accel.Tensor|integer[]
---@param target_lengths accel.Tensor|integer[]
---@return accel.Tensor
function M.CTCLoss:forward(log_probs, targets, input_lengths, target_lengths)
  return require("accel.nn.functional").ctc_loss(log_probs, targets, input_lengths, target_lengths, self:arguments())
end

--- Loss of log-probabilities. See accel.nll_loss. Options: weight (C), ignore_index, reduction.
--- example: accel.nn.NLLLoss()(accel.tensor { { -1.0, -2.0 } }, accel.tensor { 1 }) --> 2
---@class accel.nn.NLLLoss : accel.nn.Module
M.NLLLoss = loss("NLLLoss", { weight = options.none, ignore_index = -100 })
function M.NLLLoss:forward(input, target) return accel.nll_loss(input, target, self:arguments()) end

--- Squared difference. See accel.mse_loss. Options: reduction.
--- example: accel.nn.MSELoss()(accel.tensor { 1.0, 2.0 }, accel.tensor { 1.0, 4.0 }) --> 2
---@class accel.nn.MSELoss : accel.nn.Module
M.MSELoss = loss("MSELoss", {})
function M.MSELoss:forward(input, target) return accel.mse_loss(input, target, self:arguments()) end

--- Absolute difference. See accel.l1_loss. Options: reduction.
--- example: accel.nn.L1Loss()(accel.tensor { 1.0, 2.0 }, accel.tensor { 1.0, 4.0 }) --> 1
---@class accel.nn.L1Loss : accel.nn.Module
M.L1Loss = loss("L1Loss", {})
function M.L1Loss:forward(input, target) return accel.l1_loss(input, target, self:arguments()) end

--- Squared below beta, absolute beyond. See accel.smooth_l1_loss. Options: beta, reduction.
--- example: accel.nn.SmoothL1Loss()(accel.tensor { 1.0, 2.0 }, accel.tensor { 1.5, 4.0 }) --> 0.8125
---@class accel.nn.SmoothL1Loss : accel.nn.Module
M.SmoothL1Loss = loss("SmoothL1Loss", { beta = 1.0 })
function M.SmoothL1Loss:forward(input, target) return accel.smooth_l1_loss(input, target, self:arguments()) end

--- Squared up to delta, linear beyond. See accel.huber_loss. Options: delta, reduction.
--- example: accel.nn.HuberLoss { delta = 0.5 } (accel.tensor { 1.0, 2.0 }, accel.tensor { 1.5, 4.0 }) --> 0.5
---@class accel.nn.HuberLoss : accel.nn.Module
M.HuberLoss = loss("HuberLoss", { delta = 1.0 })
function M.HuberLoss:forward(input, target) return accel.huber_loss(input, target, self:arguments()) end

--- Loss of probabilities. See accel.binary_cross_entropy. Options: weight, reduction.
--- example: accel.nn.BCELoss()(accel.tensor { 0.5, 0.9 }, accel.tensor { 1.0, 1.0 }) --> 0.399254
---@class accel.nn.BCELoss : accel.nn.Module
M.BCELoss = loss("BCELoss", { weight = options.none })
function M.BCELoss:forward(input, target) return accel.binary_cross_entropy(input, target, self:arguments()) end

--- Loss of logits. See accel.binary_cross_entropy_with_logits. Options: weight, pos_weight, reduction.
--- example: accel.nn.BCEWithLogitsLoss()(accel.tensor { 0.0, 2.0 }, accel.tensor { 1.0, 1.0 }) --> 0.410038
---@class accel.nn.BCEWithLogitsLoss : accel.nn.Module
M.BCEWithLogitsLoss = loss("BCEWithLogitsLoss", { weight = options.none, pos_weight = options.none })
function M.BCEWithLogitsLoss:forward(input, target)
  return accel.binary_cross_entropy_with_logits(input, target, self:arguments())
end

--- Kullback-Leibler divergence from log-probabilities. See accel.kl_div. Options: reduction (also "batchmean"),
--- log_target.
--- example: accel.nn.KLDivLoss { reduction = "sum" } (accel.tensor({ 0.5, 0.5 }):log(), accel.tensor { 0.25, 0.75 }) --> 0.130812
---@class accel.nn.KLDivLoss : accel.nn.Module
M.KLDivLoss = loss("KLDivLoss", { log_target = false }, { "mean", "sum", "none", "batchmean" })
function M.KLDivLoss:forward(input, target) return accel.kl_div(input, target, self:arguments()) end

--- Angle between vectors. See accel.cosine_embedding_loss. Options: margin, reduction.
--- example: accel.nn.CosineEmbeddingLoss()(accel.ones(1, 2), accel.ones(1, 2), accel.ones(1)) --> 0
---@class accel.nn.CosineEmbeddingLoss : accel.nn.Module
M.CosineEmbeddingLoss = loss("CosineEmbeddingLoss", { margin = 0.0 })
function M.CosineEmbeddingLoss:forward(x1, x2, target) return accel.cosine_embedding_loss(x1, x2, target, self:arguments()) end

--- Loss of the ranking of two values. See accel.margin_ranking_loss. Options: margin, reduction.
--- example: accel.nn.MarginRankingLoss()(accel.tensor { 1.0, 0.0 }, accel.tensor { 0.5, 2.0 }, accel.ones(2)) --> 1
---@class accel.nn.MarginRankingLoss : accel.nn.Module
M.MarginRankingLoss = loss("MarginRankingLoss", { margin = 0.0 })
function M.MarginRankingLoss:forward(x1, x2, target) return accel.margin_ranking_loss(x1, x2, target, self:arguments()) end

--- Distance to a positive compared with that to a negative. See accel.triplet_margin_loss. Options: margin, p, eps, swap,
--- reduction.
--- example: accel.nn.TripletMarginLoss()(accel.zeros(1, 2), accel.zeros(1, 2), accel.full({ 1, 2 }, 3.0)) --> 0
---@class accel.nn.TripletMarginLoss : accel.nn.Module
M.TripletMarginLoss = loss("TripletMarginLoss", { margin = 1.0, p = 2.0, eps = 1e-6, swap = false })
function M.TripletMarginLoss:forward(anchor, positive, negative)
  return accel.triplet_margin_loss(anchor, positive, negative, self:arguments())
end

--- Loss of counts. See accel.poisson_nll_loss. Options: log_input, full, eps, reduction.
--- example: accel.nn.PoissonNLLLoss()(accel.tensor { 0.0, 1.0 }, accel.tensor { 1.0, 2.0 }) --> 0.859141
---@class accel.nn.PoissonNLLLoss : accel.nn.Module
M.PoissonNLLLoss = loss("PoissonNLLLoss", { log_input = true, full = false, eps = 1e-8 })
function M.PoissonNLLLoss:forward(input, target) return accel.poisson_nll_loss(input, target, self:arguments()) end

--- Loss of normal values with known variance. See accel.gaussian_nll_loss. Options: full, eps, reduction.
--- example: accel.nn.GaussianNLLLoss()(accel.tensor { 1.0 }, accel.tensor { 3.0 }, accel.tensor { 2.0 }) --> 1.346574
---@class accel.nn.GaussianNLLLoss : accel.nn.Module
M.GaussianNLLLoss = loss("GaussianNLLLoss", { full = false, eps = 1e-6 })
function M.GaussianNLLLoss:forward(input, target, var) return accel.gaussian_nll_loss(input, target, var, self:arguments()) end

--- Loss of distances. See accel.hinge_embedding_loss. Options: margin, reduction.
--- example: accel.nn.HingeEmbeddingLoss()(accel.tensor { 0.5, 0.25 }, accel.tensor { 1.0, -1.0 }) --> 0.625
---@class accel.nn.HingeEmbeddingLoss : accel.nn.Module
M.HingeEmbeddingLoss = loss("HingeEmbeddingLoss", { margin = 1.0 })
function M.HingeEmbeddingLoss:forward(input, target) return accel.hinge_embedding_loss(input, target, self:arguments()) end

return M
