--- Heads on top of a decoder's stack: next tokens, classes of sequences, classes of tokens, answers as spans. Each takes the base class of a
--- family. Used by decoder/family.lua, and by gpt2.lua and llama.lua.
local accel = require "accel"
local KVCache = require "accel.models.kv_cache"
local causal_head = require "accel.models.causal_head"
local check = require "accel.util.check"
local class = require "accel.util.class"
local config = require "accel.models.config"
local context = require "accel.models.context"
local means = require "accel.autograd.means"
local nn = require "accel.nn"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

-- A head whose logits are capped: cap * tanh(logits / cap). It computes logits even with labels.
local Capped = {}
Capped.__index = Capped
function Capped:__call(x) return (self.head(x) / self.cap):tanh() * self.cap end

--- The ranks whose tokens count together in losses of the router. Only in training.
local function ranks_of(model, d)
  if not model.training then return nil end
  for _, module in pairs(model:named_modules()) do
    if module.run_experts and module.n_experts == d.moe.n then return module.ranks end
  end
end

--- Adds forward and _loss_counts of a causal language model to a class. The base model lies under config's prefix, and has a description `d`.
---@param cls table
---@param prefix string
---@param Base table base class with :part
function M.causal(cls, prefix, Base)
  function cls:build(c)
    self[prefix] = Base:part(c)
    local d = self[prefix].d
    self[d.names.head] = nn.Linear(d.embed_width or d.width, d.vocab, { bias = d.head_bias or false })
  end

  --- Logits [B, T, vocab] of ids [B, T], or with labels [B, T] the mean loss of each next token. Mixtures of experts return, with
  --- output_router_logits (an option, or a key of the configuration), also the load-balancing loss. With labels it is part of the
  --- loss.
  ---@param ids accel.Tensor
  ---@param cache? accel.models.KVCache|accel.models.DecoderOptions
  ---@param opts? accel.models.DecoderOptions
  ---@return accel.Tensor, accel.Tensor?
  function cls:forward(ids, cache, opts, ...)
    check.surplus("forward", ...)
    local who, own = self.config.model_type, nil
    own, cache, opts = causal_head.options(who, ids, cache, opts)
    local base = self[prefix]
    local d = base.d
    local x, router_logits = base(ids, cache, opts)
    if d.logits.scale then x = x * d.logits.scale end
    local head = self[d.names.head]
    if d.logits.softcap then head = setmetatable({ head = head, cap = d.logits.softcap }, Capped) end
    local y = causal_head.run(head, x, own)
    if router_logits and d.moe.unbalanced then
      no_effect.once(who, "output_router_logits", "on a loss: Transformers has no load-balancing loss for this family; set it to false")
      router_logits = nil
    end
    if not router_logits then return means.from(self, y, cache, opts) end
    local c, mask, T = self.config, context.options(who, cache, opts, { output_router_logits = options.none }).attention_mask, ids.shape[2]
    if mask and mask.ndim == 2 and mask.shape[2] > T then mask = mask:narrow(2, mask.shape[2] - T + 1, T) end -- tokens seen earlier by a cache
    local ranks = ranks_of(self, d)
    local aux = require("accel.models.mixture").router_losses(router_logits, d.moe.k, mask, ranks)
    if own.labels then
      local of_labels, of_routers = means.of(y)[1], c.router_aux_loss_coef * aux
      local count = require("accel.models.mixture").tokens(ids, mask)
      y = means.mark(y + of_routers, { of_labels, { loss = of_routers, count = count, whole = ranks ~= nil } })
    end
    return means.from(self, y, cache, opts), aux
  end

  --- The counts of the means in forward's loss: labels, and tokens if the router's loss is in it.
  ---@param ids accel.Tensor token ids
  ---@param cache? table as in forward
  ---@param opts? table options of forward
  ---@return accel.Tensor[]?
  function cls:_loss_counts(ids, cache, opts)
    local own
    own, cache, opts = causal_head.options(self.config.model_type, ids, cache, opts)
    if not own.labels then return nil end
    local o = context.options(self.config.model_type, cache, opts, { output_router_logits = options.none })
    local balances = o.output_router_logits
    if balances == nil then balances = config.get(self.config, "output_router_logits") end
    if balances and self[prefix].d.moe.unbalanced then balances = false end
    return { causal_head.count(own), balances and require("accel.models.mixture").tokens(ids, o.attention_mask) or nil }
  end
end

--- The given keys of options, and the others.
---@param opts? table
---@param ... string
---@return table found
---@return table? rest
local function taken(opts, ...)
  local found, rest = {}, {}
  for key, value in next, opts or found do rest[key] = value end
  for _, key in ipairs { ... } do found[key], rest[key] = rest[key], nil end
  return found, next(rest) and rest or nil
end

M.taken = taken

--- The options of forward(ids, cache, opts) or forward(ids, opts) in one table.
---@param cache? accel.models.KVCache|table
---@param opts? table
---@return table?
function M.with_cache(cache, opts, ...)
  check.surplus("forward", ...)
  if not class.isinstance(cache, KVCache) then
    if opts ~= nil then raise("forward: expected a cache, got %s", type(cache)) end
    return cache
  end
  local out = { cache = cache }
  for key, value in next, opts or out do out[key] = value end
  return out
end

--- The loss of labels for one score per class, as Transformers chooses it: problem_type, else mean squared error for one class,
--- cross entropy for classes by number, binary cross entropy for a number per class.
---@param c table
---@param logits accel.Tensor [B, classes]
---@param labels accel.Tensor
---@return accel.Tensor
function M.classification_loss(c, logits, labels)
  local n, kind = logits.shape[#logits.shape], config.get(c, "problem_type")
  if kind == nil then
    kind = n == 1 and "regression" or tensors.is_floating(labels.dtype) and "multi_label_classification" or "single_label_classification"
  end
  if kind == "regression" then
    return accel.mse_loss(n == 1 and logits:reshape(-1) or logits, (n == 1 and labels:reshape(-1) or labels):to(logits.dtype))
  elseif kind == "single_label_classification" then
    return means.over(accel.cross_entropy(logits:reshape(-1, n), labels:reshape(-1)), labels)
  elseif kind == "multi_label_classification" then
    return accel.binary_cross_entropy_with_logits(logits, labels:to(logits.dtype))
  end
  raise("problem_type must be regression, single_label_classification or multi_label_classification, got %s", tostring(kind))
end

--- The last place of each row whose id is not the padding id, 1-based [B].
local function last_token(ids, pad)
  local T = ids.shape[2]
  if not pad then return accel.full({ ids.shape[1] }, T - 1, { dtype = "i64", device = ids.device }) end
  local at = accel.arange(T, { device = ids.device }):unsqueeze(1)
  return (at * ids:ne(pad):to "i64"):max(2)
end

--- Classes of a sequence by the last token: scores [B, num_labels], or with labels the loss.
---@param cls table
---@param prefix string
---@param Base table
---@param width fun(c: table): integer
function M.sequence(cls, prefix, Base, width)
  function cls:build(c)
    self[prefix] = Base:part(c)
    self.score = nn.Linear(width(c), config.labels(c), { bias = false })
  end

  --- Scores [B, num_labels] of the last token that is not padding (pad_token_id), or with labels their loss.
  ---@param ids accel.Tensor [B, T]
  ---@param opts? table labels, and options of the base model
  ---@return accel.Tensor
  function cls:forward(ids, opts, ...)
    check.surplus("forward", ...)
    local own, rest = taken(opts, "labels")
    local x = self[prefix](ids, rest)
    local pad = self.config.pad_token_id
    if not pad and ids.shape[1] > 1 then raise("%s: rows of a batch end at the last id that is not pad_token_id: set it", self.config.model_type) end
    local at = last_token(ids, pad)
    local rows = x:gather(2, at:reshape(-1, 1, 1):expand(x.shape[1], 1, x.shape[3])):squeeze(2)
    local logits = self.score(rows)
    if not own.labels then return logits end
    return M.classification_loss(self.config, logits, own.labels)
  end
end

--- Classes of tokens: scores [B, T, num_labels], or with labels [B, T] the mean cross entropy over labels other than
--- -100.
---@param head? string field of the last layer [score]. Older families have "classifier"
function M.token(cls, prefix, Base, width, head)
  head = head or "score"
  function cls:build(c)
    self[prefix] = Base:part(c)
    self.dropout = nn.Dropout(config.get(c, "classifier_dropout") or config.get(c, "hidden_dropout") or 0.1)
    self[head] = nn.Linear(width(c), config.labels(c))
  end

  --- Scores [B, T, num_labels], or with labels their loss.
  ---@param ids accel.Tensor [B, T]
  ---@param opts? table labels, and options of the base model
  ---@return accel.Tensor
  function cls:forward(ids, opts, ...)
    check.surplus("forward", ...)
    local own, rest = taken(opts, "labels")
    local x = self[prefix](ids, rest)
    local logits = self[head](self.dropout(x))
    if not own.labels then return logits end
    return means.from(self, means.over(accel.cross_entropy(logits:reshape(-1, logits.shape[3]), own.labels:reshape(-1)), own.labels), rest)
  end
end

--- Places of first or last tokens. T: outside of the text, which does not count.
local function places(at, T) return at:reshape(-1):clamp(0, T) end

--- The loss of spans: the mean of the cross entropies of first and last tokens. Places outside of the text do not count.
---@param first accel.Tensor [B, T] scores
---@param last accel.Tensor
---@param starts accel.Tensor [B]
---@param ends accel.Tensor
---@return accel.Tensor
function M.span_loss(first, last, starts, ends)
  local T, terms = first.shape[2], {}
  for i, of in ipairs { { first, starts }, { last, ends } } do
    local at = places(of[2], T)
    local count = means.labels(at, T)
    terms[i] = { loss = accel.cross_entropy(of[1], at, { ignore_index = T }):masked_fill(count:eq(0), 0) / 2, count = count }
  end
  return means.mark(terms[1].loss + terms[2].loss, terms)
end

--- The counts of the two means in a loss of spans. nil if a call has none.
---@param ids accel.Tensor [B, T]
---@param opts? table options of the call
---@return accel.Tensor[]?
function M.span_counts(ids, opts)
  local T = ids.shape[2]
  if type(opts) ~= "table" or not opts.start_positions or not opts.end_positions then return nil end
  return { means.labels(places(opts.start_positions, T), T), means.labels(places(opts.end_positions, T), T) }
end

--- Answers as spans of the text: scores of first and last tokens, [B, T] each, or with start_positions and end_positions [B] the loss.
---@param cls table
---@param prefix string
---@param Base table
---@param width fun(c: table): integer
---@param dropout? fun(c: table): number of the hidden states
function M.question(cls, prefix, Base, width, dropout)
  function cls:build(c)
    self[prefix] = Base:part(c, false)
    if dropout then self.dropout = nn.Dropout(dropout(c)) end
    self.qa_outputs = nn.Linear(width(c), 2)
  end

  --- Scores of first and of last tokens [B, T], or with start_positions and end_positions [B] (from 0) the loss.
  ---@param ids accel.Tensor [B, T]
  ---@param opts? table start_positions, end_positions, and options of the base model
  ---@return accel.Tensor, accel.Tensor?
  function cls:forward(ids, opts, ...)
    check.surplus("forward", ...)
    local own, rest = taken(opts, "start_positions", "end_positions")
    local x = self[prefix](ids, rest)
    if dropout then x = self.dropout(x) end
    local scores = self.qa_outputs(x)
    local first, last = scores:select(3, 1), scores:select(3, 2)
    if not own.start_positions then return first, last end
    return means.from(self, M.span_loss(first, last, own.start_positions, own.end_positions), rest)
  end

  --- The counts of the means in forward's loss.
  ---@param ids accel.Tensor
  ---@param opts? table options of forward
  ---@return accel.Tensor[]?
  function cls:_loss_counts(ids, opts) return M.span_counts(ids, opts) end -- luacheck: no self
end

return M
