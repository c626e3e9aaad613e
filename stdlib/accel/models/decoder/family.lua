--- family { model_type =, prefix =, keys =, describe = }: the classes of a decoder family, by Transformers' names. A family is a mapping
--- from the keys of its config.json to a description (decoder/describe.lua). The guide "families" shows one from the start.
---
---   return family {
---     model_type = "mistral", prefix = "Mistral",
---     keys = describe.window_keys { ... },
---     describe = function(c) return describe.llama(c, { window = c.sliding_window }) end,
---   }
local Layer = require "accel.models.decoder.layer"
local PreTrainedModel = require "accel.models.pretrained_model"
local check = require "accel.util.check"
local checked = require "accel.models.decoder.checked"
local config = require "accel.models.config"
local context = require "accel.models.context"
local describe = require "accel.models.decoder.describe"
local heads = require "accel.models.decoder.heads"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local stack = require "accel.models.decoder.stack"
local plan = require "accel.models.decoder.plan"

---@class accel.models.FamilyDefinition
---@field model_type string of config.json
---@field prefix string of class names: "Qwen3" gives Qwen3Model, Qwen3ForCausalLM, ...
---@field keys table<string, accel.models.Field>
---@field aliases? table<string, string>
---@field check? fun(c: table): string?, string? completes the configuration
---@field describe fun(c: table): accel.models.Decoder of a checked configuration
---@field weights? table<string, string> names of weights by role, if they differ from Llama's (decoder/describe.lua)
---@field order? table<string, string> fields of modules in the order of Transformers, if it differs (models/order.lua)
---@field layer? string name of the class of layers, by which FSDP wraps. Default: prefix .. "DecoderLayer"
---@field causal? string name of the language model, if it is not prefix .. "ForCausalLM"
---@field qa_prefix? string the field of the base model in the class for question answering, if different
---@field tp_divides? string[] keys that the number of ranks of a tensor-parallel mesh must divide
---@field base? string name of the class without a head, if it is not prefix .. "Model"
---@field more? fun(Root: table, Base: table, out: table, head: accel.models.EncoderHead) further classes
---@field heads? string[] of "causal", "sequence", "token", "question". All of them by default
---@field ignored_keys? string[] patterns of names in files that mean nothing here

local NAMES <const> = { causal = "ForCausalLM", sequence = "ForSequenceClassification", token = "ForTokenClassification",
  question = "ForQuestionAnswering" }

---@param f accel.models.FamilyDefinition
---@return table<string, table> classes by name
return function(f)
  if type(f.model_type) ~= "string" or type(f.prefix) ~= "string" or type(f.keys) ~= "table" or type(f.describe) ~= "function" then
    raise "a family needs model_type, prefix, keys and describe"
  end
  local schema = config.schema(f.model_type, f.keys, checked(f), f.aliases)
  local names = describe.names(f.weights)
  local prefix, layer_name = names.base, f.layer or f.prefix .. "DecoderLayer"
  local Root = PreTrainedModel:define(f.prefix .. "PreTrainedModel", {
    schema = schema, _no_split_modules = { layer_name }, base_model_prefix = prefix, order = f.order,
    ignored_keys = f.ignored_keys or { "%.rotary_emb%.inv_freq$", "%.masked_bias$", "%.attention%.bias$", "%.attn%.bias$" },
    tp_divides = f.tp_divides or { "num_attention_heads", "num_key_value_heads" },
  })
  local described, layer_class = setmetatable({}, { __mode = "k" }), Layer:extend(layer_name)
  local function of(c)
    local d = described[c]
    if not d then
      d = f.describe(c)
      d.names, described[c] = names, d
    end
    return d
  end

  function Root:cache_shape()
    local d = of(self.config)
    if d.attention.latent then return d.layers, d.attention.heads, d.attention.latent.plain_dim + d.attention.latent.rope_dim end
    return d.layers, d.attention.kv_heads, d.attention.head_dim
  end

  --- The window of all layers, if each has the same one: only then can a cache drop tokens.
  function Root:cache_window()
    local kinds = of(self.config).kinds
    for _, kind in ipairs(kinds) do
      if kind.window ~= kinds[1].window or kind.chunk then return nil end
    end
    return kinds[1].window
  end

  function Root:context_length()
    local d = of(self.config)
    if d.positions then return d.positions.n end
    return config.get(self.config, "max_position_embeddings") or math.huge
  end

  --- Norms that are stored minus one start at zero.
  function Root:initialize(t, at)
    if at.module.offset then return require("accel.nn.initialization").zeros_(t) end
    return PreTrainedModel.initialize(self, t, at)
  end

  local out = {}
  local base_name = f.base or f.prefix .. "Model"
  local Base = Root:define(base_name, { is_base = true, gradient_checkpointing = false })
  out[base_name] = Base

  function Base:build(c)
    local d = of(c)
    stack.build(self, d, layer_class)
    self.tp_plan, self.pipeline_plan = plan.of(d).base, plan.pipeline(d)
  end

  --- Hidden states [B, T, width] of ids [B, T]. Mixtures also return the router's logits on request.
  ---@param ids accel.Tensor [B, T]
  ---@param cache? accel.models.KVCache|accel.models.DecoderOptions
  ---@param opts? accel.models.DecoderOptions
  ---@return accel.Tensor, accel.Tensor[]?
  function Base:forward(ids, cache, opts, ...)
    check.surplus("forward", ...)
    local d, more = self.d, nil
    if d.moe then more = { output_router_logits = options.none } end
    local o = context.options(f.model_type, cache, opts, more)
    local wanted = d.moe and o.output_router_logits
    if d.moe and wanted == nil then wanted = config.get(self.config, "output_router_logits") end
    local x, ctx = stack.run(self, ids, o, wanted and {} or nil)
    return x, ctx.router_logits
  end

  local function width(c)
    local d = of(c)
    return d.embed_width or d.width
  end
  local build = {
    causal = function(cls) heads.causal(cls, prefix, Base) end,
    sequence = function(cls) heads.sequence(cls, prefix, Base, width) end,
    token = function(cls) heads.token(cls, prefix, Base, width, names.token) end,
    question = function(cls) heads.question(cls, f.qa_prefix or prefix, Base, width) end,
  }
  local last_layer = { causal = names.head, sequence = "score", token = names.token, question = "qa_outputs" }
  for _, head in ipairs(f.heads or { "causal", "sequence", "token", "question" }) do
    local name = head == "causal" and f.causal or f.prefix .. NAMES[head]
    local cls = Root:define(name, {
      base_model_prefix = head == "question" and f.qa_prefix or prefix,
      tied_weights = head == "causal" and { [names.head .. ".weight"] = prefix .. "." .. names.embed .. ".weight" } or {},
    })
    build[head](cls)
    local inner = cls.build
    function cls:build(c)
      inner(self, c)
      self.tp_plan = plan.of(of(c))[head == "causal" and "with_head" or "with_prefix"]
      self.pipeline_plan = plan.pipeline(of(c), last_layer[head])
    end
    out[name] = cls
  end
  if f.more then f.more(Root, Base, out, { prefix = prefix, Base = Base, width = width, vocab = function(c) return c.vocab_size end }) end
  return out
end
