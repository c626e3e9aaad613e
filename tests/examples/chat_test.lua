-- The chat example: answers are those of one long text, the cache being kept between turns; what it refuses.
local accel = require "accel"
local examples = dofile(os.getenv "ACCEL_TEST_SRC" .. "/tests/support/examples.lua")
local tmp = os.getenv "ACCEL_TEST_TMP"

examples.of("chat", function()
  accel.manual_seed(6)
  local tok = accel.text.train_bpe({ "hello there how are you today fine and well" }, {
    vocab_size = 270, special_tokens = { "<end>", "<user>", "<assistant>", "<system>" },
  })
  tok.eos_token = "<end>"
  local model = accel.models.Llama {
    vocab_size = tok:id_limit(), hidden_size = 32, intermediate_size = 48, num_hidden_layers = 2, num_attention_heads = 4,
    max_position_embeddings = 400, eos_token_id = 0,
  }
  do
    local _ <close> = accel.no_grad()
    for _, p in ipairs(model:parameters()) do p:add_(accel.randn_like(p) * 0.2) end
  end
  local dir = tmp .. "/model"
  os.remove(dir .. "/chat_template.jinja") -- of a run before
  assert(model:eval():save_pretrained(dir) and tok:save_pretrained(dir))
  examples.refused("@chat.lua ~model", "has no chat template", nil, 1)
  tok.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
  assert(tok:save_pretrained(dir))

  local said, messages, want = { "hello there", "how are you", "well" }, { { role = "system", content = "be fine" } }, {}
  for turn, text in ipairs(said) do
    messages[#messages + 1] = { role = "user", content = text }
    local ids = tok:apply_chat_template(messages, { add_generation_prompt = true })
    local new = model:generate(ids, { max_new_tokens = 12, temperature = 0.9, top_p = 0.95, seed = 4 + turn })
    want[turn] = tok:decode(new)
    messages[#messages + 1] = { role = "assistant", content = want[turn] }
  end
  assert(accel.write_file(tmp .. "/said.txt", table.concat(said, "\n") .. "\n"))
  local how = "@chat.lua ~model --system 'be fine' --max-new-tokens 12 --temperature 0.9 --seed 4 <~said.txt"
  local out = examples.run(how)
  assert(out == table.concat(want, "\n") .. "\n", ("%q, wanted %q"):format(out, table.concat(want, "\n")))
  -- longer than the context: the oldest turns go, and every line has an answer
  assert(accel.write_file(tmp .. "/long.txt", ("hello there how are you today\r\n"):rep(12)))
  local all, told, status = examples.try "@chat.lua ~model --max-new-tokens 150 --seed 4 <~long.txt"
  assert(status == 0 and #all > 12 and select(2, told:gsub("it forgets the oldest turns", "")) == 1, told)
  examples.refused("@chat.lua ~model --temperature -1 <~long.txt", "chat.lua: generate: temperature must be", nil, 1)
  examples.refused("@chat.lua", "name the model's folder")
end)
