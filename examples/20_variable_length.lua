--- Sequences of different lengths: each token counts the same, wherever it is.
---
---   accel-run [--num-processes N] examples/20_variable_length.lua [--epochs N] [--means]
---
--- The mean loss of a batch divides by the tokens of that batch. Averaging such means over ranks and micro-batches
--- gives a token in a batch of short sequences more weight than one among long ones, so results depend on how the rows
--- are cut. Instead give `backward` the sum, and with `weight` its number of tokens: the gradient is divided once, by
--- the tokens of all ranks and micro-batches of the update. Here the same steps use 32 sequences at once and four times
--- 8: the losses are the same to the printed digits, also on 2 and 4 ranks. --means shows the alternative. In Python:
--- examples/by_feature/gradient_accumulation_for_autoregressive_models.py.
local accel = require "accel"
local nn, optim, data, models = accel.nn, accel.optim, accel.data, accel.models

local declared = {
  name = "20_variable_length.lua", summary = "Normalises losses by the tokens of a whole update.",
  { "means", "flag", false, nil, "also train on means: other figures, which depend on the number of ranks" },
  { "epochs", "int", 8, "N", "passes over the sequences" },
  { "lr", "number", 1e-2, "X", "learning rate" },
  { "seed", "int", 1, "N", "of weights and sequences" },
}
local o = accel.util.cli(declared)

local accelerator = accel.Accelerator { split_batches = true }

-- Sequences that count on in steps of 1, 2 or 3: the first two numbers cannot be guessed, the others can. ------------
local N, VOCAB, IGNORED = 256, 12, -100
local random, sequences = accel.util.Random(o.seed, 1), {}
for i = 1, N do
  local at, step, ids = random:below(VOCAB), 1 + random:below(3), {}
  for k = 1, 3 + random:below(18) do ids[k] = (at + k * step) % VOCAB end
  sequences[i] = { input_ids = table.move(ids, 1, #ids - 1, 1, {}), labels = table.move(ids, 2, #ids, 1, {}) }
end
local set = data.ListDataset(sequences)
local pad = data.PadCollate { padding_value = { input_ids = 0, labels = IGNORED } }

--- Sum of the losses of a batch's tokens, and how many these are.
local function loss_of(model, batch)
  local labels = batch.labels:view(-1)
  local logits = model(batch.input_ids, { attention_mask = batch.attention_mask }):reshape(-1, VOCAB)
  local sum = nn.functional.cross_entropy(logits, labels, { ignore_index = IGNORED, reduction = "sum" })
  return sum, labels:ne(IGNORED):sum()
end

--- Trains with steps of `pieces` batches of `rows` sequences. Prints the loss per token of each epoch.
local function train(name, rows, pieces, weighted)
  accelerator.gradient_accumulation_steps = pieces
  accel.manual_seed(o.seed)
  local model = models.GPT2 {
    vocab_size = VOCAB, n_positions = 32, n_embd = 32, n_layer = 1, n_head = 2, embd_pdrop = 0, attn_pdrop = 0,
    resid_pdrop = 0,
  }
  local optimizer = optim.AdamW(model:parameters(), { lr = o.lr })
  local loader = data.DataLoader(set, { batch_size = rows, shuffle = true, seed = o.seed, collate_fn = pad })
  model, optimizer, loader = accelerator:prepare(model, optimizer, loader)

  local shown = {}
  for epoch = 1, o.epochs do
    local total = accel.zeros(2)
    for batch in loader() do
      local _ <close> = accelerator:accumulate(model)
      local sum, tokens = loss_of(model, batch)
      if weighted then
        accelerator:backward(sum, { weight = tokens })
      else
        accelerator:backward(sum / tokens)
      end
      if accelerator.sync_gradients then accelerator:clip_grad_norm_(model:parameters(), 1.0) end
      optimizer:step()
      optimizer:zero_grad()
      total = total + accel.stack({ sum:detach(), tokens:to("f32") }, 1)
    end
    total = accelerator:reduce(total)
    shown[epoch] = ("%.4f"):format(total[1]:item() / total[2]:item())
  end
  accelerator:free_memory()
  return ("%-20s loss per token of each epoch: %s"):format(name, table.concat(shown, " "))
end

accelerator:print(train("32 sequences:", 32, 1, true))
accelerator:print(train("4 x 8 sequences:", 8, 4, true))
if o.means then accelerator:print(train("4 x 8, of means:", 8, 4, false)) end
