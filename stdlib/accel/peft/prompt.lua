--- Virtual tokens before the input, for prompt tuning: the model's own embedding sees tokens that are not there, whose rows the prompt
--- takes.
local accel = require "accel"
local Embedding = require "accel.nn.embedding"
local Module = require "accel.nn.module"
local ModuleDict = require "accel.nn.module_dict"
local QuantizedEmbedding = require "accel.nn.quantized_embedding"
local class = require "accel.util.class"
local configuration = require "accel.models.config"
local raise = require "accel.util.raise"

local M = {}

---@class accel.peft.PromptEmbedding : accel.nn.Module
local PromptEmbedding = Module:extend("accel.peft.PromptEmbedding")

function PromptEmbedding:init(n, dim, make) self.embedding = Embedding(n, dim, make) end

--- The embedding of the tokens: the one with as many rows as the vocabulary.
local function words_of(model)
  local size = configuration.get(model.config, "vocab_size")
  for _, module in pairs(model:named_modules()) do
    local words = class.of(module) == Embedding or class.isinstance(module, QuantizedEmbedding)
    if words and (not size or module.num_embeddings == size) then return module end
  end
  raise("get_peft_model: prompt tuning needs a model that begins with an nn.Embedding of its vocabulary")
end

local function first_values(prompt, words, config)
  local _ <close> = accel.no_grad()
  local n, ids = prompt.embedding.weight.shape[1], nil
  if config.prompt_tuning_init == "SAMPLE_VOCAB" then
    ids = accel.randint(0, words.num_embeddings, { n })
  elseif config.prompt_tuning_init == "TEXT" then
    local folder = config.tokenizer_name_or_path
    local tokenizer, message = accel.text.Tokenizer.from_file(folder:find "%.json$" and folder or folder .. "/tokenizer.json")
    if not tokenizer then raise("get_peft_model: %s", message) end
    local tokens = tokenizer:encode(config.prompt_tuning_init_text).ids
    local list = {}
    for i = 1, n do list[i] = tokens[(i - 1) % #tokens + 1] end
    ids = accel.tensor(list, { dtype = "i64" })
  end
  if ids then prompt.embedding.weight:detach():copy_(words(ids:to(words.weight.device))) end
end

--- Adds the prompt of an adapter to the model: peft.prompt_encoder.<name>.embedding.weight [n, dim], as in PEFT. With
--- num_transformer_submodules = 2 it is [2 n, dim], and prompt tuning uses the first n, before the encoder's ids.
---@param peft accel.peft.PeftModel
---@param name string
---@param config accel.peft.PromptTuningConfig
function M.add(peft, name, config)
  local model = peft.base_model
  local words = words_of(model)
  local dim = words.embedding_dim
  if config.token_dim and config.token_dim ~= dim then
    raise("get_peft_model: token_dim is %d, the model's embeddings have %d", config.token_dim, dim)
  end
  config.token_dim = dim
  local c = configuration.plain(model.config)
  config.num_layers = config.num_layers or c.num_hidden_layers or c.n_layer or c.num_layers
  config.num_attention_heads = config.num_attention_heads or c.num_attention_heads or c.n_head or c.num_heads
  config.num_transformer_submodules = config.num_transformer_submodules or (config.task_type == "SEQ_2_SEQ_LM" and 2 or 1)
  local w = words.weight
  local count = config.num_virtual_tokens * config.num_transformer_submodules
  local prompt = PromptEmbedding(count, dim, { dtype = w.quant_state and "f32" or w.dtype, device = w.device })
  if w.device ~= "meta" then first_values(prompt, words, config) end
  if not peft.prompt_encoder then
    peft.prompt_encoder = ModuleDict()
    words:register_forward_hook(function(_, _, y)
      local virtual = peft._virtual
      if not virtual or not peft.active_adapter then return y end
      if virtual.once then rawset(peft, "_virtual", nil) end -- the next ids are a decoder's
      local n = virtual.n
      local rows = peft.prompt_encoder[peft.active_adapter].embedding.weight:narrow(1, 1, n)
      return accel.cat({ rows:to(y.dtype):unsqueeze(1):expand(y.shape[1], n, y.shape[3]), y:narrow(2, n + 1, y.shape[2] - n) }, 2)
    end)
  end
  peft.prompt_encoder:set(name, prompt)
end

--- n columns of a value before the columns of t [B, T].
local function before(t, n, value)
  return accel.cat({ accel.full({ t.shape[1], n }, value, { dtype = t.dtype, device = t.device }), t }, 2)
end

--- The model over ids [B, T] after n placeholders, whose embeddings are the prompt's. once: later embeddings of the model are unchanged.
local function with_prompt(peft, n, ids, opts, once)
  local guard <close> = setmetatable({}, { __close = function() rawset(peft, "_virtual", nil) end }) -- luacheck: ignore guard
  rawset(peft, "_virtual", { n = n, once = once })
  return peft.base_model(before(ids, n, 0), opts)
end

--- The value for virtual tokens, for text with one value per token.
local FILL <const> = { attention_mask = 1, labels = -100, shift_labels = -100, token_type_ids = 0 }

--- Calls the model with n virtual tokens before ids [B, T]: results are of n + T positions. Labels of virtual tokens are -100, their mask
--- 1. Labels of virtual tokens are -100, their mask 1. A decoder's own ids get no virtual tokens.
---@param peft accel.peft.PeftModel
---@param n integer
---@param ids accel.Tensor
---@param ... any
function M.call(peft, n, ids, opts, ...)
  if type(opts) ~= "table" and opts ~= nil or type(opts) == "table" and (class.of(opts) or opts.cache) or select("#", ...) > 0 then
    raise "a model with a tuned prompt takes ids and one table of options, without a cache: virtual tokens come before every call"
  end
  local more = {}
  for key, value in next, opts or {} do more[key] = value end
  for key, value in next, FILL do
    if more[key] then more[key] = before(more[key], n, value) end
  end
  more.position_ids = nil
  if more.encoder_outputs then raise "a model with a tuned prompt takes no encoder_outputs: virtual tokens come before the encoder's ids" end
  return with_prompt(peft, n, ids, next(more) and more or nil, more.decoder_input_ids ~= nil)
end

-- Generation -------------------------------------------------------------------------------------

--- The model for generation: its context is shorter by the virtual tokens, which are prepended to the first ids of a cache, and to every
--- call without one. Searches, processors and stop strings see real ids alone.
local Prompted = class "accel.peft.Prompted"

function Prompted:init(peft, n)
  self.peft, self.model, self.virtual, self.config = peft, peft:get_base_model(), n, peft.config
  self.training = self.model.training
end

function Prompted:eval() self.model:eval() end
function Prompted:train(mode) self.model:train(mode) end
function Prompted:parameters() return self.model:parameters() end
function Prompted:context_length() return self.model:context_length() - self.virtual end

function Prompted:new_cache(batch, length, opts)
  return self.model:new_cache(batch, length and length + self.virtual, opts)
end

function Prompted:_generation_config()
  if self.model._generation_config then return self.model:_generation_config() end
  return require("accel.models.generation.config").from_model_config(self.model.config)
end

--- Columns are [virtual][padding][ids]: padding is masked, and positions continue from the prompt's without it.
function Prompted:__call(ids, o)
  local n, more = self.virtual, {}
  for key, value in next, o do more[key] = value end
  if o.attention_mask then more.attention_mask = before(o.attention_mask, n, 1) end
  local positions = o.position_ids and o.position_ids + n
  more.position_ids = positions
  if o.cache and o.cache.past > 0 then return self.model(ids, more) end
  if positions then
    local own = accel.arange(n, { device = ids.device }):unsqueeze(1):expand(ids.shape[1], n)
    more.position_ids = accel.cat({ own, positions }, 2)
  end
  return with_prompt(self.peft, n, ids, more)
end

--- Replaces a model with a tuned prompt in models.generate.
---@param peft accel.peft.PeftModel
---@param n integer
---@return table
function M.for_generation(peft, n)
  if peft:get_base_model().begin_generation then
    raise "generate: a tuned prompt only works with models that continue their own text; this one has an encoder"
  end
  return Prompted(peft, n)
end

return M
