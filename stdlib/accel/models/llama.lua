--- Llama in Hugging Face's names: RMSNorm, rotary positions (half rotation, any scaling of
--- models/rotary.lua), grouped-query attention, SwiGLU.
---
---   local model = models.Llama { vocab_size = 65, hidden_size = 64, intermediate_size = 128,
---                                num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2 }
---   local logits = model(ids)                       -- [B, T] ids -> [B, T, vocab]
local check = require "accel.util.check"
local PreTrainedModel = require "accel.models.pretrained_model"
local Rotary = require "accel.models.rotary"
local RotaryAttention = require "accel.models.rotary_attention"
local add_norm = require "accel.nn.add_norm"
local activation = require "accel.models.activation"
local causal_head = require "accel.models.causal_head"
local config = require "accel.models.config"
local context = require "accel.models.context"
local heads = require "accel.models.decoder.heads"
local means = require "accel.autograd.means"
local nn = require "accel.nn"
local plans = require "accel.models.plans"
local run_layer = require "accel.models.run_layer"

local THETA = 10000.0

--- Completes the values common to models with rotary attention. Returns the error.
---@param c table
---@param theta number the default if the file has none
---@return string?, string?
local function complete(c, theta)
  c.num_key_value_heads = c.num_key_value_heads or c.num_attention_heads
  if c.pad_token_id and c.pad_token_id >= c.vocab_size then
    return ("pad_token_id %d is outside of the vocabulary of %d"):format(c.pad_token_id, c.vocab_size)
  end
  local problem = config.not_multiple(c, "num_attention_heads", "num_key_value_heads")
  if not c.head_dim then
    problem = problem or config.not_multiple(c, "hidden_size", "num_attention_heads")
    c.head_dim = c.hidden_size // c.num_attention_heads
  end
  if problem then return problem end
  if c.head_dim % 2 ~= 0 then return ("head_dim %d is odd: rotary positions turn pairs"):format(c.head_dim) end
  local kind, theta_or_why, code = Rotary.parameters(c, theta)
  if not kind then return theta_or_why, code end
  c.rope_theta = theta_or_why
end

local schema = config.schema("llama", {
  vocab_size = config.size(32000), hidden_size = config.size(4096), intermediate_size = config.size(11008),
  num_hidden_layers = config.count(32), num_attention_heads = config.count(32), num_key_value_heads = config.count(),
  head_dim = config.size(), hidden_act = config.activation "silu", max_position_embeddings = config.size(2048),
  initializer_range = config.number(0.02), rms_norm_eps = config.number(1e-6),
  tie_word_embeddings = config.flag(false), attention_bias = config.flag(false), mlp_bias = config.flag(false),
  attention_dropout = config.nullable(config.rate(0.0)), rope_theta = config.number(nil, 1), rope_parameters = config.table(),
  rope_scaling = config.table(), original_max_position_embeddings = config.size(), partial_rotary_factor = config.number(nil),
  pretraining_tp = config.unused(), -- the same products, in parts
  bos_token_id = config.in_files(config.token(), 1), eos_token_id = config.in_files(config.tokens(), 2),
}, function(c) return complete(c, THETA) end)

--- x [..., hidden] -> down(act(gate(x)) * up(x)).
---@class accel.models.LlamaMLP : accel.nn.Module
local MLP = nn.Module:extend("LlamaMLP")

function MLP:init(c)
  local opts = { bias = c.mlp_bias }
  self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, opts)
  self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, opts)
  self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, opts)
  self.gate = activation.gate(c.hidden_act)
end

function MLP:forward(x) return self.down_proj(self.gate(self.gate_proj(x), self.up_proj(x))) end

---@class accel.models.LlamaDecoderLayer : accel.nn.Module
local Layer = nn.Module:extend("LlamaDecoderLayer")

function Layer:init(c)
  self.self_attn = RotaryAttention(c)
  self.mlp = MLP(c)
  self.input_layernorm = nn.RMSNorm(c.hidden_size, { eps = c.rms_norm_eps })
  self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, { eps = c.rms_norm_eps })
end

function Layer:forward(x, ctx, layer)
  local y, sum = add_norm(self.post_attention_layernorm, self.self_attn(self.input_layernorm(x), ctx, layer), x)
  return sum + self.mlp(y)
end

local PLAN <const> = plans.family {
  layers = plans.merge(plans.rotary_decoder, {
    ["layers.*.mlp.gate_proj"] = "colwise", ["layers.*.mlp.up_proj"] = "colwise", ["layers.*.mlp.down_proj"] = "rowwise",
  }),
  head = { lm_head = "colwise_rep" },
}

--- The common part of the Llama classes and Mixtral's: the stack of decoder layers.
local Base = PreTrainedModel:define("LlamaPreTrainedModel", {
  tp_divides = { "num_attention_heads", "num_key_value_heads" }, pipeline_plan = { "embed_tokens", "layers.*", "norm" },
  schema = schema, _no_split_modules = { "LlamaDecoderLayer" }, base_model_prefix = "model", theta = THETA,
  ignored_keys = { "%.rotary_emb%.inv_freq$" },
})

function Base:cache_shape()
  local c = self.config
  return c.num_hidden_layers, c.num_key_value_heads, c.head_dim
end

--- Tokens that a text may have. Dynamic scaling is for texts longer than those of training.
function Base:context_length()
  local c = self.config
  local kind, _, p = Rotary.parameters(c, self.theta)
  return kind == "dynamic" and math.floor(c.max_position_embeddings * p.factor) or c.max_position_embeddings
end

--- Makes embedding, layers of the given class and last norm.
function Base:build_stack(c, layer_class)
  self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size, { padding_idx = c.pad_token_id })
  self.layers = nn.ModuleList()
  for _ = 1, c.num_hidden_layers do self.layers:append(layer_class(c)) end
  self.norm = nn.RMSNorm(c.hidden_size, { eps = c.rms_norm_eps })
  self.rotary = Rotary(c, self.theta)
end

--- Hidden states of ids through the stack, and the context that the layers saw.
---@param ids accel.Tensor
---@param o table as context.options returns it
---@param router_logits? table a list that layers with a router fill
function Base:run_stack(ids, o, router_logits)
  local c = self.config
  local ctx = context.decoder(c.model_type, ids, o, config.get(c, "sliding_window"))
  local T = ids.shape[2]
  ctx.router_logits = router_logits
  ctx.turn = self.rotary:turn(ctx.past, T, ctx.position_ids, ids.device)
  ctx.scale = self.rotary.score_scale ~= 1 and self.rotary.score_scale / math.sqrt(c.head_dim) or nil
  local x = self.embed_tokens(ids)
  for i, layer in ipairs(self.layers) do x = run_layer(self, layer, ctx.cache, x, ctx, i) end
  if ctx.cache then ctx.cache:advance(T) end
  return self.norm(x), ctx
end

--- Llama without a head: ids [B, T] -> hidden states [B, T, hidden_size].
--- example: accel.models.LlamaModel(accel.models.tiny.llama)(accel.tensor { { 1, 2, 3 } }).shape --> { 1, 3, 8 }
---@class accel.models.LlamaModel : accel.models.PreTrainedModel
local LlamaModel = Base:define("LlamaModel", { is_base = true, gradient_checkpointing = false, tp_plan = PLAN.base })

function LlamaModel:build(c) self:build_stack(c, Layer) end

---@param ids accel.Tensor [B, T]
---@param cache? accel.models.KVCache|accel.models.DecoderOptions
---@param opts? accel.models.DecoderOptions
---@return accel.Tensor
function LlamaModel:forward(ids, cache, opts, ...)
  check.surplus("forward", ...)
  local x = self:run_stack(ids, context.options("llama", cache, opts))
  return x
end

--- Llama with its language-model head.
--- example: accel.models.Llama(accel.models.tiny.llama)(accel.tensor { { 1, 2, 3 } }).shape --> { 1, 3, 9 }
---@class accel.models.Llama : accel.models.PreTrainedModel
local Llama = Base:define("LlamaForCausalLM", {
  tp_plan = PLAN.with_head, pipeline_plan = { "embed_tokens", "layers.*", "norm", "lm_head" },
  tied_weights = { ["lm_head.weight"] = "model.embed_tokens.weight" },
})

function Llama:build(c)
  self.model = LlamaModel:part(c)
  self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, { bias = false })
end

--- Logits [B, T, vocab] of ids [B, T]. With a cache the ids continue its text. attention_mask is 1 for tokens and 0 for
--- padding, [B, past + T]. position_ids [B, T] replaces past, past + 1, ... logits_to_keep = n: only those of the last
--- n positions, [B, n, vocab]. With labels [B, T] the loss of each next token instead, as of GPT-2.
---@param ids accel.Tensor
---@param cache? accel.models.KVCache|accel.models.DecoderOptions
---@param opts? accel.models.DecoderOptions
---@return accel.Tensor
function Llama:forward(ids, cache, opts, ...)
  check.surplus("forward", ...)
  local own
  own, cache, opts = causal_head.options("llama", ids, cache, opts)
  return means.from(self, causal_head.run(self.lm_head, self.model(ids, cache, opts), own), cache, opts)
end

--- The counts of the means that the loss of forward is the sum of: its labels.
---@param ids accel.Tensor token ids
---@param cache? table as in forward
---@param opts? table options of forward
---@return accel.Tensor[]?
function Llama:_loss_counts(ids, cache, opts) -- luacheck: no self
  return { causal_head.count((causal_head.options("llama", ids, cache, opts))) }
end

local function width(c) return c.hidden_size end

--- Llama with scores for classes of a sequence, of the last token that is not padding.
--- example: accel.models.LlamaForSequenceClassification(accel.models.tiny.llama)(accel.tensor { { 1, 2, 3 } }).shape --> { 1, 2 }
---@class accel.models.LlamaForSequenceClassification : accel.models.PreTrainedModel
local Sequence = Base:define("LlamaForSequenceClassification", { tp_plan = PLAN.with_prefix })
heads.sequence(Sequence, "model", LlamaModel, width)

--- Llama with scores for classes of each token.
--- example: accel.models.LlamaForTokenClassification(accel.models.tiny.llama)(accel.tensor { { 1, 2, 3 } }).shape --> { 1, 3, 2 }
---@class accel.models.LlamaForTokenClassification : accel.models.PreTrainedModel
local Token = Base:define("LlamaForTokenClassification", { tp_plan = PLAN.with_prefix })
heads.token(Token, "model", LlamaModel, width)

--- Llama with scores for the first and last tokens of an answer.
--- example: accel.models.LlamaForQuestionAnswering(accel.models.tiny.llama)(accel.tensor { { 1, 2, 3 } }).shape --> { 1, 3 }
---@class accel.models.LlamaForQuestionAnswering : accel.models.PreTrainedModel
local Question = Base:define("LlamaForQuestionAnswering", { base_model_prefix = "transformer" })
heads.question(Question, "transformer", LlamaModel, width)

return { Llama = Llama, LlamaForCausalLM = Llama, LlamaModel = LlamaModel, LlamaForSequenceClassification = Sequence,
  LlamaForTokenClassification = Token, LlamaForQuestionAnswering = Question, Base = Base, complete = complete }
