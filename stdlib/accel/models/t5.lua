--- T5 in Hugging Face's names, original (relu, tied head) and 1.1 (gated, a head of its own).
---
---   local model = models.T5ForConditionalGeneration.from_pretrained(dir)
---   local logits = model(ids, { attention_mask = mask, decoder_input_ids = model:shift_right(labels) })
---   local new = model:generate(ids, { max_new_tokens = 20 })
local PreTrainedModel = require "accel.models.pretrained_model"
local Stack = require "accel.models.t5_stack".Stack
local accel = require "accel"
local activation = require "accel.models.activation"
local causal_head = require "accel.models.causal_head"
local check = require "accel.util.check"
local config = require "accel.models.config"
local context = require "accel.models.context"
local init = require "accel.nn.initialization"
local nn = require "accel.nn"
local options = require "accel.util.options"
local plans = require "accel.models.plans"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local schema = config.schema("t5", {
  vocab_size = config.size(32128), d_model = config.size(512), d_kv = config.size(64), d_ff = config.size(2048),
  num_layers = config.count(6), num_decoder_layers = config.count(), num_heads = config.count(8),
  relative_attention_num_buckets = config.count(32), relative_attention_max_distance = config.size(128),
  dropout_rate = config.rate(0.1), layer_norm_epsilon = config.number(1e-6), initializer_factor = config.number(1.0),
  feed_forward_proj = config.word "relu", dense_act_fn = config.word(), is_gated_act = config.flag(),
  pad_token_id = config.token(0), eos_token_id = config.tokens(1), decoder_start_token_id = config.token(),
  tie_word_embeddings = config.flag(true), scale_decoder_outputs = config.flag(),
  is_encoder_decoder = config.flag(true),
}, function(c)
  local gated, act = c.feed_forward_proj:match "^(gated%-)(.+)$"
  act = act or c.feed_forward_proj
  if c.feed_forward_proj == "gated-gelu" then act = "gelu_new" end
  if not activation.find(act) then
    return ("feed_forward_proj '%s' names no activation function"):format(c.feed_forward_proj)
  end
  c.dense_act_fn, c.is_gated_act = act, gated ~= nil
  c.num_decoder_layers = c.num_decoder_layers or c.num_layers
  c.decoder_start_token_id = c.decoder_start_token_id or c.pad_token_id
  if c.scale_decoder_outputs == nil then c.scale_decoder_outputs = c.tie_word_embeddings end
  -- in both directions there is one exact and one logarithmic half for each
  if c.relative_attention_num_buckets < 4 then
    return ("relative_attention_num_buckets must be at least 4, got %d"):format(c.relative_attention_num_buckets)
  end
  if c.relative_attention_max_distance <= c.relative_attention_num_buckets // 2 then
    return ("relative_attention_max_distance must exceed half of relative_attention_num_buckets, got %d"):format(
      c.relative_attention_max_distance)
  end
end)

--- Of the encoder or the decoder. Which of wi, wi_0 and wi_1 there are depends on the configuration.
local function stack_plan(stack)
  local plan, at = { [stack] = "sequence_gather" }, stack .. ".block.*.layer.*."
  local function put(name, style) plan[at .. name] = style end
  put("SelfAttention", "attention")
  for _, name in ipairs { "q", "k", "v" } do put("SelfAttention." .. name, "colwise") end
  put("SelfAttention.o", "rowwise")
  plan[stack .. ".block.0.layer.0.SelfAttention.relative_attention_bias"] = "embedding_colwise"
  for _, name in ipairs { "wi", "wi_0", "wi_1" } do put("DenseReluDense." .. name, { "colwise", optional = true }) end
  put("DenseReluDense.wo", "rowwise")
  put("DenseReluDense.dropout", "colwise")
  put("layer_norm", "sequence_parallel")
  put("dropout", "sequence_parallel")
  plan[stack .. ".final_layer_norm"], plan[stack .. ".dropout"] = "sequence_parallel", "sequence_parallel"
  return plan
end

local ENCODER_PLAN <const> = plans.merge(stack_plan "encoder", { shared = "embedding_rowwise" })
local PLAN <const> = plans.merge(ENCODER_PLAN, stack_plan "decoder", {
  ["decoder.block.*.layer.1.EncDecAttention"] = "attention",
  ["decoder.block.*.layer.1.EncDecAttention.q"] = "colwise",
  ["decoder.block.*.layer.1.EncDecAttention.k"] = { "colwise", input = "replicated" }, -- the encoder's output is gathered
  ["decoder.block.*.layer.1.EncDecAttention.v"] = { "colwise", input = "replicated" },
  ["decoder.block.*.layer.1.EncDecAttention.o"] = "rowwise",
  lm_head = { "colwise_rep", input = "replicated" },
})

local Base = PreTrainedModel:define("T5PreTrainedModel", {
  tp_divides = { "num_heads" }, pipeline_plan = { "shared", "encoder.block.*", "encoder.final_layer_norm" },
  schema = schema, _no_split_modules = { "T5Block" }, ignored_keys = { "EncDecAttention%.relative_attention_bias%.weight$" },
})

--- Older files hold the shared embedding under the stacks' names as well.
function Base:rename(name)
  if name == "encoder.embed_tokens.weight" or name == "decoder.embed_tokens.weight" then return "shared.weight" end
  return name
end

-- Standard deviations of matrices by the name of their module, for initializer_factor 1.
local deviations = {
  q = function(c) return (c.d_model * c.d_kv) ^ -0.5 end, k = function(c) return c.d_model ^ -0.5 end,
  v = function(c) return c.d_model ^ -0.5 end, o = function(c) return (c.num_heads * c.d_kv) ^ -0.5 end,
  relative_attention_bias = function(c) return c.d_model ^ -0.5 end,
  wi = function(c) return c.d_model ^ -0.5 end, wi_0 = function(c) return c.d_model ^ -0.5 end,
  wi_1 = function(c) return c.d_model ^ -0.5 end, wo = function(c) return c.d_ff ^ -0.5 end,
  shared = function() return 1.0 end, lm_head = function() return 1.0 end,
}

--- Every matrix has a deviation of its own; norms start at the factor.
function Base:initialize(t, at)
  local c = self.config
  local deviation = deviations[at.name:match "([^.]*)%.weight$"]
  if deviation then
    init.normal_(t, 0, c.initializer_factor * deviation(c))
  else
    init.constant_(t, c.initializer_factor)
  end
end

--- The encoder alone: ids [B, T] -> hidden states [B, T, d_model].
--- example: accel.models.T5EncoderModel(accel.models.tiny.t5)(accel.tensor { { 1, 2, 3 } }).shape --> { 1, 3, 8 }
---@class accel.models.T5EncoderModel : accel.models.PreTrainedModel
local EncoderModel = Base:define("T5EncoderModel", { tp_plan = ENCODER_PLAN, ignored_keys = { "^decoder%.", "^lm_head%." } })

function EncoderModel:build(c)
  self.shared = nn.Embedding(c.vocab_size, c.d_model)
  self.encoder = Stack(c, c.num_layers, false)
end

---@param ids accel.Tensor [B, T]
---@param opts? {attention_mask: accel.Tensor?}
---@return accel.Tensor
function EncoderModel:forward(ids, opts)
  local o = options("t5", opts, { attention_mask = options.none })
  context.check_ids("t5", ids, "ids")
  return self.encoder(self.shared(ids), { attention_mask = o.attention_mask, length = ids.shape[2] })
end

---@class accel.models.T5Options
---@field decoder_input_ids accel.Tensor
---@field attention_mask? accel.Tensor
---@field decoder_attention_mask? accel.Tensor
---@field encoder_outputs? accel.Tensor
---@field cache? accel.models.KVCache
---@field logits_to_keep? integer only the last positions' logits
---@field labels? accel.Tensor [B, T]: the loss in the place of logits

--- The whole model with its language-model head.
--- example: accel.models.T5ForConditionalGeneration(accel.models.tiny.t5):encode(accel.tensor { { 3 } }).shape --> { 1, 1, 8 }
---@class accel.models.T5ForConditionalGeneration : accel.models.PreTrainedModel
local T5 = Base:define("T5ForConditionalGeneration", { tp_plan = PLAN,
  pipeline_plan = { "shared", "encoder.block.*", "encoder.final_layer_norm", { "shared", next = true }, "decoder.block.*",
    "decoder.final_layer_norm", "lm_head" },
  tied_weights = { ["lm_head.weight"] = "shared.weight" } })

function T5:build(c)
  self.shared = nn.Embedding(c.vocab_size, c.d_model)
  self.encoder = Stack(c, c.num_layers, false)
  self.decoder = Stack(c, c.num_decoder_layers, true)
  self.lm_head = nn.Linear(c.d_model, c.vocab_size, { bias = false })
end

--- The encoder's output [B, S, d_model] for ids [B, S].
---@param ids accel.Tensor
---@param attention_mask? accel.Tensor [B, S]
---@return accel.Tensor
function T5:encode(ids, attention_mask)
  context.check_ids("t5", ids, "ids")
  return self.encoder(self.shared(ids), { attention_mask = attention_mask, length = ids.shape[2] })
end

--- Logits [B, T, vocab] of decoder_input_ids [B, T], which say what stands before each token to be predicted,
--- for the text in ids [B, S]. attention_mask [B, S] belongs to ids, decoder_attention_mask [B, T] to the
--- others. encoder_outputs (of `encode`) stands for running the encoder again; ids may then be nil. With labels [B, T] the mean cross
--- entropy of those that are not -100; decoder_input_ids are these shifted right where they are not given.
---@param ids? accel.Tensor
---@param opts accel.models.T5Options
---@return accel.Tensor
function T5:forward(ids, opts)
  local o = options("t5", opts, {
    decoder_input_ids = options.none, attention_mask = options.none, decoder_attention_mask = options.none,
    encoder_outputs = options.none, cache = options.none, logits_to_keep = options.none,
    labels = options.none,
  })
  if o.labels and not o.decoder_input_ids then o.decoder_input_ids = self:shift_right(o.labels) end
  context.check_ids("t5", o.decoder_input_ids, "decoder_input_ids")
  local memory = o.encoder_outputs or self:encode(ids, o.attention_mask)
  local x = self.decoder(self.shared(o.decoder_input_ids), {
    attention_mask = o.decoder_attention_mask, cache = o.cache, memory = memory, memory_mask = o.attention_mask,
    length = o.decoder_input_ids.shape[2],
  })
  local c = self.config
  if o.labels and (not tensors.is_tensor(o.labels) or tensors.shape_string(o.labels) ~= tensors.shape_string(o.decoder_input_ids)) then
    raise("t5: labels %s do not fit decoder_input_ids %s", tensors.is_tensor(o.labels) and tensors.shape_string(o.labels)
      or check.shown(o.labels), tensors.shape_string(o.decoder_input_ids))
  elseif o.labels and o.logits_to_keep ~= nil then
    raise "t5: labels need the logits of every position, logits_to_keep leaves some out"
  end
  if c.scale_decoder_outputs then x = x * c.d_model ^ -0.5 end
  return causal_head.run(self.lm_head, x, { labels = o.labels, shifted = true, logits_to_keep = o.logits_to_keep })
end

--- decoder_input_ids for labels [B, T]: one place to the right, behind the start token; -100, which losses
--- ignore, becomes padding.
---@param labels accel.Tensor
---@return accel.Tensor
function T5:shift_right(labels)
  context.check_ids("t5", labels, "labels")
  local c, shape = self.config, labels.shape
  if shape[2] == 0 then return labels end
  local like = { dtype = labels.dtype, device = labels.device }
  local start = accel.full({ shape[1], 1 }, c.decoder_start_token_id, like)
  local shifted = accel.cat({ start, labels:narrow(2, 1, shape[2] - 1) }, 2)
  return shifted:masked_fill(shifted:eq(-100), c.pad_token_id)
end

--- Distances have no end.
function T5:context_length() return math.huge end

function T5:cache_shape()
  local c = self.config
  return c.num_decoder_layers, c.num_heads, c.d_kv
end

--- Encodes the prompts once and continues from the start token. Shorter prompts of a batch are padded, and
--- padding that a prompt has already is not looked at either. Returns the rows to continue, and what runs the decoder:
--- forward(ids, {cache=, logits_to_keep=}) and expand(copies).
function T5:begin_generation(rows)
  local c, width, padded, start = self.config, 0, {}, {}
  for _, row in ipairs(rows) do width = math.max(width, #row) end
  for b, row in ipairs(rows) do
    padded[b], start[b] = table.move(row, 1, #row, 1, {}), { c.decoder_start_token_id }
    for i = #row + 1, width do padded[b][i] = c.pad_token_id end
  end
  local ids = accel.tensor(padded, { dtype = "i64", device = self.shared.weight.device })
  local mask = ids:ne(c.pad_token_id)
  local memory = self:encode(ids, mask)
  return start, {
    forward = function(new, o)
      return self(nil, {
        decoder_input_ids = new, encoder_outputs = memory, attention_mask = mask, cache = o.cache,
        logits_to_keep = o.logits_to_keep,
      })
    end,
    expand = function(copies)
      memory, mask = memory:repeat_interleave(copies, 1), mask:repeat_interleave(copies, 1)
    end,
  }
end

return { T5ForConditionalGeneration = T5, T5EncoderModel = EncoderModel }
