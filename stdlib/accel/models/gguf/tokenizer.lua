--- Tokenizers in GGUF's metadata: byte-level BPE, as GPT-2 and Llama 3 have it. Used by models.gguf.
local accel = require "accel"
local raise = require "accel.util.raise"

local M = {}

-- Kinds of tokens.
local NORMAL <const>, CONTROL <const>, OWN <const>, UNUSED <const> = 1, 3, 4, 5
local SPLIT <const> = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
  .. "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

--- Whether a part of a tokenizer.json is, or holds, a part of this type that fits.
local function has(part, kind, fits)
  if type(part) ~= "table" then return false end
  if part.type == kind and (not fits or fits(part)) then return true end
  for _, list in ipairs { part.pretokenizers or {}, part.decoders or {} } do
    for _, p in ipairs(list) do
      if has(p, kind, fits) then return true end
    end
  end
  return false
end

--- What llama.cpp calls the way of cutting text into words.
local function cut_of(pre)
  if has(pre, "ByteLevel", function(p) return p.use_regex ~= false end) then return "gpt-2" end
  if has(pre, "Split", function(p) return type(p.pattern) == "table" and p.pattern.Regex == SPLIT end) then return "llama-bpe" end
  return "default"
end

--- Puts a tokenizer into a head.
---@param head accel.models.gguf.Head
---@param tok accel.text.Tokenizer
---@param config table of the model
function M.write(head, tok, config)
  local spec = accel.json.decode(tok:to_str(false))
  if spec.model.type ~= "BPE" or not has(spec.pre_tokenizer, "ByteLevel") then
    raise("gguf.save: only byte-level BPE tokenizers are written, this one is %s", spec.model.type)
  end
  local n, special, tokens, kinds, merges = math.max(tok:id_limit(), config.vocab_size), {}, {}, {}, {}
  for _, added in ipairs(tok:get_added_tokens()) do special[added.id] = added.special and CONTROL or OWN end
  for id = 0, n - 1 do
    local token = id < tok:id_limit() and tok:id_to_token(id)
    tokens[id + 1], kinds[id + 1] = token or ("[PAD%d]"):format(id), token and (special[id] or NORMAL) or UNUSED
  end
  for i, merge in ipairs(spec.model.merges) do merges[i] = type(merge) == "table" and merge[1] .. " " .. merge[2] or merge end
  head:string("tokenizer.ggml.model", "gpt2")
  head:string("tokenizer.ggml.pre", cut_of(spec.pre_tokenizer))
  head:strings("tokenizer.ggml.tokens", tokens)
  head:integers("tokenizer.ggml.token_type", kinds)
  head:strings("tokenizer.ggml.merges", merges)
  local eos = config.eos_token_id
  for key, id in accel.pairs {
    bos_token_id = tok.bos_token_id or config.bos_token_id, padding_token_id = tok.pad_token_id or config.pad_token_id,
    eos_token_id = tok.eos_token_id or (type(eos) == "table" and eos[1] or eos), unknown_token_id = tok.unk_token_id,
  } do head:u32("tokenizer.ggml." .. key, id) end
  local template = tok.chat_template
  if type(template) == "table" then template = template.default end
  if template then head:string("tokenizer.chat_template", template) end
end

--- The text of a tokenizer.json for a file's tokens.
local function json_of(meta)
  local vocab, added, kinds = {}, {}, meta["tokenizer.ggml.token_type"] or {}
  for i, token in ipairs(meta["tokenizer.ggml.tokens"]) do
    local kind = kinds[i] or NORMAL
    if kind ~= UNUSED then vocab[token] = i - 1 end
    if kind == CONTROL or kind == OWN then
      added[#added + 1] = { id = i - 1, content = token, special = kind == CONTROL, single_word = false, lstrip = false, rstrip = false,
        normalized = false }
    end
  end
  local bytes = { type = "ByteLevel", add_prefix_space = false, trim_offsets = true, use_regex = true }
  local pre, cut = bytes, meta["tokenizer.ggml.pre"]
  local llama = cut == "llama-bpe" or cut == "llama3" or cut == "llama-v3"
  if llama then
    bytes.use_regex = false
    pre = { type = "Sequence", pretokenizers = {
      { type = "Split", pattern = { Regex = SPLIT }, behavior = "Isolated", invert = false }, bytes,
    } }
  end
  return accel.json.encode {
    version = "1.0", added_tokens = accel.json.array(added), pre_tokenizer = pre,
    decoder = { type = "ByteLevel", add_prefix_space = true, trim_offsets = true, use_regex = true },
    model = { type = "BPE", vocab = vocab, merges = accel.json.array(meta["tokenizer.ggml.merges"]), ignore_merges = llama, fuse_unk = false,
      byte_fallback = false },
  }
end

--- The tokenizer of a file's metadata; nil and why there is none.
---@param meta table
---@return accel.text.Tokenizer?, string?
function M.read(meta)
  local tokens, merges = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.merges"]
  if tokens == nil then return nil, "the file has no tokenizer" end
  if meta["tokenizer.ggml.model"] ~= "gpt2" or type(tokens) ~= "table" or type(merges) ~= "table" then
    return nil, ("a tokenizer of kind '%s' is not read (byte-level BPE is)"):format(tostring(meta["tokenizer.ggml.model"]))
  end
  local ok, tok = pcall(function() return accel.text.Tokenizer.from_str(json_of(meta)) end)
  if not ok then return nil, "the tokenizer: " .. tostring(type(tok) == "table" and tok.message or tok) end
  for name, key in next, { bos_token = "bos", eos_token = "eos", pad_token = "padding", unk_token = "unknown" } do
    local id = meta[("tokenizer.ggml.%s_token_id"):format(key)]
    if math.type(id) == "integer" and type(tokens[id + 1]) == "string" then tok[name] = tokens[id + 1] end
  end
  if type(meta["tokenizer.chat_template"]) == "string" then tok.chat_template = meta["tokenizer.chat_template"] end
  return tok
end

return M
