--- A complete language example: do two sentences say the same? A small BERT learns it from pairs.
---
---   accel-run [--num-processes N] examples/17_nlp.lua [--mixed-precision WORD] [--epochs N]
---     [--checkpointing-steps N|epoch] [--output-dir DIR] [--resume-from-checkpoint DIR] [--with-tracking] [DIR]
---
--- DIR holds train.csv and dev.csv with the columns label,sentence1,sentence2, in the MRPC corpus's format (labels
--- equivalent and not_equivalent). The default is a few pairs in this script's folder. It comes to tell all pairs of
--- training apart, and most of the new ones: these are easy, sentences that mean the same share more words. Prints the
--- same numbers on 1, 2 and 4 ranks, with fp16 and bf16 nearly the same. A run that continues from a saved state prints
--- the numbers of an uninterrupted one. In Python: examples/complete_nlp_example.py.
local accel = require "accel"
local nn, optim, data, models = accel.nn, accel.optim, accel.data, accel.models

local declared = {
  name = "17_nlp.lua", usage = "[options] [DIR]", summary = "Trains a small BERT to know sentences that mean the same.",
  { "mixed-precision", { "no", "fp16", "bf16" }, "no", "WORD", "format of the matrix products" },
  { "accumulate", "int", 1, "K", "batches a step" },
  { "epochs", "int", 24, "N", "passes over the pairs" },
  { "batch", "int", 16, "N", "pairs a batch, over all ranks" },
  { "lr", "number", 2e-3, "X", "highest learning rate" },
  { "length", "int", 32, "N", "words and marks of a pair that are read" },
  { "dropout", "number", 0.1, "P", "share of activations dropped" },
  { "seed", "int", 1, "N", "of weights, order and dropout" },
  { "checkpointing-steps", "string", nil, "N", "save the state every N batches, or 'epoch': at the end of each" },
  { "resume-from-checkpoint", "string", nil, "DIR", "continue from a saved state" },
  { "output-dir", "string", ".", "DIR", "folder of states, as step_<n> or epoch_<n>" },
  { "with-tracking", "flag", false, nil, "write the numbers of the run to a file of --project-dir" },
  { "project-dir", "string", "logs", "DIR", "folder of --with-tracking" },
}
local o, dirs = accel.util.cli(declared)

--- Lines of JSON in <project-dir>/nlp.jsonl. 16_tracking.lua explains trackers.
local Lines = accel.accelerator.GeneralTracker:extend "Lines"
Lines.name, Lines.requires_logging_directory = "lines", false
function Lines:init(path) self.path = path end
function Lines:start()
  os.execute(("mkdir -p '%s'"):format((self.path:match "^(.*)/":gsub("'", "'\\''"))))
  local message
  self.file, message = io.open(self.path, "a")
  if not self.file then accel.util.cli.fail(declared, message) end
end
function Lines:store_init_configuration(values) self.file:write(accel.json.encode { config = values }, "\n") end
function Lines:log(values, step) self.file:write(accel.json.encode { step = step, values = values }, "\n") end
function Lines:tracker() return self.file end
function Lines:finish() self.file:close() end

local every = o.checkpointing_steps and math.tointeger(tonumber(o.checkpointing_steps))
if o.checkpointing_steps and o.checkpointing_steps ~= "epoch" and not (every and every > 0) then
  accel.util.cli.fail(declared, ("option '--checkpointing-steps' must be a number of batches or 'epoch', got '%s'"):format(
    o.checkpointing_steps))
end

local names = "^" .. (every and "step" or "epoch") .. "_%d+$"
local other = o.checkpointing_steps and not o.resume_from_checkpoint and accel.ckpt.other_run(o.output_dir, names)
if other then
  accel.util.refuse("%s is a checkpoint of another run; to continue it give --resume-from-checkpoint, to keep both another --output-dir", other)
end

local accelerator = accel.Accelerator {
  mixed_precision = o.mixed_precision, gradient_accumulation_steps = o.accumulate, split_batches = true,
  project_dir = o.project_dir, log_with = o.with_tracking and Lines(o.project_dir .. "/nlp.jsonl") or nil,
}

-- Pairs --------------------------------------------------------------------------------------------

local classes = { not_equivalent = 0, equivalent = 1 } -- as in GLUE. F1 is class 1's
local dir = dirs[1] or (arg[0]:match "^.*/" or "") .. "mrpc"

local function read(name)
  local path = ("%s/%s.csv"):format(dir, name)
  local set, message = data.CSV.open(path)
  if not set then accel.util.cli.fail(declared, message) end
  if table.concat(set.columns, ",") ~= "label,sentence1,sentence2" then
    accel.util.cli.fail(declared, ("%s: expected the columns label,sentence1,sentence2, it has %s"):format(path,
      table.concat(set.columns, ",")))
  end
  for i, label in ipairs(set:column "label") do
    if not classes[label] then
      accel.util.cli.fail(declared, ("%s: label '%s' of row %d is neither equivalent nor not_equivalent"):format(path,
        label, i))
    end
  end
  return set
end
local train, dev = read "train", read "dev"

local texts = train:column "sentence1"
table.move(train:column "sentence2", 1, #train, #texts + 1, texts)
local vocab = accel.text.WordVocab.from_texts(texts)

local function encode(row)
  local ids, types = vocab:encode(row.sentence1, row.sentence2, { max_length = o.length })
  return { input_ids = ids, token_type_ids = types, label = classes[row.label] }
end
-- All batches have one length: dropout goes by the position of a number in the global batch, which has to be the same
-- whatever part of it a rank holds.
local pad = data.PadCollate {
  padding_value = { input_ids = vocab.pad_id }, max_length = o.length, pad_to_multiple_of = o.length,
}
local train_loader = data.DataLoader(train:map(encode), {
  batch_size = o.batch, shuffle = true, drop_last = #train > o.batch, seed = o.seed, collate_fn = pad,
})
local train_again = data.DataLoader(train:map(encode), { batch_size = 64, collate_fn = pad })
local dev_loader = data.DataLoader(dev:map(encode), { batch_size = 64, collate_fn = pad })

-- Model --------------------------------------------------------------------------------------------

accel.manual_seed(o.seed)
local model = models.BertForSequenceClassification {
  vocab_size = #vocab, hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 2, intermediate_size = 64,
  max_position_embeddings = o.length, hidden_dropout_prob = o.dropout, attention_probs_dropout_prob = o.dropout,
  initializer_range = 0.1, num_labels = 2,
}
local optimizer = optim.AdamW(model:parameters(), { lr = o.lr, weight_decay = 0.01 })
-- In updates: a prepared schedule moves once per update, on any number of ranks.
local updates = o.epochs * math.ceil(#train_loader / o.accumulate)
local scheduler = optim.lr_scheduler.get_scheduler("linear", optimizer, {
  num_warmup_steps = updates // 10, num_training_steps = updates,
})
model, optimizer, scheduler, train_loader, train_again, dev_loader =
  accelerator:prepare(model, optimizer, scheduler, train_loader, train_again, dev_loader)
accelerator:print(("%d pairs to train on, %d to judge by, %d words"):format(#train, #dev, #vocab))

local function classify(batch)
  return model(batch.input_ids, { token_type_ids = batch.token_type_ids, attention_mask = batch.attention_mask })
end

--- Accuracy and F1 over a loader.
local function evaluate(loader)
  local metric = accel.metrics.glue "mrpc"
  local _ <close> = accel.no_grad()
  model:eval()
  for batch in loader() do metric:update(classify(batch):argmax(2), batch.label) end
  model:train()
  return metric:compute()
end

-- State of the script itself, and its resume position ----------------------------------------------

local progress = { steps = 0, sum = accel.zeros {} } -- batches in all. Losses of the epoch, on this rank
function progress:state_dict() return { steps = self.steps, sum = accelerator:reduce(self.sum, "mean") } end
function progress:load_state_dict(state) self.steps, self.sum = state.steps, state.sum:to(accelerator.device) end
accelerator:register_for_checkpointing(progress)
if o.resume_from_checkpoint then
  accelerator:load_state(o.resume_from_checkpoint)
  accelerator:print(("continues after batch %d"):format(progress.steps))
end
if o.with_tracking then accelerator:init_trackers("nlp", o) end

--- Saves the state under a name of --output-dir.
local function save(name, n) accelerator:save_state(("%s/%s_%d"):format(o.output_dir, name, n)) end

-- Training -----------------------------------------------------------------------------------------

for epoch = train_loader.iteration + 1, o.epochs do
  for batch in train_loader() do
    local _ <close> = accelerator:accumulate(model)
    local loss = nn.functional.cross_entropy(classify(batch), batch.label)
    accelerator:backward(loss)
    if accelerator.sync_gradients then accelerator:clip_grad_norm_(model:parameters(), 1.0) end
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
    _:close() -- the micro-step has ended: a state saved now is the state after it
    progress.steps, progress.sum = progress.steps + 1, progress.sum + loss:detach()
    if every and progress.steps % every == 0 then save("step", progress.steps) end
  end
  local mean = accelerator:reduce(progress.sum / #train_loader, "mean"):item()
  progress.sum = accel.zeros {}
  if epoch % math.max(1, o.epochs // 5) == 0 then
    local judged = evaluate(dev_loader)
    accelerator:print(("epoch %2d: loss %.2f, dev accuracy %.3f, F1 %.3f"):format(epoch, mean, judged.accuracy,
      judged.f1))
    if o.with_tracking then
      accelerator:log({ train_loss = mean, accuracy = judged.accuracy, f1 = judged.f1 }, progress.steps)
    end
  end
  if o.checkpointing_steps == "epoch" then save("epoch", epoch - 1) end
end
accelerator:end_training()
accelerator:print(("training pairs classified correctly: %.3f"):format(evaluate(train_again).accuracy))
