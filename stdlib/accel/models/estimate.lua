--- A model's memory, from its config.json alone: the model without its head, as Transformers would build it, which the reference's
--- estimate-memory counts. Used by accel-run estimate-memory.
local accel = require "accel"
local module_sizes = require "accel.nn.module_sizes"
local ordered = require "accel.util.ordered"
local pretrained = require "accel.models.pretrained"

local M = {}

--- Two tables of rotary frequencies that Transformers keeps as buffers.
local function rotary(c)
  local head = c.head_dim or c.hidden_size // c.num_attention_heads
  return { ["rotary_emb.inv_freq"] = 4 * (head // 2), ["rotary_emb.original_inv_freq"] = 4 * (head // 2) }
end

--- By model_type: the class without a head, accel's class that provides it, unsplittable blocks, and Transformers' additional
--- tensors, name -> bytes.
local FAMILIES <const> = {
  bert = { class = "BertModel", whole = { "BertEmbeddings", "BertLayer" }, beyond = function(c)
    return { ["embeddings.position_ids"] = 8 * c.max_position_embeddings, ["embeddings.token_type_ids"] = 8 * c.max_position_embeddings }
  end },
  gpt2 = { class = "GPT2Model", whole = { "GPT2Block" } },
  llama = { class = "LlamaModel", whole = { "LlamaDecoderLayer" }, beyond = rotary },
  mixtral = { class = "MixtralModel", whole = { "MixtralDecoderLayer" }, beyond = rotary },
  resnet = { class = "ResNetModel", whole = { "ResNetConvLayer", "ResNetShortCut" } },
  -- without weights the three embeddings are not tied yet
  t5 = { class = "T5Model", from = "T5ForConditionalGeneration", config = { tie_word_embeddings = true }, whole = { "T5Block" },
    beyond = function(c)
      local bytes = 4 * c.vocab_size * c.d_model
      return { ["encoder.embed_tokens.weight"] = bytes, ["decoder.embed_tokens.weight"] = bytes }
    end },
  vit = { class = "ViTModel", whole = { "ViTEmbeddings", "ViTLayer" } },
}

--- Sizes of a model of these classes: total, largest layer and its names.
local function measure(model, whole, beyond)
  local sizes, direct = module_sizes.compute_module_sizes(model), module_sizes.direct(model, "", true)
  for name, bytes in ordered.iterate(beyond) do
    sizes[""] = (rawget(sizes, "") or 0) + bytes
    local at, part = 0, nil
    repeat
      at = name:find(".", at + 1, true)
      part = at and name:sub(1, at - 1) or name
      sizes[part] = (rawget(sizes, part) or 0) + bytes
    until not at
    local top = name:match "^[^.]*"
    local known = false
    for _, entry in ipairs(direct) do known = known or entry[1] == top end
    if not known then direct[#direct + 1] = { top, false } end -- a module that only Transformers has
  end
  local layer, names = module_sizes.get_max_layer_size(direct, sizes, whole)
  return rawget(sizes, "") or 0, layer, names
end

--- { class =, total =, largest_layer =, layers = names, parameters = } in bytes of float32. On failure returns nil,
--- message, code.
---@param dir string folder with a config.json
---@return {class: string, total: integer, largest_layer: integer, layers: string[], parameters: integer}?, string?, string?
function M.of_folder(dir)
  local config, message, code = pretrained.read_config(dir)
  if not config then return nil, message, code end
  local models = accel.models
  local full, problem = require "accel.models.auto".usual_class(config) -- the family alone: heads are not counted
  if not full then return nil, ("%s/config.json: %s"):format(dir, problem), "unsupported" end
  local family = FAMILIES[full.schema.model_type]
  local given = {}
  for key, value in next, config do given[key] = value end
  for key, value in next, family.config or {} do given[key] = value end
  local ok, model = pcall(models[family.from or family.class], given, { device = "meta" })
  if not ok then return nil, ("%s/config.json: %s"):format(dir, type(model) == "table" and model.message or model), "format" end
  local beyond, parameters = ordered(), 0
  for name, bytes in accel.pairs(family.beyond and family.beyond(model.config) or {}) do beyond[name] = bytes end
  for _, p in ipairs(model:parameters()) do parameters = parameters + p:numel() end
  for name, bytes in ordered.iterate(beyond) do
    if name:find "weight$" then parameters = parameters + bytes // 4 end
  end
  local total, layer, layers = measure(model, family.whole, beyond)
  return { class = family.class, total = total, largest_layer = layer, layers = layers, parameters = parameters }
end

local SHARES <const> = { float32 = 1, float16 = 2, bfloat16 = 2, int8 = 4, int4 = 8 }
M.dtypes = { "float32", "float16", "int8", "int4" }

--- Bytes to train a model of `total` bytes in float32 with Adam: the largest of the reference's four figures, nil for dtypes without
--- training. f32: weights, gradients and two moments. 16 bits: the reference's 2x.
---@param total integer
---@param dtype string
---@return {model: number, gradients: number, optimizer: number, step: number}?
function M.training(total, dtype)
  if dtype == "float32" then return { model = total, gradients = total, optimizer = 2 * total, step = 4 * total } end
  if dtype ~= "float16" and dtype ~= "bfloat16" then return nil end
  return { model = total, gradients = total + total // 2, optimizer = 2 * total, step = 2 * total }
end

--- Bytes in dtype for a number of bytes in float32.
---@param bytes number
---@param dtype string
---@return number
function M.in_dtype(bytes, dtype)
  local share = SHARES[dtype]
  return share == 1 and bytes or bytes / share
end

return M
