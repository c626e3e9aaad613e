--- Byte-level BPE in GGUF's metadata, as GPT-2, Llama 3 and Qwen have it: the tokenizer "gpt2". Used by models.gguf's tokenizer.lua.
local accel = require "accel"
local cuts = require "accel.models.gguf.cuts"
local parts = require "accel.models.gguf.tokenizer_parts"
local raise = require "accel.util.raise"

local M = {}

--- The way of cutting of a tokenizer.json's pre_tokenizer. Raises if llama.cpp has no name for it.
local function cut_of(pre)
  local steps = pre.type == "Sequence" and pre.pretokenizers or { pre }
  local bytes, first = steps[#steps], steps[1]
  if type(bytes) == "table" and bytes.type == "ByteLevel" and #steps <= 2 then
    if bytes.add_prefix_space then raise "gguf.save: llama.cpp puts no space before the text, this tokenizer does (add_prefix_space)" end
    local own = bytes.use_regex ~= false
    for _, cut in ipairs(cuts.list) do
      if cut.only_read then -- not a name to write
      elseif cut.regexes then
        if not own and #steps == 2 and first.type == "Split" and type(first.pattern) == "table" and first.pattern.Regex == cut.regexes[1]
          and first.behavior == "Isolated" and not first.invert then return cut end
      elseif own and (cut.digits and #steps == 2 and first.type == "Digits" and first.individual_digits or not cut.digits and #steps == 1) then
        return cut
      end
    end
  end
  raise("gguf.save: llama.cpp has no name for this way of cutting text into words: %s", accel.json.encode(pre))
end

--- Whether a pre_tokenizer ends in bytes.
function M.fits(spec)
  local pre = spec.pre_tokenizer
  if type(pre) ~= "table" then return false end
  local steps = pre.type == "Sequence" and pre.pretokenizers or { pre }
  return spec.model.type == "BPE" and type(steps[#steps]) == "table" and steps[#steps].type == "ByteLevel"
end

local told = false -- that llama.cpp leaves NFC out

--- Puts model, tokens and merges into a head.
function M.write(head, tok, spec, n)
  local cut, merges, kinds = cut_of(spec.pre_tokenizer), {}, {}
  if (spec.model.ignore_merges == true) ~= (cut.ignore_merges == true) then
    raise("gguf.save: llama.cpp %s a word that is a token as it is with the cut '%s', this tokenizer %s (ignore_merges)",
      cut.ignore_merges and "takes" or "merges", cut.name, cut.ignore_merges and "merges it" or "takes it")
  end
  local normalizer = spec.normalizer
  if type(normalizer) == "table" and not (cut.nfc and normalizer.type == "NFC") then
    raise("gguf.save: llama.cpp normalizes no text, this tokenizer does (%s)", normalizer.type)
  elseif type(normalizer) == "table" and not told then
    told = true
    warn "gguf.save: llama.cpp does not compose characters (NFC), this tokenizer does: text that is not composed gets other ids there"
  end
  local tokens, special = parts.tokens(tok, n)
  for id = 0, n - 1 do kinds[id + 1] = special[id] or (tok:id_to_token(id) and parts.NORMAL or parts.UNUSED) end
  for i, merge in ipairs(spec.model.merges) do merges[i] = type(merge) == "table" and merge[1] .. " " .. merge[2] or merge end
  head:string("tokenizer.ggml.model", "gpt2")
  head:string("tokenizer.ggml.pre", cut.name)
  head:strings("tokenizer.ggml.tokens", tokens)
  head:integers("tokenizer.ggml.token_type", kinds)
  head:strings("tokenizer.ggml.merges", merges)
end

--- The table of a tokenizer.json for a file's tokens. nil and the reason if there is none.
---@return table?, string?
function M.read(meta)
  local merges = meta["tokenizer.ggml.merges"]
  if type(merges) ~= "table" then return nil, "the tokenizer has no merges" end
  local vocab, added = parts.vocab(meta)
  if not vocab then return nil, added end
  local name = meta["tokenizer.ggml.pre"]
  local cut = cuts.find(name)
  if not cut then return nil, ("the tokenizer cuts text by '%s', which is not known here"):format(tostring(name)) end
  local bytes = { type = "ByteLevel", add_prefix_space = false, trim_offsets = true, use_regex = cut.regexes == nil }
  local steps = {}
  for i, regex in ipairs(cut.regexes or {}) do
    steps[i] = { type = "Split", pattern = { Regex = regex }, behavior = "Isolated", invert = false }
  end
  if cut.digits then steps[1] = { type = "Digits", individual_digits = true } end
  steps[#steps + 1] = bytes
  local pre = #steps == 1 and bytes or { type = "Sequence", pretokenizers = accel.json.array(steps) }
  return {
    version = "1.0", added_tokens = accel.json.array(added), pre_tokenizer = pre,
    post_processor = parts.post_processor(meta, cut.bos == true),
    decoder = { type = "ByteLevel", add_prefix_space = true, trim_offsets = true, use_regex = true },
    model = { type = "BPE", vocab = vocab, merges = accel.json.array(merges), ignore_merges = cut.ignore_merges == true, fuse_unk = false,
      byte_fallback = false },
  }
end

return M
