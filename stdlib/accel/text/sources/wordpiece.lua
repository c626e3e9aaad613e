--- Tokenizers of vocab.txt: WordPiece of BERT and its kin. Used by sources/init.lua.
local Description = require "accel.text.sources.description"
local special = require "accel.text.sources.special"

local M = { FILES = { "vocab.txt" } }

-- Blanks at the end of a line are no part of its token.
local BLANK = {}
for _, c in ipairs { 9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000 } do BLANK[utf8.char(c)] = true end
for c = 0x2000, 0x200A do BLANK[utf8.char(c)] = true end

local function without_blanks(line)
  local last = #line
  while last > 0 do
    local from = utf8.offset(line, -1, last + 1)
    if not BLANK[line:sub(from, last)] then break end
    last = from - 1
  end
  return line:sub(1, last)
end

local BERT <const> = { unk_token = "[UNK]", sep_token = "[SEP]", pad_token = "[PAD]", cls_token = "[CLS]", mask_token = "[MASK]" }

local FAMILIES <const> = {
  bert = {
    defaults = BERT, inputs = { "input_ids", "token_type_ids", "attention_mask" },
    post = function(d, n)
      return d:template({ n.cls_token .. ":0", "$A:0", n.sep_token .. ":0" },
        { n.cls_token .. ":0", "$A:0", n.sep_token .. ":0", "$B:1", n.sep_token .. ":1" })
    end,
  },
  funnel = {
    defaults = { bos_token = "<s>", eos_token = "</s>", unk_token = "<unk>", sep_token = "<sep>", pad_token = "<pad>", cls_token = "<cls>",
      mask_token = "<mask>" },
    inputs = { "input_ids", "token_type_ids", "attention_mask" },
    post = function(d, n)
      return d:template({ n.cls_token .. ":2", "$A:0", n.sep_token .. ":0" },
        { n.cls_token .. ":2", "$A:0", n.sep_token .. ":0", "$B:1", n.sep_token .. ":1" })
    end,
  },
  mpnet = {
    defaults = { bos_token = "<s>", eos_token = "</s>", unk_token = "[UNK]", sep_token = "</s>", pad_token = "<pad>", cls_token = "<s>",
      mask_token = { content = "<mask>", lstrip = true } },
    inputs = { "input_ids", "attention_mask" },
    post = function(d, n) return d:roberta(n.cls_token, n.sep_token, true, false) end,
  },
}

--- The description for a family's files.
---@param family string
---@param texts table<string, string> of FILES
---@param beside table
---@return table? description
---@return string|table message or the special tokens by name
---@return string[]? inputs
function M.read(family, texts, beside)
  local f, config = FAMILIES[family], beside.config
  local vocab, n, text = {}, 0, texts["vocab.txt"]
  if text:sub(-1) ~= "\n" and text ~= "" then text = text .. "\n" end
  for line in text:gmatch "([^\n]*)\n" do
    if not utf8.len(line) then return nil, ("line %d is not UTF-8"):format(n + 1) end
    vocab[without_blanks(line)] = n
    n = n + 1
  end
  if n == 0 then return nil, "it is empty" end
  local unk = beside.tokens.unk_token or f.defaults.unk_token
  local d = Description(Description.object("type", "WordPiece", "unk_token", type(unk) == "table" and unk.content or unk,
    "continuing_subword_prefix", "##", "max_input_chars_per_word", 100, "vocab", vocab))
  d.normalizer = Description.object("type", "BertNormalizer", "clean_text", true,
    "handle_chinese_chars", config.tokenize_chinese_chars ~= false,
    "strip_accents", config.strip_accents, "lowercase", config.do_lower_case ~= false)
  d.pre_tokenizer = { type = "BertPreTokenizer" }
  d.decoder = Description.object("type", "WordPiece", "prefix", "##", "cleanup", true)
  local named = special.add(d, beside, f.defaults)
  d.post_processor = f.post(d, named)
  return d, named, f.inputs
end

return M
