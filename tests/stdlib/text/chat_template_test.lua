-- Chat templates of tokenizers: where they are found, what a call may say, ids, saving; and TextStreamer.
local accel = require "accel"
local tmp = os.getenv "ACCEL_TEST_TMP"

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("wanted an error with %s, got %s"):format(pattern, tostring(err)))
end

local TEMPLATE = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>\n{% endfor %}"
  .. "{% if tools %}[{{ tools | length }}]{% endif %}{% if add_generation_prompt %}<assistant>{% endif %}{{ mood }}"
local tok = accel.text.train_bpe({ "what is up with you and the weather" }, { vocab_size = 270, special_tokens = { "<s>", "<user>" } })
tok.bos_token = "<s>"
local chat = { { role = "user", content = "  what is up " }, { role = "assistant", content = "the weather" } }

fails("has no chat template", tok.apply_chat_template, tok, chat)
tok.chat_template = TEMPLATE
local function text(opts)
  local o = { tokenize = false }
  for key, value in next, opts or {} do o[key] = value end
  return tok:apply_chat_template(chat, o)
end
assert(text() == "<s><user>what is up</>\n<assistant>the weather</>\n", text())
assert(text { add_generation_prompt = true } == "<s><user>what is up</>\n<assistant>the weather</>\n<assistant>")
assert(text { tools = { { name = "x" } }, variables = { mood = "!" } }:find "%[1%]!$")
assert(text { continue_final_message = true } == "<s><user>what is up</>\n<assistant>the weather")
assert(text { chat_template = "{{ messages[0].role }}" } == "user")
fails("continue_final_message continues one", text, { continue_final_message = true, add_generation_prompt = true })
fails("the template changes the last message", text, { chat_template = "x", continue_final_message = true })
fails("chat_template, line 1: unexpected", text, { chat_template = "{{ ) }}" })
fails("unknown option 'tool'; did you mean 'tools'", text, { tool = {} })
assert(text { mood = "!" }:find "!$" and text { mood = false }:find "False$", "other options are variables")
do
  local before, told = warn, nil
  warn = function(...) told = table.concat { ... } end -- luacheck: ignore
  text { enable_thinking = false }
  warn = before -- luacheck: ignore
  assert(told:find "enable_thinking has no effect because the chat template reads no variable of this name", told)
end

-- the last message may go on in another field, in a part of its content, and where a template strips it
local function continued(template, message, field)
  return tok:apply_chat_template({ { role = "user", content = "q" }, message }, { tokenize = false, chat_template = template,
    continue_final_message = field or true })
end
local PLAIN <const> = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
assert(continued(PLAIN, { role = "assistant", content = "q]" }) == "[q][q]")
assert(continued(PLAIN, { role = "assistant", content = "a  " }) == "[q][a  ")
assert(continued("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}", { role = "assistant", content = "a  " }) == "[q][a")
local parts = { { type = "image" }, { type = "text", text = "t" } }
assert(continued("{{ messages[1].content[1].text }}!", { role = "assistant", content = parts }) == "t")
local REASONING <const> = "{{ messages[1].reasoning_content }}|{{ messages[1].thinking }}"
assert(tok:apply_chat_template({ { role = "user", content = "q" }, { role = "assistant", thinking = "why" } }, { tokenize = false,
  chat_template = REASONING }) == "why|why", "reasoning is found under each of its names")
assert(continued("<{{ messages[1].reasoning_content }}|", { role = "assistant", reasoning = "why" }, "reasoning_content") == "<why")
fails("needs a text in the last message's 'content'", continued, PLAIN, { role = "assistant" })
fails("must be a boolean or the name of a field", text, { continue_final_message = 3 })

do -- the assistant's tokens
  local messages = { { role = "user", content = "the" }, { role = "assistant", content = "weather" } }
  local o = { chat_template = "{% for m in messages %}<{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
    .. "{% else %}{{ m.content }}{% endif %}>{% endfor %}", return_assistant_tokens_mask = true }
  fails("needs return_dict = true, or tokenize = false", tok.apply_chat_template, tok, messages, o)
  o.return_dict = true
  local out, n = tok:apply_chat_template(messages, o), 0
  assert(#out.input_ids == #out.assistant_masks and #out.attention_mask == #out.input_ids)
  local of = {}
  for i, bit in ipairs(out.assistant_masks) do
    if bit == 1 then of[#of + 1], n = out.input_ids[i], n + 1 end
  end
  assert(n > 0 and tok:decode(of) == "weather")
  o.return_tensors = true
  assert(tok:apply_chat_template(messages, o).assistant_masks:sum():item() == n)
  o.return_tensors, o.return_dict, o.tokenize = nil, nil, false
  local rendered, spans = tok:apply_chat_template(messages, o)
  assert(rendered == "<the><weather>" and #spans == 1 and spans[1][1] == 6 and spans[1][2] == 13)
end

do -- keys of tools stand in the order of their JSON, and fields that are null are left out
  local tools = accel.json.decode('[{"type":"function","function":{"name":"w","description":"d","parameters":{"type":"object"}}}]',
    { ordered = true })
  assert(text { chat_template = "{{ tools | tojson }}", tools = tools }
    == '[{"type": "function", "function": {"name": "w", "description": "d", "parameters": {"type": "object"}}}]')
  assert(tok:apply_chat_template({ { role = "user", content = accel.json.null } }, { tokenize = false,
    chat_template = "{{ messages[0].content is defined }}" }) == "False")
end
fails("message 1 must be a table with a role", tok.apply_chat_template, tok, { { content = "x" } })
fails("messages must be a list", tok.apply_chat_template, tok, "hi")

-- ids: special tokens that are written out are found, none is added
local ids = tok:apply_chat_template(chat)
assert(ids[1] == tok:token_to_id "<s>" and ids[2] == tok:token_to_id "<user>" and tok:decode(ids, { skip_special_tokens = false }) == text())
local t = tok:apply_chat_template(chat, { return_tensors = true })
assert(t.shape[1] == 1 and t.shape[2] == #ids)

-- folders: chat_template.jinja, one or several in tokenizer_config.json
local function again(templates)
  tok.chat_template = templates
  assert(tok:save_pretrained(tmp .. "/tok"))
  local other = assert(accel.text.Tokenizer.from_pretrained(tmp .. "/tok"))
  os.remove(tmp .. "/tok/chat_template.jinja")
  return other
end
assert(again(TEMPLATE):apply_chat_template(chat, { tokenize = false }) == text())
local several = { default = "d{{ messages|length }}", tool_use = "t", rag = "r" }
local other = again(several)
assert(other:apply_chat_template(chat, { tokenize = false }) == "d2")
assert(other:apply_chat_template(chat, { tokenize = false, tools = { {} } }) == "t")
assert(other:apply_chat_template(chat, { tokenize = false, chat_template = "rag" }) == "r")
other = again { one = "1", two = "2" }
fails("say which template by chat_template: 'one', 'two'", other.apply_chat_template, other, chat)
assert(accel.write_file(tmp .. "/tok/tokenizer_config.json", accel.json.encode { chat_template = "from config" }))
assert(assert(accel.text.Tokenizer.from_pretrained(tmp .. "/tok")):apply_chat_template(chat, { tokenize = false }) == "from config")

do -- streaming: whole characters, the prompt left out or not, the end of a cut character
  local out = {}
  local function streamer(o)
    o.on_text = function(s) out[#out + 1] = s end
    return accel.text.TextStreamer(tok, o)
  end
  local euro = tok:encode("the \u{20ac}", { add_special_tokens = false }).ids
  local s = streamer {}
  s:put { 1, 2 }
  for _, id in ipairs(euro) do s:put { id } end
  s:finish()
  assert(table.concat(out) == "the \u{20ac}")
  for _, piece in ipairs(out) do assert(utf8.len(piece)) end
  out = {}
  s:put { 5 }
  for i = 1, #euro - 1 do s:put { euro[i] } end -- without the last byte
  s:finish()
  assert(table.concat(out) == "the \u{fffd}", table.concat(out))
  out = {}
  s = streamer { skip_prompt = false, skip_special_tokens = false }
  s:put { tok:token_to_id "<user>" }
  s:finish()
  assert(table.concat(out) == "<user>")
end
