--- A chat with a model: its folder has a chat template (tokenizer_config.json or chat_template.jinja), which formats the
--- conversation as in the model's training. Answers are written as they are generated. Ctrl-D ends the chat, Ctrl-C an answer.
--- The cache of keys and values stays from turn to turn, so that the model reads only new tokens.
---
---   accel-run examples/chat.lua path/to/Llama-3.2-1B-Instruct --system "Answer in one sentence." --dtype bf16
---
local accel = require "accel"

local declared = {
  name = "chat.lua", usage = "DIR [options]", summary = "A chat with the model in DIR.",
  { "system", "string", nil, "TEXT", "the system message" },
  { "temperature", "number", 0.7, "T", "of sampling; 0: take the likeliest token" },
  { "top_p", "number", 0.95, "P", "draw among the likeliest tokens that make up this share" },
  { "max_new_tokens", "int", 512, "N", "most tokens of an answer" },
  { "seed", "int", 0, "N", "of the draw" },
  { "dtype", { "auto", "f32", "bf16", "f16" }, "auto", "WORD", "format of the weights" },
  { "assistant", "string", nil, "DIR", "a smaller model of the same vocabulary that proposes tokens" },
}
local o, args = accel.util.cli(declared)
if #args ~= 1 then accel.util.cli.fail(declared, "name the model's folder") end

local function fail(message)
  io.stderr:write(declared.name, ": ", message, "\n")
  os.exit(1, true)
end

local function load(dir)
  local model, message = accel.models.from_pretrained(dir, { dtype = o.dtype ~= "auto" and o.dtype or nil })
  return model or fail(message)
end

local tok, message = accel.text.Tokenizer.from_pretrained(args[1])
if not tok then fail(message) end
if not tok.chat_template then fail(args[1] .. " has no chat template") end
local model, draft = load(args[1]), o.assistant and load(o.assistant)
local asks = accel.isatty(0)

accel.on_interrupt "flag"
local streamer = accel.text.TextStreamer(tok)
local messages, forgotten = {}, false
if o.system then messages[1] = { role = "system", content = o.system } end

local cache, seen = model:new_cache(1, nil, { implementation = "dynamic" }), {}

--- Ids of the messages so far, and how long the answer may be. A chat that outgrows the model's context loses its oldest turns.
local function prompt()
  local context, first = model:context_length(), o.system and 2 or 1
  while true do
    local ids = tok:apply_chat_template(messages, { add_generation_prompt = true })
    local room = math.min(o.max_new_tokens, context - #ids)
    if room >= math.min(o.max_new_tokens, context // 4) then return ids, room end
    if #messages == first then
      if room > 0 then return ids, room end
      fail(("these are %d tokens, the model reads %d"):format(#ids, context))
    end
    if not forgotten then io.stderr:write(("(The chat is longer than the model's %d tokens: it forgets the oldest turns.)\n"):format(context)) end
    forgotten = true
    table.remove(messages, first)
    table.remove(messages, first)
  end
end

--- One answer of the model to the messages so far.
local function answer(turn)
  local ids, room = prompt()
  local same = 0 -- tokens that are as they were in the turn before
  while same < cache.past and ids[same + 1] == seen[same + 1] do same = same + 1 end
  cache:crop(same)
  local ok, new = pcall(model.generate, model, ids, {
    past_key_values = not draft and cache or nil,
    max_new_tokens = room, temperature = o.temperature, top_p = o.top_p, seed = o.seed + turn,
    assistant_model = draft, streamer = streamer, on_token = function() return not accel.interrupted() end,
  })
  if not ok and type(new) == "table" and new.code == "interrupted" then
    io.stdout:write "\n"
    os.exit(130, true)
  end
  if not ok then fail((tostring(new):match "^[^\n]*":gsub("^%S-:%d+: ", ""))) end
  seen = table.move(new, 1, #new, #ids + 1, ids)
  return tok:decode(new)
end

for turn = 1, math.huge do
  if asks then
    io.stdout:write "> "
    io.stdout:flush()
  end
  local line = io.stdin:read "l"
  if not line then break end
  line = line:gsub("\r$", "")
  if line ~= "" then
    messages[#messages + 1] = { role = "user", content = line }
    messages[#messages + 1] = { role = "assistant", content = answer(turn) }
    io.stdout:write "\n"
    if accel.interrupted() then os.exit(130, true) end
  end
end
