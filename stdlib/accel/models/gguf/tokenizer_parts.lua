--- The common part of both kinds of tokenizers in GGUF's metadata: kinds of tokens, lists of them, tokens before and after a
--- text.

local M = {}

-- Kinds of tokens, as files number them.
M.NORMAL, M.UNKNOWN, M.CONTROL, M.OWN, M.UNUSED, M.BYTE = 1, 2, 3, 4, 5, 6

--- Tokens of ids 0 to n - 1 (list), and the kinds of those that were added, by id.
function M.tokens(tok, n)
  local tokens, special = {}, {}
  for _, added in ipairs(tok:get_added_tokens()) do special[added.id] = added.special and M.CONTROL or M.OWN end
  for id = 0, n - 1 do tokens[id + 1] = id < tok:id_limit() and tok:id_to_token(id) or ("[PAD%d]"):format(id) end
  return tokens, special
end

--- Ids by token, and the added tokens of a tokenizer.json. nil and the error in the file's lists.
---@return table<string, integer>?, table[]|string
function M.vocab(meta)
  local vocab, added, kinds = {}, {}, meta["tokenizer.ggml.token_type"]
  if kinds ~= nil and type(kinds) ~= "table" then return nil, "tokenizer.ggml.token_type is not a list" end
  for i, token in ipairs(meta["tokenizer.ggml.tokens"]) do
    if type(token) ~= "string" then return nil, ("token %d is not text"):format(i - 1) end
    local kind = kinds and kinds[i] or M.NORMAL
    if kind ~= M.UNUSED then vocab[token] = i - 1 end
    if kind == M.CONTROL or kind == M.OWN or kind == M.UNKNOWN then
      added[#added + 1] = { id = i - 1, content = token, special = kind ~= M.OWN, single_word = false, lstrip = false, rstrip = false,
        normalized = false }
    end
  end
  return vocab, added
end

--- The token of an id in a file, such as <bos>. nil: none.
function M.named(meta, name)
  local id = meta[("tokenizer.ggml.%s_token_id"):format(name)]
  local token = math.type(id) == "integer" and id >= 0 and meta["tokenizer.ggml.tokens"][id + 1]
  if type(token) == "string" then return token, id end
end

--- The post_processor of a tokenizer.json that puts <bos> before and <eos> after the text, if the file requests it. nil:
--- neither.
---@param bos_first boolean the default for a file without the setting
---@param eos_last? boolean
function M.post_processor(meta, bos_first, eos_last)
  local first, last = meta["tokenizer.ggml.add_bos_token"], meta["tokenizer.ggml.add_eos_token"]
  if first == nil then first = bos_first end
  if last == nil then last = eos_last end
  local single, pair, tokens = {}, {}, {}
  local function put(list, token, id, segment)
    list[#list + 1] = { SpecialToken = { id = token, type_id = segment } }
    tokens[token] = { id = token, ids = { id }, tokens = { token } }
  end
  local function sequence(list, name, segment)
    local bos, bos_id = M.named(meta, "bos")
    local eos, eos_id = M.named(meta, "eos")
    if first and bos then put(list, bos, bos_id, segment) end
    list[#list + 1] = { Sequence = { id = name, type_id = segment } }
    if last and eos then put(list, eos, eos_id, segment) end
  end
  sequence(single, "A", 0)
  sequence(pair, "A", 0)
  sequence(pair, "B", 1)
  if #single == 1 then return nil end
  return { type = "TemplateProcessing", single = single, pair = pair, special_tokens = tokens }
end

--- Records in a head whether the tokenizer puts <bos> before and <eos> after a text.
function M.write_ends(head, tok, bos, eos)
  local ids = tok:encode("").ids
  head:bool("tokenizer.ggml.add_bos_token", bos ~= nil and ids[1] == bos)
  head:bool("tokenizer.ggml.add_eos_token", eos ~= nil and ids[#ids] == eos and (#ids > 1 or eos ~= bos))
end

return M
