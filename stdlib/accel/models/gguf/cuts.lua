--- The ways in which llama.cpp cuts text into words before byte-level BPE, under its names for them (tokenizer.ggml.pre). Each regular
--- expression of a list cuts the pieces that those before it left. Used by byte_level.lua.
local M = {}

local CONTRACTIONS <const> = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
local WORDS <const> = "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
local REST <const> = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
local GPT2 <const> = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
local PUNCTUATION <const> = "[\\p{P}\\$\\+<=>\\^~\\|%s]+"
local HAN <const> = "[\u{4E00}-\u{9FA5}\u{800}-\u{4E00}\u{AC00}-\u{D7FF}]+"

-- Letters of DeepSeek's pattern: those with a case, but for Georgian's small ones.
local CASED <const> = "\\s?[A-Za-z\u{B5}\u{C0}-\u{D6}\u{D8}-\u{F6}\u{F8}-\u{1BA}\u{1BC}-\u{1BF}\u{1C4}-\u{293}\u{295}-\u{2AF}\u{370}-\u{373}\u{376}"
  .. "\u{377}\u{37B}-\u{37D}\u{37F}\u{386}\u{388}-\u{38A}\u{38C}\u{38E}-\u{3A1}\u{3A3}-\u{3F5}\u{3F7}-\u{481}\u{48A}-\u{52F}\u{531}-"
  .. "\u{556}\u{10A0}-\u{10C5}\u{13A0}-\u{13F5}\u{13F8}-\u{13FD}\u{1C90}-\u{1CBA}\u{1CBD}-\u{1CBF}\u{1D00}-\u{1D2B}\u{1D6B}-\u{1D77}"
  .. "\u{1D79}-\u{1D9A}\u{1E00}-\u{1F15}\u{1F18}-\u{1F1D}\u{1F20}-\u{1F45}\u{1F48}-\u{1F4D}\u{1F50}-\u{1F57}\u{1F59}\u{1F5B}\u{1F5D}"
  .. "\u{1F5F}-\u{1F7D}\u{1F80}-\u{1FB4}\u{1FB6}-\u{1FBC}\u{1FBE}\u{1FC2}-\u{1FC4}\u{1FC6}-\u{1FCC}\u{1FD0}-\u{1FD3}\u{1FD6}-\u{1FDB}"
  .. "\u{1FE0}-\u{1FEC}\u{1FF2}-\u{1FF4}\u{1FF6}-\u{1FFC}\u{2102}\u{2107}\u{210A}-\u{2113}\u{2115}\u{2119}-\u{211D}\u{2124}\u{2126}"
  .. "\u{2128}\u{212A}-\u{212D}\u{212F}-\u{2134}\u{2139}\u{213C}-\u{213F}\u{2145}-\u{2149}\u{214E}\u{2183}\u{2184}\u{2C00}-\u{2C7B}"
  .. "\u{2C7E}-\u{2CE4}\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}\u{A640}-\u{A66D}\u{A680}-\u{A69B}\u{A722}-\u{A76F}\u{A771}-\u{A787}\u{A78B}-"
  .. "\u{A78E}\u{AB70}-\u{ABBF}\u{FB00}-\u{FB06}\u{FB13}-\u{FB17}\u{FF21}-\u{FF3A}\u{FF41}-\u{FF5A}\u{10400}-\u{1044F}\u{104B0}-"
  .. "\u{104D3}\u{104D8}-\u{104FB}\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}\u{118A0}-\u{118DF}\u{1E900}-\u{1E943}]+"

---@class accel.models.gguf.Cut
---@field name string
---@field regexes string[]? nil: GPT-2's, which ByteLevel has built in
---@field ignore_merges boolean? a word that is a token is not merged
---@field nfc boolean? Hugging Face's tokenizers compose characters before. llama.cpp does not
---@field digits boolean? each digit is a word, and the rest is cut as GPT-2 does
---@field bos boolean? <bos> comes first in a file that does not set it
---@field only_read boolean? no tokenizer is written under this name

---@type accel.models.gguf.Cut[]
M.list = {
  { name = "llama-bpe", ignore_merges = true, bos = true, regexes = { CONTRACTIONS .. WORDS .. "\\p{N}{1,3}" .. REST } },
  { name = "qwen2", nfc = true, regexes = { CONTRACTIONS .. WORDS .. "\\p{N}" .. REST } },
  { name = "smollm", digits = true },
  { name = "gpt-2" },
  { name = "default", only_read = true, regexes = { PUNCTUATION:format "", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" } },
  { name = "falcon", only_read = true, regexes = { PUNCTUATION:format "`", GPT2, "[0-9][0-9][0-9]" } },
  { name = "deepseek-llm", only_read = true, regexes = { "[\\r\\n]", CASED, "\\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}"
    .. "\u{3000}-\u{3002}]+", "\\s+$", HAN, "\\p{N}+" } },
  { name = "deepseek-coder", only_read = true, regexes = { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN, "\\p{N}" } },
  { name = "deepseek-v3", only_read = true, regexes = { "\\p{N}{1,3}", "[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    .. " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" } },
}

-- Names that mean the same.
M.aliases = {
  llama3 = "llama-bpe", ["llama-v3"] = "llama-bpe", ["falcon3"] = "llama-bpe", pixtral = "llama-bpe", ["falcon-h1"] = "llama-bpe",
  ["deepseek-r1-qwen"] = "qwen2", megrez = "qwen2", stablelm2 = "qwen2", starcoder = "smollm", refact = "smollm", ["command-r"] = "smollm",
  codeshell = "smollm", exaone = "smollm", gpt2 = "gpt-2", ["phi-2"] = "gpt-2", mpt = "gpt-2", olmo = "gpt-2", ["jina-es"] = "gpt-2",
  ["jina-de"] = "gpt-2",
}

--- The way of a name. nil: unknown.
---@param name string?
---@return accel.models.gguf.Cut?
function M.find(name)
  name = M.aliases[name] or name or "default"
  for _, cut in ipairs(M.list) do
    if cut.name == name then return cut end
  end
end

return M
