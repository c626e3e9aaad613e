-- accel-run generate: what it writes equals model:generate, in pipes, batches, JSON and chats; wrong usage; Ctrl-C.
--   accel-run tests/stdlib/cli/generate_test.lua
local accel = require "accel"
local models = accel.models

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/generate-"))
accel.manual_seed(5)
local tok = accel.text.train_bpe({ "the cat sat on the mat and the dog ran to the door" }, {
  vocab_size = 275, special_tokens = { "<end>", "<user>", "<bot>" },
})
tok.eos_token = "<end>"
tok.chat_template = "{{ mood }}{% for m in messages %}<{{ 'bot' if m.role == 'assistant' else m.role }}>{{ m.content }}{% endfor %}<bot>"
local config = { vocab_size = tok:id_limit(), n_positions = 128, n_embd = 32, n_layer = 2, n_head = 2, eos_token_id = 0 }
local model = models.GPT2(config)
do
  local _ <close> = accel.no_grad()
  for _, p in ipairs(model:parameters()) do p:add_(accel.randn_like(p) * 0.2) end
end
local function write(name)
  assert(model:save_pretrained(root .. "/" .. name))
  assert(tok:save_pretrained(root .. "/" .. name))
end
write "m"
model:eval()

local function try(args, input)
  local path = root .. "/in.txt"
  assert(accel.write_file(path, input or ""))
  local pipe = assert(io.popen(("cd '%s' && '%s' generate %s <in.txt 2>err.txt"):format(root, accel.process.program(), args)))
  local out = pipe:read "a"
  local _, _, status = pipe:close()
  local err <close> = assert(io.open(root .. "/err.txt", "rb"))
  return out, err:read "a", status
end

local function run(args, input)
  local out, err, status = try(args, input)
  assert(status == 0, ("generate %s: status %d\n%s%s"):format(args, status, out, err))
  return out
end

local function refused(args, status, pattern)
  local out, err, got = try(args)
  assert(got == status and out == "" and err:find(pattern), ("generate %s: status %d\n%s%s"):format(args, got, out, err))
end

local function same(got, want) assert(got == want, ("%q, wanted %q"):format(got, want)) end

local function text(prompt, opts) return tok:decode(model:generate(tok:encode(prompt).ids, opts)) .. "\n" end

same(run "m 'the cat' --max-new-tokens 12 --ignore-eos", text("the cat", { max_new_tokens = 12, eos_token_id = false }))
same(run("m --max-new-tokens 12 --ignore-eos", "the cat\n"), text("the cat", { max_new_tokens = 12, eos_token_id = false }))
same(run "m the cat --max-new-tokens 9 --top-k 5 --seed 3 --ignore-eos",
  text("the cat", { max_new_tokens = 9, top_k = 5, seed = 3, eos_token_id = false }))
same(run "m the cat --max-new-tokens 9 --num-beams 3 --ignore-eos", text("the cat", { max_new_tokens = 9, num_beams = 3, eos_token_id = false }))
same(run "m the cat --max-new-tokens 9 --lookup 3 --ignore-eos --cache-dtype bf16 --echo",
  "the cat" .. text("the cat", { max_new_tokens = 9, eos_token_id = false, cache_config = { dtype = "bf16" } }))
same(run "m the cat --max-new-tokens 9 --assistant m --ignore-eos", text("the cat", { max_new_tokens = 9, eos_token_id = false }))

do -- a batch of lines as JSON
  local out, n = run("m --lines --json --max-new-tokens 7 --ignore-eos", "the cat\na dog ran to the door\n"), 0
  for line in out:gmatch "[^\n]+" do
    n = n + 1
    local row = accel.json.decode(line)
    same(row.prompt, n == 1 and "the cat" or "a dog ran to the door")
    same(row.text .. "\n", text(row.prompt, { max_new_tokens = 7, eos_token_id = false }))
    assert(#row.tokens == 7)
  end
  assert(n == 2)
end

do -- a chat
  local ids = tok:apply_chat_template { { role = "system", content = "s" }, { role = "user", content = "the cat" } }
  local want = tok:decode(model:generate(ids, { max_new_tokens = 8, eos_token_id = false })) .. "\n"
  same(run "m the cat --chat --system s --max-new-tokens 8 --ignore-eos", want)
  -- variables of the template: JSON, or else text
  for given, value in next, { ["mood=door"] = "door", ["mood=[1,true]"] = "[1, True]" } do
    ids = tok:apply_chat_template({ { role = "user", content = "the cat" } }, { variables = { mood = value } })
    want = tok:decode(model:generate(ids, { max_new_tokens = 8, eos_token_id = false })) .. "\n"
    same(run("m the cat --chat --template-var mood=x --template-var '" .. given .. "' --max-new-tokens 8 --ignore-eos"), want)
  end
end

do -- llama.cpp's files: export, import, show, and text from one
  local function gguf(args, status)
    local pipe = assert(io.popen(("cd '%s' && '%s' gguf %s 2>&1"):format(root, accel.process.program(), args)))
    local out = pipe:read "a"
    local _, _, got = pipe:close()
    assert(got == (status or 0), ("gguf %s: status %d\n%s"):format(args, got, out))
    return out
  end
  gguf "export m m.gguf --type f32 --name cat"
  local shown = gguf "show m.gguf"
  assert(shown:find "general.name +'cat'" and shown:find "token_embd.weight +F32 +%[275, 32%]" and shown:find "28 tensors, %d+ bytes", shown)
  gguf "import m.gguf again"
  local want = text("the cat", { max_new_tokens = 12, eos_token_id = false })
  same(run "m.gguf the cat --max-new-tokens 12 --ignore-eos", want)
  same(run "again the cat --max-new-tokens 12 --ignore-eos", want)
  gguf "export m small.gguf --type q8_0"
  assert(#run "small.gguf the cat --max-new-tokens 4 --assistant m.gguf --ignore-eos" > 1)
  assert(gguf("show nowhere.gguf", 1):find "^accel%-run gguf: nowhere.gguf: ")
  assert(gguf("export m x.gguf --type q3", 2):find "q3")
  assert(gguf("show m/config.json", 1):find "rule magic at byte 0")
end

do -- adapters: one, the sum of two with weights, in a GGUF file's model as well
  local peft = accel.peft
  local function adapter(name, more)
    local base = models.GPT2(config)
    base:load_state_dict(model:state_dict())
    local o = { init_lora_weights = false, lora_alpha = 60 }
    for key, value in next, more do o[key] = value end
    local adapted = peft.get_peft_model(base, peft.LoraConfig(o)):eval()
    assert(adapted:save_pretrained(root .. "/" .. name))
    return adapted
  end
  local function written(by) return tok:decode(by:generate(tok:encode("the cat").ids, { max_new_tokens = 12, eos_token_id = false })) .. "\n" end
  local one, plain = adapter("one", { r = 2 }), text("the cat", { max_new_tokens = 12, eos_token_id = false })
  adapter("two", { r = 3, target_modules = { "c_proj" } })
  local want = written(one)
  assert(want ~= plain)
  same(run "m the cat --adapter one --max-new-tokens 12 --ignore-eos", want)
  same(run "m.gguf the cat --adapter one --max-new-tokens 12 --ignore-eos", want)
  same(run "m the cat --adapter one --adapter-weight 0 --max-new-tokens 12 --ignore-eos", plain)
  assert(one:load_adapter(root .. "/two", "two"))
  for given, weights in next, { [""] = { 1, 1 }, ["--adapter-weight 2 --adapter-weight -0.5"] = { 2, -0.5 } } do
    local name = "sum" .. #given
    one:add_weighted_adapter({ "default", "two" }, weights, name, { combination_type = "svd", svd_rank = 5 })
    one:set_adapter(name)
    same(run("m the cat --adapter one --adapter two --max-new-tokens 12 --ignore-eos " .. given), written(one))
  end
  local prompt = peft.get_peft_model(models.GPT2(config), peft.PromptTuningConfig { num_virtual_tokens = 2, task_type = "CAUSAL_LM" })
  assert(prompt:save_pretrained(root .. "/prompt"))
  assert(#run "m the cat --adapter prompt --max-new-tokens 4 --ignore-eos" > 1)
  refused("m hi --adapter one --adapter prompt", 1,
    "prompt: add_adapter: the model has adapters of type LORA, which cannot be combined with PROMPT_TUNING")
  refused("m hi --adapter prompt --adapter-weight 2", 1, "adapters of type PROMPT_TUNING have no weighted combination")
  refused("m hi --adapter nowhere", 1, "nowhere")
  refused("m hi --adapter-weight 2", 2, "%-%-adapter%-weight has no effect without %-%-adapter")
  refused("m hi --adapter one --adapter-weight x", 2, "%-%-adapter%-weight must be a number, got 'x'")
  refused("m hi --adapter one --adapter two --adapter-weight 2", 2, "%-%-adapter is given 2 times and %-%-adapter%-weight 1 times")
end

-- a pipe that closes early ends it quietly
local head = assert(io.popen(("'%s' generate '%s/m' the cat --max-new-tokens 20000 --ignore-eos 2>&1 | head -c 5"):format(
  accel.process.program(), root)))
assert(#head:read "a" == 5)
head:close()

do -- Ctrl-C: what was written stays, with the end of a line; status 130
  local script = ("'%s' generate '%s/m' the cat --max-new-tokens 2000000 --ignore-eos >'%s/out.txt' & p=$!; "
    .. "while [ ! -s '%s/out.txt' ]; do sleep 0.05; done; kill -INT $p; wait $p; echo $?"):format(accel.process.program(), root, root, root)
  local pipe = assert(io.popen(("bash -c 'set -m; %s'"):format(script:gsub("'", [['\'']]))))
  local status = pipe:read "a"
  pipe:close()
  local file <close> = assert(io.open(root .. "/out.txt", "rb"))
  assert(status:match "130%s*$" and file:read("a"):sub(-1) == "\n", status)
end

local _, err = try "m the cat --max-new-tokens 5 --stats --ignore-eos"
assert(err:find "^%d tokens of the prompt in [%d.]+ s, 5 new ones at [%d.]+ a second\n$", err)
_, err = try("m --lines --max-new-tokens 5 --stats --ignore-eos", "the cat\nthe dog\n")
local read = #tok:encode("the cat").ids + #tok:encode("the dog").ids
assert(err:find("^" .. read .. " tokens of the prompts in [%d.]+ s, 10 new ones at [%d.]+ a second\n$"), err)
_, err = try "m the cat --max-new-tokens 5 --stats --ignore-eos --num-beams 2"
assert(err:find "^%d+ tokens of the prompt and 5 new ones in [%d.]+ s\n$", err)
same(run("m --lines --max-new-tokens 5 --ignore-eos", "the cat\r\n"), text("the cat", { max_new_tokens = 5, eos_token_id = false }))

do -- a folder whose generation_config.json asks for beams
  write "beams"
  assert(accel.write_file(root .. "/beams/generation_config.json", accel.json.encode { num_beams = 3, max_new_tokens = 6 }))
  same(run "beams the cat --ignore-eos", text("the cat", { max_new_tokens = 6, num_beams = 3, eos_token_id = false }))
end

do -- what accel-run quantize writes is read as the original folder is
  local function quantize(args)
    local pipe = assert(io.popen(("cd '%s' && '%s' quantize %s 2>&1"):format(root, accel.process.program(), args)))
    local out = pipe:read "a"
    local _, _, status = pipe:close()
    return out, status
  end
  local said, status = quantize "m q --nf4 --double-quant --head int8"
  assert(status == 0 and said:find "only accel can read transformer.wte %(int8%)", said)
  local usual, zero = quantize "m q2"
  assert(zero == 0 and not usual:find "warning", usual)
  assert(#run "q the cat --chat --max-new-tokens 4 --ignore-eos" > 1)
  for _, args in ipairs { "m m", "m ./m/", "./m m/." } do
    said, status = quantize(args)
    assert(status == 1 and said:find "OUT is DIR", said)
  end
  said, status = quantize "m.gguf x"
  assert(status == 1 and said:find "m.gguf: is a file; give the folder of a model %(accel%-run gguf import makes one of it%)", said)
end

do -- beyond the context: one reminder
  local out, said = try "m the cat --max-new-tokens 300 --ignore-eos"
  local _, times = said:gsub("exceeds the 128 tokens of the model's context", "")
  assert(#out > 1 and times == 1, said)
  _, said = try "m the cat --max-new-tokens 12 --ignore-eos"
  assert(said == "", said)
end

do -- Ctrl-C in beam search: status 130, and no error
  local script = ("'%s' generate '%s/m' the cat --num-beams 3 --max-new-tokens 2000000 --ignore-eos 2>'%s/err.txt' & p=$!; "
    .. "while ! grep -q context '%s/err.txt'; do sleep 0.05; done; kill -INT $p; wait $p; echo $?"):format(accel.process.program(), root, root, root)
  assert(accel.write_file(root .. "/err.txt", ""))
  local pipe = assert(io.popen(("bash -c 'set -m; %s'"):format(script:gsub("'", [['\'']]))))
  local status = pipe:read "a"
  pipe:close()
  local file <close> = assert(io.open(root .. "/err.txt", "rb"))
  local said = file:read "a"
  assert(status:match "130%s*$" and not said:find "accel%-run generate:", status .. said)
end

do -- a model without a tokenizer
  assert(model:save_pretrained(root .. "/bare"))
  refused("bare hi", 1, "^accel%-run generate: bare/tokenizer.json: no such file, which converts text to ids; copy it")
end

do -- Ctrl-C in quantize and gguf export: status 130, one line, no weights and no parts of them. The signal comes between reading and
  -- writing: the program sends it to itself
  local script = root .. "/cut.lua"
  assert(accel.write_file(script, [[
    local accel = require "accel"
    local real = accel.models.from_pretrained
    accel.models.from_pretrained = function(...)
      local model = real(...)
      os.execute "kill -INT $PPID"
      return model
    end
    require("accel.cli." .. arg[1])(table.unpack(arg, 2))
  ]]))
  for what, args in accel.pairs { quantize = "m cut", gguf = "export m cut/m.gguf" } do
    assert(accel.makedirs(root .. "/cut"))
    local pipe = assert(io.popen(("cd '%s' && '%s' cut.lua %s %s 2>&1"):format(root, accel.process.program(), what, args)))
    local said = pipe:read "a"
    local _, _, status = pipe:close()
    assert(status == 130 and said:find("accel%-run " .. what .. ": interrupted; [^\n]*\n$"), said)
    for _, name in ipairs(accel.listdir(root .. "/cut")) do
      assert(not name:find "model" and not name:find "gguf" and not name:find "save", name)
    end
  end
end

refused("m hi --length-penalty 2", 1, "%-%-length%-penalty needs beam search")
refused("m hi --assistant m --lookup 3", 2, "both propose tokens")
refused("m/config.json hi", 1, "^accel%-run generate: m/config.json: is a file; give the folder of a model")
refused("nowhere hi", 1, "^accel%-run generate: nowhere: no such folder")
refused("m", 1, "no prompt: name one")
refused("m hi --top-p 7", 1, "^accel%-run generate: top_p must lie in %(0, 1%], got 7")
refused("m hi --top-q 7", 2, "unknown option '%-%-top%-q'; did you mean '%-%-top_k'")
refused("m hi --lines", 2, "but a prompt was given")
refused("m hi --system x", 2, "belongs to %-%-chat")
refused("m hi --template-var mood=x", 2, "%-%-template%-var has no effect without %-%-chat")
refused("m hi --chat --template-var mood", 2, "%-%-template%-var must be NAME=VALUE, got 'mood'")
refused("", 2, "needs DIR")
