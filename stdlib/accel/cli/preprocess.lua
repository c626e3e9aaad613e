--- accel-run preprocess: texts as token ids in Megatron-LM's indexed format, PREFIX_KEY_document.bin and .idx (PREFIX_KEY_sentence with
--- split sentences), with the options of its tools/preprocess_data.py.
local accel = require "accel"
local command = require "accel.cli.command"
local quoted = require "accel.cli.dry_run_ranks".quoted
local open_read = require("accel.file.core").open_read

local NAME <const> = "accel-run preprocess"

local DECLARED <const> = {
  name = NAME, usage = "--input FILE --output-prefix PREFIX --tokenizer-model DIR",
  summary = "Writes the token ids of the documents in FILE: of .jsonl the values of --json-keys on every line, else a document on every line.",
  { "input", "string", nil, "FILE", "documents" },
  { "output_prefix", "string", nil, "PREFIX", "writes PREFIX_KEY_document.bin and .idx" },
  { "tokenizer_model", "string", nil, "DIR", "a folder with tokenizer.json, or that file" },
  { "json_keys", "string", "text", "KEY[,KEY...]", "keys of a line of .jsonl; each gets separate files" },
  { "split_sentences", "flag", false, nil, "write PREFIX_KEY_sentence: a sequence for each sentence, as BERT and T5 are trained on" },
  { "keep_newlines", "flag", false, nil, "with --split-sentences: keep line breaks between sentences" },
  { "append_eod", "flag", false, nil, "end every document with the tokenizer's end-of-text token" },
  { "workers", "int", nil, "N", "threads [all cores]", least = 1 },
  { "log_interval", "int", 1000, "N", "documents at a time", least = 1 },
}

--- The tokenizer of a folder or a file. nil and the reason if there is none.
local function open_tokenizer(path)
  if path:find "%.json$" then return accel.text.Tokenizer.from_file(path) end
  return accel.text.Tokenizer.from_pretrained(path)
end

--- The end-of-text token. nil if the tokenizer has none.
local function eod_of(tok)
  return tok.eos_token_id or tok:token_to_id "<|endoftext|>" or tok:token_to_id "</s>" or tok:token_to_id "<eod>"
end

--- Texts of a line by key. nil and the error otherwise.
local function read_line(line, keys, json)
  if not json then return { line } end
  local ok, row = pcall(accel.json.decode, line)
  if not ok or type(row) ~= "table" then return nil, "is not a JSON object" end
  local out = {}
  for i, key in ipairs(keys) do
    if type(row[key]) ~= "string" then return nil, ("has no text '%s'"):format(key) end
    out[i] = row[key]
  end
  return out
end

--- The same in a process with a given number of threads, which is fixed at the start. Returns whether it succeeded.
local function again(workers, ...)
  local words = { ("ACCEL_NUM_THREADS=%d"):format(workers), quoted(accel.process.program()), "preprocess" }
  for _, word in ipairs { ... } do words[#words + 1] = quoted(word) end
  local ok, _, status = os.execute(table.concat(words, " "))
  if not ok and status == 2 then os.exit(2, true) end
  return ok == true
end

return function(...)
  local o, _, given = command.parse(DECLARED, 0, 0, ...)
  for _, key in ipairs { "input", "output_prefix", "tokenizer_model" } do
    if not o[key] then
      io.stderr:write(NAME, ": --", (key:gsub("_", "-")), " is missing\nTry '", NAME, " --help'.\n")
      os.exit(2, true)
    end
  end
  if o.workers and o.workers ~= accel.num_threads() then return again(o.workers, ...) end
  local tok, why = open_tokenizer(o.tokenizer_model)
  if not tok then return command.refuse(NAME, "%s", why) end
  local eod = o.append_eod and eod_of(tok)
  if o.append_eod and not eod then return command.refuse(NAME, "--append-eod: %s has no end-of-text token", o.tokenizer_model) end
  local file, problem = open_read(o.input)
  if not file then return command.refuse(NAME, "%s", problem) end
  local _ <close> = file
  local size = file:seek "end"
  file:seek("set", 0)
  if o.keep_newlines and not o.split_sentences then return command.refuse(NAME, "--keep-newlines is of --split-sentences") end
  local level = o.split_sentences and "sentence" or "document"
  local json, keys, builders = o.input:find "%.jsonl?$" ~= nil, {}, {}
  for key in o.json_keys:gmatch "[^,%s]+" do keys[#keys + 1] = key end
  if given.json_keys and not json then return command.refuse(NAME, "--json-keys has no effect on %s: only lines of .jsonl have keys", o.input) end
  if not json then keys = { "text" } end
  local dtype = tok:id_limit() < 65500 and "u16" or "i32" -- as megatron-core chooses
  for i, key in ipairs(keys) do
    builders[i] = accel.data.IndexedDatasetBuilder(("%s_%s_%s"):format(o.output_prefix, key, level), { dtype = dtype })
  end
  local bar <close> = accel.accelerator.tqdm(size, { desc = "preprocess", unit = "B" })
  local texts, pending, number, tokens, documents, sentences = {}, 0, 0, 0, 0, 0
  for i = 1, #keys do texts[i] = {} end
  local function flush()
    for i, list in ipairs(texts) do
      local parts, last = list, {} -- last: the number of the document that ends with a part
      if o.split_sentences then
        parts = {}
        for d, text in ipairs(list) do
          local found = accel.text.sentences(text, o.keep_newlines)
          table.move(found, 1, #found, #parts + 1, parts)
          if #found > 0 then last[#parts] = d end
        end
      end
      local any = false
      for k, e in ipairs(#parts > 0 and tok:encode_batch(parts, { add_special_tokens = false }) or {}) do
        local ids, ends = e.ids, not o.split_sentences or last[k] ~= nil
        if eod and ends then
          ids = table.move(ids, 1, #ids, 1, {})
          ids[#ids + 1] = eod
        end
        if #ids > 0 then
          builders[i]:add_item(ids)
          tokens, sentences, any = tokens + #ids, sentences + (i == 1 and 1 or 0), true
        end
        if ends and any then
          builders[i]:end_document()
          documents, any = documents + (i == 1 and 1 or 0), false
        end
      end
      texts[i] = {}
    end
    bar:update(pending)
    pending = 0
  end
  for line in file:lines "L" do
    number, pending = number + 1, pending + #line
    local text = line:gsub("[\r\n]+$", "")
    if text ~= "" then
      local row, wrong = read_line(text, keys, json)
      if not row then return command.refuse(NAME, "%s:%d %s", o.input, number, wrong) end
      for i, t in ipairs(row) do table.insert(texts[i], t) end
      if #texts[1] >= o.log_interval then flush() end
    end
  end
  flush()
  for _, b in ipairs(builders) do b:finalize() end
  print(("%d documents, %s%d tokens, %s: %s_%s_%s.bin"):format(documents, o.split_sentences and sentences .. " sentences, " or "", tokens, dtype,
    o.output_prefix, table.concat(keys, "|"), level))
  return true
end
