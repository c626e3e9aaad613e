--- Tokenizers of SentencePiece's files as Transformers' classes make them: Llama, Gemma, T5, XLM-RoBERTa, ALBERT and DeBERTa v2. A file
--- without a class follows SentencePiece's own rules (sentencepiece_own.lua). Used by sources/init.lua.
local accel = require "accel"
local Description = require "accel.text.sources.description"
local base64 = require "accel.util.base64"
local file = require "accel.text.sources.sentencepiece_file"
local special = require "accel.text.sources.special"

local M = { FILES = { "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model" } }

local SPACE <const> = "\u{2581}"

local object = Description.object

local function metaspace(prepend, split)
  return object("type", "Metaspace", "replacement", SPACE, "prepend_scheme", prepend, "split", split)
end

local function by_words(prepend)
  return Description.sequence("pretokenizers", { { type = "WhitespaceSplit" }, metaspace(prepend, true) })
end

local function replace(what, with, regex)
  return object("type", "Replace", "pattern", regex and { Regex = what } or { String = what }, "content", with)
end

local function charsmap(model)
  local map = model.normalizer.precompiled_charsmap
  return map ~= "" and object("type", "Precompiled", "precompiled_charsmap", base64.encode(map)) or nil
end

--- Merges of BPE: each way to cut a piece in two others. `ids` are the pieces by text, `list` their order.
---@param ids table<string, integer>
---@param list string[]
---@return (string|string[])[]
function M.merges(ids, list)
  local merges = {}
  for _, piece in ipairs(list) do
    for at in utf8.codes(piece) do
      local left, right = piece:sub(1, at - 1), piece:sub(at)
      if at > 1 and ids[left] and ids[right] then
        merges[#merges + 1] = piece:find(" ", 1, true) and { left, right } or left .. " " .. right
      end
    end
  end
  return accel.json.array(merges)
end

local function bpe(model, settings)
  local ids, list = {}, {}
  for i, piece in ipairs(model.pieces) do
    if ids[piece.text] == nil then list[#list + 1] = piece.text end
    ids[piece.text] = i - 1
  end
  table.sort(list, function(a, b) return ids[a] < ids[b] end)
  return object("type", "BPE", "dropout", accel.json.null, "unk_token", settings.unk_token or accel.json.null, "continuing_subword_prefix",
    accel.json.null, "end_of_word_suffix", accel.json.null, "fuse_unk", true, "byte_fallback", true, "ignore_merges", false, "vocab", ids,
    "merges", M.merges(ids, list))
end

local function unigram(vocab, unk_id)
  return object("type", "Unigram", "unk_id", unk_id, "vocab", accel.json.array(vocab), "byte_fallback", false)
end

local function scored(model, first)
  local out = {}
  for i = first, #model.pieces do out[#out + 1] = { model.pieces[i].text, model.pieces[i].score } end
  return out
end

local FAMILIES = {}

FAMILIES.llama = {
  kind = "bpe", defaults = { unk_token = "<unk>", bos_token = "<s>", eos_token = "</s>" }, left = true,
  make = function(model, config)
    local d = Description(bpe(model, {}))
    local prefix = config.add_prefix_space ~= false
    -- with legacy every part between special tokens gets a space, else the first alone
    d.pre_tokenizer = metaspace(not prefix and "never" or config.legacy == true and "always" or "first", false)
    d.decoder = Description.sequence("decoders", { replace(SPACE, " "), { type = "ByteFallback" }, { type = "Fuse" },
      prefix and object("type", "Strip", "content", " ", "start", 1, "stop", 0) or nil })
    return d
  end,
  post = Description.ends,
}

FAMILIES.gemma = {
  kind = "bpe", defaults = { unk_token = "<unk>", bos_token = "<bos>", eos_token = "<eos>", pad_token = "<pad>", mask_token = "<mask>" },
  make = function(model, _, named)
    local d = Description(bpe(model, { unk_token = named.unk_token }))
    d.normalizer = replace(" ", SPACE)
    d.pre_tokenizer = object("type", "Split", "pattern", { String = " " }, "behavior", "MergedWithPrevious", "invert", false)
    d.decoder = Description.sequence("decoders", { replace(SPACE, " "), { type = "ByteFallback" }, { type = "Fuse" } })
    return d
  end,
  post = Description.ends,
}

FAMILIES.t5 = {
  kind = "unigram", defaults = { eos_token = "</s>", unk_token = "<unk>", pad_token = "<pad>" },
  make = function(model, config)
    local vocab, n = scored(model, 1), math.tointeger(config.extra_ids) or 100
    for i = n - 1, 0, -1 do vocab[#vocab + 1] = { ("<extra_id_%d>"):format(i), 0.0 } end
    local d = Description(unigram(vocab, 2))
    d.normalizer = charsmap(model)
    d.pre_tokenizer, d.decoder = by_words "always", metaspace("always", true)
    local more = {}
    for i = 0, n - 1 do more[#more + 1] = ("<extra_id_%d>"):format(i) end
    return d, more
  end,
  post = function(d, n)
    return d:template({ "$A:0", n.eos_token .. ":0" }, { "$A:0", n.eos_token .. ":0", "$B:0", n.eos_token .. ":0" })
  end,
}

FAMILIES.xlm_roberta = {
  kind = "unigram", defaults = { bos_token = "<s>", eos_token = "</s>", sep_token = "</s>", cls_token = "<s>", unk_token = "<unk>",
    pad_token = "<pad>", mask_token = "<mask>" },
  make = function(model, config, named)
    -- four tokens stand before the pieces, of which the first three go
    local vocab = { { named.bos_token, 0.0 }, { named.pad_token, 0.0 }, { named.eos_token, 0.0 }, { named.unk_token, 0.0 } }
    table.move(scored(model, 4), 1, math.max(0, #model.pieces - 3), #vocab + 1, vocab)
    vocab[#vocab + 1] = { named.mask_token, 0.0 }
    local d, scheme = Description(unigram(vocab, 3)), config.add_prefix_space ~= false and "always" or "never"
    d.normalizer = charsmap(model)
    d.pre_tokenizer, d.decoder = by_words(scheme), metaspace(scheme, true)
    return d
  end,
  post = function(d, n)
    local bos, eos = n.bos_token .. ":0", n.eos_token .. ":0"
    return d:template({ bos, "$A:0", eos }, { bos, "$A:0", eos, eos, "$B:0", eos })
  end,
}

local function around(d, n)
  return d:template({ n.cls_token .. ":0", "$A:0", n.sep_token .. ":0" },
    { n.cls_token .. ":0", "$A:0", n.sep_token .. ":0", "$B:1", n.sep_token .. ":1" })
end

FAMILIES.albert = {
  kind = "unigram", defaults = { bos_token = "[CLS]", eos_token = "[SEP]", unk_token = "<unk>", sep_token = "[SEP]", pad_token = "<pad>",
    cls_token = "[CLS]", mask_token = "[MASK]" },
  make = function(model, config)
    local d, scheme = Description(unigram(scored(model, 1), 1)), config.add_prefix_space ~= false and "always" or "never"
    local steps = { replace("``", '"'), replace("''", '"') }
    if config.keep_accents ~= true then steps[#steps + 1], steps[#steps + 2] = { type = "NFKD" }, { type = "StripAccents" } end
    if config.do_lower_case ~= false then steps[#steps + 1] = { type = "Lowercase" } end
    steps[#steps + 1] = charsmap(model)
    d.normalizer = Description.sequence("normalizers", steps)
    d.pre_tokenizer, d.decoder = by_words(scheme), metaspace(scheme, true)
    return d
  end,
  post = around,
}

FAMILIES.deberta_v2 = {
  kind = "unigram", defaults = { bos_token = "[CLS]", eos_token = "[SEP]", unk_token = "[UNK]", sep_token = "[SEP]", pad_token = "[PAD]",
    cls_token = "[CLS]", mask_token = "[MASK]" },
  make = function(model, config, named)
    local vocab, unk = scored(model, 1), 1
    for i, entry in ipairs(vocab) do
      if entry[1] == named.unk_token and entry[2] == 0 then unk = i - 1 end
    end
    local d, scheme = Description(unigram(vocab, unk)), config.add_prefix_space ~= false and "always" or "first"
    local steps = config.do_lower_case == true and { { type = "Lowercase" } } or {}
    steps[#steps + 1], steps[#steps + 2] = replace("\\s{2,}|[\\n\\r\\t]", " ", true), { type = "NFC" }
    steps[#steps + 1] = object("type", "Strip", "strip_left", false, "strip_right", true)
    d.normalizer = Description.sequence("normalizers", steps)
    d.pre_tokenizer = Description.sequence("pretokenizers", config.split_by_punct == true
      and { object("type", "Punctuation", "behavior", "Isolated"), metaspace(scheme, true) } or { metaspace(scheme, true) })
    d.decoder = metaspace(scheme, true)
    return d
  end,
  post = around,
}

--- See wordpiece.lua.
function M.read(family, texts, beside)
  local f, name, bytes = FAMILIES[family], next(texts)
  local model, message = file.parse(bytes)
  if not model then return nil, message end
  if model.trainer.model ~= f.kind then
    return nil, ("%s: a %s model, and this class of tokenizer reads a %s model"):format(name, model.trainer.model, f.kind)
  end
  local named = {}
  for key, value in next, f.defaults do named[key] = beside.tokens[key] and beside.tokens[key].content or value end
  local d, more = f.make(model, beside.config, named)
  local added = {}
  for _, piece in ipairs(model.pieces) do
    if piece.kind == file.CONTROL or piece.kind == file.USER_DEFINED then
      added[#added + 1] = { content = piece.text, special = piece.kind == file.CONTROL }
    end
  end
  named = special.add(d, beside, f.defaults, table.move(more or {}, 1, more and #more or 0, #added + 1, added))
  d.post_processor = f.post(d, named, beside.config)
  return d, named, { "input_ids", "attention_mask" }, f.left and "left" or nil
end

return M
