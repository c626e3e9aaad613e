--- accel-run data tokenize: texts of any files of records as token files, which data.TokenFile reads. One token file for each input,
--- written as a whole, and a list of them, so an interrupted run continues with the inputs that are left.
local accel = require "accel"
local command = require "accel.cli.command"
local lfs = require "lfs"
local read_json = require "accel.util.read_json"
local shard_paths = require "accel.data.shard_paths"
local source_of = require "accel.cli.data_source"
local writer = require "accel.util.writer"

local NAME <const> = "accel-run data tokenize"
local LIST <const> = "tokens.json"
local BATCH <const> = 1 << 20 -- bytes of text that the threads share at a time

local function eod_of(tok)
  return tok.eos_token_id or tok:token_to_id "<|endoftext|>" or tok:token_to_id "</s>" or tok:token_to_id "<eod>"
end

--- Writes the tokens of one input. Returns its entry for the list, or nil and the error.
local function tokenize(source, path, o, tok, eod, form, bar)
  local out, message = writer.create(path)
  if not out then return nil, message end
  local texts, bytes, tokens, documents, wrong = {}, 0, 0, 0, nil
  local seen, shown, number = 0, 0, 0
  local function progress(share) -- of the input, by rows if it tells their number
    local now = math.floor(share * source.bytes)
    bar:update(now - shown)
    shown = now
  end
  local function flush()
    for _, e in ipairs(#texts > 0 and tok:encode_batch(texts, { add_special_tokens = false }) or {}) do
      local ids, parts = e.ids, {}
      for k, id in ipairs(ids) do parts[k] = form:pack(id) end
      if eod then parts[#parts + 1] = form:pack(eod) end
      tokens, documents = tokens + #parts, documents + 1
      local good, why = out:write(table.concat(parts))
      if not good then wrong = why end
    end
    seen = seen + bytes
    progress(math.min(1, source.rows and number / source.rows or seen / source.bytes))
    texts, bytes = {}, 0
    return not wrong
  end
  local ok, why = source_of.each(source, { o.column }, function(sample, i)
    local text = sample[o.column]
    if type(text) == "table" and #text == 1 then text = text[1] end -- of TFRecord
    if type(text) ~= "string" then error(("%s: sample %d has no text '%s'"):format(source.path, i, o.column), 0) end
    texts[#texts + 1], bytes, number = text, bytes + #text, i
    return bytes < BATCH or flush()
  end)
  if ok and not wrong and flush() then ok, wrong = out:commit() end
  if not ok or wrong then
    out:close()
    return nil, why or wrong
  end
  progress(1)
  return { source = source.path, bytes = source.bytes, tokens = tokens, documents = documents }
end

return function(...)
  local o, paths = command.parse({
    name = NAME, usage = "FILE ... --tokenizer DIR --output DIR",
    summary = "Writes the token ids of the texts in each FILE to DIR/FILE.bin, for data.TokenFile. Files that an earlier run finished are kept.",
    { "tokenizer", "string", nil, "DIR", "a folder with tokenizer.json, or that file" },
    { "output", "string", nil, "DIR", "the folder of the token files" },
    { "column", "string", "text", "NAME", "the column or field that holds the text" },
    { "append_eod", "flag", false, nil, "end every document with the tokenizer's end-of-text token" },
    { "force", "flag", false, nil, "write all files again" },
    source_of.LIMIT,
  }, 1, math.maxinteger, ...)
  for _, key in ipairs { "tokenizer", "output" } do
    if not o[key] then
      command.tell("%s: --%s is missing\nTry '%s --help'.", NAME, key, NAME)
      os.exit(2, true)
    end
  end
  local open = o.tokenizer:find "%.json$" and accel.text.Tokenizer.from_file or accel.text.Tokenizer.from_pretrained
  local tok, why = open(o.tokenizer)
  if not tok then return command.refuse(NAME, "%s", why) end
  local eod = o.append_eod and eod_of(tok)
  if o.append_eod and not eod then return command.refuse(NAME, "--append-eod: %s has no end-of-text token", o.tokenizer) end
  local dtype = tok:id_limit() <= 65536 and "u16" or "u32"
  local form = dtype == "u16" and "<I2" or "<I4"
  local ok, list = pcall(shard_paths, NAME, paths)
  if not ok then return command.refuse(NAME, "%s", (tostring(list):gsub("^[^ ]+: " .. NAME:gsub("%-", "%%-") .. ": ", ""))) end
  local made, message = accel.makedirs(o.output)
  if not made then return command.refuse(NAME, "%s", message) end
  local known = { dtype = dtype, column = o.column, tokenizer = o.tokenizer, append_eod = o.append_eod, files = {} }
  local before = not o.force and lfs.attributes(o.output .. "/" .. LIST, "mode") and read_json(o.output .. "/" .. LIST) or nil
  if before then
    for _, key in ipairs { "dtype", "column", "tokenizer", "append_eod" } do
      if before[key] ~= known[key] then
        return command.refuse(NAME, "%s holds files with %s %s, not %s; use another --output, or --force", o.output, key, tostring(before[key]),
          tostring(known[key]))
      end
    end
    known.files = before.files or {}
  end
  local tokens, documents = 0, 0
  local total = 0
  for _, path in ipairs(list) do total = total + (lfs.attributes(path, "size") or 0) end
  local bar <close> = accel.accelerator.tqdm(total, { desc = "tokenize", unit = "B" })
  for _, path in ipairs(list) do
    local source, wrong = source_of.open(path, o.limit)
    if not source then return command.refuse(NAME, "%s", wrong) end
    local name = path:match "[^/]+$" .. ".bin"
    local entry = known.files[name]
    if entry and entry.source ~= path then
      return command.refuse(NAME, "%s and %s would both be %s; use two --output folders", entry.source, path, name)
    end
    if entry and entry.bytes == source.bytes then bar:update(source.bytes) end
    if not entry or entry.bytes ~= source.bytes or not lfs.attributes(o.output .. "/" .. name, "mode") then
      entry, wrong = tokenize(source, o.output .. "/" .. name, o, tok, eod, form, bar)
      if not entry then return command.refuse(NAME, "%s", wrong) end
      known.files[name] = entry
      local good, problem = writer.file(o.output .. "/" .. LIST, accel.json.encode(known, { pretty = true }))
      if not good then return command.refuse(NAME, "%s", problem) end
    end
    tokens, documents = tokens + entry.tokens, documents + entry.documents
  end
  command.say("%d documents, %d tokens, %s: %s", documents, tokens, dtype, o.output)
  return true
end
