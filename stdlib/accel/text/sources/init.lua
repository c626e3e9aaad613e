--- Tokenizers of folders without a tokenizer.json: the files of the tokenizer's class become the description that a tokenizer.json
--- holds. The class stands in tokenizer_config.json, or follows from config.json's model_type, or from the files that are there. Used by
--- accel.text.tokenizer_folder.
local accel = require "accel"
local byte_level = require "accel.text.sources.byte_level"
local read_file = require "accel.util.read_file"
local read_json = require "accel.util.read_json"
local sentencepiece = require "accel.text.sources.sentencepiece"
local sentencepiece_own = require "accel.text.sources.sentencepiece_own"
local tiktoken = require "accel.text.sources.tiktoken"
local wordpiece = require "accel.text.sources.wordpiece"

local M = {}

local MOST <const> = 256 << 20 -- bytes of a file

local READERS <const> = {
  bert = wordpiece, funnel = wordpiece, mpnet = wordpiece, gpt2 = byte_level, gpt_neox = byte_level, roberta = byte_level,
  qwen2 = byte_level, clip = byte_level,
  whisper = byte_level, llama = sentencepiece, gemma = sentencepiece, t5 = sentencepiece, xlm_roberta = sentencepiece,
  albert = sentencepiece, deberta_v2 = sentencepiece,
}

-- Classes of Transformers, without Fast at their end, and kinds of models whose configuration names no class.
local CLASSES <const> = {
  bert = "Bert DistilBert Electra MobileBert ConvBert LayoutLM SqueezeBert Lxmert DPRQuestionEncoder DPRContextEncoder DPRReader Retribert",
  funnel = "Funnel", mpnet = "MPNet", gpt2 = "GPT2 CodeGen", gpt_neox = "GPTNeoX", roberta = "Roberta Bart LED Longformer Mvp",
  qwen2 = "Qwen2", clip = "CLIP",
  whisper = "Whisper", llama = "Llama", gemma = "Gemma", t5 = "T5 MT5", xlm_roberta = "XLMRoberta", albert = "Albert",
  deberta_v2 = "DebertaV2",
}
local MODELS <const> = {
  bert = "bert distilbert electra mobilebert convbert layoutlm squeezebert megatron-bert nezha visual_bert vilt blip git align",
  funnel = "funnel", mpnet = "mpnet", gpt2 = "gpt2 gpt_neo gptj opt codegen phi starcoder2 blip-2",
  gpt_neox = "gpt_neox mpt olmo olmoe mamba rwkv", roberta = "roberta bart led longformer data2vec-text lilt ibert",
  qwen2 = "qwen2 qwen2_moe qwen2_vl qwen3 qwen3_moe qwen3_vl", clip = "clip clipseg owlvit",
  whisper = "whisper", llama = "llama mistral mixtral idefics", gemma = "gemma gemma2 gemma3 gemma3_text",
  t5 = "t5 mt5 switch_transformers", xlm_roberta = "xlm-roberta xmod trocr", albert = "albert", deberta_v2 = "deberta-v2",
}

local function by_word(table_of, suffix)
  local out = {}
  for family, words in next, table_of do
    for word in words:gmatch "%S+" do out[word .. suffix] = family end
  end
  return out
end

local of_class, of_model = by_word(CLASSES, "Tokenizer"), by_word(MODELS, "")

-- Classes that say nothing of the files.
local ANY <const> = { PreTrainedTokenizer = true, TokenizersBackend = true }

--- The family of a folder. nil: none is named. nil and a message: one that is not read.
local function family_of(dir, config)
  local class = type(config.tokenizer_class) == "string" and config.tokenizer_class:gsub("Fast$", "")
  if class and not ANY[class] then
    if of_class[class] then return of_class[class] end
    return nil, ("%s: the class %s is not made from its vocabulary files here; give the folder a tokenizer.json (save_pretrained of "
      .. "Transformers' AutoTokenizer writes one)"):format(dir, config.tokenizer_class)
  end
  local model = read_json(dir .. "/config.json")
  return model and of_model[model.model_type] or nil
end

--- The family of a folder's tokenizer, by its class or its model. nil: another family, or an unnamed one.
---@param dir string
---@param config table
---@return string?
function M.family(dir, config) return (family_of(dir, config)) end

--- The texts of files by name. Of alternatives the first that exists.
local function texts_of(dir, reader)
  local texts, all = {}, reader == wordpiece or reader == byte_level
  for _, name in ipairs(reader.FILES) do
    local text, message, code = read_file(dir .. "/" .. name, MOST)
    if not text and (all or code ~= "not_found") then return nil, message, code end
    texts[name] = text
    if text and not all then break end
  end
  if next(texts) == nil then return nil, ("%s: none of %s is there"):format(dir, table.concat(reader.FILES, ", ")), "not_found" end
  return texts
end

--- Why a folder with a part of a tokenizer's files has no tokenizer. nil if it has none of them and names no class.
local function incomplete(dir, reader, class)
  local here, lacks, exists = {}, {}, {}
  for _, name in ipairs(accel.listdir(dir) or {}) do exists[name] = true end
  for _, name in ipairs(reader.FILES) do table.insert(exists[name] and here or lacks, name) end
  if #here > 0 then
    return ("%s: it has %s but no %s; copy that file from the model's folder, or add a tokenizer.json"):format(dir,
      table.concat(here, " and "), table.concat(lacks, " and no "))
  elseif type(class) == "string" then
    return ("%s: tokenizer_config.json names %s, but the folder has no tokenizer.json and no %s; copy one of them from the model's folder")
      :format(dir, class, table.concat(lacks, reader == byte_level and " with " or " or "))
  end
end

--- A description and the special tokens of a folder's files.
---@param dir string
---@param beside table of special_tokens.read
---@return string? json
---@return string|table message or {named = special tokens by name, inputs = names, padding_side = string?}
---@return string? code "not_found": there are no such files. "incomplete": a part of them is missing
function M.read(dir, beside)
  local family, message = family_of(dir, beside.config)
  if message then return nil, message, "unsupported" end
  local reader, texts, code = READERS[family], nil, nil
  if reader then
    texts, message, code = texts_of(dir, reader)
  else
    for _, one in ipairs { { wordpiece, "bert" }, { byte_level, "gpt2" }, { sentencepiece_own } } do
      reader, family = one[1], one[2]
      texts, message, code = texts_of(dir, reader)
      if texts or code ~= "not_found" then break end
    end
  end
  if not texts then
    local why = code == "not_found" and incomplete(dir, READERS[family] or byte_level, READERS[family] and beside.config.tokenizer_class)
    if why then return nil, why, "incomplete" end
    return nil, message, code
  end
  local name, bytes = next(texts)
  local d, named, inputs, side
  if reader == sentencepiece or reader == sentencepiece_own then
    if tiktoken.fits(bytes) then
      return nil, ("%s/%s: a file of tiktoken, which lacks the pattern and the special tokens; give them to "
        .. "Tokenizer.from_tiktoken"):format(dir, name), "unsupported"
    end
  end
  if reader == sentencepiece_own then
    d, named, inputs = sentencepiece_own.read(bytes)
  else
    d, named, inputs, side = reader.read(family, texts, beside)
  end
  if not d then
    local file = #reader.FILES == 1 and reader.FILES[1] or reader ~= byte_level and name
    return nil, ("%s%s: %s"):format(dir, file and "/" .. file or "", named), "parse"
  end
  return d:json(), { named = named, inputs = inputs, padding_side = side }
end

return M
