--- The one writer of descriptions: the content of a tokenizer's own files becomes the text of a tokenizer.json, which accel.text.core
--- reads. Ids of added tokens follow the vocabulary, as in Hugging Face's package. Used by the other files of this folder.
---
---   local d = Description(model, "vocab")    -- model: {type = "BPE", vocab = {token = id}, ...}
---   d:add { content = "<s>", special = true }
---   d.normalizer = { type = "NFC" }
---   local json = d:json()
local accel = require "accel"
local ordered = require "accel.util.ordered"

local Description = {}
Description.__index = Description

--- An object whose members stand in this order: name, value, name, value ...
---@param ... any
---@return table
function Description.object(...)
  local out, given = ordered(), table.pack(...)
  for i = 1, given.n, 2 do out[given[i]] = given[i + 1] end
  return out
end

--- The steps as one: none, the only one, or a Sequence.
---@param member string its list's name: "normalizers"
---@param steps table[]
---@return table?
function Description.sequence(member, steps)
  if #steps < 2 then return steps[1] end
  return Description.object("type", "Sequence", member, accel.json.array(steps))
end

---@param model table its vocab: ids by token, or a list of {token, score}
---@return table
function Description.new(model)
  local self = setmetatable({ model = model, ids = {}, added = {}, by_content = {} }, Description)
  if model.type == "Unigram" then
    for i, entry in ipairs(model.vocab) do self.ids[entry[1]] = i - 1 end
    self.next_id = #model.vocab
  else
    local n = 0
    self.ids = model.vocab
    for _ in next, model.vocab do n = n + 1 end
    self.next_id = n
  end
  return self
end

--- The id of a token, of the vocabulary or added. nil: there is none.
---@param token string
---@return integer?
function Description:id(token)
  local added = self.by_content[token]
  return added and added.id or self.ids[token]
end

--- Adds a token that is found in texts before all else, unless it was added already.
---@param token {content: string, special: boolean?, normalized: boolean?, lstrip: boolean?, rstrip: boolean?, single_word: boolean?}
function Description:add(token)
  local known = self.by_content[token.content]
  if token.content == "" then return end
  if known then
    known.special = known.special or token.special == true
    return
  end
  local id = self.ids[token.content]
  if not id then id, self.next_id = self.next_id, self.next_id + 1 end
  local entry = {
    id = id, content = token.content, single_word = token.single_word == true, lstrip = token.lstrip == true, rstrip = token.rstrip == true,
    normalized = token.normalized == true, special = token.special == true,
  }
  self.by_content[token.content], self.added[#self.added + 1] = entry, entry
end

--- The step that puts special tokens around a text and a pair. Words of a template: "$A", "$B" or a token, then ":" and its type.
---@param single string[]
---@param pair string[]
---@return table
function Description:template(single, pair)
  local special = {}
  local function pieces(words)
    local out = {}
    for i, word in ipairs(words) do
      local name, kind = word:match "^(.*):(%d)$"
      kind = math.tointeger(tonumber(kind))
      if name == "$A" or name == "$B" then
        out[i] = { Sequence = { id = name:sub(2), type_id = kind } }
      else
        out[i] = { SpecialToken = { id = name, type_id = kind } }
        special[name] = { id = name, ids = { self:id(name) or 0 }, tokens = { name } }
      end
    end
    return accel.json.array(out)
  end
  return Description.object("type", "TemplateProcessing", "single", pieces(single), "pair", pieces(pair), "special_tokens", special)
end

--- RobertaProcessing around <s> A </s>.
---@param cls string
---@param sep string
---@param trim_offsets boolean
---@param add_prefix_space boolean
---@return table
function Description:roberta(cls, sep, trim_offsets, add_prefix_space)
  return Description.object("type", "RobertaProcessing", "sep", { sep, self:id(sep) or 0 }, "cls", { cls, self:id(cls) or 0 },
    "trim_offsets", trim_offsets, "add_prefix_space", add_prefix_space)
end

--- The begin and end tokens that tokenizer_config.json asks for.
---@param named table<string, string>
---@param config table
---@return table
function Description:ends(named, config)
  local bos, eos = config.add_bos_token == true and named.bos_token, config.add_eos_token == true and named.eos_token
  local single, pair = {}, {}
  for kind, sequence in ipairs { "$A", "$B" } do
    for _, word in ipairs { bos, sequence, eos } do
      if word then
        if kind == 1 then single[#single + 1] = word .. ":0" end
        pair[#pair + 1] = ("%s:%d"):format(word, kind - 1)
      end
    end
  end
  return self:template(single, pair)
end

--- The text of a tokenizer.json.
---@return string
function Description:json()
  local null = accel.json.null
  return accel.json.encode(Description.object("version", "1.0", "truncation", null, "padding", null, "added_tokens",
    accel.json.array(self.added), "normalizer", self.normalizer or null, "pre_tokenizer", self.pre_tokenizer or null,
    "post_processor", self.post_processor or null, "decoder", self.decoder or null, "model", self.model))
end

return setmetatable(Description, { __call = function(_, ...) return Description.new(...) end })
