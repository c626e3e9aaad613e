-- text.Tokenizer: encoding, pairs, padding, truncation and what overflows, added tokens, folders, files written and read,
-- streams, training, and files and calls that are wrong.
local accel = require "accel"
local text = accel.text
local Tokenizer = text.Tokenizer
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

local bert = assert(Tokenizer.from_file(recorded .. "wordpiece.json"))
local gpt2 = assert(Tokenizer.from_file(recorded .. "bpe_bytes.json"))

do -- one text, a pair
  local e = bert:encode("To be, or", "not")
  equal(e.tokens, { "[CLS]", "to", "be", ",", "or", "[SEP]", "not", "[SEP]" })
  equal(e.type_ids, { 0, 0, 0, 0, 0, 0, 1, 1 })
  equal(e.special_tokens_mask, { 1, 0, 0, 0, 0, 1, 0, 1 })
  equal(e.attention_mask, { 1, 1, 1, 1, 1, 1, 1, 1 })
  equal(e.word_ids, { false, 0, 1, 2, 3, false, 0, false })
  equal(e.sequence_ids, { false, 0, 0, 0, 0, false, 1, false })
  equal(e.offsets, { { 0, 0 }, { 0, 2 }, { 3, 5 }, { 5, 6 }, { 7, 9 }, { 0, 0 }, { 0, 3 }, { 0, 0 } })
  assert(#e == 8 and e:len() == 8 and tostring(e) == "Encoding(8 tokens)")
  assert(e:char_to_token(4) == 3 and e:char_to_token(6) == nil and e:char_to_token(0, 1) == 7)
  local first, last = e:word_to_tokens(2)
  assert(first == 4 and last == 4 and e:word_to_tokens(9) == nil and e:word_to_tokens(0, 1) == 7)
  equal(bert:encode("be", { add_special_tokens = false }).tokens, { "be" })
  fails("offsets were not computed", function() return bert:encode("be", { offsets = false }).offsets end)
  -- characters, not bytes
  equal(gpt2:encode("\u{e9}a").offsets[1], { 0, 1 })
  assert(bert:num_special_tokens_to_add() == 2 and bert:num_special_tokens_to_add(true) == 3)
end

do -- vocabulary
  assert(#bert == 1200 and bert:get_vocab_size() == 1200 and bert:id_limit() == 1200)
  assert(bert:token_to_id "[CLS]" == 2 and bert:id_to_token(2) == "[CLS]")
  assert(bert:token_to_id "no such" == nil and bert:id_to_token(1200) == nil and bert:id_to_token(-1) == nil)
  local vocab, n = bert:get_vocab(), 0
  for token, id in pairs(vocab) do
    n = n + 1
    assert(bert:token_to_id(token) == id)
  end
  assert(n == 1200)
  assert(tostring(bert) == "Tokenizer(WordPiece, 1200 tokens)")
end

do -- batches
  local batch = bert({ "To be", "or not to be" }, { padding = true, return_tensors = true })
  equal(batch.input_ids:tolist(), { { 2, 80, 95, 3, 0, 0 }, { 2, 218, 120, 80, 95, 3 } })
  equal(batch.attention_mask:tolist(), { { 1, 1, 1, 1, 0, 0 }, { 1, 1, 1, 1, 1, 1 } })
  assert(batch.token_type_ids.dtype == "i64")
  equal(bert("To be").input_ids, { 2, 80, 95, 3 })
  equal(bert("To be", { return_tensors = true }).input_ids.shape, { 1, 4 })
  equal(bert({ "To", "be" }, { "or", "not" }).token_type_ids, { { 0, 0, 0, 1, 1 }, { 0, 0, 0, 1, 1 } })
  equal(bert({ "To", "be" }, { text_pair = { "or", "not" }, return_token_type_ids = false, return_length = true }),
    { input_ids = { { 2, 80, 3, 218, 3 }, { 2, 95, 3, 120, 3 } }, length = { 5, 5 },
      attention_mask = { { 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1 } } })
  local long = bert("To be or not to be", { truncation = true, max_length = 5, return_offsets_mapping = true })
  equal(long.input_ids, { 2, 80, 95, 218, 3 })
  equal(long.offset_mapping[4], { 6, 8 })
  local wide = bert({ "To be", "or" }, { padding = "max_length", max_length = 6, pad_to_multiple_of = 4,
    padding_side = "left", return_special_tokens_mask = true })
  equal(wide.input_ids, { { 0, 0, 0, 0, 2, 80, 95, 3 }, { 0, 0, 0, 0, 0, 2, 218, 3 } })
  equal(wide.special_tokens_mask[1], { 1, 1, 1, 1, 1, 0, 0, 1 })
  -- what is cut off
  local parts = bert({ "To be or not to be that is", "be" }, { truncation = true, max_length = 5, stride = 1,
    return_overflowing_tokens = true, padding = true, return_tensors = true })
  equal(parts.overflow_to_sample_mapping, { 0, 0, 0, 0, 1 })
  equal(parts.input_ids.shape, { 5, 5 })
  equal(bert({}, { padding = true }).input_ids, {})
  equal(bert({}, { padding = true, return_tensors = true }).input_ids.shape, { 0, 0 })
  -- on several threads the same as alone
  local many = {}
  for i = 1, 300 do many[i] = ("to be or not to be "):rep(i % 7) .. i end
  for i, ids in ipairs(bert(many).input_ids) do equal(ids, bert:encode(many[i]).ids) end
  fails("do not form a tensor", bert, { "To be", "or" , "not to be" }, { return_tensors = true })
  fails("padding needs a token", gpt2, { "a", "ab" }, { padding = true })
  gpt2.pad_token = "<|endoftext|>"
  assert(gpt2.pad_token_id == 0 and gpt2.bos_token_id == nil)
  equal(gpt2({ "a", "to be" }, { padding = true }).attention_mask[1], { 1, 0 })
  fails("unknown option 'paddin'", bert, "a", { paddin = true })
  fails("padding must be one of", bert, "a", { padding = "left" })
  fails("truncation needs max_length", bert, "a", { truncation = "only_first" })
  fails("expected a text or a list", bert, 5)
  fails("entry 2: expected string", bert, { "a", 5 })
  fails("1 texts and 2 second", bert, { "a" }, { "b", "c" })
  fails("padding: a length of more than", bert, "a", { padding = "max_length", max_length = 1 << 30 })
  fails("leaves no room for 3 special", bert, "a", "b", { truncation = true, max_length = 2 })
  fails("not valid UTF%-8 at byte 3", bert, "ab\xff")
end

do -- encode_batch, truncation and padding that stay
  local tok = assert(Tokenizer.from_file(recorded .. "wordpiece.json"))
  tok:enable_truncation(6, { stride = 1 })
  tok:enable_padding { length = 8 }
  local e = tok:encode "to be or not to be that is the que"
  equal(e.tokens, { "[CLS]", "to", "be", "or", "not", "[SEP]", "[PAD]", "[PAD]" })
  assert(#e.overflowing == 2 and #e.overflowing[1] == 8)
  equal(e.overflowing[1].tokens, { "[CLS]", "not", "to", "be", "that", "[SEP]", "[PAD]", "[PAD]" })
  tok:enable_padding { length = 8, pad_token = "[MASK]" }
  equal(tok:encode("to be").tokens, { "[CLS]", "to", "be", "[SEP]", "[MASK]", "[MASK]", "[MASK]", "[MASK]" })
  tok:enable_padding { length = 8 }
  local again = Tokenizer.from_str(tok:to_str())
  equal(again:encode("to be or not to be").ids, tok:encode("to be or not to be").ids)
  equal(#tok:encode_batch({ "to", "be" }), 2)
  tok:no_truncation()
  tok:no_padding()
  local list = tok:encode_batch { "to be", "be" }
  assert(#list == 2 and #list[1] == 4 and #list[2] == 3 and list[1].offsets[2][2] == 2)
  local pairs_ = tok:encode_batch({ { "to", "be" }, { "or", "not" } }, { padding = "longest", return_tensors = true })
  equal(pairs_.token_type_ids:tolist(), { { 0, 0, 0, 1, 1 }, { 0, 0, 0, 1, 1 } })
  fails("either all entries are pairs", tok.encode_batch, tok, { { "to", "be" }, "or" })
  fails("stride 4 must be less", tok.enable_truncation, tok, 6, { stride = 4 })
  fails("strategy must be", tok.enable_truncation, tok, 6, { strategy = "some" })
end

do -- added tokens
  local tok = assert(Tokenizer.from_file(recorded .. "bpe_bytes.json"))
  assert(tok:add_special_tokens { "<|a|>", { content = "<|b|>", lstrip = true } } == 2)
  assert(tok:add_tokens "banana" == 1 and tok:add_tokens { "banana" } == 0 and #tok == 1203)
  local e = tok:encode "x  <|b|>banana<|a|>"
  assert(e.tokens[2] == "  <|b|>" and e.ids[2] == 1201 and e.ids[3] == 1202)
  assert(tok:decode(e.ids) == "xbanana" and tok:decode(e.ids, { skip_special_tokens = false }) == "x<|b|>banana<|a|>")
  assert(#tok:encode("<|a|>").ids == 1 and #tok:encode("<|a|>", { split_special_tokens = true }).ids > 3)
  local list = tok:get_added_tokens()
  assert(list[#list].content == "banana" and list[#list].special == false and list[#list - 1].lstrip)
  local path = tmp .. "/tokenizer_test.json"
  assert(tok:save(path))
  equal(assert(Tokenizer.from_file(path)):encode("x  <|b|>banana<|a|>").ids, e.ids)
  os.remove(path)
  fails("token 1 has no content", tok.add_tokens, tok, { "" })
  fails("unknown option 'strip'", tok.add_tokens, tok, { content = "x", strip = true })
end

do -- decoding: lists, tensors, batches, streams
  local s = "na\u{ef}ve caf\u{e9} \u{1f600}\u{1f601} \u{4f60}\u{597d}, to be"
  local ids = gpt2:encode(s).ids
  assert(gpt2:decode(ids) == s and gpt2:decode(accel.tensor(ids)) == s and gpt2:decode(accel.tensor(ids):to "i32") == s)
  assert(gpt2:decode(ids[1]) ~= "" and gpt2:decode({}) == "" and gpt2:decode { 99999, -5 } == "")
  equal(gpt2:decode_batch { ids, {} }, { s, "" })
  equal(gpt2:decode_batch(accel.tensor { ids, ids }), { s, s })
  for _, name in ipairs { "bpe_bytes", "bpe_split", "bpe_fallback", "wordpiece", "unigram", "roberta" } do
    local tok = assert(Tokenizer.from_file(recorded .. name .. ".json"))
    local e = tok:encode(s, { add_special_tokens = false })
    local stream, out = tok:decode_stream(), {}
    for _, id in ipairs(e.ids) do out[#out + 1] = stream:step(id) or "" end
    local got = table.concat(out)
    assert(got == tok:decode(e.ids), ("%s: %q is not %q"):format(name, got, tok:decode(e.ids)))
    assert(#stream.ids < 40)
  end
  fails("entry 1: expected integer", gpt2.decode, gpt2, { "a" })
  fails("expected list of integers", gpt2.decode, gpt2, "abc")
end

do -- Unigram: where the sums of two ways are equal but for rounding, the scores' last bits decide, which the package reads
  -- from digits divided by a power of ten
  local tok = assert(Tokenizer.from_file(recorded .. "unigram.json"))
  local want = { 96, 46, 70, 2, 282, 282, 282, 282, 91 }
  for _ = 1, 9 do want[#want + 1] = 282 end
  want[#want + 1] = 1
  equal(tok:encode("cense\n" .. ("-"):rep(27)).ids, want)
  local written = [=[{"version":"1.0","model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",-0.0],["-",%s],["--",%s]]}}]=]
  for _, scores in ipairs { { "-1.5", "-2.25" }, { "-15e-1", "-225E-2" }, { "-0.0000000000000000000000000000015e+30", "-22500.0e-4" },
    { "-150000000000000000000000e-23", "-2.2500000000000000000000000001" } } do
    equal(Tokenizer.from_str(written:format(scores[1], scores[2])):encode("-----").ids, { 1, 2, 2 })
  end
  assert(#Tokenizer.from_str(written:format("-1e-400", "-1.7e308")):encode("---").ids == 3)
end

do -- a model's folder
  local dir = tmp .. "/folder"
  assert(accel.makedirs(dir))
  local function write(name, s) assert(accel.write_file(dir .. "/" .. name, s)) end
  write("tokenizer.json", gpt2:to_str())
  write("tokenizer_config.json", [[{"model_max_length": 7, "padding_side": "left", "bos_token": "<|endoftext|>",
    "model_input_names": ["input_ids", "attention_mask"], "chat_template": "{% raise %}",
    "added_tokens_decoder": {"0": {"content": "<|endoftext|>", "special": true}, "1200": {"content": "<|im|>", "special": true}}}]])
  write("special_tokens_map.json", [[{"pad_token": {"content": "<pad>", "lstrip": false}, "eos_token": "<|endoftext|>"}]])
  local tok = assert(Tokenizer.from_pretrained(dir))
  assert(tok.bos_token == "<|endoftext|>" and tok.eos_token_id == 0 and tok.pad_token == "<pad>")
  assert(tok.pad_token_id == 1201 and tok:token_to_id "<|im|>" == 1200 and tok.model_max_length == 7)
  local b = tok({ "to be or not to be that is the question", "to" }, { padding = true, truncation = true })
  assert(#b.input_ids[1] == 7 and b.input_ids[2][1] == 1201 and b.token_type_ids == nil and b.attention_mask[2][1] == 0)
  assert(tok:save_pretrained(tmp .. "/written"))
  local again = assert(Tokenizer.from_pretrained(tmp .. "/written"))
  assert(again.pad_token_id == 1201 and again.padding_side == "left" and again.model_max_length == 7)
  equal(again:encode("<|im|> x").ids, tok:encode("<|im|> x").ids)
  write("tokenizer_config.json", "{ broken")
  local none, message, code = Tokenizer.from_pretrained(dir)
  assert(none == nil and message:find "tokenizer_config.json" and code == "parse", message)
  none, message, code = Tokenizer.from_pretrained(dir .. "/nowhere")
  assert(none == nil and message:find "nowhere: no such folder, and nothing is downloaded" and code == "not_found", message)
  none, message, code = Tokenizer.from_file(dir .. "/nowhere.json")
  assert(none == nil and message:find "no such file" and code == "not_found", message)
  none, message, code = accel.text.train_bpe { files = { dir .. "/nowhere.txt" } }
  assert(none == nil and message:find "nowhere.txt" and code == "not_found", message)
  os.execute(("rm -rf '%s' '%s/written'"):format(dir, tmp))
end

do -- training
  local corpus = { "the cat sat on the mat", "the bat sat on the cat", "caf\u{e9} caf\u{e9}" }
  local tok = text.train_bpe(corpus, { vocab_size = 280, special_tokens = { "<pad>", "<s>" }, min_frequency = 2 })
  assert(tok:token_to_id "<pad>" == 0 and tok:token_to_id "!" == 2 and #tok <= 280)
  assert(#tok:encode("the cat").ids == 2 and tok:decode(tok:encode("the caf\u{e9}").ids) == "the caf\u{e9}")
  local i = 0
  local same = text.train_bpe(function()
    i = i + 1
    return corpus[i]
  end, { vocab_size = 280, special_tokens = { "<pad>", "<s>" }, min_frequency = 2 })
  assert(same:to_str() == tok:to_str())
  local path = tmp .. "/train.txt"
  assert(accel.write_file(path, table.concat(corpus, "\n")))
  assert(#assert(text.train_bpe { files = path, vocab_size = 270 }) == 270)
  os.remove(path)
  local none, message = text.train_bpe { files = { "/nowhere/x" }, vocab_size = 300 }
  assert(none == nil and message:find "nowhere")
  local short = text.train_bpe({ ("abcdefgh "):rep(50) }, { vocab_size = 300, max_token_length = 3 })
  for id = 256, short:id_limit() - 1 do assert(utf8.len(short:id_to_token(id)) <= 3) end
  fails("vocab_size must be a positive", text.train_bpe, corpus, { vocab_size = 0 })
  fails("text 2 is 5", text.train_bpe, { "a", 5 })
  fails("either texts or files", text.train_bpe)
  fails("unknown option 'vocab'", text.train_bpe, corpus, { vocab = 300 })
end

do -- dropout draws from the generator
  local model = accel.json.decode(gpt2:to_str())
  model.model.dropout = 0.5
  local tok = Tokenizer.from_str(accel.json.encode(model))
  local function draw()
    accel.manual_seed(3)
    return table.concat(tok:encode("to be or not to be, that is the question").ids, " ")
  end
  local first = draw()
  assert(first == draw() and first ~= table.concat(tok:encode("to be or not to be, that is the question").ids, " "))
  assert(tok:decode(tok:encode("to be or not").ids) == "to be or not")
end

do -- files that are wrong
  fails("there is no model", Tokenizer.from_str, "{}")
  fails("expected a value", Tokenizer.from_str, '{"model":}')
  fails("type 'ByteLevl' is not known here; did you mean 'ByteLevel'", Tokenizer.from_str,
    '{"pre_tokenizer": {"type": "ByteLevl"}, "model": {"vocab": {"a": 0}, "merges": []}}')
  fails("merge 1: 'b' is not in the vocabulary", Tokenizer.from_str, '{"model": {"vocab": {"a": 0}, "merges": ["a b"]}}')
  fails("id 9 is too large for a vocabulary of 1", Tokenizer.from_str, '{"model": {"vocab": {"a": 9}, "merges": []}}')
  fails("byte 1: back references are not supported", Tokenizer.from_str,
    [[{"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\1"}, "behavior": "Isolated", "invert": false},
       "model": {"vocab": {"a": 0}, "merges": []}}]])
  fails("path must be a string", Tokenizer.from_file, 5)
  fails("unk_token is not in the vocabulary", function()
    return Tokenizer.from_str('{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "u"}}'):encode "b"
  end)
end

do -- time in proportion to the text, whatever it is
  for _, name in ipairs { "bpe_split", "bpe_fallback", "wordpiece", "unigram", "roberta" } do
    local tok = assert(Tokenizer.from_file(recorded .. name .. ".json"))
    for _, s in ipairs { ("a"):rep(300000), ("^"):rep(300000), (" "):rep(300000) .. "x", ("e\u{301}"):rep(50000),
      ("\u{301}"):rep(50000), ("<s>"):rep(50000) } do
      local start = os.clock()
      tok:encode(s)
      assert(os.clock() - start < 5, ("%s takes %.1f s for %s..."):format(name, os.clock() - start, s:sub(1, 9)))
    end
  end
end
