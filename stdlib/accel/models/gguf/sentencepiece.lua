--- BPE over characters as SentencePiece has it (Llama 1 and 2, Mistral, Gemma): a space is the character U+2581, characters without a
--- token become bytes, and of all neighbours that make a token those with the highest score are joined first: GGUF's tokenizer "llama".
--- Used by models.gguf's tokenizer.lua.
---
--- A tokenizer.json lists merges instead, pairs of tokens in the order of joining. A tokenizer.json lists merges instead, pairs of
--- tokens in the order of joining. The range between two tokens that make a third depends only on that third (joins across its borders
--- come later or not at all), so each token has one last merge, and its negated place in the list is the score. A pair of tokens that
--- makes a token without being a merge is reported: llama.cpp would join it.
local accel = require "accel"
local parts = require "accel.models.gguf.tokenizer_parts"
local raise = require "accel.util.raise"

local M = {}

local SPACE <const> = "\u{2581}"
local CHARACTER <const> = utf8.charpattern
local LONGEST <const> = 1024 -- bytes of a token that is read. llama.cpp's own are below 256

local function is_byte(token) return token:find "^<0x%x%x>$" ~= nil end

-- ---- writing ----

--- The steps of a normalizer or pre_tokenizer as a list.
local function steps_of(part)
  if type(part) ~= "table" then return {} end
  return part.type == "Sequence" and (part.normalizers or part.pretokenizers) or { part }
end

--- Whether a space is put before the text: true, false. Raises if the steps are not SentencePiece's.
local function space_before(spec)
  local before, spaces = false, false
  for _, step in ipairs(steps_of(spec.normalizer)) do
    if step.type == "Prepend" and step.prepend == SPACE then
      before = true
    elseif step.type == "Replace" and type(step.pattern) == "table" and step.pattern.String == " " and step.content == SPACE then
      spaces = true
    else
      raise("gguf.save: llama.cpp's SentencePiece only makes spaces visible, this tokenizer has the normalizer %s", accel.json.encode(step))
    end
  end
  for _, step in ipairs(steps_of(spec.pre_tokenizer)) do
    if step.type ~= "Metaspace" or step.replacement ~= SPACE then
      raise("gguf.save: llama.cpp's SentencePiece cuts text nowhere, this tokenizer has the pre_tokenizer %s", accel.json.encode(step))
    end
    spaces = true
    local scheme = step.prepend_scheme or (step.add_prefix_space == false and "never" or "always")
    before = before or scheme ~= "never"
    if scheme ~= "never" then
      warn(("gguf.save: llama.cpp puts a space before every text, this tokenizer not before %s"):format(
        scheme == "first" and "a continuation of a special token" or "one that begins with a space"))
    end
    if step.split ~= false then
      for token in next, spec.model.vocab do
        if token:find(SPACE, 2, true) then
          raise("gguf.save: token %q has a space after its begin and can never occur, since text is cut at spaces; llama.cpp would make it", token)
        end
      end
    end
  end
  if not spaces then raise "gguf.save: SentencePiece has spaces as \u{2581}, this tokenizer does not replace them" end
  return before
end

--- The result of the merges for a token's text: its symbols, and the rank of the last merge.
local function join(token, ranks)
  local symbols, last = {}, nil
  for c in token:gmatch(CHARACTER) do symbols[#symbols + 1] = c end
  while #symbols > 1 do
    local best, at
    for i = 1, #symbols - 1 do
      local right = ranks[symbols[i]]
      local rank = right and right[symbols[i + 1]]
      if rank and (not best or rank < best) then best, at = rank, i end
    end
    if not best then break end
    symbols[at] = symbols[at] .. table.remove(symbols, at + 1)
    last = best
  end
  return symbols, last
end

--- Scores of the tokens of ids 0 to n - 1.
local function scores_of(spec, tokens, special, n)
  local ranks, scores, vocab = {}, {}, spec.model.vocab
  for rank, merge in ipairs(spec.model.merges) do
    local left, right
    if type(merge) == "table" then left, right = merge[1], merge[2] else left, right = merge:match "^(%S+) (%S+)$" end
    if left == nil then raise("gguf.save: merge %d of the tokenizer is not a pair: %s", rank, accel.json.encode(merge)) end
    ranks[left] = ranks[left] or {}
    ranks[left][right] = ranks[left][right] or rank
  end
  for id = 0, n - 1 do
    local token, score = tokens[id + 1], 0
    if vocab[token] == id and not special[id] and not is_byte(token) then
      local symbols, rank = join(token, ranks)
      if #symbols == 1 then
        score = -(rank or 0)
      elseif #symbols == 2 and vocab[symbols[1]] and vocab[symbols[2]] then
        raise("gguf.save: %q and %q make a token, but no merge of the tokenizer joins them; llama.cpp would", symbols[1], symbols[2])
      else
        score = -#spec.model.merges - 1
      end
    end
    scores[id + 1] = score
  end
  return scores
end

--- Whether a tokenizer.json is one of these.
function M.fits(spec) return spec.model.type == "BPE" and spec.model.byte_fallback == true end

--- Puts model, tokens, scores and kinds into a head.
function M.write(head, tok, spec, n)
  local before = space_before(spec)
  for byte = 0, 255 do
    local token = ("<0x%02X>"):format(byte)
    if not spec.model.vocab[token] then raise("gguf.save: llama.cpp needs a token for every byte, %s is missing", token) end
  end
  local tokens, special = parts.tokens(tok, n)
  local scores, kinds = scores_of(spec, tokens, special, n), {}
  for id = 0, n - 1 do
    local token = tokens[id + 1]
    kinds[id + 1] = is_byte(token) and parts.BYTE or token == spec.model.unk_token and parts.UNKNOWN or special[id]
      or (tok:id_to_token(id) and parts.NORMAL or parts.UNUSED)
  end
  head:string("tokenizer.ggml.model", "llama")
  head:string("tokenizer.ggml.pre", "default")
  head:strings("tokenizer.ggml.tokens", tokens)
  head:floats("tokenizer.ggml.scores", scores)
  head:integers("tokenizer.ggml.token_type", kinds)
  head:bool("tokenizer.ggml.add_space_prefix", before)
end

-- ---- reading ----

--- All pairs of tokens that make a token, by its score: the merges of a tokenizer.json. nil and the error otherwise.
local function merges_of(tokens, scores, kinds, vocab)
  local found = {}
  for i, token in ipairs(tokens) do
    local score = scores[i]
    if type(score) ~= "number" or score ~= score then return nil, ("token %d has no score"):format(i - 1) end
    if #token > LONGEST then return nil, ("token %d has %d bytes, the longest that is read has %d"):format(i - 1, #token, LONGEST) end
    if (kinds[i] or parts.NORMAL) == parts.NORMAL and vocab[token] == i - 1 and utf8.len(token) then
      for at in token:gmatch("()" .. CHARACTER) do
        local left, right = token:sub(1, at - 1), token:sub(at)
        if vocab[left] and vocab[right] then found[#found + 1] = { left, right, score, vocab[left], vocab[right] } end
      end
    end
  end
  table.sort(found, function(a, b)
    if a[3] ~= b[3] then return a[3] > b[3] end
    if a[4] ~= b[4] then return a[4] < b[4] end
    return a[5] < b[5]
  end)
  for i, merge in ipairs(found) do found[i] = { merge[1], merge[2] } end
  return found
end

--- The table of a tokenizer.json for a file's tokens. nil and the reason if there is none.
---@return table?, string?
function M.read(meta)
  local tokens, scores, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.scores"], meta["tokenizer.ggml.token_type"]
  if type(scores) ~= "table" then return nil, "the tokenizer has no scores" end
  local vocab, added = parts.vocab(meta)
  if not vocab then return nil, added end
  local merges, problem = merges_of(tokens, scores, kinds or {}, vocab)
  if not merges then return nil, problem end
  local before = meta["tokenizer.ggml.add_space_prefix"] ~= false
  local normalizers = { { type = "Replace", pattern = { String = " " }, content = SPACE } }
  local decoders = { { type = "Replace", pattern = { String = SPACE }, content = " " }, { type = "ByteFallback" }, { type = "Fuse" } }
  if before then
    table.insert(normalizers, 1, { type = "Prepend", prepend = SPACE })
    decoders[#decoders + 1] = { type = "Strip", content = " ", start = 1, stop = 0 }
  end
  return {
    version = "1.0", added_tokens = accel.json.array(added), normalizer = { type = "Sequence", normalizers = normalizers },
    post_processor = parts.post_processor(meta, true), decoder = { type = "Sequence", decoders = decoders },
    model = { type = "BPE", vocab = vocab, merges = accel.json.array(merges), unk_token = parts.named(meta, "unknown"), fuse_unk = true,
      byte_fallback = true, ignore_merges = false },
  }
end

return M
