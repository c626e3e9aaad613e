-- text.Tokenizer where files and calls are odd but right: bytes of a suffix, what overflows, strides that are too
-- wide, pairs in one list, tokenizers that travel to data workers. Numbers are those of the packages tokenizers and Transformers.
local accel = require "accel"
local worker_spec = require "accel.data.worker_spec"
local Tokenizer = accel.text.Tokenizer
local src, tmp = os.getenv "ACCEL_TEST_SRC" or ".", os.getenv "ACCEL_TEST_TMP" or "/tmp"
local recorded = src .. "/tests/reference/tokenizers/"

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local function equal(a, b, path)
  path = path or "value"
  if type(a) ~= "table" or type(b) ~= "table" then
    return assert(a == b, ("%s is %s, not %s"):format(path, tostring(a), tostring(b)))
  end
  for k in pairs(b) do assert(a[k] ~= nil, ("%s has no %s"):format(path, tostring(k))) end
  for k, v in pairs(a) do equal(v, b[k], path .. "." .. tostring(k)) end
end

local function read(name)
  local f <close> = assert(io.open(recorded .. name .. ".json", "rb"))
  return accel.json.decode(f:read "a")
end

do -- the bytes of what a model puts around characters are tokens without a text: offsets stay in the text
  local vocab = { ["a</w>"] = 256, a = 257, ["##b"] = 258, ["##c</w>"] = 259 }
  for b = 0, 255 do vocab[("<0x%02X>"):format(b)] = b end
  local function tokenizer(prefix, suffix, normalizer)
    local merges = accel.json.decode "[]"
    return Tokenizer.from_str(accel.json.encode {
      normalizer = normalizer and { type = normalizer },
      model = { type = "BPE", vocab = vocab, merges = merges, byte_fallback = true, end_of_word_suffix = suffix,
        continuing_subword_prefix = prefix },
    })
  end
  local e = tokenizer(nil, "</w>"):encode "a\u{e9}c"
  equal(e.ids, { 257, 195, 169, 99, 60, 47, 119, 62 })
  equal(e.offsets, { { 0, 1 }, { 1, 2 }, { 1, 2 }, { 2, 3 }, { 3, 3 }, { 3, 3 }, { 3, 3 }, { 3, 3 } })
  e = tokenizer(nil, "</w>", "NFD"):encode "\u{e9}"
  equal(e.ids, { 101, 204, 129, 60, 47, 119, 62 })
  equal(e.offsets, { { 0, 1 }, { 0, 1 }, { 0, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } })
  equal(tokenizer("##", "</w>"):encode("a\u{e9}c").ids, { 257, 35, 35, 195, 169, 259 })
  for n = 1, 60 do
    for _, tok in ipairs { tokenizer("##"), tokenizer(nil, "</w>", "NFD"), tokenizer("##", "</w>", "NFKC") } do
      for _, o in ipairs(tok:encode(("\u{e9}"):rep(n)).offsets) do assert(o[1] <= o[2] and o[2] <= n) end
    end
  end
end

do -- types of what overflows: RoBERTa's are 0, but without special tokens those of the texts
  local tok = assert(Tokenizer.from_file(recorded .. "roberta.json"))
  tok:enable_truncation(10, { strategy = "only_second" })
  local function types(a, b, opts)
    local list, e = {}, tok:encode(a, b, opts)
    for i, x in ipairs(e.overflowing) do list[i] = table.concat(x.type_ids) end
    return table.concat(e.type_ids), list
  end
  local first, more = types("a b", "one two three four five six seven")
  assert(first == "0000000000")
  equal(more, { "0000000000", "0000000000", "00000000" })
  first, more = types("a b", "one two three four five six seven", { add_special_tokens = false })
  assert(first == "0000000000")
  equal(more, { "00111111" })
  -- a template with the second text before the first: so do the parts follow each other
  local json = read "wordpiece"
  local function special(id, type_id) return { SpecialToken = { id = id, type_id = type_id } } end
  local function text(id, type_id) return { Sequence = { id = id, type_id = type_id } } end
  json.post_processor = { type = "TemplateProcessing",
    single = { special("[CLS]", 0), text("A", 0), special("[SEP]", 0) },
    pair = { special("[CLS]", 3), text("B", 5), special("[SEP]", 0), text("A", 2), special("[SEP]", 1) },
    special_tokens = { ["[CLS]"] = { id = "[CLS]", ids = { 2 }, tokens = { "[CLS]" } },
      ["[SEP]"] = { id = "[SEP]", ids = { 3 }, tokens = { "[SEP]" } } } }
  tok = Tokenizer.from_str(accel.json.encode(json))
  tok:enable_truncation(10)
  local words = "one two three four five six seven"
  first, more = types(words, words)
  assert(first == "3555502221")
  equal(more, { "3111102221", "3111100001", "3111100001", "3111100001", "3111102221", "3111100001", "3111100001",
    "3111100001", "3555500001", "3555500001", "3555500001" })
end

do -- a stride that is too wide is seen when a text has to be cut
  local json = read "wordpiece"
  json.truncation = { direction = "Right", max_length = 3, strategy = "LongestFirst", stride = 1 }
  local tok = Tokenizer.from_str(accel.json.encode(json))
  assert(#tok:encode("to").ids == 3)
  fails("stride 1 must be less than the 1 tokens", tok.encode, tok, "to be")
  assert(accel.json.decode(tok:to_str()).truncation.stride == 1)
  fails("stride 1 must be less", tok.enable_truncation, tok, 3, { stride = 1 })
end

do -- pairs in one list, as Transformers takes them
  local bert = assert(Tokenizer.from_file(recorded .. "wordpiece.json"))
  equal(bert { { "To", "or" }, { "be", "not" } }, bert({ "To", "be" }, { "or", "not" }))
  local b = bert({ { "To", "be" }, { "or", "not to be" } }, { padding = true, return_tensors = true })
  equal(b.token_type_ids:tolist(), { { 0, 0, 0, 1, 1, 0, 0 }, { 0, 0, 0, 1, 1, 1, 1 } })
  fails("entry 2: a pair has two texts, not 1", bert, { { "To", "be" }, { "or" } })
  fails("entry 1: a pair has two texts, not 3", bert.encode_batch, bert, { { "To", "be", "or" } })
  fails("tokenizer: either all entries are pairs", bert, { "or", { "To", "be" } })
  fails("given twice", bert, { { "To", "be" } }, { "or" })
end

do -- to data workers: as an argument of a data set, in threads of their own
  local tok = accel.text.train_bpe({ "to be or not to be" }, { vocab_size = 262, special_tokens = { "<pad>" } })
  tok.pad_token, tok.model_max_length, tok.padding_side = "<pad>", 5, "left"
  tok:add_tokens { "or" }
  local again = worker_spec.unpack(worker_spec.pack(tok, "the tokenizer"))
  assert(again ~= tok and again.pad_token_id == 0 and again.padding_side == "left" and again.model_max_length == 5)
  equal(again({ "to be or not to be", "or" }, { padding = true, truncation = true }),
    tok({ "to be or not to be", "or" }, { padding = true, truncation = true }))
  local dir = tmp .. "/edges"
  assert(accel.makedirs(dir))
  assert(accel.write_file(dir .. "/edges_words.lua", [[
    return function(tok, texts)
      return { len = function() return #texts end, get = function(_, i) return tok(texts[i]).input_ids end }
    end]]))
  package.path = dir .. "/?.lua;" .. package.path
  local texts = { "to be", "or not", "be or" }
  local i = 0
  for ids in accel.data.DataLoader { dataset = accel.data.worker_dataset("edges_words", tok, texts), num_workers = 2,
    batch_size = false } () do
    i = i + 1
    ids = type(ids) == "table" and ids or ids:tolist()
    equal(ids, tok(texts[i]).input_ids)
  end
  assert(i == 3)
  os.execute(("rm -rf '%s'"):format(dir))
end

-- UnicodeScripts cuts where the script changes. Blanks and characters without a script belong to the part before them, and at the begin
-- to none.
do
  local tok = Tokenizer.from_str(accel.json.encode { pre_tokenizer = { type = "UnicodeScripts" },
    model = { type = "WordLevel", vocab = { ["<unk>"] = 0 }, unk_token = "<unk>" } })
  for text, want in next, {
    ["\u{3069}\u{3053}\u{3067}\u{751f}\u{308c}\u{3002}Yes"] = "0-5 5-6 6-9",
    ["I like \u{6771}\u{4eac}\u{30bf}\u{30ef}\u{30fc} 12"] = "0-7 7-13 13-15",
    ["  a"] = "2-3", ["  12a \u{65e5}\u{672c}"] = "2-4 4-6 6-8", ["na\u{ef}ve"] = "0-5", ["a\u{301}b"] = "0-1 1-2 2-3", ["\u{378}a"] = "1-2",
    ["\u{3042} \u{30fc}"] = "0-3", ["\u{d55c}\u{ad6d}\u{c5b4} \u{939}\u{93f}\u{928}\u{94d}\u{926}\u{940}!"] = "0-4 4-10 10-11",
  } do
    local got = {}
    for i, o in ipairs(tok:encode(text).offsets) do got[i] = o[1] .. "-" .. o[2] end
    assert(table.concat(got, " ") == want, ("%s: %s, not %s"):format(text, table.concat(got, " "), want))
  end
end
