--- Parts of descriptions that families share, and the check of a whole description. A description is a plain table that defines a
--- decoder's computation. decoder/stack.lua builds it. Families are in models/families, one file each.
local Rotary = require "accel.models.rotary"
local config = require "accel.models.config"

local M = {}

---@class accel.models.Decoder
---@field layers integer
---@field branch_dropout? number of a part's output, before it is added
---@field width integer of the residual stream
---@field vocab integer
---@field names accel.models.DecoderNames names of weights, as the family's files have them
---@field norm {kind: string, eps: number} decoder/norms.lua
---@field attention table heads, kv_heads, head_dim, bias, o_bias, fused ("rows", "heads", "groups"), qk_norm ("head", "whole", "each", "list",
---  "l2"), scale, softcap, sinks, clip, dropout, o_dropout, latent
---@field mlp {width: integer, act: string|function, gated: boolean, fused: boolean?, bias: boolean?, dropout: number?}
---@field moe? table decoder/experts.lua: n, k, width, router, normalise, fused, shared, shared_gate. unbalanced: the loss has no part for
---  the balance of experts
---@field kinds accel.models.DecoderLayerKind[] by layer
---@field layer_norms table<string, string?> decoder/layer.lua
---@field parallel? boolean attention and feed-forward read the same stream and are added together
---@field residual_scale? number of a part's output
---@field residual_from_norm? boolean the stream is taken after the norm (BLOOM)
---@field rotary? {sets: table<string, table>, interleaved: boolean?}
---@field alibi? boolean
---@field alibi_scale? number
---@field positions? {n: integer, offset: integer?, from_mask: boolean?} learnt positions
---@field embed_scale? number
---@field embed_norm? boolean
---@field embed_width? integer of the embedding, if projections connect it to the stream
---@field embed_dropout? number
---@field padding_idx? integer
---@field no_last_norm? boolean
---@field bidirectional? boolean
---@field head_bias? boolean
---@field logits {scale: number?, softcap: number?}

---@class accel.models.DecoderLayerKind
---@field layer integer from 1
---@field rope? string name of a rotary set. nil: none
---@field window? integer keys that a query sees, itself included
---@field chunk? integer
---@field moe? boolean
---@field first_norm? boolean false: attention reads the stream without a norm
---@field temperature? {floor: number, scale: number}

--- Names of Llama, which most families share.
---@class accel.models.DecoderNames
local LLAMA <const> = {
  base = "model", embed = "embed_tokens", layers = "layers", norm = "norm", head = "lm_head", token = "score",
  attention = "self_attn", q = "q_proj", k = "k_proj", v = "v_proj", o = "o_proj", qkv = "qkv_proj", q_norm = "q_norm", k_norm = "k_norm",
  mlp = "mlp", moe = "mlp", gate = "gate_proj", up = "up_proj", down = "down_proj", gate_up = "gate_up_proj", router = "gate",
  shared = "shared_expert",
}

--- Raises the problem that a family's check returned.
---@param message string
---@param code? string
function M.fail(message, code) error({ problem = message, code = code }, 0) end

---@param own? table<string, string> names that differ from Llama's
---@return accel.models.DecoderNames
function M.names(own)
  local out = {}
  for role, name in next, LLAMA do out[role] = name end
  for role, name in next, own or {} do out[role] = name end
  return out
end

--- A rotary set of a configuration: for the first part of heads of this width.
---@param c table a checked configuration
---@param o {theta: number, head_dim: integer, part: number?, rope: table?, dim: integer?}
---@return table
function M.rotary_set(c, o)
  local given = o.rope or config.get(c, "rope_scaling") or config.get(c, "rope_parameters") or {}
  local rope = {}
  for key, value in next, given do
    if type(value) ~= "table" or value[1] ~= nil then rope[key] = value end
  end
  local part = rope.partial_rotary_factor
  if type(part) ~= "number" then part = o.part or 1 end
  rope.partial_rotary_factor = nil
  local dim = o.dim or math.floor(o.head_dim * part)
  if dim < 2 or dim % 2 ~= 0 then M.fail(("rotary positions turn pairs: %d of the %d columns of a head"):format(dim, o.head_dim)) end
  local set = {
    head_dim = dim, rope_parameters = rope, rope_theta = config.get(c, "rope_theta"), theta = o.theta,
    max_position_embeddings = config.get(c, "max_position_embeddings"),
    original_max_position_embeddings = config.get(c, "original_max_position_embeddings"),
  }
  if o.rope then set.rope_theta = nil end
  local kind, why, code = Rotary.parameters(set, o.theta)
  if not kind then M.fail(why, code) end
  return set
end

--- The kinds of layers by config.layer_types, or by a rule for files that lack it. Words of Transformers.
---@param c table
---@param rule? fun(i: integer): string of layer i, from 1
---@param of fun(word: string, i: integer): accel.models.DecoderLayerKind
---@return accel.models.DecoderLayerKind[]
function M.kinds(c, n, rule, of)
  local types, out = config.get(c, "layer_types"), {}
  if types and #types ~= n then M.fail(("layer_types has %d entries for %d layers"):format(#types, n)) end
  for i = 1, n do
    local word = types and types[i] or rule and rule(i) or "full_attention"
    if type(word) ~= "string" then M.fail(("layer_types[%d] must be a word, got %s"):format(i, type(word))) end
    local kind = of(word, i)
    if not kind then M.fail(("layer_types[%d] '%s' is not supported"):format(i, word), "unsupported") end
    kind.layer = i
    out[i] = kind
  end
  return out
end

--- Kinds of families with full and sliding layers.
---@param c table
---@param n integer layers
---@param window integer?
---@param o? {rule: (fun(i: integer): string)?, rope: (string|fun(word: string, i: integer): string?)?, moe: (fun(i: integer): boolean)?}
function M.windows(c, n, window, o)
  o = o or {}
  return M.kinds(c, n, o.rule or function() return window and "sliding_attention" or "full_attention" end, function(word, i)
    local rope = o.rope == nil and "all" or o.rope
    if type(rope) == "function" then rope = rope(word, i) end
    local kind = { rope = rope or nil, moe = o.moe and o.moe(i) or nil }
    if word == "sliding_attention" then
      if not window then M.fail(("layer_types[%d] is sliding_attention, but sliding_window is missing"):format(i)) end
      kind.window = window
    elseif word ~= "full_attention" then
      return nil
    end
    return kind
  end)
end

--- The common part of most families and Llama: an attention table from the usual keys.
---@param c table
---@return table
function M.grouped_attention(c)
  local heads = c.num_attention_heads
  local kv = config.get(c, "num_key_value_heads") or heads
  if heads % kv ~= 0 then M.fail(("num_attention_heads %d is not a multiple of num_key_value_heads %d"):format(heads, kv)) end
  local D = config.get(c, "head_dim")
  if not D then
    if c.hidden_size % heads ~= 0 then M.fail(("hidden_size %d is not a multiple of num_attention_heads %d"):format(c.hidden_size, heads)) end
    D = c.hidden_size // heads
  end
  local bias = config.get(c, "attention_bias") or false
  return { heads = heads, kv_heads = kv, head_dim = D, bias = bias, o_bias = bias, dropout = config.get(c, "attention_dropout") }
end

--- The description of Llama for the usual keys. Families change their differences.
---@param c table
---@param o? table theta (10000), part or dim of a head that turns, window, kinds (of M.windows), all_kinds, rotary (sets)
---@return accel.models.Decoder
function M.llama(c, o)
  o = o or {}
  local attention = M.grouped_attention(c)
  return {
    layers = c.num_hidden_layers, width = c.hidden_size, vocab = c.vocab_size, attention = attention,
    norm = { kind = "rms", eps = config.get(c, "rms_norm_eps") },
    mlp = { width = config.get(c, "intermediate_size"), act = config.get(c, "hidden_act"), gated = true, bias = config.get(c, "mlp_bias") },
    kinds = o.all_kinds or M.windows(c, c.num_hidden_layers, o.window, o.kinds),
    layer_norms = { before_attention = "input_layernorm", before_mlp = "post_attention_layernorm" },
    rotary = { sets = o.rotary or { all = M.rotary_set(c, {
      theta = o.theta or 10000.0, head_dim = attention.head_dim, part = o.part, dim = o.dim }) } },
    padding_idx = c.pad_token_id, logits = {},
  }
end

--- Keys of config.json that Llama and its relatives have. Entries of `own` replace them, false takes one out.
---@param own? table<string, accel.models.Field|false>
---@return table<string, accel.models.Field>
function M.keys(own)
  local keys = {
    vocab_size = config.size(32000), hidden_size = config.size(4096), intermediate_size = config.size(11008),
    num_hidden_layers = config.count(32), num_attention_heads = config.count(32), num_key_value_heads = config.nullable(config.count()),
    head_dim = config.nullable(config.size()), hidden_act = config.activation "silu", max_position_embeddings = config.size(2048),
    initializer_range = config.number(0.02), rms_norm_eps = config.number(1e-6), tie_word_embeddings = config.flag(false),
    attention_bias = config.flag(false), attention_dropout = config.nullable(config.rate(0.0)), rope_theta = config.number(nil, 1),
    rope_parameters = config.table(), rope_scaling = config.table(), original_max_position_embeddings = config.size(),
    bos_token_id = config.in_files(config.token(), 1), eos_token_id = config.in_files(config.tokens(), 2),
  }
  for key, field in next, own or {} do keys[key] = field or nil end
  return keys
end

--- Keys of families with windows in some layers.
---@param own? table<string, accel.models.Field|false>
function M.window_keys(own)
  local keys = M.keys { sliding_window = config.nullable(config.size()), layer_types = config.table() }
  for key, field in next, own or {} do keys[key] = field or nil end
  return keys
end

--- Which layers have experts, by Qwen's keys.
---@param c table
---@return fun(i: integer): boolean
function M.sparse(c)
  local dense = {}
  for _, i in ipairs(c.mlp_only_layers or {}) do dense[i + 1] = true end
  return function(i) return not dense[i] and i % c.decoder_sparse_step == 0 end
end

return M
