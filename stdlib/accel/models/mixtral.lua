--- Mixtral in Hugging Face's names: Llama's attention (optionally within a sliding window) and a mixture of
--- experts in place of the feed-forward layer.
---
---   local model = models.MixtralForCausalLM { vocab_size = 65, hidden_size = 64, intermediate_size = 96,
---     num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2, num_local_experts = 4 }
---   local logits = model(ids)
---   local logits, aux = model(ids, { output_router_logits = true })
---   local loss = accel.cross_entropy(...) + model.config.router_aux_loss_coef * aux
---
--- Three keys of the configuration are not Transformers' and have no default: router_z_loss_coef, the part of the router's z-loss in
--- the loss of labels. expert_capacity_factor, by which training drops choices of full experts. expert_drop_policy, "probs" or
--- "position" (models/mixture.lua). Over ranks: accel.parallel.experts.
local check = require "accel.util.check"
local RotaryAttention = require "accel.models.rotary_attention"
local add_norm = require "accel.nn.add_norm"
local causal_head = require "accel.models.causal_head"
local config = require "accel.models.config"
local context = require "accel.models.context"
local llama = require "accel.models.llama"
local means = require "accel.autograd.means"
local mixture = require "accel.models.mixture"
local nn = require "accel.nn"
local plans = require "accel.models.plans"
local options = require "accel.util.options"

local THETA = 1000000.0

local schema = config.schema("mixtral", {
  vocab_size = config.size(32000), hidden_size = config.size(4096), intermediate_size = config.size(14336),
  num_hidden_layers = config.count(32), num_attention_heads = config.count(32), num_key_value_heads = config.nullable(config.count(8)),
  head_dim = config.size(), hidden_act = config.activation "silu", max_position_embeddings = config.size(131072),
  initializer_range = config.number(0.02), rms_norm_eps = config.number(1e-5),
  tie_word_embeddings = config.flag(false), attention_dropout = config.nullable(config.rate(0.0)), sliding_window = config.size(),
  num_experts_per_tok = config.count(2), num_local_experts = config.count(8),
  output_router_logits = config.flag(false), router_aux_loss_coef = config.number(0.001),
  router_z_loss_coef = config.number(), expert_capacity_factor = config.number(nil, 1e-6),
  expert_drop_policy = config.word(nil, { "probs", "position" }), router_jitter_noise = config.rate(0.0),
  rope_theta = config.number(nil, 1), rope_parameters = config.table(), rope_scaling = config.table(),
  original_max_position_embeddings = config.size(), partial_rotary_factor = config.number(nil),
  bos_token_id = config.in_files(config.token(), 1), eos_token_id = config.in_files(config.tokens(), 2),
}, function(c)
  if c.num_experts_per_tok > c.num_local_experts then
    return ("num_experts_per_tok %d exceeds num_local_experts %d"):format(c.num_experts_per_tok, c.num_local_experts)
  end
  return llama.complete(c, THETA)
end, { num_experts = "num_local_experts" })

---@class accel.models.MixtralDecoderLayer : accel.nn.Module
local Layer = nn.Module:extend("MixtralDecoderLayer")

function Layer:init(c)
  self.self_attn = RotaryAttention(c)
  self.block_sparse_moe = mixture.SparseMoeBlock(c)
  self.input_layernorm = nn.RMSNorm(c.hidden_size, { eps = c.rms_norm_eps })
  self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, { eps = c.rms_norm_eps })
end

function Layer:forward(x, ctx, layer)
  local h, sum = add_norm(self.post_attention_layernorm, self.self_attn(self.input_layernorm(x), ctx, layer), x)
  local y, logits = self.block_sparse_moe(h)
  if ctx.router_logits then ctx.router_logits[layer] = logits end
  return sum + y
end

local PLAN <const> = plans.family {
  layers = plans.merge(plans.rotary_decoder, {
    ["layers.*.block_sparse_moe"] = "sequence_whole",
    ["layers.*.block_sparse_moe.experts.*.w1"] = { "colwise", input = "replicated" },
    ["layers.*.block_sparse_moe.experts.*.w3"] = { "colwise", input = "replicated" },
    ["layers.*.block_sparse_moe.experts.*.w2"] = { "rowwise", input = "replicated" },
  }),
  head = { lm_head = "colwise_rep" },
}

local Base = llama.Base:define("MixtralPreTrainedModel", { schema = schema,
  _no_split_modules = { "MixtralDecoderLayer" }, theta = THETA })

---@class accel.models.MixtralOptions : accel.models.DecoderOptions
---@field output_router_logits? boolean

--- Mixtral without a head: ids [B, T] -> hidden states [B, T, hidden_size]. With output_router_logits also the router's
--- logits, a list of [B T, experts] by layer.
--- example: accel.models.MixtralModel(accel.models.tiny.mixtral)(accel.tensor { { 1, 2 } }).shape --> { 1, 2, 8 }
---@class accel.models.MixtralModel : accel.models.PreTrainedModel
local MixtralModel = Base:define("MixtralModel", { is_base = true, gradient_checkpointing = false, tp_plan = PLAN.base })

function MixtralModel:build(c) self:build_stack(c, Layer) end

---@param ids accel.Tensor [B, T]
---@param cache? accel.models.KVCache|accel.models.MixtralOptions
---@param opts? accel.models.MixtralOptions
---@return accel.Tensor, accel.Tensor[]?
function MixtralModel:forward(ids, cache, opts, ...)
  check.surplus("forward", ...)
  local o = context.options("mixtral", cache, opts, { output_router_logits = options.none })
  local wanted = o.output_router_logits
  if wanted == nil then wanted = self.config.output_router_logits end
  if self.training and self.config.router_z_loss_coef then wanted = true end
  local x, ctx = self:run_stack(ids, o, wanted and {} or nil)
  return x, ctx.router_logits
end

--- Mixtral with its language-model head.
--- example: accel.models.MixtralForCausalLM(accel.models.tiny.mixtral)(accel.tensor { { 1, 2 } }).shape --> { 1, 2, 9 }
---@class accel.models.MixtralForCausalLM : accel.models.PreTrainedModel
local Mixtral = Base:define("MixtralForCausalLM", {
  tp_plan = PLAN.with_head, pipeline_plan = { "embed_tokens", "layers.*", "norm", "lm_head" },
  tied_weights = { ["lm_head.weight"] = "model.embed_tokens.weight" },
})

function Mixtral:build(c)
  self.model = MixtralModel:part(c)
  self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, { bias = false })
end

--- The ranks whose tokens count together in losses of the router. Only in training.
local function ranks_of(model)
  return model.training and model.model.layers[1].block_sparse_moe.ranks or nil
end

--- Logits [B, T, vocab] of ids [B, T]. With output_router_logits (an option, or a key of the configuration) also the
--- load-balancing loss, a number to be scaled by config.router_aux_loss_coef and added to the loss. The other options
--- are Llama's. With labels the loss includes the scaled load-balancing loss.
---@param ids accel.Tensor
---@param cache? accel.models.KVCache|accel.models.MixtralOptions
---@param opts? accel.models.MixtralOptions
---@return accel.Tensor, accel.Tensor?
function Mixtral:forward(ids, cache, opts, ...)
  check.surplus("forward", ...)
  local own
  own, cache, opts = causal_head.options("mixtral", ids, cache, opts)
  local x, router_logits = self.model(ids, cache, opts)
  local y = causal_head.run(self.lm_head, x, own)
  if not router_logits then return means.from(self, y, cache, opts) end
  local c, o = self.config, context.options("mixtral", cache, opts, { output_router_logits = options.none })
  local mask, T = o.attention_mask, ids.shape[2]
  if mask and mask.ndim == 2 and mask.shape[2] > T then mask = mask:narrow(2, mask.shape[2] - T + 1, T) end -- tokens seen earlier by a cache
  local aux, z = mixture.router_losses(router_logits, c.num_experts_per_tok, mask, ranks_of(self))
  local balances = o.output_router_logits
  if balances == nil then balances = c.output_router_logits end
  if own.labels and (balances or c.router_z_loss_coef) then
    local of_labels, of_routers = means.of(y)[1], balances and c.router_aux_loss_coef * aux
    if c.router_z_loss_coef then of_routers = (of_routers or 0) + c.router_z_loss_coef * z end
    y = means.mark(y + of_routers, { of_labels,
      { loss = of_routers, count = mixture.tokens(ids, mask), whole = ranks_of(self) ~= nil } })
  end
  if balances then return means.from(self, y, cache, opts), aux end
  return means.from(self, y, cache, opts)
end

--- The counts of the means in forward's loss: labels, and tokens if the losses of routers are in it.
---@param ids accel.Tensor token ids
---@param cache? table as in forward
---@param opts? table options of forward
---@return accel.Tensor[]?
function Mixtral:_loss_counts(ids, cache, opts)
  local own
  own, cache, opts = causal_head.options("mixtral", ids, cache, opts)
  if not own.labels then return nil end
  local c, o = self.config, context.options("mixtral", cache, opts, { output_router_logits = options.none })
  local balances = o.output_router_logits
  if balances == nil then balances = c.output_router_logits end
  local routers = balances or self.training and c.router_z_loss_coef
  return { causal_head.count(own), routers and mixture.tokens(ids, o.attention_mask) or nil }
end

return { MixtralForCausalLM = Mixtral, MixtralModel = MixtralModel }
