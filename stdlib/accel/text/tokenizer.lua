--- text.Tokenizer: Hugging Face's tokenizer.json, in the names of its package and of Transformers: BPE, WordPiece, Unigram
--- and WordLevel models with their normalizers, pre-tokenizers, post-processors, decoders and added tokens. The same ids.
---
---   local tok = assert(accel.text.Tokenizer.from_pretrained "path/to/bert-base-uncased")
---   local enc = tok:encode("To be, or not to be")           -- enc.ids, enc.tokens, enc.offsets
---   local batch = tok({ "one", "two words" }, { padding = true, truncation = true, return_tensors = true })
---   local hidden = model(batch.input_ids, { attention_mask = batch.attention_mask })
---   print(tok:decode(enc.ids))
local accel = require "accel"
local Encoding = require "accel.text.encoding"
local chat_template = require "accel.text.chat_template"
local check = require "accel.util.check"
local arguments = require "accel.util.arguments"
local class = require "accel.util.class"
local core = require "accel.text.core"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local read_file = require "accel.util.read_file"
local special_tokens = require "accel.text.special_tokens"
local tensors = require "accel.util.tensors"
local tokenizer_folder = require "accel.text.tokenizer_folder"
local writer = require "accel.util.writer"

--- example: local tok = accel.text.train_bpe({ "to be or not to be" }, { vocab_size = 262 })
---  return tok:decode(tok:encode("not to be").ids), tok:encode("to be").tokens --> "not to be", { "to", "\u{120}be" }
---@class accel.text.Tokenizer
---@field padding_side "right"|"left"
---@field truncation_side "right"|"left"
---@field model_max_length integer? of the model's folder
---@field chat_template? string|table<string, string> of apply_chat_template: a template, or several by name
---@field pad_token string? and bos_token, eos_token, unk_token, sep_token, cls_token, mask_token, each with its _id
local Tokenizer = class("accel.text.Tokenizer")

local to_str_arguments = arguments("to_str", { "pretty", true })
local size_arguments = arguments("get_vocab_size", { "with_added_tokens", true })
local pair_arguments = arguments("num_special_tokens_to_add", { "is_pair", false })

local SOURCE <const> = 256 << 20 -- bytes of a file that is not a tokenizer.json

---@param native userdata the object of C
function Tokenizer:init(native)
  if type(native) ~= "userdata" then
    raise("Tokenizer: got %s; use Tokenizer.from_file or Tokenizer.from_pretrained", check.shown(native))
  end
  self.native = native
  self.padding_side, self.truncation_side = "right", "right"
end

-- pad_token_id is the id of pad_token as it is now.
Tokenizer.__index = function(self, key)
  local value = Tokenizer[key]
  if value ~= nil or type(key) ~= "string" then return value end
  local name = key:match "^(%l+_token)_id$"
  local token = name and rawget(self, name)
  return token and self.native:token_to_id(token) or nil
end

function Tokenizer.__tostring(self)
  return ("Tokenizer(%s, %d tokens)"):format(self.native:model(), self.native:vocab_size(true))
end

function Tokenizer.__len(self) return self.native:vocab_size(true) end

-- ---- files ----

--- The tokenizer of a tokenizer.json. nil, message, code if the file is missing or wrong.
---@param path string
---@return accel.text.Tokenizer?
---@return string? message
---@return string? code
function Tokenizer.from_file(path)
  if type(path) ~= "string" then raise("Tokenizer.from_file: path must be a string, got %s", check.shown(path)) end
  local native, message, code = core.open(path)
  if not native then return nil, message, code end
  return Tokenizer(native)
end

--- The tokenizer of the text of a tokenizer.json. Faulty text raises.
---@param json string
---@return accel.text.Tokenizer
function Tokenizer.from_str(json) return Tokenizer(core.parse(json)) end

--- The tokenizer of a model's folder: tokenizer.json, with the names of special tokens and the longest text from
--- tokenizer_config.json and special_tokens_map.json. Tokens that only these name are added. Folders without a tokenizer.json are read
--- by the files of their class: vocab.txt, vocab.json with merges.txt, or SentencePiece's tokenizer.model. save_pretrained writes a
--- tokenizer.json.
---@param dir string
---@return accel.text.Tokenizer?
---@return string? message
---@return string? code
function Tokenizer.from_pretrained(dir)
  if type(dir) ~= "string" then raise("Tokenizer.from_pretrained: dir must be a string, got %s", check.shown(dir)) end
  local fine, why, kind = writer.recover(dir)
  if not fine then return nil, why, kind end
  local native, fields, code = tokenizer_folder.read(dir)
  if not native then return nil, fields, code end
  local self = Tokenizer(native)
  for name, value in next, fields do self[name] = value end
  special_tokens.warn_unread(self, self.config)
  return self
end

--- The tokenizer of a SentencePiece model: the pieces, ids and places in the text that SentencePiece gives. A folder whose
--- tokenizer_config.json names a class (LlamaTokenizer, T5Tokenizer) has its rules instead: use Tokenizer.from_pretrained.
---@param path string
---@return accel.text.Tokenizer?
---@return string? message
---@return string? code
function Tokenizer.from_sentencepiece(path)
  if type(path) ~= "string" then raise("Tokenizer.from_sentencepiece: path must be a string, got %s", check.shown(path)) end
  local bytes, message, code = read_file(path, SOURCE)
  if not bytes then return nil, message, code end
  local d, named = require "accel.text.sources.sentencepiece_own".read(bytes)
  if not d then return nil, ("%s: %s"):format(path, named), "parse" end
  local native, why, kind = tokenizer_folder.parse(d:json(), path)
  if not native then return nil, why, kind end
  local self = Tokenizer(native)
  for name, token in next, named do self[name] = token end
  return self
end

--- The tokenizer of a file of tiktoken: lines of a token in base 64 and its rank. How texts are cut (pattern, a regular expression) and the
--- ids of special tokens do not stand in the file.
---
---   local tok = assert(accel.text.Tokenizer.from_tiktoken("qwen.tiktoken", {
---     pattern = PATTERN, special_tokens = { ["<|endoftext|>"] = 151643 },
---   }))
---
---@param path string
---@param opts {pattern: string, special_tokens: table<string, integer>?}
---@return accel.text.Tokenizer?
---@return string? message
---@return string? code
function Tokenizer.from_tiktoken(path, opts, ...)
  if type(path) ~= "string" then raise("Tokenizer.from_tiktoken: path must be a string, got %s", check.shown(path)) end
  local o = options("Tokenizer.from_tiktoken", opts, { pattern = "", special_tokens = {} }, ...)
  if o.pattern == "" then raise "Tokenizer.from_tiktoken: pattern is missing; give the regular expression that cuts texts" end
  for token, id in next, o.special_tokens do
    if type(token) ~= "string" or math.type(id) ~= "integer" or id < 0 then
      raise("Tokenizer.from_tiktoken: special_tokens must hold ids by token, got %s = %s", check.shown(token), check.shown(id))
    end
  end
  local bytes, message, code = read_file(path, SOURCE)
  if not bytes then return nil, message, code end
  local d, why = require "accel.text.sources.tiktoken".read(bytes, o.pattern, o.special_tokens)
  if not d then return nil, ("%s: %s"):format(path, why), "parse" end
  local native, fault, kind = tokenizer_folder.parse(d:json(), path)
  if not native then return nil, fault, kind end
  return Tokenizer(native)
end

--- The text of a tokenizer.json with all additions and settings.
---@param ... any pretty = true, by position or in a table
---@return string
function Tokenizer:to_str(...) return self.native:json(to_str_arguments(...).pretty) end

--- How a data worker makes it again (accel.data.worker_spec).
function Tokenizer:worker_spec()
  local fields = {}
  for key, value in next, self do
    if key ~= "native" then fields[key] = value end
  end
  return { module = "accel.text.tokenizer:from_worker_spec", args = { self:to_str(false), fields } }
end

--- The object described by worker_spec.
---@param json string
---@param fields table
---@return accel.text.Tokenizer
function Tokenizer.from_worker_spec(json, fields)
  local self = Tokenizer.from_str(json)
  for key, value in next, fields do self[key] = value end
  return self
end

local told_of_steps = false

--- The text of a tokenizer.json that is going to be written.
local function written(self)
  local text = self:to_str()
  if not told_of_steps and text:find('"type": "SentencePiece"', 1, true) then
    told_of_steps = true
    warn "tokenizer.json: its steps of type SentencePiece are read by accel alone; keep the .model file for other programs"
  end
  return text
end

--- Writes a tokenizer.json. Returns true. On failure returns nil, message, code.
---@param path string
---@return boolean?
---@return string? message
---@return string? code
function Tokenizer:save(path) return accel.write_file(path, written(self)) end

--- Its files of a model's folder, texts by name: tokenizer.json, tokenizer_config.json, special_tokens_map.json and the chat template.
---@return table<string, string>
function Tokenizer:_files()
  local config, map = ordered(), ordered() -- a configuration that was read keeps its order
  for key, value in ordered.iterate(self.config or {}) do config[key] = value end
  for _, name in ipairs(special_tokens.names) do
    if rawget(self, name) then config[name], map[name] = self[name], self[name] end
  end
  config.padding_side, config.truncation_side = self.padding_side, self.truncation_side
  config.model_max_length = self.model_max_length
  config.tokenizer_class = config.tokenizer_class or "PreTrainedTokenizerFast"
  local files = { ["tokenizer.json"] = written(self), [chat_template.FILE] = chat_template.place(config, self.chat_template) }
  files["tokenizer_config.json"] = accel.json.encode(config, { pretty = true }) .. "\n"
  files["special_tokens_map.json"] = accel.json.encode(map, { pretty = true }) .. "\n"
  return files
end

--- Writes tokenizer.json, tokenizer_config.json, special_tokens_map.json and the chat template into a folder, which is made. They
--- replace another tokenizer's files together. Returns true. On failure returns nil, message, code.
---@param dir string
---@return boolean?
---@return string? message
---@return string? code
function Tokenizer:save_pretrained(dir)
  local files = self:_files()
  local set <close>, message, code = writer.set(dir)
  if not set then return nil, message, code end
  for name, text in accel.pairs(files) do
    local ok, why, kind = set:write(name, text)
    if not ok then return nil, why, kind end
  end
  if not files[chat_template.FILE] then set:remove(chat_template.FILE) end -- of the tokenizer before
  return set:commit()
end

-- ---- vocabulary ----

--- The id of a token, or nil.
---@param token string
---@return integer?
function Tokenizer:token_to_id(token) return self.native:token_to_id(token) end

--- The token of an id, or nil.
---@param id integer
---@return string?
function Tokenizer:id_to_token(id) return self.native:id_to_token(id) end

--- How many tokens there are. Ids need not be without gaps: the largest is below tok:id_limit().
---@param ... any with_added_tokens = true, by position or in a table
---@return integer
function Tokenizer:get_vocab_size(...) return self.native:vocab_size(size_arguments(...).with_added_tokens) end

--- One more than the largest id: the rows that an embedding needs.
---@return integer
function Tokenizer:id_limit() return self.native:id_limit() end

--- Ids by token.
---@return table<string, integer>
function Tokenizer:get_vocab()
  local native, vocab = self.native, {}
  for id = 0, native:id_limit() - 1 do
    local token = native:id_to_token(id)
    if token then vocab[token] = id end
  end
  for _, added in ipairs(native:added_tokens()) do vocab[added.content] = added.id end
  return vocab
end

--- The added tokens by id, as lists of {content =, id =, special =, lstrip =, rstrip =, single_word =, normalized =}.
---@return table[]
function Tokenizer:get_added_tokens() return self.native:added_tokens() end

local function added(what, tokens, special)
  if type(tokens) ~= "table" then tokens = { tokens } end
  if tokens.content then tokens = { tokens } end
  local list = {}
  for i, token in ipairs(tokens) do
    if type(token) == "string" then token = { content = token } end
    local o = options(what, token, {
      content = "", special = special, single_word = false, lstrip = false, rstrip = false, normalized = options.none,
    })
    if o.content == "" then raise("%s: token %d has no content", what, i) end
    list[i] = o
  end
  return list
end

--- Adds tokens that are found in texts before all else: strings, or tables {content =, single_word =, lstrip =, rstrip =,
--- normalized =}. Returns how many were new. A model's embedding may have to grow to tok:id_limit() rows.
---@param tokens string|table|(string|table)[]
---@return integer
function Tokenizer:add_tokens(tokens) return self.native:add_tokens(added("add_tokens", tokens, false)) end

--- Adds tokens that decoding leaves out, and that are not normalised.
---@param tokens string|table|(string|table)[]
---@return integer
function Tokenizer:add_special_tokens(tokens)
  return self.native:add_tokens(added("add_special_tokens", tokens, true))
end

--- Special tokens that are put around a text, or a pair of texts.
---@param ... any is_pair = false, by position or in a table
---@return integer
function Tokenizer:num_special_tokens_to_add(...) return self.native:n_special(pair_arguments(...).is_pair) end

-- ---- truncation and padding of encode and encode_batch ----
local strategies = { longest_first = 0, only_first = 1, only_second = 2 }

local function truncation_of(who, o)
  local strategy = strategies[o.strategy] or raise("%s: strategy must be longest_first, only_first or only_second, got %s",
    who, check.shown(o.strategy))
  return {
    max_length = check.count(who, "max_length", o.max_length), stride = check.count(who, "stride", o.stride),
    strategy = strategy, left = check.word(who, "direction", o.direction, { "left", "right" }) == "left",
  }
end

--- encode and encode_batch cut texts to max_length tokens from here on, and save keeps it.
---@param max_length integer
---@param opts? {stride: integer?, strategy: string?, direction: string?}
function Tokenizer:enable_truncation(max_length, opts, ...)
  local o = options("enable_truncation", opts, { stride = 0, strategy = "longest_first", direction = self.truncation_side }, ...)
  o.max_length = max_length
  self.native:set_truncation(truncation_of("enable_truncation", o))
end

--- encode and encode_batch cut nothing.
function Tokenizer:no_truncation() self.native:set_truncation(nil) end

--- encode and encode_batch pad to `length`, or to the longest of a batch, from here on, and save keeps it.
---@param opts? {direction: string?, pad_id: integer?, pad_type_id: integer?, pad_token: string?, length: integer?, pad_to_multiple_of: integer?}
function Tokenizer:enable_padding(opts, ...)
  local token = self.pad_token or "[PAD]"
  local o = options("enable_padding", opts, {
    direction = self.padding_side, pad_id = self.native:token_to_id(token) or 0, pad_type_id = 0, pad_token = token,
    length = options.none, pad_to_multiple_of = 0,
  }, ...)
  self.native:set_padding {
    length = o.length, multiple = o.pad_to_multiple_of, id = o.pad_id, type_id = o.pad_type_id, token = o.pad_token,
    left = check.word("enable_padding", "direction", o.direction, { "left", "right" }) == "left",
  }
end

--- encode and encode_batch pad nothing.
function Tokenizer:no_padding() self.native:set_padding(nil) end

-- ---- encoding ----

--- Numbers for dropout come from the default generator, so that runs repeat.
local function seed_of(self)
  local _, random = self.native:model()
  return random and accel.randint(0, 2 ^ 31 - 1, { 1 }):item() or nil
end

--- A text, or a pair of them. Without truncation and padding set, nothing is cut and nothing added but the special tokens.
---@param text string
---@param pair? string|table the second text, or the options
---@param opts? {add_special_tokens: boolean?, offsets: boolean?, split_special_tokens: boolean?}
---@return accel.text.Encoding
function Tokenizer:encode(text, pair, opts, ...)
  if type(pair) == "table" and opts == nil then pair, opts = nil, pair end
  local o = options("encode", opts, { add_special_tokens = true, offsets = true, split_special_tokens = false }, ...)
  local native = self.native
  o.truncation, o.overflowing, o.seed = native:truncation(), true, seed_of(self)
  local x, padding = native:encode(text, pair, o), native:padding()
  if padding then core.pad({ x }, padding) end
  return Encoding(x)
end

--- Many texts on all threads: strings, or pairs {text, text}. Returns a list of Encodings. With return_tensors, i64 tensors
--- by Hugging Face's names: input_ids, attention_mask, token_type_ids. Without padding and truncation among the options,
--- those that were set hold. For the other options see tok(...).
---
--- example: local tok = accel.text.train_bpe({ "" }, { vocab_size = 257, special_tokens = { "<pad>" } })
---  tok.pad_token = "<pad>" local b = tok:encode_batch({ "!", '!"#' }, { padding = true, return_tensors = true })
---  return b.input_ids, b.attention_mask --> { { 1, 0, 0 }, { 1, 2, 3 } }, { { 1, 0, 0 }, { 1, 1, 1 } }
---@param texts (string|string[])[]
---@param opts? table
---@return accel.text.Encoding[]|table<string, accel.Tensor>
function Tokenizer:encode_batch(texts, opts, ...)
  return require("accel.text.batch_encoding").encode_batch(self, texts, opts, seed_of(self), ...)
end

--- As Transformers' tokenizers are called: a text or a list of texts, maybe with as many second texts, to a table of
--- input_ids, attention_mask and token_type_ids: lists, or i64 tensors with return_tensors = true. A list may hold pairs
--- {text, text} in the place of texts.
---@param text string|(string|string[])[]
---@param pair? string|string[]|table second texts, or the options
---@param opts? table
---  text_pair string|string[]: second texts
---  add_special_tokens boolean = true: add the post-processor's tokens
---  padding boolean|string: true or "longest", "max_length". false: none (default: the tokenizer's setting)
---  truncation boolean|string: true or "longest_first", "only_first", "only_second". false: none
---  max_length integer: of truncation and padding (default: the model's)
---  stride integer = 0: tokens that overflowing pieces share
---  pad_to_multiple_of integer: lengths are multiples of it
---  padding_side string: "left" or "right" (default: the tokenizer's)
---  return_tensors boolean|string: i64 tensors in the place of lists
---  return_token_type_ids boolean: (default: whether the model reads them)
---  return_attention_mask boolean = true: 1 for tokens, 0 for padding
---  return_special_tokens_mask boolean = false: 1 for tokens that were put around
---  return_offsets_mapping boolean = false: places in the text, of characters, from 0, half open
---  return_overflowing_tokens boolean = false: return the truncated rest as separate rows
---  return_length boolean = false: tokens of each row
---  split_special_tokens boolean = false: read special tokens in a text as text
---@return table
function Tokenizer.__call(self, text, pair, opts, ...)
  return require("accel.text.batch_encoding").call(self, text, pair, opts, seed_of(self), ...)
end

--- The ids of a text as a list, or with return_tensors as an i64 tensor [1, tokens]. Options of tok(...).
---@param text string
---@param opts? table
---@return integer[]|accel.Tensor
function Tokenizer:ids(text, opts, ...) return self(text, nil, opts, ...).input_ids end

--- The text of a chat in the words of the model, by the template of its folder (accel.text.Template): ids for model:generate, or
--- with tokenize = false the text itself.
---
---   local ids = tok:apply_chat_template({ { role = "user", content = "Hello!" } }, { add_generation_prompt = true })
---
---@param messages {role: string, content: any}[]
---@param opts? table
---  add_generation_prompt boolean = false: end with the beginning of an answer
---  continue_final_message boolean|string = false: the last message stays open, or the text of its field with this name
---  tokenize boolean = true: ids. false: the text
---  return_tensors boolean = false: ids as an i64 tensor [1, T]
---  return_dict boolean = false: a table of input_ids, attention_mask and, if asked for, assistant_masks
---  return_assistant_tokens_mask boolean = false: 1 for tokens that {% generation %} of the template marks. With tokenize = false the
---    second result has their places: pairs of characters, from 0 and half open
---  tools, documents list: for the template (keys of plain tables are sorted, json.decode(text, { ordered = true }) keeps their order)
---  chat_template string: another template, or the name of one of several
---  variables table: variables of the template. All other options are variables: enable_thinking = false
---  template_limit number = 1: how many times the usual work the template may take (accel.text.Template:render)
---@return integer[]|string|accel.Tensor|table
---@return integer[][]? spans
function Tokenizer:apply_chat_template(messages, opts, ...) return chat_template.apply(self, messages, opts, ...) end

-- ---- decoding ----

--- The text of ids: a list, or a tensor of rank 1.
---@param ids integer[]|accel.Tensor
---@param opts? {skip_special_tokens: boolean?} default true
---@return string
function Tokenizer:decode(ids, opts, ...)
  local o = options("decode", opts, { skip_special_tokens = true }, ...)
  if type(ids) == "number" then ids = { ids } end
  if tensors.is_tensor(ids) then
    if #ids.shape == 0 then ids = ids:view(1) end
    ids = ids:detach():to("cpu"):to("i64"):contiguous()
  end
  return self.native:decode(ids, o.skip_special_tokens)
end

--- The texts of several lists of ids, or of the rows of a tensor.
---@param batch integer[][]|accel.Tensor
---@param opts? {skip_special_tokens: boolean?}
---@return string[]
function Tokenizer:decode_batch(batch, opts, ...)
  options("decode_batch", opts, { skip_special_tokens = true }, ...)
  local out = {}
  if tensors.is_tensor(batch) then batch = batch:tolist() end
  for i, ids in ipairs(batch) do out[i] = self:decode(ids, opts) end
  return out
end

--- The text of ids that come one at a time.
---@param opts? {skip_special_tokens: boolean?} default true
---@return accel.text.DecodeStream
function Tokenizer:decode_stream(opts, ...)
  local o = options("decode_stream", opts, { skip_special_tokens = true }, ...)
  return require "accel.text.decode_stream"(self, o.skip_special_tokens)
end

return Tokenizer
