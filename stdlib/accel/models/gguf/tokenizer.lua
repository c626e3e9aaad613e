--- Tokenizers in GGUF's metadata: byte_level.lua, sentencepiece.lua, and only read unigram.lua and word_piece.lua, and their common fields.
--- Used by models.gguf.
local accel = require "accel"
local byte_level = require "accel.models.gguf.byte_level"
local parts = require "accel.models.gguf.tokenizer_parts"
local raise = require "accel.util.raise"
local sentencepiece = require "accel.models.gguf.sentencepiece"
local unigram = require "accel.models.gguf.unigram"
local word_piece = require "accel.models.gguf.word_piece"

local M = {}

local KINDS <const> = { gpt2 = byte_level, llama = sentencepiece, t5 = unigram, bert = word_piece }

--- Puts a tokenizer into a head.
---@param head accel.models.gguf.Head
---@param tok accel.text.Tokenizer
---@param config table of the model
function M.write(head, tok, config)
  local spec = accel.json.decode(tok:to_str(false))
  local kind = byte_level.fits(spec) and byte_level or sentencepiece.fits(spec) and sentencepiece
    or raise("gguf.save: BPE over bytes and BPE with byte_fallback (SentencePiece's) are written, this tokenizer is %s", spec.model.type)
  kind.write(head, tok, spec, math.max(tok:id_limit(), config.vocab_size))
  local eos = tok.eos_token_id or (type(config.eos_token_id) == "table" and config.eos_token_id[1] or config.eos_token_id)
  local bos = tok.bos_token_id or config.bos_token_id
  local unknown = tok.unk_token_id or (spec.model.unk_token and tok:token_to_id(spec.model.unk_token)) or nil
  for key, id in accel.pairs {
    bos_token_id = bos, eos_token_id = eos, padding_token_id = tok.pad_token_id or config.pad_token_id, unknown_token_id = unknown,
  } do head:u32("tokenizer.ggml." .. key, id) end
  parts.write_ends(head, tok, bos, eos)
  local template = tok.chat_template
  if type(template) == "table" then template = template.default end
  if template then head:string("tokenizer.chat_template", template) end
end

--- The tokenizer of a file's metadata. nil and the reason if there is none.
---@param meta table
---@return accel.text.Tokenizer?, string?
function M.read(meta)
  if meta["tokenizer.ggml.tokens"] == nil then return nil, "the file has no tokenizer" end
  local name = meta["tokenizer.ggml.model"]
  local kind = KINDS[name]
  if not kind or type(meta["tokenizer.ggml.tokens"]) ~= "table" then
    return nil, ("a tokenizer of kind '%s' is not read (gpt2, llama, t5 and bert are)"):format(tostring(name))
  end
  local spec, problem = kind.read(meta)
  if not spec then return nil, problem end
  local ok, tok = pcall(function() return accel.text.Tokenizer.from_str(accel.json.encode(spec)) end)
  if not ok then return nil, "the tokenizer: " .. tostring(type(tok) == "table" and tok.message or tok) end
  for token, key in next, { bos_token = "bos", eos_token = "eos", pad_token = "padding", unk_token = "unknown", mask_token = "mask",
    sep_token = "seperator", cls_token = "cls" } do -- (sic)
    tok[token] = parts.named(meta, key)
  end
  if type(meta["tokenizer.chat_template"]) == "string" then tok.chat_template = meta["tokenizer.chat_template"] end
  return tok
end

return M
