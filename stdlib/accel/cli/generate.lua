--- accel-run generate DIR [PROMPT]: text from a model's folder or GGUF file, written as it comes. Without a prompt it reads one from
--- standard input, so that it can be used in a pipe. With --lines every line is a prompt.
local accel = require "accel"
local cli = require "accel.util.cli"
local command = require "accel.cli.command"
local terminal = require "accel.util.terminal"
local open_read = require("accel.file.core").open_read

local NAME <const> = "accel-run generate"

--- A model's output, for a terminal. A pipe gets its bytes.
local function shown(text) return accel.isatty(1) and terminal.visible(text, true) or text end

local declared = {
  name = NAME, usage = "DIR [PROMPT] [options]",
  summary = "Continues a text with the model in DIR (config.json, safetensors, tokenizer.json) or a .gguf file.",
  { "max_new_tokens", "int", nil, "N", "maximum number of new tokens [256, unless the folder sets it]" },
  { "do_sample", "flag", nil, nil, "sample tokens (implied by sampling options); --no-do-sample: take the likeliest" },
  { "temperature", "number", nil, "T", "of sampling; 0: take the likeliest token" },
  { "top_k", "int", nil, "K", "sample from the K likeliest tokens; 0: all" },
  { "top_p", "number", nil, "P", "draw among the likeliest that make up this share" },
  { "min_p", "number", nil, "P", "drop tokens below this share of the likeliest one's probability" },
  { "typical_p", "number", nil, "P", "draw among the most typical that make up this share" },
  { "seed", "int", nil, "N", "of the draw [0]" },
  { "num_beams", "int", nil, "N", "beam search; the text is written at the end" },
  { "length_penalty", "number", nil, "X", "of beam search" },
  { "num_return_sequences", "int", nil, "N", "so many texts" },
  { "repetition_penalty", "number", nil, "X", "above 1: tokens that were there are less likely" },
  { "no_repeat_ngram_size", "int", nil, "N", "no sequence of N tokens twice" },
  { "stop", "string", nil, "TEXT", "stop after this text" },
  { "ignore_eos", "flag", false, nil, "continue after the end-of-text token" },
  { "chat", "flag", false, nil, "the prompt is a user's message: apply the chat template" },
  { "system", "string", nil, "TEXT", "with --chat: the system's message" },
  { "template_var", "list", nil, "NAME=VALUE", "with --chat: a variable of the chat template, as JSON or text", needs = "chat" },
  { "lines", "flag", false, nil, "every line of standard input is a prompt, all in one batch" },
  { "class", "string", nil, "NAME", "load this class, in place of the one that config.json names" },
  { "adapter", "list", nil, "DIR", "a PEFT adapter; given again: the weighted sum of all (LoRA, IA3)" },
  { "adapter_weight", "list", nil, "W", "weight of an adapter, in the order of --adapter [1]", needs = "adapter" },
  { "dtype", { "f32", "bf16", "f16", "f64" }, nil, "WORD", "format of the weights (default: the folder's)" },
  { "cache_dtype", { "f32", "bf16", "f16", "int8" }, nil, "WORD", "format of cached keys and values" },
  { "assistant", "string", nil, "DIR", "a smaller model that proposes tokens" },
  { "lookup", "int", nil, "N", "propose N tokens from the text itself", least = 1 },
  { "echo", "flag", false, nil, "write the prompt as well", excludes = "json" },
  { "json", "flag", false, nil, "one line of JSON for each text: prompt, text, tokens" },
  { "stats", "flag", false, nil, "say on stderr how fast it was" },
}

--- Options that go to model:generate as they are.
local PASSED <const> = {
  "max_new_tokens", "do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p", "num_beams", "length_penalty",
  "num_return_sequences", "repetition_penalty", "no_repeat_ngram_size",
}

local function options_of(o, model)
  local g = { seed = o.seed }
  for _, key in ipairs(PASSED) do g[key] = o[key] end
  local base = model.generation_config or {}
  if not (g.max_new_tokens or base.max_new_tokens or base.max_length) then g.max_new_tokens = 256 end
  g.stop_strings = o.stop
  if o.ignore_eos then g.eos_token_id = false end
  if o.cache_dtype then g.cache_config = { dtype = o.cache_dtype } end
  g.prompt_lookup_num_tokens = o.lookup
  -- the folder's default, unless the call sets it
  g.num_beams, g.num_return_sequences = o.num_beams or base.num_beams or 1, o.num_return_sequences or base.num_return_sequences or 1
  return g
end

--- Prompts as texts.
local function prompts_of(o, words)
  if o.lines then
    local list = {}
    for line in io.stdin:lines() do
      line = line:gsub("\r$", "")
      if line ~= "" then list[#list + 1] = line end
    end
    return list
  end
  if #words > 1 then return { table.concat(words, " ", 2) } end
  local text = io.stdin:read "a"
  return { (text:gsub("\r?\n$", "")) }
end

--- Ids of a prompt, as the tokenizer or its chat template makes them.
local function encode(o, tok, prompt)
  if not o.chat then return tok:encode(prompt).ids end
  local messages = { { role = "user", content = prompt } }
  if o.system then table.insert(messages, 1, { role = "system", content = o.system }) end
  return tok:apply_chat_template(messages, { add_generation_prompt = true, variables = o.variables })
end

--- Variables of NAME=VALUE: values are JSON (false, 3, "text", [1]), or else text. nil and the faulty one.
local function variables_of(list)
  local out = {}
  for _, word in ipairs(list or {}) do
    local name, text = word:match "^([%a_][%w_]*)=(.*)$"
    if not name then return nil, word end
    local ok, value = pcall(accel.json.decode, text, { ordered = true, nulls = true })
    if ok then out[name] = value else out[name] = text end
  end
  return out
end

--- The words of a raised error without the script's place and without the function's name, which is the command's.
local function told(err)
  local text = tostring(type(err) == "table" and err.message or err):gsub("^[^\n]-:%d+: ", ""):match "^[^\n]*"
  return (text:gsub("^generate: ", ""))
end

--- Without the padding and the tokens after the end in a batch.
local function plain(ids, ends, filler)
  local n = #ids
  while n > 1 and ids[n] == filler and (ends[ids[n - 1]] or ids[n - 1] == filler) do n = n - 1 end
  return table.move(ids, 1, n, 1, {})
end

--- Model and tokenizer of a folder, or of a GGUF file. nil for a missing one, and the message.
local function load(path, o, model_alone)
  if path:find "%.gguf$" then
    local model, extra = accel.models.gguf.load(path, { dtype = o.dtype or "auto" })
    if not model then return nil, nil, extra end
    return model, extra.tokenizer, extra.tokenizer_problem
  end
  local tok, why
  if not model_alone then
    local code
    tok, why, code = accel.text.Tokenizer.from_pretrained(path)
    if not tok and code == "not_found" and open_read(path .. "/config.json") then
      why = why .. ", which converts text to ids; copy it from the model's source (save_pretrained of Transformers' AutoTokenizer "
        .. "writes one of other formats), or call model:generate with ids"
    end
    if not tok then return nil, nil, why end
  end
  local model, message = accel.models.from_pretrained(path, { dtype = o.dtype, class = not model_alone and o.class or nil })
  return model, tok, message
end

--- The model with the adapters of --adapter: one as it is, several or weighted ones as one that is their sum. nil and the message.
local function adapted(model, o)
  local names, weights = {}, o.weights
  for i, dir in ipairs(o.adapter) do
    names[i] = "adapter" .. i
    local message
    if i == 1 then model, message = accel.peft.PeftModel.from_pretrained(model, dir, { adapter_name = names[i] })
    else
      local ok, one, why = pcall(model.load_adapter, model, dir, names[i])
      if not ok then return nil, dir .. ": " .. told(one) end
      model, message = one, why
    end
    if not model then return nil, message end
    weights[i] = weights[i] or 1
  end
  if #names > 1 or weights[1] ~= 1 then
    local kind = model.peft_config[names[1]].peft_type == "LORA" and { combination_type = "cat" } or nil -- exact
    model:add_weighted_adapter(names, weights, "sum", kind)
    model:set_adapter "sum"
  end
  return model:eval()
end

local function run(o, words)
  local dir = words[1]
  local model, tok, message = load(dir, o)
  if not model then return command.refuse(NAME, "%s", message) end
  if not tok then return command.refuse(NAME, "%s", message) end
  if not model.generate or not pcall(model.cache_shape, model) then
    return command.refuse(NAME, "the model in %s does not write text", dir)
  end
  if o.adapter then
    model, message = adapted(model, o)
    if not model then return command.refuse(NAME, "%s", message) end
  end
  local g = options_of(o, model)
  local folder = model.generation_config
  g.tokenizer = (g.stop_strings or folder and folder.stop_strings) and tok or nil
  if o.length_penalty and g.num_beams == 1 then return command.refuse(NAME, "--length-penalty needs beam search; give --num-beams") end
  if o.assistant then
    local draft, _, why = load(o.assistant, o, true)
    if not draft then return command.refuse(NAME, "%s", why) end
    g.assistant_model = draft
  end
  local prompts, ids = prompts_of(o, words), {}
  if #prompts == 0 or prompts[1] == "" then return command.refuse(NAME, "no prompt: name one, or give it by standard input") end
  for i, prompt in ipairs(prompts) do ids[i] = encode(o, tok, prompt) end
  local streams = #ids == 1 and not o.json and g.num_beams == 1 and g.num_return_sequences == 1
  local interrupted, n, began, first = false, 0, accel.clock(), nil
  accel.on_interrupt "flag"
  if g.num_beams == 1 then
    g.on_token = function(new)
      first, n = first or accel.clock(), n + #new
      interrupted = accel.interrupted()
      return not interrupted
    end
  end
  if streams then
    if o.echo then io.stdout:write(shown(prompts[1])) end
    g.streamer = accel.text.TextStreamer(tok, { on_text = function(text) io.stdout:write(shown(text)) io.stdout:flush() end })
  end
  g.return_dict_in_generate = true
  local out = model:generate(ids, g)
  local took = accel.clock()
  if streams then
    io.stdout:write "\n"
  else
    local ends, _, filler = require "accel.models.generation.stopping".ends_of(require "accel.models.generation.config".resolve("generate",
      { eos_token_id = g.eos_token_id }, model:_generation_config()))
    local each = #out.sequences // #ids
    for i, row in ipairs(out.sequences) do
      local prompt = prompts[(i - 1) // each + 1]
      row = plain(row, ends, filler)
      if g.num_beams > 1 then n = n + #row end
      local text = tok:decode(row)
      if o.json then
        io.stdout:write(accel.json.encode { prompt = prompt, text = text, tokens = accel.json.array(row) }, "\n")
      else
        io.stdout:write(shown((o.echo and prompt or "") .. text), "\n")
      end
    end
  end
  if o.stats then
    local read = 0
    for _, row in ipairs(ids) do read = read + #row end
    local later = n - #out.sequences -- new tokens after the first one of each text
    if first then
      io.stderr:write(("%d tokens of the prompt%s in %.3f s, %d new ones at %.1f a second\n"):format(read, #ids > 1 and "s" or "",
        first - began, n, later > 0 and later / (took - first) or 0))
    else -- beams are read and written in one
      io.stderr:write(("%d tokens of the prompt%s and %d new ones in %.3f s\n"):format(read, #ids > 1 and "s" or "", n, took - began))
    end
  end
  if interrupted then os.exit(130, true) end
  return true
end

return function(...)
  local o, words = command.parse(declared, 1, math.maxinteger, ...)
  if o.lines and #words > 1 then cli.fail(declared, "--lines reads prompts from standard input, but a prompt was given; leave one out") end
  if o.assistant and o.lookup then cli.fail(declared, "--assistant and --lookup both propose tokens: give one") end
  if o.system and not o.chat then cli.fail(declared, "--system belongs to --chat") end
  local wrong
  o.variables, wrong = variables_of(o.template_var)
  if wrong then cli.fail(declared, ("--template-var must be NAME=VALUE, got '%s'"):format(wrong)) end
  if o.class and words[1]:find "%.gguf$" then
    cli.fail(declared, ("--class has no effect on %s: a GGUF file names its own architecture; leave it out"):format(words[1]))
  end
  o.weights = {}
  for i, word in ipairs(o.adapter_weight or {}) do
    o.weights[i] = tonumber(word)
    if not o.weights[i] then cli.fail(declared, ("--adapter-weight must be a number, got '%s'"):format(word)) end
  end
  if #o.weights > 0 and #o.weights ~= #o.adapter then
    cli.fail(declared, ("--adapter is given %d times and --adapter-weight %d times; give one weight for each adapter, or none"):format(
      #o.adapter, #o.weights))
  end
  local ok, result = pcall(run, o, words)
  if ok then return result end
  if type(result) == "table" and result.code == "interrupted" then
    io.stdout:write "\n"
    os.exit(130, true)
  end
  return command.refuse(NAME, "%s", told(result))
end
