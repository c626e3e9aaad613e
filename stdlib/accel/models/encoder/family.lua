--- family { model_type =, prefix =, base =, keys =, describe =, heads = }: the classes of an encoder family, by Transformers' names.
local PreTrainedModel = require "accel.models.pretrained_model"
local check = require "accel.util.check"
local checked = require "accel.models.decoder.checked"
local config = require "accel.models.config"
local heads = require "accel.models.encoder.heads"
local stack = require "accel.models.encoder.stack"

---@class accel.models.EncoderFamily
---@field model_type string
---@field prefix string of class names
---@field base string field under which models with a head hold the base model
---@field keys table<string, accel.models.Field>
---@field aliases? table<string, string>
---@field describe fun(c: table): accel.models.Encoder
---@field heads table<string, {kind: string}> name of the class without the prefix -> its head (encoder/heads.lua)
---@field order? table<string, string> fields of modules in the order of Transformers, if it differs (models/order.lua)
---@field layer string name of the class of layers
---@field ignored_keys? string[]
---@field optional_keys? string[]
---@field build? fun(self: table, d: table, layer_class: table, pooler: boolean?) in place of stack.build
---@field run? fun(self: table, ids: accel.Tensor, opts: table?): ... in place of stack.run

---@param f accel.models.EncoderFamily
---@return table<string, table>
return function(f)
  local schema = config.schema(f.model_type, f.keys, checked(f), f.aliases)
  local Root = PreTrainedModel:define(f.prefix .. "PreTrainedModel", {
    schema = schema, _no_split_modules = { f.layer }, base_model_prefix = f.base, optional_keys = f.optional_keys or {}, order = f.order,
    ignored_keys = f.ignored_keys or { "embeddings%.position_ids$", "embeddings%.token_type_ids$" },
  })
  local layer_class = (f.Layer or stack.Layer):extend(f.layer)
  local Base, out = Root:define(f.prefix .. "Model", { is_base = true, gradient_checkpointing = false }), {}
  out[f.prefix .. "Model"] = Base

  function Base:build(c, pooler) (f.build or stack.build)(self, f.describe(c), layer_class, pooler) end

  --- Hidden states [B, T, width] of ids [B, T], and the pooled first token if there is a pooler.
  ---@param ids accel.Tensor
  ---@param opts? table attention_mask, token_type_ids, position_ids
  ---@return accel.Tensor, accel.Tensor?
  function Base:forward(ids, opts, ...)
    check.surplus("forward", ...)
    return (f.run or stack.run)(self, ids, opts)
  end

  local e = { prefix = f.base, Base = Base, width = function(c) return f.describe(c).width end, vocab = function(c) return c.vocab_size end }
  for name, h in next, f.heads do
    local cls = Root:define(f.prefix .. name, { tied_weights = h.tied or {} })
    heads[h.kind](cls, e, h)
    out[f.prefix .. name] = cls
  end
  return out
end
