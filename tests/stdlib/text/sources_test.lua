-- Files of tokenizers without a tokenizer.json, made here: damaged ones, limits, options of tokenizer_config.json, SentencePiece's own
-- rules by closed forms, tiktoken's ranks, and the tokenizer.json that save_pretrained writes.
local accel = require "accel"
local Tokenizer = accel.text.Tokenizer
local no_effect = require "accel.util.no_effect"
local tmp = os.getenv "ACCEL_TEST_TMP" or os.tmpname() .. ".d"

local function folder(name, files)
  local dir = tmp .. "/" .. name
  assert(accel.makedirs(dir))
  for file, text in next, files do assert(accel.write_file(dir .. "/" .. file, text)) end
  return dir
end

local function same(got, want)
  assert(#got == #want, ("%s, not %s"):format(table.concat(got, " "), table.concat(want, " ")))
  for i, v in ipairs(want) do assert(got[i] == v, ("%s, not %s"):format(table.concat(got, " "), table.concat(want, " "))) end
end

local function refused(pattern, dir)
  local tok, message, code = Tokenizer.from_pretrained(dir)
  assert(tok == nil and type(code) == "string" and message:find(pattern), tostring(message))
end

local warnings = {}
local function warned(fn)
  local before = warn
  warnings = {}
  warn = function(...) warnings[#warnings + 1] = table.concat({ ... }) end -- luacheck: ignore
  no_effect.reset()
  local ok, result = pcall(fn)
  warn = before -- luacheck: ignore
  assert(ok, result)
  return result, table.concat(warnings, "\n")
end

-- ---- vocab.txt ----
local VOCAB <const> = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nHello\n##s\n,\ncaf\u{e9}\ncafe\n"
local bert = assert(Tokenizer.from_pretrained(folder("bert", { ["vocab.txt"] = VOCAB })))
same(bert:encode("Hellos, caf\u{e9}").ids, { 2, 5, 7, 8, 10, 3 })
assert(bert.cls_token_id == 2 and bert.mask_token == "[MASK]" and bert({ "hello" }).token_type_ids)
local cased = assert(Tokenizer.from_pretrained(folder("cased", { ["vocab.txt"] = VOCAB, ["tokenizer_config.json"] =
  '{"tokenizer_class": "BertTokenizerFast", "do_lower_case": false}' })))
same(cased:encode("Hello caf\u{e9}").ids, { 2, 6, 9, 3 })
assert(bert:save_pretrained(tmp .. "/written"))
same(assert(Tokenizer.from_pretrained(tmp .. "/written")):encode("Hellos, caf\u{e9}").ids, { 2, 5, 7, 8, 10, 3 })
refused("vocab.txt: line 2 is not UTF%-8", folder("bad", { ["vocab.txt"] = "a\n\xff\n" }))
refused("vocab.txt: it is empty", folder("empty", { ["vocab.txt"] = "" }))
refused("the class XLMTokenizer is not made from its vocabulary files here", folder("class", { ["vocab.txt"] = VOCAB,
  ["tokenizer_config.json"] = '{"tokenizer_class": "XLMTokenizer"}' }))

-- ---- vocab.json and merges.txt ----
local gpt2 = folder("gpt2", { ["vocab.json"] = '{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3, "\u{120}": 4}',
  ["merges.txt"] = "#version: 0.2\na b\n" })
os.remove(gpt2 .. "/tokenizer_config.json") -- of an earlier run
local tok = assert(Tokenizer.from_pretrained(gpt2))
same(tok:encode("abba<|endoftext|>").ids, { 2, 1, 0, 3 })
assert(accel.write_file(gpt2 .. "/tokenizer_config.json",
  '{"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true, "add_bos_token": true}'))
same(assert(Tokenizer.from_pretrained(gpt2)):encode("ab").ids, { 3, 4, 2 })
refused("merges.txt: line 2 is not two tokens", folder("merges", { ["vocab.json"] = "{}", ["merges.txt"] = "#version\nabc\n" }))
refused("vocab.json: must be an object", folder("list", { ["vocab.json"] = "[1]", ["merges.txt"] = "" }))
refused("is not in the vocabulary", folder("unknown", { ["vocab.json"] = '{"a": 0}', ["merges.txt"] = "a b\n" }))

-- ---- a part of a tokenizer's files: the error names the missing file ----
do
  local class <const> = '{"tokenizer_class": "GPT2TokenizerFast"}'
  for i, more in ipairs { { ["config.json"] = '{"model_type": "gpt2"}' }, { ["tokenizer_config.json"] = class }, {} } do
    local function with(name, text)
      local files = { [name] = text }
      for file, content in next, more do files[file] = content end
      return folder(("half%d%s"):format(i, name), files)
    end
    refused("half%d[^:]*: it has vocab.json but no merges.txt; copy", with("vocab.json", "{}"))
    refused("half%d[^:]*: it has merges.txt but no vocab.json; copy", with("merges.txt", "#version\na b\n"))
    refused("tokenizer.json: JSON: the text ends too early", with("tokenizer.json", '{"version": "1.0", "model": {'))
  end
  refused("names GPT2TokenizerFast, but .* no vocab.json with merges.txt", folder("class", { ["tokenizer_config.json"] = class }))
  refused("names LlamaTokenizer, but .* no tokenizer.model or", folder("class2",
    { ["tokenizer_config.json"] = '{"tokenizer_class": "LlamaTokenizer"}' }))
  refused("tokenizer.json: no such file", folder("config", { ["config.json"] = '{"model_type": "gpt2"}' }))
end

-- ---- options of tokenizer_config.json beside a tokenizer.json ----
assert(accel.write_file(tmp .. "/written/tokenizer_config.json", '{"tokenizer_class": "BertTokenizer", "do_lower_case": false}'))
same(assert(Tokenizer.from_pretrained(tmp .. "/written")):encode("Hello caf\u{e9}").ids, { 2, 6, 9, 3 })
assert(accel.write_file(tmp .. "/written/tokenizer_config.json", '{"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": false}'))
local kept, told = warned(function() return assert(Tokenizer.from_pretrained(tmp .. "/written")) end)
same(kept:encode("Hello").ids, { 2, 5, 3 })
assert(told:find "do_lower_case has no effect here: tokenizer.json's normalizer has lowercase = true", told)
assert(accel.write_file(tmp .. "/written/tokenizer_config.json", '{"do_lower_case": true, "never_split": ["x"]}'))
kept, told = warned(function() return assert(Tokenizer.from_pretrained(tmp .. "/written")) end)
assert(kept and told:find "never_split has no effect" and not told:find "do_lower_case", told)

-- ---- tiktoken ----
local ranks = {}
for i, token in ipairs { "YQ==", "Yg==", "YWI=", "IA==" } do ranks[i] = ("%s %d\n"):format(token, i - 1) end -- a, b, ab, a space
local dir = folder("tiktoken", { ["x.tiktoken"] = table.concat(ranks), ["tokenizer.model"] = table.concat(ranks) })
local tik = assert(Tokenizer.from_tiktoken(dir .. "/x.tiktoken", { pattern = [[ ?\S+|\s+]], special_tokens = { ["<end>"] = 7 } }))
same(tik:encode("ab ba<end>").ids, { 2, 3, 1, 0, 7 })
same(tik:encode("ab", { split_special_tokens = true }).ids, { 2 })
assert(tik:decode({ 2, 3, 1, 0 }) == "ab ba")
refused("a file of tiktoken, which lacks the pattern", dir)
for _, bad in ipairs { "YQ== x\n", "Y 1\n", "YQ== 0\nYQ== 1\n", "" } do
  local path = tmp .. "/bad.tiktoken"
  assert(accel.write_file(path, bad))
  local none, message, code = Tokenizer.from_tiktoken(path, { pattern = "." })
  assert(none == nil and code == "parse" and message:find "bad.tiktoken: ", message)
end
local ok, err = pcall(Tokenizer.from_tiktoken, dir .. "/x.tiktoken", {})
assert(not ok and tostring(err):find "pattern is missing")

-- ---- SentencePiece's own rules ----
local function varint(n)
  local out = {}
  n = n & 0xFFFFFFFFFFFFFFFF
  repeat
    local low = n & 127
    n = n >> 7
    out[#out + 1] = string.char(low | (n ~= 0 and 128 or 0))
  until n == 0
  return table.concat(out)
end
local function text_field(number, s) return varint(number << 3 | 2) .. varint(#s) .. s end
local function int_field(number, v) return varint(number << 3) .. varint(v) end
local function piece(s, score, kind)
  return text_field(1, text_field(1, s) .. varint(2 << 3 | 5) .. ("<f"):pack(score) .. int_field(3, kind or 1))
end
local function model(pieces, trainer, normalizer)
  return table.concat(pieces) .. text_field(2, trainer) .. text_field(3, normalizer or "")
end
local function own(bytes)
  local path = tmp .. "/own.model"
  assert(accel.write_file(path, bytes))
  return Tokenizer.from_sentencepiece(path)
end

local SPACE <const> = "\u{2581}"
local PIECES <const> = { piece("<unk>", 0, 2), piece("<s>", 0, 3), piece("</s>", 0, 3), piece(SPACE, -1), piece("a", -2), piece("b", -3),
  piece("ab", -4), piece(SPACE .. "ab", -5), piece("USER", 0, 4) }
for _, kind in ipairs { 1, 2 } do -- unigram and BPE
  local t = assert(own(model(PIECES, int_field(3, kind))))
  local e = t:encode "  ab  xyUSER "
  same(e.tokens, { SPACE .. "ab", SPACE, "xy", "USER" })
  assert(e.offsets[1][1] == 2 and e.offsets[1][2] == 4 and e.offsets[2][2] == 6 and e.offsets[3][2] == 8)
  assert(t:decode(e.ids) == "ab  \u{2047} USER", t:decode(e.ids))
  assert(t:decode({ 1, 7, 2 }) == "ab" and #t:encode("   ").ids == 0 and #t:encode("").ids == 0)
  assert(#t:encode("<s>").ids == 2, "control pieces are no text")
  assert(t.bos_token_id == 1 and t.eos_token == "</s>" and t.unk_token_id == 0)
  -- written and read again it is the same
  same(Tokenizer.from_str(t:to_str()):encode("  ab  xyUSER ").ids, e.ids)
end
local words = assert(own(model({ piece("<unk>", 0, 2), piece(SPACE .. "ab", -1) }, int_field(3, 3))))
same(words:encode("ab x y ab").tokens, { SPACE .. "ab", SPACE .. "x" .. SPACE .. "y", SPACE .. "ab" })
local suffix = assert(own(model({ piece("<unk>", 0, 2), piece("ab" .. SPACE, -1) }, int_field(3, 3) .. int_field(24, 1))))
same(suffix:encode("ab ab").ids, { 1, 1 })
local bytes = { piece("<unk>", 0, 2), piece("a", -1) }
for b = 0, 255 do bytes[#bytes + 1] = piece(("<0x%02X>"):format(b), 0, 6) end
for _, kind in ipairs { 1, 2 } do
  local t = assert(own(model(bytes, int_field(3, kind) .. int_field(35, 1), int_field(3, 0))))
  local e = t:encode "a\u{20ac}"
  same(e.tokens, { "a", "<0xE2>", "<0x82>", "<0xAC>" })
  assert(e.offsets[2][1] == 1 and e.offsets[2][2] == 1 and e.offsets[4][1] == 1 and e.offsets[4][2] == 2)
  assert(t:decode(e.ids) == "a\u{20ac}" and t:decode({ e.ids[2], e.ids[1] }) == "\u{fffd}a")
end

local function faulty(pattern, text)
  local none, message, code = own(text)
  assert(none == nil and code == "parse" and message:find(pattern), tostring(message))
end
faulty("there are no pieces", "")
faulty("no piece is the unknown one", model({ piece("a", 0) }, ""))
faulty("both the unknown one", model({ piece("a", 0, 2), piece("b", 0, 2) }, ""))
faulty("piece 1 is empty", model({ piece("", 0) }, ""))
faulty("piece 1 is not UTF%-8", model({ piece("\xff", 0) }, ""))
faulty("piece 1 has the score", model({ piece("a", math.huge) }, ""))
faulty("piece 1 has the unknown kind 9", model({ piece("a", 0, 9) }, ""))
faulty("unknown kind of model 7", model(PIECES, int_field(3, 7)))
faulty("piece 2 is unused", model({ piece("<unk>", 0, 2), piece("a", 0, 5) }, ""))
faulty("pieces 1 and 2 are both 'a'", model({ piece("a", 0, 2), piece("a", 0) }, ""))
faulty("field 1 has 100 bytes, which is more than there are", "\10\100abc")
faulty("ends within a number", "\10\255")
faulty("more than 64 bits", ("\255"):rep(11))
faulty("a field without a number", "\0\0")
faulty("unknown kind", "\11")
faulty("does not fit in its", model(PIECES, "", text_field(2, "abcdefgh")))
