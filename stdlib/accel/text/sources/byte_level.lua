--- Tokenizers of vocab.json and merges.txt: byte-level BPE of GPT-2, RoBERTa, Qwen2, CLIP, Whisper and GPT-NeoX. Used by sources/init.lua.
local accel = require "accel"
local Description = require "accel.text.sources.description"
local special = require "accel.text.sources.special"

local M = { FILES = { "vocab.json", "merges.txt" } }

local END <const> = "<|endoftext|>"

-- How Qwen2 and CLIP cut texts.
local QWEN2 <const> = [[(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+]]
local CLIP <const> = [[<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+]]

local object = Description.object

local function byte_level(prefix_space, regex)
  return object("type", "ByteLevel", "add_prefix_space", prefix_space, "trim_offsets", true, "use_regex", regex)
end

local function split(regex, behavior, invert)
  return object("type", "Split", "pattern", { Regex = regex }, "behavior", behavior, "invert", invert)
end

local ends = Description.ends

local function sequence(...) return Description.sequence("pretokenizers", { ... }) end

local FAMILIES <const> = {
  gpt2 = { defaults = { unk_token = END, bos_token = END, eos_token = END }, post = ends },
  gpt_neox = {
    defaults = { unk_token = END, bos_token = END, eos_token = END, pad_token = "<|padding|>" }, post = ends, normalizer = { type = "NFC" },
  },
  roberta = {
    defaults = { bos_token = "<s>", eos_token = "</s>", sep_token = "</s>", cls_token = "<s>", unk_token = "<unk>", pad_token = "<pad>",
      mask_token = "<mask>" },
    post = function(d, n, config)
      return d:roberta(n.cls_token, n.sep_token, config.trim_offsets ~= false, config.add_prefix_space == true)
    end,
  },
  qwen2 = {
    defaults = { unk_token = END, eos_token = END, pad_token = END }, post = ends, normalizer = { type = "NFC" },
    pre = function(prefix) return sequence(split(QWEN2, "Isolated", false), byte_level(prefix, false)) end,
  },
  clip = {
    defaults = { unk_token = END, bos_token = "<|startoftext|>", eos_token = END, pad_token = END }, suffix = "</w>", unknown = true,
    normalizer = object("type", "Sequence", "normalizers", { { type = "NFC" },
      object("type", "Replace", "pattern", { Regex = "\\s+" }, "content", " "), { type = "Lowercase" } }),
    pre = function() return sequence(split(CLIP, "Removed", true), byte_level(false, true)) end,
    post = function(d, n) return d:roberta(n.bos_token, n.eos_token, false, false) end,
    decoder = { object("type", "Replace", "pattern", { String = "</w>" }, "content", " "),
      object("type", "Replace", "pattern", { Regex = "^\\s+|\\s+$" }, "content", "") },
  },
  whisper = {
    defaults = { unk_token = END, bos_token = END, eos_token = END },
    post = function(d, n)
      local words = {}
      for _, token in ipairs { "<|startoftranscript|>", "<|notimestamps|>" } do
        if d:id(token) then words[#words + 1] = token .. ":0" end
      end
      local single, pair = { table.unpack(words) }, { table.unpack(words) }
      single[#single + 1], single[#single + 2] = "$A:0", n.eos_token .. ":0"
      pair[#pair + 1], pair[#pair + 2], pair[#pair + 3] = "$A:0", "$B:1", n.eos_token .. ":1"
      return d:template(single, pair)
    end,
  },
}

--- The lines of merges.txt.
local function merges_of(text)
  local merges, n = {}, 0
  if text:sub(-1) ~= "\n" and text ~= "" then text = text .. "\n" end
  for line in text:gmatch "([^\n]*)\n" do
    n = n + 1
    line = line:gsub("\r$", "")
    if not line:find "^#version" then
      if not line:find "^[^ ]+ [^ ]+$" or not utf8.len(line) then return nil, ("merges.txt: line %d is not two tokens"):format(n) end
      merges[#merges + 1] = line
    end
  end
  return accel.json.array(merges)
end
M.merges_of = merges_of

--- See wordpiece.lua.
function M.read(family, texts, beside)
  local f, config = FAMILIES[family], beside.config
  local ok, vocab = pcall(accel.json.decode, texts["vocab.json"])
  if not ok then return nil, "vocab.json: " .. tostring(type(vocab) == "table" and vocab.message or vocab) end
  if type(vocab) ~= "table" or #vocab > 0 then return nil, "vocab.json: must be an object of ids by token" end
  local merges, why = merges_of(texts["merges.txt"])
  if not merges then return nil, why end
  local unk = beside.tokens.unk_token
  local d = Description(object("type", "BPE", "dropout", accel.json.null, "unk_token",
    f.unknown and (unk and unk.content or f.defaults.unk_token) or accel.json.null, "continuing_subword_prefix", "", "end_of_word_suffix",
    f.suffix or "", "fuse_unk", false, "byte_fallback", false, "ignore_merges", false, "vocab", vocab, "merges", merges))
  local prefix = config.add_prefix_space == true
  d.normalizer = f.normalizer
  d.pre_tokenizer = f.pre and f.pre(prefix) or byte_level(prefix, true)
  d.decoder = Description.sequence("decoders", { byte_level(true, true), table.unpack(f.decoder or {}) })
  local named = special.add(d, beside, f.defaults)
  d.post_processor = f.post(d, named, config)
  return d, named, { "input_ids", "attention_mask" }
end

return M
