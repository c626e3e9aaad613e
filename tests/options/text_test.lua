-- Options of accel.text: each one changes ids, texts or vocabularies, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/text_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local text = accel.text
local s = sweep.folder "text"

local function tokenizer()
  local tok = text.Tokenizer.from_file(here .. "/../reference/tokenizers/wordpiece.json")
  tok.pad_token = "[PAD]"
  return tok
end
local SAMPLE = "the quick brown fox jumps over [CLS] the lazy dog"

local function encoded(x)
  return x.ids, x.type_ids, x.attention_mask, x.special_tokens_mask, x.offsets
end
s:recipe("accel.text.Tokenizer:encode", { base = function() return { text = SAMPLE } end, run = function(call)
  return encoded(call(tokenizer()))
end, values = { pair = { "another text" }, offsets = { false } }, raises = { offsets = "offsets were not computed" } })
local called = {
  text_pair = { "another text" }, padding = { true, "max_length" }, truncation = { true, "only_first" }, max_length = { 6 }, stride = { 1 },
  pad_to_multiple_of = { 16 }, padding_side = { "left" }, return_tensors = { true }, return_token_type_ids = { false },
}
s:recipe("accel.text.Tokenizer:ids", {
  base = function() return { text = SAMPLE } end,
  run = function(_, given) -- of the whole table, whose ids are a part
    local own, o = tokenizer(), {}
    for key, value in pairs(given) do
      if key ~= "text" then o[key] = value end
    end
    return own(given.text, nil, o)
  end,
  values = called,
  with = {
    padding = { max_length = 30, truncation = "only_first" }, truncation = { max_length = 6 },
    stride = { truncation = true, max_length = 6, return_overflowing_tokens = true }, pad_to_multiple_of = { padding = true },
    padding_side = { padding = "max_length", max_length = 30 }, return_overflowing_tokens = { truncation = true, max_length = 6 },
  },
  passes_on = true,
})
local idle = { -- shown by ids above; here that they warn where nothing reads them
  text_pair = { "another" }, max_length = { 6 }, stride = { 1 }, pad_to_multiple_of = { 16 }, padding_side = { "left" },
  padding = { true }, truncation = { "only_first" }, return_tensors = { true }, add_special_tokens = { false }, split_special_tokens = { true },
  return_token_type_ids = { true }, return_attention_mask = { true }, return_special_tokens_mask = { true }, return_offsets_mapping = { true },
  return_overflowing_tokens = { true }, return_length = { true },
}
s:recipe("accel.text.Tokenizer:encode_batch", {
  base = function() return { texts = { SAMPLE, "the fox" } } end,
  run = function(call)
    local list = call(tokenizer())
    if not list[1] then return list end
    local out = {}
    for i, x in ipairs(list) do out[i] = { encoded(x) } end
    return out
  end,
  values = idle, raises = { text_pair = "text_pair" }, with = { return_tensors = { padding = true }, truncation = { max_length = 6 } },
})
s:recipe({ "accel.text.Tokenizer:decode", "accel.text.Tokenizer:decode_batch" }, {
  base = function() return { ids = tokenizer():encode(SAMPLE).ids } end,
  run = function(call, given, entry)
    if entry.name:find "batch" then given.batch, given.ids = { given.ids }, nil end
    return call(tokenizer())
  end,
})
s:recipe("accel.text.Tokenizer:decode_stream", { run = function(call)
  local stream, out = call(tokenizer()), {}
  for _, id in ipairs(tokenizer():encode(SAMPLE).ids) do out[#out + 1] = stream:step(id) or "-" end
  return out
end })
s:recipe("accel.text.TextStreamer", {
  base = function() return { tokenizer = tokenizer() } end,
  run = function(call, given)
    local out = {}
    local own = given.on_text
    given.on_text = function(piece)
      out[#out + 1] = own and "own " or ""
      out[#out + 1] = piece
    end
    local streamer, ids = call(), tokenizer():encode(SAMPLE).ids
    streamer:put { ids[1], ids[2] }
    for i = 3, #ids do streamer:put { ids[i] } end
    streamer:finish()
    return out
  end,
  values = { on_text = { function() end } },
})
s:recipe("accel.text.Tokenizer:enable_padding", {
  run = function(call)
    local tok = tokenizer()
    call(tok)
    return encoded(tok:encode_batch { "the fox", SAMPLE }[1])
  end,
  values = { direction = { "left" }, length = { 30 }, pad_id = { 9 }, pad_to_multiple_of = { 16 }, pad_token = { "[UNK]" }, pad_type_id = { 7 } },
  elsewhere = { pad_token = "tests/stdlib/text/tokenizer_test.lua" },
})
s:recipe("accel.text.Tokenizer:enable_truncation", {
  base = function() return { max_length = 26 } end,
  run = function(call)
    local tok = tokenizer()
    call(tok)
    local x = tok:encode(SAMPLE, "the fox jumps over the brown dog and the lazy fox")
    local parts = {}
    for i, part in ipairs(x.overflowing or {}) do parts[i] = part.ids end
    return x.ids, parts
  end,
  values = { direction = { "left" }, stride = { 1 }, strategy = { "only_second" } },
})
s:recipe({ "accel.text.Tokenizer:get_vocab_size", "accel.text.Tokenizer:num_special_tokens_to_add", "accel.text.Tokenizer:to_str" },
  { run = function(call)
    local tok = tokenizer()
    tok:add_tokens { "brandnew" }
    return call(tok)
  end })
s:recipe("accel.text.Tokenizer:apply_chat_template", {
  base = function() return { messages = { { role = "user", content = "the fox" } } } end,
  run = function(call, given)
    local tok = tokenizer()
    tok.chat_template = "{{ extra }}{% for m in messages %}{% generation %}{{ m.content }} dog{% endgeneration %}{% endfor %}"
      .. "{% if add_generation_prompt %} over{% endif %}"
      .. "{{ tools | length if tools else '' }}{{ documents | length if documents else '' }}"
    return call(tok)
  end,
  values = {
    chat_template = { "{{ messages[0].content }} lazy" }, variables = { { extra = "brown" } }, tools = { { { name = "f" } } },
    documents = { { { title = "t" } } }, tokenize = { false }, return_tensors = { true }, add_generation_prompt = { true },
    continue_final_message = { true }, role = { "user" }, content = { "x" }, template_limit = { 0 }, return_dict = { true },
    return_assistant_tokens_mask = { true },
  },
  with = { return_assistant_tokens_mask = { return_dict = true } },
  raises = { template_limit = "limit must be above 0" },
  elsewhere = { role = "tests/stdlib/text/chat_template_test.lua", content = "tests/stdlib/text/chat_template_test.lua" }, -- of messages
})
local ranks = os.tmpname()
assert(accel.write_file(ranks, "YQ== 0\nYg== 1\nYWI= 2\nIA== 3\n")) -- a, b, ab and a space
s:recipe("accel.text.Tokenizer:from_tiktoken", {
  base = function() return { path = ranks, pattern = "\\S+|\\s+" } end,
  run = function(call) return call():encode("ab ba<x>", { offsets = false }).ids end,
  values = { pattern = { "." }, special_tokens = { { ["<x>"] = 7 } } },
})
s:recipe({ "accel.text.Encoding:char_to_token", "accel.text.Encoding:word_to_tokens" }, {
  base = function() return { char = 5, word = 1 } end,
  run = function(call, given, entry)
    if entry.name:find "char" then given.word = nil else given.char = nil end
    return call(tokenizer():encode("the quick fox", "over dogs jumps"))
  end,
  values = { sequence = { 1 } },
})
s:recipe({ "accel.text.Template", "accel.text.Template:parse" }, {
  base = function() return { source = "{{ raise_exception('no') }}" } end,
  run = function(call)
    local t = call()
    local _, message = t:try_render {}
    return message
  end,
  values = { name = { "mine" } },
})
s:recipe({ "accel.text.Template:render", "accel.text.Template:try_render" }, {
  base = function() return { names = {} } end, run = function(call) return call(text.Template "{% generation %}{{ x }}{% endgeneration %}") end,
  values = { names = { { x = "seen" } }, limit = { 0 }, generation_spans = { true } }, raises = { limit = "limit must be above 0" },
  passes_on = true,
})
s:recipe("accel.text.Trigram", {
  base = function() return { ids = { 1, 2, 3, 1, 2, 4, 1, 2, 3 }, vocab_size = 6 } end,
  run = function(call)
    local m = call()
    return (m.loss or m.nll or m.probability)(m, { 1, 2, 3, 4 })
  end,
  values = { discount = { 0.3 } },
})
s:recipe("accel.text.WordVocab:encode", { base = function() return { text = "a b c d" } end, run = function(call)
  return call(text.WordVocab.from_texts { "a b c d e" })
end, values = { max_length = { 4 }, pair = { "d e" } } })
s:recipe("accel.text.WordVocab:from_texts", { base = function() return { texts = { "a b b c c c" } } end, run = function(call)
  return call().words
end, values = { max_size = { 6 }, min_count = { 2 } } })
s:recipe("accel.text.sentences", { base = function() return { text = "One here.\n\nTwo there.  Three." } end, values = { keep_newlines = { true } } })
local corpus = { "low lower lowest low low", "new newer newest new new wide widest" }
s:recipe("accel.text.train_bpe", {
  base = function() return { texts = corpus, vocab_size = 275 } end,
  run = function(call, given)
    if given.files then given.texts = nil end
    local class, shown = require "accel.util.class", 0
    class.constructed = function(object) shown = shown + (object.isinstance and object:isinstance(accel.util.Progress) and 1 or 0) end
    local ok, tok = pcall(call)
    class.constructed = nil
    if not ok then error(tok, 0) end
    return shown, tok:get_vocab(), tok:encode("low newest").ids
  end,
  values = { vocab_size = { 265 }, min_frequency = { 4 }, special_tokens = { { "<pad>" } }, max_token_length = { 2 }, progress = { true },
    files = { { arg[0] } } },
  elsewhere = { files = "tests/stdlib/text/tokenizer_test.lua" },
})

s:finish()
