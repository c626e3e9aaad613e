--- models.generate(model, ids, opts): continues token sequences with a language model, or with an encoder-decoder answers
--- them, in the names of Transformers' generate and GenerationConfig. Used as model:generate.
---
--- The work is in generation/: config (options), prompts, decoder (model, cache, masks), processors and sampling (scores),
--- stopping, and the searches sample, beam_search and assisted.
local Decoder = require "accel.models.generation.decoder"
local GenerationConfig = require "accel.models.generation.config"
local configuration = require "accel.models.config"
local Random = require "accel.util.random"
local Stopping = require "accel.models.generation.stopping"
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local no_effect = require "accel.util.no_effect"
local prompts = require "accel.models.generation.prompts"
local processors = require "accel.models.generation.processors"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local NEW <const> = 32 -- ids of a prompt without a given length

--- Options of a call that are not GenerationConfig's.
local own_options = {
  input_ids = true, attention_mask = true, generation_config = true, seed = true, on_token = true, streamer = true,
  assistant_model = true, tokenizer = true, logits_processor = true, stopping_criteria = true,
  prefix_allowed_tokens_fn = true, past_key_values = true, decoder_input_ids = true,
}

---@class accel.models.GenerateOutput
---@field sequences integer[][] the new ids of every row
---@field scores? accel.Tensor[] with output_scores: the scores of each step [N, V] after processing
---@field logits? accel.Tensor[] with output_logits: as the model gave them
---@field sequences_scores? number[] of beam search
---@field beam_indices? integer[][] of beam search: which row (0-based) each id came from
---@field assisted? {proposed: integer, accepted: integer, passes: integer} of assisted generation

local function is_options(t)
  return type(t) == "table" and t[1] == nil and type(next(t)) == "string"
end

--- Splits a call's options into its own and GenerationConfig's.
local function split(given)
  local own, config = {}, {}
  for key, value in next, given do
    if own_options[key] then own[key] = value else config[key] = value end
  end
  return own, config
end

--- The model's configuration, or the one that the call gives.
local function base_of(model, given)
  if given == nil then
    if model._generation_config then return model:_generation_config() end
    return GenerationConfig.from_model_config(model.config)
  end
  if class.isinstance(given, GenerationConfig) then return given end
  if type(given) ~= "table" then raise("generate: generation_config must be a table, got %s", check.shown(given)) end
  return GenerationConfig.check("generate: generation_config", given)
end

--- Maximum new ids: max_new_tokens, or the remainder of max_length.
local function room_of(o, width)
  if o.max_new_tokens then return o.max_new_tokens end
  if not o.max_length then return NEW end
  if o.max_length <= width then
    raise("generate: max_length is %d, but the prompt has %d tokens already", o.max_length, width)
  end
  return o.max_length - width
end

--- The model to run: for one with adapters, its wrapped model.
local function runs(model)
  if model and model._for_generation then return model:_for_generation() end
  return model
end

--- Whether a value is an object with all of these methods.
local function has_methods(value, ...)
  if type(value) ~= "table" then return false end
  for _, name in ipairs { ... } do
    if type(value[name]) ~= "function" then return false end
  end
  return true
end

--- Raises for a streamer or a draft model that is none.
local function check_objects(model, own)
  local streamer, assistant = own.streamer, own.assistant_model
  if streamer ~= nil and not has_methods(streamer, "put", "finish") then
    raise("generate: streamer must have the methods put and finish, as accel.text.TextStreamer, got %s%s", check.shown(streamer),
      type(streamer) == "function" and "; on_token must be a function" or "")
  end
  if assistant == nil then return end
  if not has_methods(assistant, "eval", "train", "new_cache") then
    raise("generate: assistant_model must be a model that generates, got %s", check.shown(assistant))
  end
  if (assistant.begin_generation ~= nil) ~= (model.begin_generation ~= nil) then
    raise "generate: assistant_model and the model must both have an encoder, or neither; otherwise its proposals belong to another text"
  end
end

local function widest(rows)
  local width = 0
  for _, row in ipairs(rows) do width = math.max(width, #row) end
  return width
end

local function refuse_assisted(o, rows)
  if #rows ~= 1 then raise("generate: assisted generation takes one prompt, got %d", #rows) end
  if o.num_beams > 1 then raise "generate: assisted generation has no beams" end
  if o.num_return_sequences > 1 then raise "generate: assisted generation returns one sequence" end
  if not o.use_cache then raise "generate: assisted generation needs use_cache" end
  if o.output_scores or o.output_logits then raise "generate: assisted generation keeps no scores" end
end

--- The search over `rows`.
local function search(model, rows, o, own)
  local filler
  o.ends, o.end_list, filler = Stopping.ends_of(o)
  local encoder = model.begin_generation ~= nil
  local width = encoder and (own.given and own.given.rows and widest(own.given.rows) or 1) or widest(rows)
  local room = room_of(o, width)
  local least = math.max(o.min_new_tokens or 0, (o.min_length or 0) - width)
  if least > room then warn(("generate: the minimum of %d new tokens exceeds the room for %d"):format(least, room)) end
  local assistant = own.assistant_model
  local assisted = assistant ~= nil or o.prompt_lookup_num_tokens ~= nil
  if assisted then refuse_assisted(o, rows) end
  local spare = assisted and 1 or 0 -- a checked proposal may follow the last id
  local how = {
    filler = filler, room = room + spare, use_cache = o.use_cache, cache_implementation = o.cache_implementation,
    cache_config = o.cache_config, past_key_values = own.past_key_values, given = own.given,
  }
  local decoder = Decoder(model, rows, how)
  o.filler, o.n_prompts, o.prompt_width = filler or 0, #rows, decoder.width
  o.max_width = decoder.width + room
  o.encoder_ids = rows -- of a model without an encoder too, as in Transformers
  o.random, o.copies = Random(own.seed or 0, 0x67656e), o.num_return_sequences
  o.stop_strings = o.stop_strings or nil
  for _, key in ipairs { "tokenizer", "stopping_criteria", "logits_processor", "prefix_allowed_tokens_fn", "on_token", "streamer" } do
    o[key] = own[key]
  end
  o.process, o.any_process = processors.build(o)
  o.stopping = Stopping(o)
  if o.num_beams > 1 then
    if o.on_token or o.streamer then raise "generate: beams change until the end: on_token and streamer need num_beams = 1" end
    return require "accel.models.generation.beam_search"(decoder, o)
  end
  if o.streamer then o.streamer:put(rows[1]) end
  local run = "accel.models.generation.sample"
  if assisted then
    run = "accel.models.generation.assisted"
    local function size_of(m) return m and configuration.get(m.config, "vocab_size") end
    o.vocab_size, o.draft_vocab_size = size_of(model), size_of(assistant)
    if assistant then o.draft = Decoder(assistant, rows, { filler = filler, room = room + spare, use_cache = true }) end
  end
  local out = require(run)(decoder, o)
  if o.streamer then o.streamer:finish() end
  return out
end

--- Returns the new ids: a list, or a list of lists for several prompts, which may differ in length, or for several
--- sequences a prompt. A row that ended before the others is padded with the padding token. Options that the call does not
--- give come from the model's generation_config.json. generate(model, { input_ids = ids, ... }) is the same.
---
--- example: local m = accel.models.GPT2(accel.models.tiny.gpt2)
---   return #m:generate({ 1, 2 }, { max_new_tokens = 3, eos_token_id = false }) --> 3
---@param model any
---@param ids integer[]|integer[][]|accel.Tensor|table
---@param opts? table
---  attention_mask accel.Tensor: of ids that are padded already: 0 for padding
---  decoder_input_ids integer[][]|accel.Tensor: of a model with an encoder: the first ids of its decoder, in place of the start token
---  generation_config accel.models.GenerationConfig|table: in place of the model's own
---    max_new_tokens integer = 32, or max_length, with the prompt. min_new_tokens, min_length
---  do_sample boolean: sample ids (default: if temperature, top_k, top_p, min_p or typical_p are given)
---  temperature number = 1, top_k integer = 50 (0: all), top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff: of sampling;
---  temperature = 0: the greatest is taken
---  seed integer = 0: of the draw
---  num_beams integer = 1: beam search, with length_penalty = 1, early_stopping = false|true|"never"
---  num_return_sequences integer = 1: of each prompt
---  repetition_penalty, no_repeat_ngram_size, bad_words_ids, suppress_tokens, sequence_bias, ...: of the scores
---  eos_token_id integer|integer[]|false: ends a row. false: none does (default: the configuration's)
---  stop_strings string|string[]: end a row. They need tokenizer
---  tokenizer accel.text.Tokenizer: of stop_strings
---  stopping_criteria function: fun(row, scores): boolean, true ends a row
---  logits_processor function: fun(rows, scores): the scores to choose from
---  prefix_allowed_tokens_fn function: fun(prompt, row): the ids that may follow
---  max_time number: seconds
---  use_cache boolean = true, cache_implementation "static"|"dynamic"|"quantized"|"sliding_window", cache_config {dtype = "bf16"}
---  past_key_values accel.models.KVCache: a cache (model:new_cache) that has seen the beginning of the prompt, and will have seen all but the last id
---  assistant_model accel.models.PreTrainedModel: a draft model, with num_assistant_tokens. Or prompt_lookup_num_tokens
---  on_token function: called with the new ids after each step. It ends the text by returning false
---  streamer table: {put = fn(self, ids), finish = fn(self)}, gets the prompt, then the ids of each step (accel.text.TextStreamer)
---  return_dict_in_generate boolean = false: a table of sequences, scores (output_scores), logits (output_logits) ...
---@return integer[]|integer[][]|accel.models.GenerateOutput
function M.run(model, ids, opts, ...)
  check.surplus("generate", ...)
  if type(model) ~= "table" or not getmetatable(model) then raise("generate: expected a model, got %s", check.shown(model)) end
  if opts == nil and is_options(ids) then ids, opts = ids.input_ids, ids end
  if opts ~= nil and type(opts) ~= "table" then raise("generate: options must be a table, got %s", check.shown(opts)) end
  local own, given = split(opts or {})
  model, own.assistant_model = runs(model), runs(own.assistant_model)
  if own.seed ~= nil then check.integer("generate", "seed", own.seed) end
  if own.on_token ~= nil then check.callable("generate", "on_token", own.on_token) end
  check_objects(model, own)
  GenerationConfig._known("generate", given, own_options)
  local o = GenerationConfig.resolve("generate", given, base_of(model, own.generation_config), own.assistant_model ~= nil)
  if own.seed and not o.do_sample then no_effect.once("generate", "seed", "without do_sample = true, which draws") end
  if own.tokenizer and not o.stop_strings then no_effect.once("generate", "tokenizer", "without stop_strings, which it decodes texts for") end
  local rows, single
  if tensors.is_tensor(ids) and tensors.is_floating(ids.dtype) then
    if not model.hears then raise("generate: ids must be integers, got %s; only models of features take floats", ids.dtype) end
    own.given, rows, single = { features = ids }, {}, false
    for b = 1, ids.shape[1] do rows[b] = { 0 } end -- the encoder reads no ids
  else
    rows, single = prompts.read(ids, own.attention_mask)
  end
  if own.decoder_input_ids ~= nil then
    if not model.begin_generation then raise "generate: decoder_input_ids are for a model with an encoder" end
    own.given = own.given or {}
    own.given.rows = prompts.read(own.decoder_input_ids)
    if #own.given.rows ~= #rows then raise("generate: %d rows of decoder_input_ids for %d prompts", #own.given.rows, #rows) end
  end
  local assistant = own.assistant_model
  local was, its = model.training, assistant and assistant.training
  model:eval()
  if assistant then assistant:eval() end
  local ok, result = pcall(function()
    local _ <close> = accel.no_grad()
    return search(model, rows, o, own)
  end)
  model:train(was)
  if assistant then assistant:train(its) end
  if not ok then error(result, 0) end
  if o.return_dict_in_generate then return result end
  return single and #result.sequences == 1 and result.sequences[1] or result.sequences
end

return setmetatable(M, { __call = function(_, ...) return M.run(...) end })
