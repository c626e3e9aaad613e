-- Tokenizers in GGUF files: SentencePiece's by scores, byte-level ones by the names of their cuts. The same ids after reading again, and
-- in llama.cpp where its Python package is; what the format has no words for; metadata that is wrong.
local accel = require "accel"
local gguf = accel.models.gguf
local tokenizers = require "accel.models.gguf.tokenizer"
local tmp = os.getenv "ACCEL_TEST_TMP"
local folder = arg[0]:match "^(.*)/stdlib/" .. "/reference/tokenizers/"

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("wanted an error with %s, got %s"):format(pattern, tostring(err)))
end
local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end
local function spec_of(name) return accel.json.decode(read(folder .. name .. ".json")) end
local function made(spec)
  local tok = accel.text.Tokenizer.from_str(accel.json.encode(spec))
  for _, token in ipairs(tok:get_added_tokens()) do
    if token.content == "<s>" or token.content == "<|begin_of_text|>" then tok.bos_token = token.content end
    if token.content == "</s>" or token.content == "<|end_of_text|>" then tok.eos_token = token.content end
  end
  return tok
end

local CONTRACTIONS <const> = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
local REST <const> = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
local function bytes(own) return { type = "ByteLevel", add_prefix_space = false, trim_offsets = true, use_regex = own } end
local function split(digits)
  return { type = "Sequence", pretokenizers = { { type = "Split", pattern = { Regex = CONTRACTIONS .. digits .. REST }, behavior = "Isolated",
    invert = false }, bytes(false) } }
end

--- Tokenizers by name: each with a spec that the folder's files are changed into.
local specs = { ["llama"] = spec_of "bpe_fallback" }
for name, pre in accel.pairs {
  ["llama-bpe"] = split "\\p{N}{1,3}", qwen2 = split "\\p{N}", ["gpt-2"] = bytes(true),
  smollm = { type = "Sequence", pretokenizers = { { type = "Digits", individual_digits = true }, bytes(true) } },
} do
  local spec = spec_of "bpe_split"
  spec.pre_tokenizer, spec.model.ignore_merges = pre, name == "llama-bpe"
  if name == "qwen2" then spec.normalizer = { type = "NFC" } end
  specs[name] = spec
end

local texts = { "", " ", "  two  spaces ", "1234567 and 89", "IT'S we'll don't", "\t\n mixed\r\n\n", "caf\u{e9} \u{4f60}\u{597d} \u{1f642}\u{2026}",
  "<s>begin</s> again", "a<|end_of_text|> b" }
for _, row in ipairs(accel.json.decode(read(folder .. "bpe_fallback.cases.json")).cases) do
  if #texts < 200 then texts[#texts + 1] = row.text end
end

local config = {
  hidden_size = 32, intermediate_size = 64, num_hidden_layers = 1, num_attention_heads = 2, num_key_value_heads = 2,
  max_position_embeddings = 256,
}
local checked, said, warn_was = {}, {}, warn
warn = function(...) said[#said + 1] = table.concat { ... } end -- luacheck: ignore 121
for name, spec in accel.pairs(specs) do
  local tok = made(spec)
  accel.manual_seed(4)
  config.vocab_size, config.bos_token_id, config.eos_token_id = tok:id_limit() + 3, tok.bos_token_id, tok.eos_token_id
  local model = accel.models.Llama(config):eval()
  do
    local _ <close> = accel.no_grad()
    for _, p in ipairs(model:parameters()) do p:add_(accel.randn_like(p) * 0.2) end
  end
  local path = ("%s/%s.gguf"):format(tmp, name)
  assert(gguf.save(model, path, { type = "F32", tokenizer = tok }))
  local again, extra = gguf.load(path)
  assert(again, extra)
  local t, meta = assert(extra.tokenizer, extra.tokenizer_problem), extra.metadata
  assert(meta["tokenizer.ggml.pre"] == (name == "llama" and "default" or name) and meta["tokenizer.ggml.add_bos_token"] == true)
  assert(t.bos_token == tok.bos_token and t.eos_token == tok.eos_token)
  local normalizer = spec.normalizer
  if name == "qwen2" then spec.normalizer = nil end -- llama.cpp normalizes nothing
  local raw = made(spec)
  spec.normalizer = normalizer
  local ours = { path = path, ids = {}, texts = {} }
  for i, text in ipairs(texts) do
    local ids = (name == "qwen2" and raw or tok):encode(text).ids -- a file's ids are llama.cpp's, which composes nothing
    assert(accel.json.encode(t:encode(text).ids) == accel.json.encode(ids), ("%s: %q"):format(name, text))
    if not text:find "<" and name ~= "qwen2" then assert(t:decode(ids) == text, ("%s: %q"):format(name, text)) end
    ours.ids[i], ours.texts[i] = accel.json.array(raw:encode(text).ids), text
  end
  ours.prompt = "The king of"
  ours.generated = model:generate { input_ids = accel.tensor({ tok:encode(ours.prompt).ids }, { dtype = "i64" }), max_new_tokens = 12 }
  if type(ours.generated[1]) == "table" then ours.generated = ours.generated[1] end
  checked[#checked + 1] = ours
end

do -- that llama.cpp leaves NFC out is said once
  tokenizers.write(require "accel.models.gguf.head" (), made(specs.qwen2), { vocab_size = 10 })
  warn = warn_was -- luacheck: ignore 121
  assert(#said == 1 and said[1]:find "does not compose characters %(NFC%)", table.concat(said, "\n"))
end

do -- other names of a cut mean the same where the file does not say whether <bos> comes first
  local meta, tok = assert(gguf.info(tmp .. "/llama-bpe.gguf")).metadata, made(specs["llama-bpe"])
  meta["tokenizer.ggml.add_bos_token"] = nil
  for _, name in ipairs { "llama-bpe", "llama3", "llama-v3", "falcon3" } do
    meta["tokenizer.ggml.pre"] = name
    local ids = assert(tokenizers.read(meta)):encode("The king").ids
    assert(ids[1] == tok.bos_token_id and #ids > 1, name)
  end
  meta["tokenizer.ggml.pre"] = "qwen2"
  assert(assert(tokenizers.read(meta)):encode("The king").ids[1] ~= tok.bos_token_id)
end

do -- every way of cutting that is read keeps each text, and each other name of one is that way
  local meta, cuts = assert(gguf.info(tmp .. "/gpt-2.gguf")).metadata, require "accel.models.gguf.cuts"
  local text = "Hello, world! 1234567 \r\n\n  caf\u{e9} \u{4f60}\u{597d}\u{3002} \u{10d0}\u{1d0}  IT'S x  "
  local ids = {}
  for _, cut in ipairs(cuts.list) do
    meta["tokenizer.ggml.pre"] = cut.name
    local t = assert(tokenizers.read(meta))
    ids[cut.name] = accel.json.encode(t:encode(text, { add_special_tokens = false }).ids)
    assert(t:decode(t:encode(text, { add_special_tokens = false }).ids) == text, cut.name)
  end
  for name, same in accel.pairs(cuts.aliases) do
    meta["tokenizer.ggml.pre"] = name
    assert(accel.json.encode(assert(tokenizers.read(meta)):encode(text, { add_special_tokens = false }).ids) == ids[same], name)
  end
  meta["tokenizer.ggml.pre"] = nil
  assert(accel.json.encode(assert(tokenizers.read(meta)):encode(text, { add_special_tokens = false }).ids) == ids.default)
  meta["tokenizer.ggml.pre"] = "another"
  local none, why = tokenizers.read(meta)
  assert(none == nil and why:find "cuts text by 'another', which is not known here", why)
end

do -- scores: the place of a token's last merge; bytes, control tokens and <unk> have their kinds
  local meta = assert(gguf.info(tmp .. "/llama.gguf")).metadata
  local kinds, scores, tok = meta["tokenizer.ggml.token_type"], meta["tokenizer.ggml.scores"], made(specs.llama)
  assert(kinds[1] == 2 and kinds[2] == 3 and kinds[4] == 6 and kinds[tok:token_to_id "th" + 1] == 1 and kinds[#kinds] == 5)
  for rank, merge in ipairs(specs.llama.model.merges) do
    assert(scores[tok:token_to_id(merge[1] .. merge[2]) + 1] == -rank)
  end
end

-- ---- what llama.cpp would read otherwise is refused by name ----
local function refused(pattern, name, change)
  local spec = spec_of(name)
  change(spec)
  fails(pattern, tokenizers.write, require "accel.models.gguf.head" (), made(spec), { vocab_size = 10 })
end
refused("<0x41> is missing", "bpe_fallback", function(s)
  for _, token in ipairs(s.added_tokens) do
    if token.content == "<0x41>" then token.content = "<0xZZ>" end
  end
  s.model.vocab["<0xZZ>"], s.model.vocab["<0x41>"] = s.model.vocab["<0x41>"], nil
end)
refused("make a token, but no merge of the tokenizer joins them", "bpe_fallback", function(s) table.remove(s.model.merges, #s.model.merges) end)
refused("only makes spaces visible, this tokenizer has the normalizer", "bpe_fallback", function(s) s.normalizer = { type = "NFKC" } end)
refused("has a space after its begin", "bpe_fallback", function(s)
  s.pre_tokenizer = { type = "Metaspace", replacement = "\u{2581}", prepend_scheme = "always", split = true }
end)
refused("does not replace them", "bpe_fallback", function(s) s.normalizer = nil end)
refused("no name for this way of cutting", "bpe_split", function(s) s.pre_tokenizer.pretokenizers[1].pattern.Regex = "\\w+" end)
refused("puts no space before the text", "bpe_split", function(s) s.pre_tokenizer = { type = "ByteLevel", add_prefix_space = true } end)
refused("llama.cpp normalizes no text", "bpe_split", function(s) s.normalizer = { type = "Lowercase" } end)
refused("merges a word that is a token as it is with the cut 'gpt%-2', this tokenizer takes it", "bpe_split", function(s)
  s.pre_tokenizer, s.model.ignore_merges = bytes(true), true
end)
refused("takes a word that is a token as it is with the cut 'llama%-bpe', this tokenizer merges it", "bpe_split", function(s)
  s.pre_tokenizer, s.model.ignore_merges = split "\\p{N}{1,3}", false
end)
refused("this tokenizer is Unigram", "unigram", function() end)

do -- metadata with anything in the place of anything: a tokenizer, or one line that says why there is none
  local good = { assert(gguf.info(tmp .. "/llama.gguf")).metadata, assert(gguf.info(tmp .. "/qwen2.gguf")).metadata }
  local values = { 0, -1, 1 << 40, 0.5, 0 / 0, "", "x", "\xff\xfe", true, {}, { 1, 2 }, { "a", "b" }, { { "a" } }, { 0 / 0 }, { ("y"):rep(5000) } }
  local state, made_some, refused_some = 7, 0, 0
  local function any(n)
    state = (state * 6364136223846793005 + 1442695040888963407)
    return (state >> 33) % n + 1
  end
  local keys = {}
  for key in accel.pairs(good[1]) do
    if key:find "^tokenizer" then keys[#keys + 1] = key end
  end
  keys[#keys + 1] = "tokenizer.ggml.merges"
  for round = 1, 60 do
    local meta = {}
    for key, value in next, good[round % 2 + 1] do meta[key] = value end
    for _ = 1, any(2) do
      local key = keys[any(#keys)]
      local value = meta[key]
      if type(value) == "table" and any(2) == 1 then -- one element, or all from one on
        local copy = table.move(value, 1, any(#value), 1, {})
        copy[any(#copy)] = values[any(#values)]
        value = copy
      else
        value = values[any(#values)]
      end
      meta[key] = value
    end
    local ok, tok, problem = pcall(tokenizers.read, meta)
    assert(ok, tok)
    if tok then made_some = made_some + 1 else refused_some = refused_some + (#problem > 5 and 1 or 0) end
    assert(tok or type(problem) == "string" and not problem:find "\n", problem)
  end
  assert(made_some > 0 and refused_some > 0, made_some)
end

-- ---- llama.cpp itself ----
if not os.execute "python3 -c 'import llama_cpp' >/dev/null 2>&1" then
  print "without llama-cpp-python: its ids and tokens are not compared"
  return
end
local script = tmp .. "/compare.py"
assert(accel.write_file(tmp .. "/ours.json", accel.json.encode(accel.json.array(checked))))
assert(accel.write_file(script, [[
import json, sys
from llama_cpp import Llama
for row in json.load(open(sys.argv[1])):
    model = Llama(row["path"], n_ctx=128, n_threads=1, verbose=False)
    for text, ids in zip(row["texts"], row["ids"]):
        got = model.tokenize(text.encode(), add_bos=True, special=True)
        assert got == list(ids), (row["path"], text, got, ids)
    out = []
    for token in model.generate(model.tokenize(row["prompt"].encode(), add_bos=True), temp=0.0, repeat_penalty=1.0):
        out.append(token)
        if len(out) >= len(row["generated"]): break
    assert out == row["generated"], (row["path"], out, row["generated"])
print("equal")
]]))
local pipe = assert(io.popen(("python3 '%s' '%s/ours.json' 2>&1"):format(script, tmp)))
local said = pipe:read "a"
assert(pipe:close() and said:find "equal", said)
