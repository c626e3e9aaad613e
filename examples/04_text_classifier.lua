--- A BERT-style classifier of texts, with a vocabulary of words made from the training texts:
---
---   accel-run examples/04_text_classifier.lua [options] [TRAIN.csv [TEST.csv]]
---
--- A csv file has a header and the columns label,text or label,text,text (pairs of sentences). Without a test file, a
--- fifth of the rows is held out. Without a test file, a fifth of the rows is held out. Without files, the task is to
--- find the licence of a sentence, with the licence texts of every Debian machine. With --play FILE (blocks of "NAME:"
--- and the lines spoken), it is to find the speaker.
local accel = require "accel"
local nn, optim, data, models = accel.nn, accel.optim, accel.data, accel.models
local Confusion, Progress, Random, plot = accel.util.Confusion, accel.util.Progress, accel.util.Random, accel.util.plot

local declared = {
  name = "04_text_classifier.lua", usage = "[options] [TRAIN.csv [TEST.csv]]",
  summary = "Trains a small BERT to tell classes of texts apart.",
  { "play", "string", nil, "FILE", "learn who speaks in this play" },
  { "speakers", "int", 8, "N", "of the play, the most frequent ones" },
  { "epochs", "int", 20, "N", "passes over the training texts" },
  { "batch", "int", 32, "N", "texts a step" },
  { "lr", "number", 2e-3, "X", "highest learning rate" },
  { "layers", "int", 2, "N", "transformer blocks" },
  { "width", "int", 64, "N", "numbers per word" },
  { "heads", "int", 4, "N", "attention heads" },
  { "length", "int", 96, "N", "words of a text that are read" },
  { "dropout", "number", 0.3, "P", "share of activations dropped" },
  { "min-count", "int", 2, "N", "times a word must occur to be known" },
  { "seed", "int", 1, "N", "of weights, order and the held-out rows" },
  { "out", "string", nil, "DIR", "save the model here (config.json, model.safetensors)" },
  { "svg", "string", nil, "FILE", "write the picture of confusions here as well" },
}
local o, files = accel.util.cli(declared)

local function fail(fmt, ...)
  io.stderr:write(declared.name, ": ", fmt:format(...), "\n")
  os.exit(1, true)
end
local function demand(ok, fmt, ...)
  if not ok then accel.util.cli.fail(declared, fmt:format(...)) end
end
for _, key in ipairs { "epochs", "batch", "layers", "width", "heads", "speakers", "min_count" } do
  demand(o[key] >= 1, "option '--%s' must be positive, got %d", key:gsub("_", "-"), o[key])
end
demand(o.length >= 8, "option '--length' must be at least 8, got %d", o.length)
demand(o.lr > 0 and o.lr < math.huge, "option '--lr' must be positive, got %g", o.lr)
demand(o.dropout >= 0 and o.dropout < 1, "option '--dropout' must lie in 0 .. 1, below 1, got %g", o.dropout)
demand(o.width % o.heads == 0, "--width must be a multiple of --heads")
demand(#files <= 2, "one training file and one test file at most")
demand(not (o.play and #files > 0), "give --play or csv files, not both")

-- Texts: lists of {label =, text =, pair =} --------------------------------------------------------

local function read(path)
  local file, message = io.open(path, "rb")
  local text = file and file:read "a"
  if not text then return nil, message or path .. ": cannot be read" end
  file:close()
  return text
end

--- Sentences of the licence texts. Some stand in several of them: no classifier can be right about all.
local function licence_rows()
  local rows = {}
  for _, name in ipairs { "Apache-2.0", "Artistic", "BSD", "CC0-1.0", "GFDL-1.2", "GFDL-1.3", "GPL-1", "GPL-2",
    "GPL-3", "LGPL-2", "LGPL-2.1", "LGPL-3", "MPL-1.1", "MPL-2.0" } do
    local text = read("/usr/share/common-licenses/" .. name)
    for sentence in (text or ""):gsub("%s+", " "):gmatch "[^.;:]+[.;:]" do
      local _, words = sentence:gsub("%a%a+", "")
      if words >= 5 then rows[#rows + 1] = { label = name, text = sentence } end
    end
  end
  if #rows == 0 then fail "this machine has no licence texts; name a csv file" end
  return rows
end

--- The lines of the most frequent speakers of a play, one row a turn.
local function play_rows(path)
  local text, message = read(path)
  if not text then fail("%s", message) end
  local rows, count, names = {}, {}, {}
  for turn in (text:gsub("\r", "") .. "\n\n"):gmatch "(.-)\n\n+" do
    local name, lines = turn:match "^%s*([^\n]+):\n(.+)$"
    if name then
      if not count[name] then names[#names + 1] = name end
      count[name] = (count[name] or 0) + 1
      rows[#rows + 1] = { label = name, text = lines:gsub("\n", " ") }
    end
  end
  if #names < 2 then fail("%s: no turns of at least two speakers (blocks of NAME: and lines) found", path) end
  table.sort(names, function(a, b)
    if count[a] ~= count[b] then return count[a] > count[b] end
    return a < b
  end)
  local chosen, kept = {}, {}
  for i = 1, math.min(o.speakers, #names) do chosen[names[i]] = true end
  for _, row in ipairs(rows) do
    if chosen[row.label] then kept[#kept + 1] = row end
  end
  return kept
end

local function csv_rows(path)
  local set, message = data.CSV.open(path)
  if not set then fail("%s", message) end
  local columns = set.columns
  if columns[1] ~= "label" or #columns < 2 or #columns > 3 then
    fail("%s: expected the columns label,text or label,text,text; found %s", path, table.concat(columns, ","))
  end
  local rows = {}
  for i = 1, #set do
    local row = set:get(i)
    rows[i] = { label = row.label, text = row[columns[2]], pair = columns[3] and row[columns[3]] }
  end
  return rows
end

local train, test = o.play and play_rows(o.play) or files[1] and csv_rows(files[1]) or licence_rows(), {}
if files[2] then
  test = csv_rows(files[2])
else
  Random(o.seed, 1):shuffle(train)
  for _ = 1, #train // 5 do test[#test + 1] = table.remove(train) end
end
if #train == 0 or #test == 0 then fail("too few texts: %d to train on, %d to test", #train, #test) end

-- Labels, vocabulary, batches ----------------------------------------------------------------------

local names, class_of, texts = {}, {}, {}
for _, row in ipairs(train) do
  if not class_of[row.label] then
    class_of[row.label] = true
    names[#names + 1] = row.label
  end
  texts[#texts + 1] = row.pair and row.text .. " " .. row.pair or row.text
end
table.sort(names)
for i, name in ipairs(names) do class_of[name] = i - 1 end
if #names < 2 then fail("all texts are of one class, '%s'", names[1]) end
local vocab = accel.text.WordVocab.from_texts(texts, { min_count = o.min_count })

local function encode(rows)
  local out = {}
  for i, row in ipairs(rows) do
    local label = class_of[row.label] or fail("'%s' is a class of the test texts only", row.label)
    local ids, types = vocab:encode(row.text, row.pair, { max_length = o.length })
    out[i] = { input_ids = ids, token_type_ids = types, label = label }
  end
  return data.ListDataset(out)
end
local pad = data.PadCollate { padding_value = { input_ids = vocab.pad_id } }
local loader = data.DataLoader(encode(train), { batch_size = o.batch, shuffle = true, seed = o.seed, collate_fn = pad })
local test_loader = data.DataLoader(encode(test), { batch_size = 64, collate_fn = pad })

-- Model and training -------------------------------------------------------------------------------

accel.manual_seed(o.seed)
local id2label, label2id = {}, {}
for i, name in ipairs(names) do id2label[tostring(i - 1)], label2id[name] = name, i - 1 end
local model = models.BertForSequenceClassification {
  vocab_size = #vocab, hidden_size = o.width, num_hidden_layers = o.layers, num_attention_heads = o.heads,
  intermediate_size = 2 * o.width, max_position_embeddings = o.length, hidden_dropout_prob = o.dropout,
  attention_probs_dropout_prob = 0.1, initializer_range = 0.05, num_labels = #names, id2label = id2label,
  label2id = label2id,
}
local n_parameters = 0
for _, p in ipairs(model:parameters()) do n_parameters = n_parameters + p:numel() end
print(("%d training texts, %d test texts, %d classes, %d words; %.2fM parameters"):format(#train, #test, #names, #vocab,
  n_parameters / 1e6))

local optimizer = optim.AdamW(model:parameters(), { lr = o.lr, weight_decay = 0.05 })
local steps = o.epochs * #loader
local schedule = optim.lr_scheduler.get_scheduler("cosine", optimizer, {
  num_warmup_steps = steps // 20, num_training_steps = steps,
})

--- Logits of a batch.
local function classify(batch)
  return model(batch.input_ids, { token_type_ids = batch.token_type_ids, attention_mask = batch.attention_mask })
end

local function evaluate()
  local confusion = Confusion(names)
  local _ <close> = accel.no_grad()
  model:eval()
  for batch in test_loader() do confusion:add(batch.label, classify(batch):argmax(2)) end
  model:train()
  return confusion
end

local curves = { { name = "training loss", x = {}, y = {} }, { name = "test error", x = {}, y = {} } }
local bar = Progress { label = "train", unit = "text" }
local step, mean = 0, nil
model:train()
for epoch = 1, o.epochs do
  for batch in loader() do
    local loss = nn.functional.cross_entropy(classify(batch), batch.label, { label_smoothing = 0.1 })
    optimizer:zero_grad()
    loss:backward()
    nn.utils.clip_grad_norm_(model:parameters(), 1.0)
    optimizer:step()
    schedule:step()
    step = step + 1
    mean = mean and 0.95 * mean + 0.05 * loss:detach() or loss:detach()
    if step % math.max(1, steps // 100) == 0 or bar:due() then
      local value = mean:item()
      if value ~= value then fail("the loss is NaN at step %d; a lower --lr may help", step) end
      local c = curves[1]
      c.x[#c.x + 1], c.y[#c.y + 1] = step, value
      if bar:due() then bar:update(step / steps, step * o.batch, { { "loss", value } }) end
    end
  end
  if epoch % math.max(1, o.epochs // 10) == 0 then
    local c = curves[2]
    c.x[#c.x + 1], c.y[#c.y + 1] = step, 1 - evaluate():accuracy()
  end
end
bar:finish()

-- Results ------------------------------------------------------------------------------------------

local confusion = evaluate()
io.stdout:write("\n", plot.text(curves), "\n", confusion:text())
print(("\ntest accuracy: %.1f %% of %d texts (always the most frequent class: %.1f %%)"):format(
  100 * confusion:accuracy(), #test, 100 * confusion:majority()))
if o.svg then
  local ok, message = accel.write_file(o.svg, confusion:svg { title = o.play and "Who speaks" or "Classes" })
  if not ok then fail("the picture was not written: %s", message) end
end
if o.out then
  local ok, message = model:save_pretrained(o.out)
  if not ok then fail("the model was not saved: %s", message) end
  print("model: " .. o.out)
end
