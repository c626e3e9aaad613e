--- BERT's word pieces: GGUF's tokenizer "bert". A token that begins a word has U+2581 before it there, where tokenizer.json has "##" before
--- all others. Only read. Used by tokenizer.lua.
local accel = require "accel"
local parts = require "accel.models.gguf.tokenizer_parts"

local M = {}

local BEGIN <const> = "\u{2581}"
local LONGEST <const> = 1 << 30 -- characters of a word: llama.cpp has no limit

--- The table of a tokenizer.json for a file's tokens. nil and the reason if there is none.
---@return table?, string?
function M.read(meta)
  local known, added = parts.vocab(meta)
  if not known then return nil, added end
  local vocab, kinds = {}, meta["tokenizer.ggml.token_type"] or {}
  for i, token in ipairs(meta["tokenizer.ggml.tokens"]) do
    local name = token
    if (kinds[i] or parts.NORMAL) == parts.NORMAL then
      name = token:sub(1, #BEGIN) == BEGIN and token:sub(#BEGIN + 1) or "##" .. token
    end
    vocab[name] = vocab[name] or i - 1
  end
  local unknown, normalizers = parts.named(meta, "unknown"), {}
  if meta["tokenizer.ggml.normalizer.strip_accents"] ~= false then
    -- llama.cpp keeps the first character of a decomposition, of a Hangul syllable as well, and drops marks of all kinds
    normalizers = { { type = "NFD" }, { type = "Replace", pattern = { Regex = "[\\p{M}\u{1160}-\u{11FF}]" }, content = "" } }
  end
  normalizers[#normalizers + 1] = { type = "BertNormalizer", clean_text = true, handle_chinese_chars = true, strip_accents = false,
    lowercase = meta["tokenizer.ggml.normalizer.lowercase"] ~= false }
  if not unknown then return nil, "the tokenizer has no unknown token" end
  return {
    version = "1.0", added_tokens = accel.json.array(added),
    normalizer = { type = "Sequence", normalizers = accel.json.array(normalizers) },
    pre_tokenizer = { type = "BertPreTokenizer" }, decoder = { type = "WordPiece", prefix = "##", cleanup = true },
    post_processor = parts.post_processor(meta, true, true),
    model = { type = "WordPiece", vocab = vocab, unk_token = unknown, continuing_subword_prefix = "##",
      max_input_chars_per_word = LONGEST },
  }
end

return M
