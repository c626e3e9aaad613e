--- Heads on top of an encoder: masked words, next words, classes of texts and of tokens, choices. Each adds build and forward to a class.
--- With labels, forward returns the loss. Used by encoder/family.lua, by bert.lua and by families with a different encoder.
local accel = require "accel"
local activation = require "accel.models.activation"
local causal_head = require "accel.models.causal_head"
local check = require "accel.util.check"
local config = require "accel.models.config"
local decoder_heads = require "accel.models.decoder.heads"
local means = require "accel.autograd.means"
local nn = require "accel.nn"
local Parameter = require "accel.nn.parameter"
local paths = require "accel.models.decoder.paths"
local tensors = require "accel.util.tensors"

local M = {}

local taken = decoder_heads.taken

---@class accel.models.EncoderHead
---@field prefix string field of the base model
---@field Base table base class
---@field width fun(c: table): integer
---@field vocab fun(c: table): integer

--- A linear layer tied to the word embeddings, with a separate bias parameter.
local function tied_logits(self, h, x, own)
  local decoder = paths.get(self, h.decoder)
  return causal_head.run(decoder, x, own)
end

--- Predicts masked words. h: dense, norm and decoder (paths), bias (path of the decoder's bias parameter, if the files have one), act and
--- eps of a configuration, inner (width between dense and decoder), causal (labels are next words).
---@param cls table
---@param e accel.models.EncoderHead
---@param h table
function M.words(cls, e, h)
  function cls:build(c)
    self[e.prefix] = e.Base:part(c, false)
    local inner = h.inner and h.inner(c) or e.width(c)
    paths.put(self, h.dense, nn.Linear(e.width(c), inner, { bias = not h.no_dense_bias or not h.no_dense_bias(c) }))
    paths.put(self, h.norm, nn.LayerNorm(inner, { eps = h.eps(c), bias = not h.no_norm_bias or not h.no_norm_bias(c) }))
    paths.put(self, h.decoder, nn.Linear(inner, e.vocab(c), { bias = not h.no_bias or not h.no_bias(c) }))
    if h.bias then
      local at, key = h.bias:match "^(.*)%.([^.]+)$"
      paths.get(self, at)[key] = Parameter(accel.zeros(e.vocab(c)))
      paths.get(self, h.decoder).bias = paths.get(self, at)[key]
    end
    self.head_act = activation.find(h.act(c))
  end

  --- Logits [B, T, vocab] of ids [B, T], or with labels [B, T] the mean cross entropy of those that are not -100.
  ---@param ids accel.Tensor
  ---@param opts? table labels, and options of the base model
  ---@return accel.Tensor
  function cls:forward(ids, opts, ...)
    if h.causal then opts = decoder_heads.with_cache(opts, ...) else check.surplus("forward", ...) end
    local own, rest = taken(opts, "labels", "logits_to_keep")
    local x = self[e.prefix](ids, rest)
    x = paths.get(self, h.norm)(self.head_act(paths.get(self, h.dense)(x)))
    local y = tied_logits(self, h, x, { labels = own.labels, shifted = not h.causal, logits_to_keep = own.logits_to_keep })
    return means.from(self, y, rest)
  end

  --- The counts of the means that the loss of forward is the sum of: its labels.
  ---@param opts? table options of forward
  ---@return accel.Tensor[]?
  function cls:_loss_counts(_, opts) -- luacheck: no self
    return { causal_head.count { labels = type(opts) == "table" and opts.labels or nil, shifted = not h.causal } }
  end
end

--- Classes of a text by its first token. h: dense (path, or nil), act or act_of a configuration, classifier (path), pooled (the base model's
--- pooler is asked), dropout, drop_first or dense_dropout in front of dense.
---@param cls table
---@param e accel.models.EncoderHead
---@param h table
function M.sequence(cls, e, h)
  function cls:build(c)
    self[e.prefix] = e.Base:part(c, h.pooled or false)
    if h.dense then paths.put(self, h.dense, nn.Linear(e.width(c), e.width(c))) end
    self.dropout = nn.Dropout(h.dropout(c))
    if h.dense_dropout then self.dense_dropout = nn.Dropout(h.dense_dropout(c)) end
    paths.put(self, h.classifier, nn.Linear(e.width(c), config.labels(c)))
  end

  --- Scores [B, num_labels], or with labels their loss (problem_type of the configuration chooses which).
  ---@param ids accel.Tensor [B, T]
  ---@param opts? table labels, and options of the base model
  ---@return accel.Tensor
  function cls:forward(ids, opts, ...)
    check.surplus("forward", ...)
    local own, rest = taken(opts, "labels")
    local x, pooled = self[e.prefix](ids, rest)
    x = h.pooled and pooled or x:select(2, 1)
    if h.dense then
      if h.drop_first then x = self.dropout(x) elseif self.dense_dropout then x = self.dense_dropout(x) end
      x = activation.find(h.act or h.act_of(self.config))(paths.get(self, h.dense)(x))
    end
    local logits = paths.get(self, h.classifier)(self.dropout(x))
    return own.labels and decoder_heads.classification_loss(self.config, logits, own.labels) or logits
  end
end

--- Classes of tokens: scores [B, T, num_labels].
---@param cls table
---@param e accel.models.EncoderHead
---@param h table dropout
function M.token(cls, e, h)
  function cls:build(c)
    self[e.prefix] = e.Base:part(c, false)
    self.dropout = nn.Dropout(h.dropout(c))
    self.classifier = nn.Linear(e.width(c), config.labels(c))
  end

  --- Scores [B, T, num_labels], or with labels [B, T] the mean cross entropy of those that are not -100.
  ---@param ids accel.Tensor [B, T]
  ---@param opts? table labels, and options of the base model
  ---@return accel.Tensor
  function cls:forward(ids, opts, ...)
    check.surplus("forward", ...)
    local own, rest = taken(opts, "labels")
    local x = self[e.prefix](ids, rest)
    local logits = self.classifier(self.dropout(x))
    if not own.labels then return logits end
    return means.from(self, means.over(accel.cross_entropy(logits:reshape(-1, logits.shape[3]), own.labels:reshape(-1)), own.labels), rest)
  end
end

--- One of several texts: ids [B, choices, T] -> scores [B, choices].
---@param cls table
---@param e accel.models.EncoderHead
---@param h table dropout, classifier
function M.choice(cls, e, h)
  function cls:build(c)
    self[e.prefix] = e.Base:part(c)
    self.dropout = nn.Dropout(h.dropout(c))
    self.classifier = nn.Linear(e.width(c), 1)
  end

  --- Scores [B, choices], or with labels [B] the mean cross entropy.
  ---@param ids accel.Tensor [B, choices, T]
  ---@param opts? table labels, and options of the base model, each [B, choices, T]
  ---@return accel.Tensor
  function cls:forward(ids, opts, ...)
    check.surplus("forward", ...)
    local own, rest = taken(opts, "labels")
    local B, n, T = ids.shape[1], ids.shape[2], ids.shape[3]
    local flat = {}
    for key, t in next, rest or flat do -- what is no tensor is the base model's to refuse
      flat[key] = tensors.is_tensor(t) and t:reshape(B * n, T) or t
    end
    local _, pooled = self[e.prefix](ids:reshape(B * n, T), next(flat) and flat or nil)
    local logits = self.classifier(self.dropout(pooled)):reshape(B, n)
    return own.labels and means.from(self, means.over(accel.cross_entropy(logits, own.labels), own.labels), rest) or logits
  end
end

--- Whether each token was replaced (ELECTRA): scores [B, T].
---@param cls table
---@param e accel.models.EncoderHead
---@param h table act
function M.replaced(cls, e, h)
  function cls:build(c)
    self[e.prefix] = e.Base:part(c, false)
    paths.put(self, "discriminator_predictions.dense", nn.Linear(e.width(c), e.width(c)))
    paths.put(self, "discriminator_predictions.dense_prediction", nn.Linear(e.width(c), 1))
    self.head_act = activation.find(h.act(c))
  end

  --- Scores [B, T], above zero for replaced tokens. With labels [B, T] (1: replaced) the mean binary cross entropy over the mask.
  ---@param ids accel.Tensor [B, T]
  ---@param opts? table labels, and options of the base model
  ---@return accel.Tensor
  function cls:forward(ids, opts, ...)
    check.surplus("forward", ...)
    local own, rest = taken(opts, "labels")
    local x, head = self[e.prefix](ids, rest), self.discriminator_predictions
    local scores = head.dense_prediction(self.head_act(head.dense(x))):squeeze(3)
    if not own.labels then return scores end
    local mask = rest and rest.attention_mask
    local each = accel.binary_cross_entropy_with_logits(scores, own.labels:to(scores.dtype), { reduction = "none" })
    if not mask then return each:mean() end
    mask = mask:ne(0):to(scores.dtype)
    local count = mask:sum()
    local loss = (each * mask):sum() / count:clamp(1)
    return means.from(self, means.mark(loss, { { loss = loss, count = count } }), rest)
  end

  --- The count of the mean in forward's loss: tokens of the mask.
  ---@param ids accel.Tensor
  ---@param opts? table options of forward
  ---@return accel.Tensor[]?
  function cls:_loss_counts(ids, opts) -- luacheck: no self
    if type(opts) ~= "table" or not opts.labels then return nil end
    return { opts.attention_mask and opts.attention_mask:ne(0):sum() or accel.tensor(ids:numel(), { device = ids.device }) }
  end
end

--- Answers as spans: scores of first and last tokens, [B, T] each.
---@param cls table
---@param e accel.models.EncoderHead
---@param h table dropout, if the family has one in front of the scores
function M.question(cls, e, h)
  decoder_heads.question(cls, e.prefix, e.Base, e.width, h.dropout)
end

return M
