--- Tokenizers of SentencePiece's files that come without a class: pieces, places and texts as SentencePiece itself has them. Steps of type
--- SentencePiece in their description, and the model's member of that name, are accel's own. Used by sources/init.lua.
local accel = require "accel"
local Description = require "accel.text.sources.description"
local base64 = require "accel.util.base64"
local file = require "accel.text.sources.sentencepiece_file"
local sentencepiece = require "accel.text.sources.sentencepiece"

local M = { FILES = sentencepiece.FILES }

local SPACE <const> = "\u{2581}"

local object = Description.object

--- A number of 32 bits.
local function float(x) return (("<f"):unpack(("<f"):pack(x))) end

--- Symbols of the user win over everything: their score is above that of any way to cut them.
local function unigram(model, own)
  local vocab, most = {}, nil
  for _, piece in ipairs(model.pieces) do
    if piece.kind == file.NORMAL then most = math.max(most or piece.score, piece.score) end
  end
  for i, piece in ipairs(model.pieces) do
    local score = piece.score
    if piece.kind == file.USER_DEFINED then score = float(#piece.text * float(most or 0)) - 0.1 end
    vocab[i] = { piece.text, score }
  end
  return object("type", "Unigram", "unk_id", model.trainer.unk_id, "vocab", accel.json.array(vocab), "byte_fallback",
    model.trainer.byte_fallback, "sentencepiece", own)
end

local function vocab_of(model)
  local vocab = {}
  for i, piece in ipairs(model.pieces) do vocab[piece.text] = i - 1 end
  return vocab
end

--- Pieces are joined by score, the highest first. Characters are never joined.
local function bpe(model, own, joins)
  local normal, list = {}, {}
  for i, piece in ipairs(joins and model.pieces or {}) do
    if piece.kind == file.NORMAL then normal[piece.text], list[#list + 1] = i, piece.text end
  end
  table.sort(list, function(a, b)
    local x, y = model.pieces[normal[a]].score, model.pieces[normal[b]].score
    if x ~= y then return x > y end
    return normal[a] < normal[b]
  end)
  return object("type", "BPE", "dropout", accel.json.null, "unk_token", model.trainer.unk_piece, "continuing_subword_prefix",
    accel.json.null, "end_of_word_suffix", accel.json.null, "fuse_unk", true, "byte_fallback", model.trainer.byte_fallback, "ignore_merges",
    false, "vocab", vocab_of(model), "merges", sentencepiece.merges(normal, list), "sentencepiece", own)
end

local MODELS <const> = {
  unigram = unigram,
  bpe = function(model, own) return bpe(model, own, true) end,
  char = function(model, own) return bpe(model, own, false) end,
  word = function(model, own)
    return object("type", "WordLevel", "vocab", vocab_of(model), "unk_token", model.trainer.unk_piece, "sentencepiece", own)
  end,
}

--- The description of a file's bytes.
---@param bytes string
---@return table? description
---@return string|table message or the special tokens by name
---@return string[]? inputs
function M.read(bytes)
  local model, message = file.parse(bytes)
  if not model then return nil, message end
  local control, symbols, texts, seen = {}, {}, {}, {}
  for i, piece in ipairs(model.pieces) do
    if seen[piece.text] then return nil, ("pieces %d and %d are both '%s'"):format(seen[piece.text], i, piece.text) end
    seen[piece.text] = i
    if piece.kind == file.CONTROL then
      control[#control + 1] = i - 1
    elseif piece.kind == file.USER_DEFINED then
      symbols[#symbols + 1], texts[#texts + 1] = i - 1, piece.text
    elseif piece.kind == file.UNUSED then
      return nil, ("piece %d is unused: restricted vocabularies are not supported"):format(i)
    end
  end
  local n, t = model.normalizer, model.trainer
  local own = object("control", accel.json.array(control), "user_defined", accel.json.array(symbols))
  local d = Description(MODELS[t.model](model, own))
  d.normalizer = object("type", "SentencePiece", "precompiled_charsmap",
    n.precompiled_charsmap ~= "" and base64.encode(n.precompiled_charsmap) or accel.json.null, "add_dummy_prefix", n.add_dummy_prefix,
    "remove_extra_whitespaces", n.remove_extra_whitespaces, "escape_whitespaces", n.escape_whitespaces, "treat_whitespace_as_suffix",
    t.treat_whitespace_as_suffix, "user_defined_symbols", accel.json.array(texts))
  if t.model == "word" then
    d.pre_tokenizer = object("type", "Split", "pattern", { String = SPACE }, "behavior",
      t.treat_whitespace_as_suffix and "MergedWithPrevious" or "MergedWithNext", "invert", false)
  end
  d.decoder = object("type", "SentencePiece", "unk_piece", t.unk_piece, "unk_surface", t.unk_surface, "strip_first",
    n.add_dummy_prefix or n.remove_extra_whitespaces, "strip_all", n.remove_extra_whitespaces)
  local named = { unk_token = t.unk_piece }
  for _, name in ipairs { "bos", "eos", "pad" } do
    local piece = model.pieces[t[name .. "_id"] + 1]
    if t[name .. "_id"] >= 0 and piece then named[name .. "_token"] = piece.text end
  end
  return d, named, { "input_ids", "attention_mask" }
end

return M
