--- Unigram language models as SentencePiece has them (T5): GGUF's tokenizer "t5". Text is normalized by a precompiled table, spaces become
--- U+2581, and of all ways to cut it into tokens the one with the highest sum of scores counts. Only read. Used by tokenizer.lua.
local accel = require "accel"
local base64 = require "accel.util.base64"
local parts = require "accel.models.gguf.tokenizer_parts"

local M = {}

local SPACE <const> = "\u{2581}"

--- The bytes of a list of numbers in base64. nil: there are none, false: they are wrong.
local function table_text(list)
  if list == nil then return nil end
  if type(list) ~= "table" then return false end
  local out = {}
  for i, b in ipairs(list) do
    if math.type(b) ~= "integer" or b < -128 or b > 255 then return false end
    out[i] = string.char(b & 255)
  end
  return base64.encode(table.concat(out))
end

--- The table of a tokenizer.json for a file's tokens. nil and the reason if there is none.
---@return table?, string?
function M.read(meta)
  local tokens, scores, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.scores"], meta["tokenizer.ggml.token_type"] or {}
  if type(scores) ~= "table" then return nil, "the tokenizer has no scores" end
  local known, added = parts.vocab(meta)
  if not known then return nil, added end
  local charsmap = table_text(meta["tokenizer.ggml.precompiled_charsmap"])
  if charsmap == false then return nil, "tokenizer.ggml.precompiled_charsmap is not a list of bytes" end
  local vocab, least = {}, 0
  for i in ipairs(tokens) do
    local score = scores[i]
    if type(score) ~= "number" or score ~= score then return nil, ("token %d has no score"):format(i - 1) end
    least = math.min(least, score)
  end
  for i, token in ipairs(tokens) do
    local usable = (kinds[i] or parts.NORMAL) == parts.NORMAL or kinds[i] == parts.OWN
    vocab[i] = { token, usable and scores[i] or least - 100.0 } -- others are never chosen
  end
  local normalizers = {}
  if charsmap then -- composed first: the table's longest entry counts, and Precompiled looks up single characters in long clusters
    normalizers[1], normalizers[2] = { type = "NFC" }, { type = "Precompiled", precompiled_charsmap = charsmap }
  end
  local merged = meta["tokenizer.ggml.remove_extra_whitespaces"] == true
  if merged then
    normalizers[#normalizers + 1] = { type = "Strip", strip_left = true, strip_right = true }
    normalizers[#normalizers + 1] = { type = "Replace", pattern = { Regex = " {2,}" }, content = " " }
  end
  local before = merged or meta["tokenizer.ggml.add_space_prefix"] ~= false -- each word that merged spaces leave gets one
  local words = { type = "Metaspace", replacement = SPACE, prepend_scheme = before and "always" or "never", split = false }
  local unknown = meta["tokenizer.ggml.unknown_token_id"]
  return {
    version = "1.0", added_tokens = accel.json.array(added), pre_tokenizer = words, decoder = words,
    normalizer = #normalizers > 0 and { type = "Sequence", normalizers = accel.json.array(normalizers) } or nil,
    post_processor = parts.post_processor(meta, false, true),
    model = { type = "Unigram", vocab = accel.json.array(vocab), byte_fallback = false,
      unk_id = math.type(unknown) == "integer" and unknown or nil },
  }
end

return M
