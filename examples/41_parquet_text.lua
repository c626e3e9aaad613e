--- Text from Parquet: fine-tunes BERT on pairs of sentences, with rows as the Hugging Face hub stores them.
---
---   accel-run [--num-processes N] examples/41_parquet_text.lua [--epochs N] [DIR]
---
--- DIR holds train*.parquet and dev*.parquet with the columns sentence1, sentence2 and label (an integer from 0), like GLUE's
--- MRPC. The default is the folder mrpc of this script. Only these columns are read, in row groups. Sentences become word
--- numbers when a batch needs them, and each batch is padded to its own longest pair. Prints loss and accuracy, which differ
--- only by rounding on 1, 2 and 4 ranks. In Python: load_dataset("parquet") and examples/nlp_example.py.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "41_parquet_text.lua", usage = "[options] [DIR]", summary = "Classifies pairs of sentences from Parquet files.",
  { "epochs", "int", 20, "N", "passes over the data", least = 1 },
  { "batch", "int", 16, "N", "pairs a step, over all ranks", least = 1 },
  { "length", "int", 32, "N", "longest pair in words; longer ones are cut", least = 4 },
  { "lr", "number", 3e-3, "X", "highest learning rate" },
  { "seed", "int", 1, "N", "of weights and order" },
}
local o, dirs = accel.util.cli(declared)
local accelerator = accel.Accelerator { split_batches = true }

-- Rows ---------------------------------------------------------------------------------------------

local dir = dirs[1] or (arg[0]:match "^.*/" or "") .. "mrpc"
local COLUMNS <const> = { "sentence1", "sentence2", "label" }
local found, message = accel.listdir(dir)
if not found then accel.util.cli.fail(declared, message) end

local function open(part) return data.Parquet(("%s/%s*.parquet"):format(dir, part), { columns = COLUMNS }) end
local train, dev = open "train", open "dev"

local texts, labels = {}, 0
for i = 1, #train do
  local row = train:get(i)
  if math.type(row.label) ~= "integer" or row.label < 0 then
    accel.util.cli.fail(declared, ("%s: label of row %d of train is %s; expected an integer from 0"):format(dir, i, tostring(row.label)))
  end
  texts[#texts + 1], texts[#texts + 2], labels = row.sentence1, row.sentence2, math.max(labels, row.label + 1)
end
local vocab = accel.text.WordVocab.from_texts(texts)

local function encode(row)
  local ids, types = vocab:encode(row.sentence1, row.sentence2, { max_length = o.length })
  return { input_ids = ids, token_type_ids = types, label = row.label }
end
local pad = data.PadCollate { padding_value = { input_ids = vocab.pad_id } }
local train_loader = data.DataLoader(train:map(encode), { batch_size = o.batch, shuffle = true, seed = o.seed, collate_fn = pad })
local dev_loader = data.DataLoader(dev:map(encode), { batch_size = o.batch, collate_fn = pad })

-- Model --------------------------------------------------------------------------------------------

accel.manual_seed(o.seed)
local model = accel.models.BertForSequenceClassification {
  vocab_size = #vocab, hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 2, intermediate_size = 64,
  max_position_embeddings = o.length, hidden_dropout_prob = 0, attention_probs_dropout_prob = 0, initializer_range = 0.1,
  num_labels = labels,
}
local optimizer = optim.AdamW(model:parameters(), { lr = o.lr, weight_decay = 0.01 })
local scheduler = optim.lr_scheduler.OneCycleLR(optimizer, { max_lr = o.lr, total_steps = o.epochs * #train_loader })
model, optimizer, scheduler, train_loader, dev_loader =
  accelerator:prepare(model, optimizer, scheduler, train_loader, dev_loader)
accelerator:print(("%d pairs to train on, %d to judge by, %d words, %d labels"):format(#train, #dev, #vocab, labels))

local function logits_of(batch)
  return model(batch.input_ids, { token_type_ids = batch.token_type_ids, attention_mask = batch.attention_mask })
end

-- Training -----------------------------------------------------------------------------------------

for epoch = 1, o.epochs do
  local sum = accel.zeros {}
  for batch in train_loader() do
    local loss = nn.functional.cross_entropy(logits_of(batch), batch.label)
    accelerator:backward(loss)
    accelerator:clip_grad_norm_(model:parameters(), 1.0)
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
    sum = sum + loss:detach()
  end
  if epoch % math.max(1, o.epochs // 5) == 0 then
    model:eval()
    local right, n = 0, 0
    for batch in dev_loader() do
      local guesses = accel.no_grad(function() return logits_of(batch):argmax(2) end)
      local all = accelerator:gather_for_metrics { guesses = guesses, labels = batch.label }
      right, n = right + all.guesses:eq(all.labels):sum():item(), n + #all.labels
    end
    model:train()
    accelerator:print(("epoch %2d: loss %.2f, accuracy %.1f %% of %d pairs"):format(epoch,
      accelerator:reduce(sum / #train_loader, "mean"):item(), 100 * right / n, n))
  end
end
accelerator:end_training()
