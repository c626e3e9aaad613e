--- Virtual tokens before the input: of prompt tuning, P-tuning and multitask prompt tuning the model's own embedding sees tokens that are
--- not there, whose rows the prompt takes. Of prefix tuning the layers see a cache that learns (prefix.lua).
local accel = require "accel"
local Embedding = require "accel.nn.embedding"
local ModuleDict = require "accel.nn.module_dict"
local QuantizedEmbedding = require "accel.nn.quantized_embedding"
local class = require "accel.util.class"
local configuration = require "accel.models.config"
local encoders = require "accel.peft.prompt_encoders"
local prefix = require "accel.peft.prefix"
local raise = require "accel.util.raise"

local M = {}

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
  elseif prompt.take and config.prompt_tuning_init ~= "RANDOM" then
    return prompt:take(config)
  end
  if ids then prompt.embedding.weight:detach():copy_(words(ids:to(words.weight.device))) end
end

--- Completes the sizes from the model.
local function complete(config, model, words)
  local dim = words.embedding_dim
  if config.token_dim and config.token_dim ~= dim then
    raise("get_peft_model: token_dim is %d, the model's embeddings have %d", config.token_dim, dim)
  end
  config.token_dim = dim
  local c = configuration.plain(model.config)
  config.num_layers = config.num_layers or c.num_hidden_layers or c.n_layer or c.num_layers
  config.num_attention_heads = config.num_attention_heads or c.num_attention_heads or c.n_head or c.num_heads
  config.num_transformer_submodules = config.num_transformer_submodules or (config.task_type == "SEQ_2_SEQ_LM" and 2 or 1)
  if config.peft_type == "P_TUNING" then config.encoder_hidden_size = config.encoder_hidden_size or dim end
end

--- Adds the prompt of an adapter to the model, as in PEFT: peft.prompt_encoder.<name>.embedding.weight [n, dim], of prefix tuning
--- [n, layers * 2 * dim]. With num_transformer_submodules = 2 it is [2 n, dim], and the first n come before the encoder's ids.
---@param peft accel.peft.PeftModel
---@param name string
---@param config table
function M.add(peft, name, config)
  local model = peft.base_model
  local words = words_of(model)
  local w = words.weight
  local make = { dtype = w.quant_state and "f32" or w.dtype, device = w.device }
  if config.peft_type == "PREFIX_TUNING" then config:complete(model) else complete(config, model, words) end
  local prompt = encoders.make(config, make)
  local textual = config.peft_type == "PROMPT_TUNING" or config.peft_type == "MULTITASK_PROMPT_TUNING"
  if textual and w.device ~= "meta" then first_values(prompt, words, config) end
  if not peft.prompt_encoder then
    peft.prompt_encoder = ModuleDict()
    words:register_forward_hook(function(_, _, y)
      local virtual = peft._virtual
      if not virtual or not peft.active_adapter then return y end
      if virtual.once then rawset(peft, "_virtual", nil) end -- the next ids are a decoder's
      local n = virtual.n
      local rows = peft.prompt_encoder[peft.active_adapter]:rows(virtual.tasks)
      if rows.ndim == 2 then rows = rows:unsqueeze(1) end
      rows = rows:narrow(2, 1, n)
      return accel.cat({ rows:to(y.dtype):expand(y.shape[1], n, y.shape[3]), y:narrow(2, n + 1, y.shape[2] - n) }, 2)
    end)
  end
  peft.prompt_encoder:set(name, prompt)
end

--- n columns of a value before the columns of t [B, T].
local function before(t, n, value)
  return accel.cat({ accel.full({ t.shape[1], n }, value, { dtype = t.dtype, device = t.device }), t }, 2)
end

--- The model over ids [B, T] after n placeholders, whose embeddings are the prompt's. virtual.once: later embeddings of the model are
--- unchanged.
local function with_prompt(peft, virtual, ids, opts)
  local guard <close> = setmetatable({}, { __close = function() rawset(peft, "_virtual", nil) end }) -- luacheck: ignore guard
  rawset(peft, "_virtual", virtual)
  return peft.base_model(before(ids, virtual.n, 0), opts)
end

--- The value for virtual tokens, for text with one value per token.
local FILL <const> = { attention_mask = 1, labels = -100, shift_labels = -100, token_type_ids = 0 }

--- Calls the model over ids [B, T] with n virtual tokens before them. Their labels are -100 and their mask is 1. A decoder's own ids get no
--- virtual tokens. Results are of n + T positions, with prefix tuning of T.
---@param peft accel.peft.PeftModel
---@param config table
---@param ids accel.Tensor
---@param ... any
function M.call(peft, config, ids, opts, ...)
  if type(opts) ~= "table" and opts ~= nil or type(opts) == "table" and (class.of(opts) or opts.cache) or select("#", ...) > 0 then
    raise "a model with a tuned prompt takes ids and one table of options, without a cache: virtual tokens come before every call"
  end
  local n, more = config.num_virtual_tokens, {}
  for key, value in next, opts or {} do more[key] = value end
  if config.peft_type == "PREFIX_TUNING" then
    if more.attention_mask then more.attention_mask = before(more.attention_mask, n, 1) end
    more.position_ids = more.position_ids and more.position_ids + n
    more.cache = prefix.Cache(peft.prompt_encoder[peft.active_adapter]:rows(), config, ids.shape[1])
    return peft.base_model(ids, more)
  end
  local encodes = peft:get_base_model().begin_generation ~= nil or more.decoder_input_ids ~= nil -- so that labels are a decoder's
  for key, value in next, FILL do
    if encodes and (key == "labels" or key == "shift_labels") then value = nil end
    if value and accel.is_tensor(more[key]) and more[key].ndim == 2 then more[key] = before(more[key], n, value) end
  end
  more.position_ids = nil
  if more.encoder_outputs then raise "a model with a tuned prompt takes no encoder_outputs: virtual tokens come before the encoder's ids" end
  local virtual = { n = n, once = encodes, tasks = more.task_ids }
  more.task_ids = nil
  return with_prompt(peft, virtual, ids, next(more) and more or nil)
end

-- Generation -------------------------------------------------------------------------------------

--- The model for generation: its context is shorter by the virtual tokens, which are prepended to the first ids of a cache, and to every
--- call without one. Searches, processors and stop strings see real ids alone.
local Prompted = class "accel.peft.Prompted"

function Prompted:init(peft, config)
  self.peft, self.model, self.virtual, self.config = peft, peft:get_base_model(), config.num_virtual_tokens, peft.config
  self.adapter = config
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
  if self.adapter.peft_type == "PREFIX_TUNING" then
    local rows = self.peft.prompt_encoder[self.peft.active_adapter]:rows()
    if not o.cache then more.cache = prefix.Cache(rows, self.adapter, ids.shape[1])
    elseif o.cache.past == 0 then prefix.fill(o.cache, rows, self.adapter) end
    return self.model(ids, more)
  end
  if o.cache and o.cache.past > 0 then return self.model(ids, more) end
  if positions then
    local own = accel.arange(n, { device = ids.device }):unsqueeze(1):expand(ids.shape[1], n)
    more.position_ids = accel.cat({ own, positions }, 2)
  end
  return with_prompt(self.peft, { n = n }, ids, more)
end

--- Replaces a model with a tuned prompt in models.generate.
---@param peft accel.peft.PeftModel
---@param config table
---@return table
function M.for_generation(peft, config)
  if peft:get_base_model().begin_generation then
    raise "generate: a tuned prompt only works with models that continue their own text; this one has an encoder"
  end
  if config.peft_type == "MULTITASK_PROMPT_TUNING" then
    raise "generate: a multitask prompt needs task_ids for each row, which generate does not pass on; call the model itself"
  end
  return Prompted(peft, config)
end

return M
