-- Every member of a tokenizer.json does something: another value changes ids, offsets, tokens or the decoded text, or is refused, or there is
-- a warning. A member that the format does not have is warned of by name, wherever it stands, and files of the reference are not.
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local reference = here .. "../../reference/tokenizers/"
local json, array = accel.json, accel.json.array

local function read(path)
  local f <close> = assert(io.open(path, "rb"))
  return f:read "a"
end

-- A small file of the format with everything in it; components take the place of its parts.
local VOCAB <const> = { "[UNK]", "a", "b", "c", "ab", "abc", "##b", "##c", "A", " ", "\u{2581}", "\u{2581}a", "\u{120}", "\u{120}a", "1", "2",
  "12", ",", "e", "\u{e9}", "[CLS]", "[SEP]", "[PAD]", "b</w>", "c</w>", "|", "\u{2581}b", "<0x61>", "<0xC3>", "<0xA9>",
  "<0xA8>", "aa" }
local function file_of(parts)
  local vocab = {}
  for i, token in ipairs(VOCAB) do vocab[token] = i - 1 end
  local file = { version = "1.0", truncation = json.null, padding = json.null, added_tokens = array {}, normalizer = json.null,
    pre_tokenizer = json.null, post_processor = json.null, decoder = json.null, model = { type = "BPE", vocab = vocab, dropout = json.null,
      unk_token = "[UNK]", continuing_subword_prefix = json.null, end_of_word_suffix = json.null, fuse_unk = false, byte_fallback = false,
      ignore_merges = false, merges = array { array { "a", "b" }, array { "ab", "c" }, array { "a", "a" } } } }
  for key, value in next, parts do file[key] = value end
  return file
end

local WORDPIECE <const> = { type = "WordPiece", unk_token = "[UNK]", continuing_subword_prefix = "##", max_input_chars_per_word = 100 }
WORDPIECE.vocab = file_of({}).model.vocab
local scores = array {}
for i, token in ipairs(VOCAB) do scores[i] = array { token, -i / 4 } end

-- What each part of the format may be: a component with all of its members, and the texts that show them.
local TEXTS <const> = { "abc ab, a", " AB\u{e9}c 12 e\u{301}\u{4e2d}x ", "zz ab|b", "\u{ad}a\tb  c\u{0}", "q\u{e9}b", "aa \u{e8} aaa" }
local PARTS <const> = {
  { "normalizer", { type = "Strip", strip_left = true, strip_right = true } },
  { "normalizer", { type = "Replace", pattern = { String = "b" }, content = "c" } }, { "normalizer", { type = "Prepend", prepend = "a" } },
  { "normalizer", { type = "BertNormalizer", clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true } },
  { "pre_tokenizer", { type = "ByteLevel", add_prefix_space = true, use_regex = true } },
  { "pre_tokenizer", { type = "Metaspace", replacement = "\u{2581}", prepend_scheme = "always", split = true } },
  { "pre_tokenizer", { type = "Split", pattern = { String = "b" }, behavior = "Removed", invert = false } },
  { "pre_tokenizer", { type = "Punctuation", behavior = "Isolated" } }, { "pre_tokenizer", { type = "Digits", individual_digits = false } },
  { "pre_tokenizer", { type = "CharDelimiterSplit", delimiter = "|" } }, { "pre_tokenizer", { type = "FixedLength", length = 2 } },
  { "decoder", { type = "BPEDecoder", suffix = "</w>" } }, { "decoder", { type = "WordPiece", prefix = "##", cleanup = true } },
  { "decoder", { type = "Metaspace", replacement = "\u{2581}", prepend_scheme = "always" } },
  { "decoder", { type = "CTC", pad_token = "[PAD]", word_delimiter_token = "|", cleanup = true } },
  { "decoder", { type = "Replace", pattern = { String = "a" }, content = "x" } },
  { "decoder", { type = "Strip", content = "a", start = 1, stop = 0 } },
  { "post_processor", { type = "BertProcessing", sep = array { "[SEP]", 21 }, cls = array { "[CLS]", 20 } } },
  { "post_processor", { type = "RobertaProcessing", sep = array { "[SEP]", 21 }, cls = array { "[CLS]", 20 }, trim_offsets = true,
    add_prefix_space = true }, { pre_tokenizer = { type = "ByteLevel", add_prefix_space = false, use_regex = true } } },
  { "post_processor", { type = "ByteLevel", add_prefix_space = true, trim_offsets = true },
    { pre_tokenizer = { type = "ByteLevel", add_prefix_space = false, use_regex = true } } },
  { "post_processor", { type = "TemplateProcessing", single = array { { Sequence = { id = "A", type_id = 0 } } },
    pair = array { { Sequence = { id = "A", type_id = 0 } }, { Sequence = { id = "B", type_id = 1 } } }, special_tokens = {} } },
  { "model", file_of({}).model, { pre_tokenizer = { type = "Whitespace" } } }, { "model", WORDPIECE, { pre_tokenizer = { type = "Whitespace" } } },
  { "model", { type = "WordLevel", unk_token = "[UNK]", vocab = WORDPIECE.vocab }, { pre_tokenizer = { type = "Whitespace" } } },
  { "model", { type = "Unigram", unk_id = 0, vocab = scores, byte_fallback = false } },
  { "truncation", { direction = "Right", max_length = 3, strategy = "LongestFirst", stride = 1 } },
  { "padding", { strategy = { Fixed = 12 }, direction = "Right", pad_to_multiple_of = 8, pad_id = 22, pad_type_id = 0, pad_token = "[PAD]" } },
  { "added_tokens", array { { id = 1, content = "a", single_word = false, lstrip = false, rstrip = false, normalized = true, special = false } },
    { normalizer = { type = "Lowercase" } } },
}

-- Members of which no other value shows here, with the reason.
local EXCEPTED <const> = { ["added_tokens.id"] = "a token of the vocabulary has the vocabulary's id" }

local function others(value)
  if value == json.null then return { true, "##", "</w>", 0.99 } end
  if type(value) == "boolean" then return { not value } end
  if type(value) == "number" then return { value + 1, 1, 2, 5 } end
  if type(value) == "string" then
    return { "a", "b", "zz", "Removed", "Contiguous", "MergedWithNext", "Left", "OnlyFirst", "OnlySecond", "never", "first", "[PAD]", "c", "12", "" }
  end
  return { {}, array {}, array { "a", 1 }, { String = "c" }, "BatchLongest", array { { Sequence = { id = "A", type_id = 1 } } } }
end

local function seen(file)
  local ok, tok, why = pcall(accel.text.Tokenizer.from_str, json.encode(file))
  if not ok or not tok then return nil, tostring(ok and why or tok) end
  local lines = {}
  local said, message = pcall(function()
    for _, text in ipairs(TEXTS) do
      for _, e in ipairs { tok:encode(text), tok:encode(text, "b a") } do
        lines[#lines + 1] = json.encode { e.ids, e.tokens, e.type_ids, e.attention_mask, e.special_tokens_mask, e.word_ids, e.offsets }
        lines[#lines + 1] = tok:decode(e.ids) .. "|" .. tok:decode(e.ids, { skip_special_tokens = false })
        for _, o in ipairs(e.overflowing or {}) do lines[#lines + 1] = json.encode(o.ids) end
      end
    end
  end)
  lines[#lines + 1] = said and "" or tostring(message)
  return table.concat(lines, "\n")
end

local function copy(t)
  local out = json.is_array and json.is_array(t) and array {} or {}
  for key, value in next, t do out[key] = value end
  return setmetatable(out, getmetatable(t))
end

if arg[1] == "child" then
  local effect, refused, silent, excepted = 0, 0, {}, 0
  for _, part in ipairs(PARTS) do
    local where, component, more = part[1], part[2], part[3] or {}
    local function file(c)
      local all = copy(more)
      all[where] = c
      return file_of(all)
    end
    io.stderr:write("== known\n")
    local base, why = seen(file(component))
    assert(base, where .. ": " .. tostring(why))
    local list = where == "added_tokens"
    local object = list and component[1] or component
    for key, value in accel.pairs(object) do
      local kind
      for _, other in ipairs(key == "type" and { "Nonsense" } or others(value)) do
        if type(other) == type(value) or value == json.null or type(value) == "table" then
          local changed = copy(object)
          changed[key] = other
          local text = seen(file(list and array { changed } or changed))
          if text and text ~= base then kind = "effect" break end
          if not text then kind = "refused" end
        end
      end
      local name = (object.type and where ~= "model" and object.type or where) .. "." .. key
      if kind == "effect" then effect = effect + 1 elseif kind then refused = refused + 1
      elseif EXCEPTED[name] then excepted = excepted + 1 else silent[#silent + 1] = where .. " " .. name end
    end
    io.stderr:write("== unknown ", where, "\n")
    local changed = copy(object)
    changed.zz_unknown = 1
    assert(seen(file(list and array { changed } or changed)) == base)
  end
  io.stderr:write "== unknown root\n"
  assert(seen(file_of { zz_unknown = "x" }))
  for _, name in ipairs { "bpe_bytes", "bpe_split", "bpe_fallback", "wordpiece", "unigram", "roberta" } do
    io.stderr:write("== known ", name, "\n")
    assert(accel.text.Tokenizer.from_file(reference .. name .. ".json"))
  end
  print(("%d members change the result, %d are refused, %d are excepted, %d are silent"):format(effect, refused, excepted, #silent))
  assert(#silent == 0, table.concat(silent, ", "))
  return
end

local path = os.tmpname()
local pipe = assert(io.popen(("'%s' '%s' child 2>'%s'"):format(accel.process.program(), arg[0], path)))
local out = pipe:read "a"
local ok, told = pipe:close(), read(path)
os.remove(path)
assert(ok, out .. told)
io.write(out)
local sections = 0
for head, text in (told .. "== "):gmatch "([^\n]*)\n(.-)%f[=\0]==%s" do
  sections = sections + 1
  if head:find "^unknown" or head:find "^== unknown" then
    assert(text:find("'zz_unknown'", 1, true), head .. ": no warning")
  else
    assert(not text:find "have no effect", head .. ": " .. text)
  end
end
assert(sections > 50, told)

-- tokenizer_config.json: members that are read change the tokenizer, others warn by name, those that change nothing do not.
do
  local dir = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/members-"))
  local no_effect = require "accel.util.no_effect"
  assert(accel.write_file(dir .. "/tokenizer.json", json.encode(file_of {})))
  for name, value in accel.pairs { do_lower_case = "yes", model_max_length = "512", bos_token = 3, added_tokens_decoder = "x", eos_token = { a = 1 },
    additional_special_tokens = "<a>", padding_side = true, model_input_names = { a = 1 }, tokenizer_class = array { "X" }, add_bos_token = 1 } do
    assert(accel.write_file(dir .. "/tokenizer_config.json", json.encode { [name] = value }))
    local tok, why = accel.text.Tokenizer.from_pretrained(dir)
    assert(not tok and why:find("tokenizer_config.json: " .. name .. " is ", 1, true), ("%s: %s"):format(name, why))
  end
  local function load(config)
    assert(accel.write_file(dir .. "/tokenizer_config.json", json.encode(config)))
    local warned, was = {}, warn
    no_effect.reset()
    rawset(_G, "warn", function(...) warned[#warned + 1] = table.concat { ... } end)
    local tok, why = accel.text.Tokenizer.from_pretrained(dir)
    rawset(_G, "warn", was)
    assert(tok, why)
    return tok, table.concat(warned, "\n")
  end
  for name, value in accel.pairs { clean_up_tokenization_spaces = true, add_bos_token = true, add_eos_token = true, split_special_tokens = true,
    spaces_between_special_tokens = true, padding_side = "up", truncation_side = "down", clean_up_tokenisation_spaces = false, zz = 1 } do
    local _, told = load { bos_token = "[CLS]", eos_token = "[SEP]", [name] = value }
    assert(told:find(name, 1, true), ("%s: %s"):format(name, told))
  end
  local tok, told = load { bos_token = "[CLS]", pad_token = "[PAD]", padding_side = "left", truncation_side = "left", model_max_length = 7,
    model_input_names = array { "input_ids" }, clean_up_tokenization_spaces = false, add_bos_token = false, tokenizer_class = "X", legacy = true,
    name_or_path = "x", added_tokens_decoder = { ["40"] = { content = "new", special = true } } }
  assert(told == "" and tok.bos_token == "[CLS]" and tok.padding_side == "left" and tok.truncation_side == "left" and tok.model_max_length == 7
    and tok.model_input_names[1] == "input_ids" and tok:token_to_id "new", told)
end
