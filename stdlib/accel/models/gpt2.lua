--- GPT-2 in Hugging Face's names and layout (Conv1D weights are [in, out], the head is tied to the token
--- embedding), so that weights go both ways.
---
---   local model = models.GPT2 { vocab_size = 65, n_positions = 64, n_embd = 128, n_layer = 4, n_head = 4 }
---   local logits = model(ids)                       -- [B, T] ids -> [B, T, vocab]
---   local loss = model(ids, { labels = ids })       -- of each next token. No logits are kept
---   local model = models.GPT2.from_pretrained(dir)
local check = require "accel.util.check"
local accel = require "accel"
local Conv1D = require "accel.models.conv1d"
local PreTrainedModel = require "accel.models.pretrained_model"
local add_norm = require "accel.nn.add_norm"
local activation = require "accel.models.activation"
local causal_head = require "accel.models.causal_head"
local config = require "accel.models.config"
local context = require "accel.models.context"
local feed_forward = require "accel.models.feed_forward"
local heads = require "accel.models.decoder.heads"
local init = require "accel.nn.initialization"
local means = require "accel.autograd.means"
local nn = require "accel.nn"
local plans = require "accel.models.plans"
local raise = require "accel.util.raise"
local run_layer = require "accel.models.run_layer"

local schema = config.schema("gpt2", {
  vocab_size = config.size(50257), n_positions = config.size(1024), n_embd = config.size(768),
  n_layer = config.count(12), n_head = config.count(12), n_inner = config.size(),
  activation_function = config.activation "gelu_new", resid_pdrop = config.rate(0.1),
  embd_pdrop = config.rate(0.1), attn_pdrop = config.rate(0.1), layer_norm_epsilon = config.number(1e-5),
  initializer_range = config.number(0.02), tie_word_embeddings = config.flag(true),
  scale_attn_weights = config.flag(true), scale_attn_by_inverse_layer_idx = config.flag(false),
  add_cross_attention = config.fixed(false), bos_token_id = config.in_files(config.token(), 50256),
  eos_token_id = config.in_files(config.tokens(), 50256), reorder_and_upcast_attn = config.unused(), -- scores are summed in f32 as it is
  summary_type = config.unused(), summary_use_proj = config.unused(), summary_activation = config.unused(),
  summary_proj_to_labels = config.unused(), summary_first_dropout = config.unused(),
}, function(c) return config.not_multiple(c, "n_embd", "n_head") end, {
  hidden_size = "n_embd", max_position_embeddings = "n_positions", num_attention_heads = "n_head", num_hidden_layers = "n_layer",
})

---@class accel.models.GPT2Attention : accel.nn.Module
local Attention = nn.Module:extend("GPT2Attention")

function Attention:init(c, layer)
  self.n_head, self.head_dim, self.width = c.n_head, c.n_embd // c.n_head, c.n_embd
  self.attn_pdrop = c.attn_pdrop
  local scale = c.scale_attn_weights and 1 / math.sqrt(self.head_dim) or 1.0
  if c.scale_attn_by_inverse_layer_idx then scale = scale / layer end
  self.scale = scale
  self.c_attn = Conv1D(c.n_embd, 3 * c.n_embd)
  self.c_proj = Conv1D(c.n_embd, c.n_embd)
  self.resid_dropout = nn.Dropout(c.resid_pdrop)
end

function Attention:forward(x, ctx, layer)
  local qkv = self.c_attn(x):chunk(3, 3)
  local shape = qkv[1].shape -- of this rank's heads, of the whole sequence, if these are divided over ranks
  local B, T = shape[1], shape[2]
  local q = qkv[1]:view(B, T, -1, self.head_dim):transpose(2, 3)
  local k = qkv[2]:view(B, T, -1, self.head_dim):transpose(2, 3)
  local v = qkv[3]:view(B, T, -1, self.head_dim):transpose(2, 3)
  local y = context.attend(self, ctx.cache, layer, q, k, v, {
    is_causal = ctx.is_causal, attn_mask = ctx.mask, scale = self.scale,
    dropout_p = self.training and self.attn_pdrop or 0.0,
  })
  y = y:transpose(2, 3):reshape(B, T, -1)
  return self.resid_dropout(self.c_proj(y))
end

---@class accel.models.GPT2MLP : accel.nn.Module
local MLP = nn.Module:extend("GPT2MLP")

function MLP:init(c)
  local inner = c.n_inner or 4 * c.n_embd
  self.c_fc = Conv1D(c.n_embd, inner)
  self.c_proj = Conv1D(inner, c.n_embd)
  self.act = activation.find(c.activation_function)
  self.dropout = nn.Dropout(c.resid_pdrop)
end

function MLP:forward(x) return self.dropout(feed_forward(self.c_fc, self.act, self.c_proj, x)) end

---@class accel.models.GPT2Block : accel.nn.Module
local Block = nn.Module:extend("GPT2Block")

function Block:init(c, layer)
  self.ln_1 = nn.LayerNorm(c.n_embd, { eps = c.layer_norm_epsilon })
  self.attn = Attention(c, layer)
  self.ln_2 = nn.LayerNorm(c.n_embd, { eps = c.layer_norm_epsilon })
  self.mlp = MLP(c)
end

function Block:forward(x, ctx, layer)
  local y, sum = add_norm(self.ln_2, self.attn(self.ln_1(x), ctx, layer), x)
  return sum + self.mlp(y)
end

local PLAN <const> = plans.family {
  layers = {
    ["h.*.attn"] = "attention", ["h.*.attn.c_attn"] = { "colwise", pieces = 3 }, ["h.*.attn.c_proj"] = "rowwise",
    ["h.*.attn.resid_dropout"] = "sequence_parallel", ["h.*.mlp.c_fc"] = "colwise", ["h.*.mlp.c_proj"] = "rowwise",
    ["h.*.mlp.dropout"] = "sequence_parallel", ["h.*.ln_1"] = "sequence_parallel", ["h.*.ln_2"] = "sequence_parallel",
    wte = "embedding_rowwise", wpe = "sequence_parallel", drop = "sequence_parallel", ln_f = "sequence_parallel",
  },
  head = { lm_head = "colwise_rep" },
}

--- The common part of both classes.
local Base = PreTrainedModel:define("GPT2PreTrainedModel", {
  tp_divides = { "n_head" }, pipeline_plan = { "wte", "wpe", "h.*", "ln_f" },
  schema = schema, _no_split_modules = { "GPT2Block" }, base_model_prefix = "transformer",
  ignored_keys = { "%.attn%.bias$", "%.attn%.masked_bias$" }, -- causal masks that old files hold
})

--- Projections back into the residual stream start smaller, since 2 n_layer of them add up.
function Base:initialize(t, at)
  local c = self.config
  if at.name:find "c_proj%.weight$" then
    init.normal_(t, 0, c.initializer_range / math.sqrt(2 * c.n_layer))
  else
    PreTrainedModel.initialize(self, t, at)
  end
end

function Base:context_length() return self.config.n_positions end

function Base:cache_shape()
  local c = self.config
  return c.n_layer, c.n_head, c.n_embd // c.n_head
end

--- GPT-2 without a head: ids [B, T] -> hidden states [B, T, n_embd].
--- example: accel.models.GPT2Model(accel.models.tiny.gpt2)(accel.tensor { { 1, 2, 3 } }).shape --> { 1, 3, 8 }
---@class accel.models.GPT2Model : accel.models.PreTrainedModel
local GPT2Model = Base:define("GPT2Model", { is_base = true, gradient_checkpointing = false, tp_plan = PLAN.base })

function GPT2Model:build(c)
  self.wte = nn.Embedding(c.vocab_size, c.n_embd)
  self.wpe = nn.Embedding(c.n_positions, c.n_embd)
  self.drop = nn.Dropout(c.embd_pdrop)
  self.h = nn.ModuleList()
  for i = 1, c.n_layer do self.h:append(Block(c, i)) end
  self.ln_f = nn.LayerNorm(c.n_embd, { eps = c.layer_norm_epsilon })
end

---@param ids accel.Tensor [B, T]
---@param cache? accel.models.KVCache|accel.models.DecoderOptions
---@param opts? accel.models.DecoderOptions
---@return accel.Tensor
function GPT2Model:forward(ids, cache, opts, ...)
  check.surplus("forward", ...)
  local ctx = context.decoder("GPT2", ids, context.options("GPT2", cache, opts))
  local T, limit = ids.shape[2], self.config.n_positions
  if ctx.past + T > limit then raise("GPT2: %d tokens exceed the context of %d positions", ctx.past + T, limit) end
  local positions = ctx.position_ids or accel.arange(ctx.past, ctx.past + T, { device = ids.device })
  local x = self.drop(self.wte(ids) + self.wpe(positions))
  for i, block in ipairs(self.h) do x = run_layer(self, block, ctx.cache, x, ctx, i) end
  if ctx.cache then ctx.cache:advance(T) end
  return self.ln_f(x)
end

--- GPT-2 with its language-model head.
--- example: accel.models.GPT2(accel.models.tiny.gpt2)(accel.tensor { { 1, 2, 3 } }).shape --> { 1, 3, 9 }
---@class accel.models.GPT2 : accel.models.PreTrainedModel
local GPT2 = Base:define("GPT2LMHeadModel", {
  tp_plan = PLAN.with_head, pipeline_plan = { "wte", "wpe", "h.*", "ln_f", "lm_head" },
  tied_weights = { ["lm_head.weight"] = "transformer.wte.weight" },
})

function GPT2:build(c)
  self.transformer = GPT2Model:part(c)
  self.lm_head = nn.Linear(c.n_embd, c.vocab_size, { bias = false })
end

--- Logits [B, T, vocab] of ids [B, T]. With a cache the ids continue its text. attention_mask is 1 for tokens and 0 for
--- padding, [B, past + T]. position_ids [B, T] replaces past, past + 1, ... logits_to_keep = n: only those of the last
--- n positions, [B, n, vocab]. With labels [B, T], usually the ids themselves, it returns the loss instead of logits:
--- each position predicts the label of the next. -100 does not count.
---@param ids accel.Tensor
---@param cache? accel.models.KVCache|accel.models.DecoderOptions
---@param opts? accel.models.DecoderOptions
---@return accel.Tensor
function GPT2:forward(ids, cache, opts, ...)
  check.surplus("forward", ...)
  local own
  own, cache, opts = causal_head.options("GPT2", ids, cache, opts)
  return means.from(self, causal_head.run(self.lm_head, self.transformer(ids, cache, opts), own), cache, opts)
end

--- The counts of the means that the loss of forward is the sum of: its labels.
---@param ids accel.Tensor token ids
---@param cache? table as in forward
---@param opts? table options of forward
---@return accel.Tensor[]?
function GPT2:_loss_counts(ids, cache, opts) -- luacheck: no self
  return { causal_head.count((causal_head.options("GPT2", ids, cache, opts))) }
end

--- GPT-2 with scores for classes of a sequence, of the last token that is not padding.
--- example: accel.models.GPT2ForSequenceClassification(accel.models.tiny.gpt2)(accel.tensor { { 1, 2, 3 } }).shape --> { 1, 2 }
---@class accel.models.GPT2ForSequenceClassification : accel.models.PreTrainedModel
local Sequence = Base:define("GPT2ForSequenceClassification", { tp_plan = PLAN.with_prefix })
heads.sequence(Sequence, "transformer", GPT2Model, function(c) return c.n_embd end)

return { GPT2 = GPT2, GPT2LMHeadModel = GPT2, GPT2Model = GPT2Model, GPT2ForSequenceClassification = Sequence }
