--- Keys, names and heads common to BERT, RoBERTa and ELECTRA. bert_like { model_type =, prefix = } is RoBERTa. Given tables replace
--- its own.
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"
local family = require "accel.models.encoder.family"

local M = {}

--- Keys of config.json. Entries of `own` replace them, false removes one.
---@param own? table
function M.keys(own)
  local keys = {
    vocab_size = config.size(50265), hidden_size = config.size(768), num_hidden_layers = config.count(12),
    num_attention_heads = config.count(12), intermediate_size = config.size(3072), hidden_act = config.activation "gelu",
    hidden_dropout_prob = config.rate(0.1), attention_probs_dropout_prob = config.rate(0.1), max_position_embeddings = config.size(512),
    type_vocab_size = config.number(2), initializer_range = config.number(0.02), layer_norm_eps = config.number(1e-12),
    pad_token_id = config.nullable(config.token(1)), classifier_dropout = config.nullable(config.rate()), is_decoder = config.fixed(false),
    add_cross_attention = config.fixed(false), tie_word_embeddings = config.flag(true),
    position_embedding_type = config.only(function(v) return v == "absolute" end, "absolute"),
  }
  for key, field in next, own or {} do keys[key] = field or nil end
  return keys
end

--- Names of weights. Entries of `own` replace them.
---@param own? table<string, string>
function M.names(own)
  local names = {
    word = "embeddings.word_embeddings", position = "embeddings.position_embeddings", type = "embeddings.token_type_embeddings",
    norm = "embeddings.LayerNorm", layers = "encoder.layer", q = "attention.self.query", k = "attention.self.key", v = "attention.self.value",
    o = "attention.output.dense", attention_norm = "attention.output.LayerNorm", first = "intermediate.dense", second = "output.dense",
    norm_2 = "output.LayerNorm", pooler = "pooler.dense",
  }
  for role, name in next, own or {} do names[role] = name end
  return names
end

--- The description of BERT for the usual keys.
---@param c table
---@return accel.models.Encoder
function M.describe(c)
  if c.hidden_size % c.num_attention_heads ~= 0 then
    describe.fail(("hidden_size %d is not a multiple of num_attention_heads %d"):format(c.hidden_size, c.num_attention_heads))
  end
  return {
    layers = c.num_hidden_layers, width = c.hidden_size, vocab = c.vocab_size, heads = c.num_attention_heads, ffn = c.intermediate_size,
    act = c.hidden_act, eps = c.layer_norm_eps, dropout = c.hidden_dropout_prob, attention_dropout = c.attention_probs_dropout_prob,
    positions = { n = c.max_position_embeddings }, types = math.tointeger(config.get(c, "type_vocab_size")), padding_idx = c.pad_token_id,
    pooler = { act = "tanh" }, names = M.names(), causal = config.get(c, "is_decoder"),
  }
end

--- The dropout of classifiers.
function M.classifier_dropout(c) return config.get(c, "classifier_dropout") or c.hidden_dropout_prob end

local function roberta(c)
  local d = M.describe(c)
  d.positions.from_padding = c.pad_token_id or 1
  return d
end

--- The head of masked words under RoBERTa's names.
local function words(extra)
  local h = {
    kind = "words", dense = "lm_head.dense", norm = "lm_head.layer_norm", decoder = "lm_head.decoder", bias = "lm_head.bias",
    act = function() return "gelu" end, eps = function(c) return c.layer_norm_eps end,
    tied = { ["lm_head.decoder.weight"] = "roberta.embeddings.word_embeddings.weight", ["lm_head.decoder.bias"] = "lm_head.bias" },
  }
  for key, value in next, extra or {} do h[key] = value end
  return h
end

return setmetatable(M, { __call = function(_, f)
  local all = {
    base = "roberta", layer = f.prefix .. "Layer", optional_keys = { "pooler%.dense%." },
    keys = M.keys { bos_token_id = config.in_files(config.token(), 0), eos_token_id = config.in_files(config.tokens(), 2) }, describe = roberta,
    heads = {
      ForMaskedLM = words(),
      ForSequenceClassification = { kind = "sequence", dense = "classifier.dense", act = "tanh", classifier = "classifier.out_proj",
        drop_first = true, dropout = M.classifier_dropout },
      ForTokenClassification = { kind = "token", dropout = M.classifier_dropout }, ForQuestionAnswering = { kind = "question" },
      ForMultipleChoice = { kind = "choice", dropout = function(c) return c.hidden_dropout_prob end },
    },
  }
  for key, value in next, f do all[key] = value end
  return family(all)
end })
