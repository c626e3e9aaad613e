--- Pretraining from compressed shards: a small GPT reads .jsonl.zst files as a stream, and resumes inside a shard.
---
---   accel-run [--num-processes N] [--resume auto] examples/40_compressed_shards.lua [--checkpointing-steps N]
---     [--output-dir DIR] [SHARD ...]
---
--- SHARD is a JSON Lines file with a "text" in each line, plain or compressed (.gz .zst .xz .bz2 .lz4). Without any, the script
--- writes four of them into the folder "shards" first. The stream shuffles the shards and a buffer of documents, and packs
--- their bytes into blocks of one length. Each step prints its loss and the documents in which its blocks begin. A checkpoint
--- contains the position in the stream, so a run that was killed and started again with --resume auto prints the remaining lines
--- of the uninterrupted run, to the last digit on the same number of ranks. In Python: datasets' load_dataset(streaming=True).
local accel = require "accel"
local data = accel.data

local declared = {
  name = "40_compressed_shards.lua", usage = "[options] [SHARD ...]", summary = "Pretrains a small GPT on compressed JSON Lines.",
  { "steps", "int", 60, "N", "updates in all", least = 1 },
  { "batch", "int", 8, "N", "blocks a step, over all ranks", least = 1 },
  { "block", "int", 64, "N", "bytes in a block", least = 2 },
  { "shuffle", "int", 40, "N", "documents in the shuffle buffer", least = 1 },
  { "lr", "number", 5e-3, "X", "learning rate" },
  { "checkpointing-steps", "int", 10, "N", "save every N steps", least = 1 },
  { "output-dir", "string", "pretraining", "DIR", "folder of checkpoints; the last two are kept" },
  { "seed", "int", 1, "N", "of weights and order" },
}
local o, shards = accel.util.cli(declared)

local accelerator = accel.Accelerator {
  split_batches = true, project_config = accel.ProjectConfiguration {
    project_dir = o.output_dir, automatic_checkpoint_naming = true, total_limit = 2,
  },
}

-- Shards -------------------------------------------------------------------------------------------

--- The program and the ending of the best compression that this machine can write and accel can read.
local function compressor()
  for _, c in ipairs { { "zstd", "zstd -q --rm", ".zst" }, { "zlib", "gzip", ".gz" } } do
    local library, program = c[1], c[2]:match "^%S+"
    for _, l in ipairs(accel.libraries()) do
      if l.name == library and l.version and os.execute(("command -v %s >/dev/null 2>&1"):format(program)) then return c[2] end
    end
  end
end

--- Writes documents of simple sentences into `folder`, which appears when it is complete.
local function write_shards(folder)
  local part = assert(accel.mkdtemp(folder .. ".part-"))
  local random, compress, id = accel.util.Random(7), compressor(), 0
  local who, what = { "the cat", "the old man", "a small bird", "my sister" }, { "sees", "likes", "follows", "draws" }
  for n = 0, 3 do
    local lines = {}
    for k = 1, 60 do
      local words = {}
      for i = 1, 1 + random:below(4) do
        words[i] = ("%s %s %s."):format(who[random:below(4) + 1], what[random:below(4) + 1], who[random:below(4) + 1])
      end
      lines[k], id = accel.json.encode { id = id, text = table.concat(words, " ") }, id + 1
    end
    local path = ("%s/part-%d.jsonl"):format(part, n)
    assert(accel.write_file(path, table.concat(lines, "\n") .. "\n"))
    if compress then assert(os.execute(("%s '%s'"):format(compress, path))) end
  end
  if not os.rename(part, folder) then os.execute(("rm -r '%s'"):format(part)) end -- ranks of a dry run do not wait: another was first
end

if #shards == 0 then
  accelerator:local_main_process_first(function() -- the others find the folder
    if not accel.listdir "shards" then write_shards "shards" end
  end)
  shards = { "shards/part-*.jsonl*" }
end

-- Stream -------------------------------------------------------------------------------------------

--- Documents, one after the other, cut into blocks of n bytes.
local Blocks = data.IterableDataset:extend "Blocks"

function Blocks:init(documents, n) self.documents, self.n = documents, n end

function Blocks:iterate(epoch, seed)
  local step, state, control, closing = self.documents:iterate(epoch, seed)
  local buffer, document = "", 0
  local function next_block()
    while #buffer < self.n do
      control = step(state, control)
      if not control then return nil end -- the rest of a pass is dropped
      if type(control.text) ~= "string" then accel.util.cli.fail(declared, 'a line of the shards has no "text"') end
      if buffer == "" then document = control.id or 0 end
      buffer = buffer .. control.text .. "\n"
    end
    local tokens, begins = accel.from_bytes(buffer:sub(1, self.n), "u8"):to "i64", document
    buffer, document = buffer:sub(self.n + 1), control.id or 0
    return { tokens = tokens, document = begins }
  end
  return next_block, nil, nil, closing
end

local documents = data.JSONL.stream(shards, { columns = { "id", "text" }, shuffle_shards = true }):shuffle(o.shuffle)
local loader = data.DataLoader(Blocks(documents, o.block), { batch_size = o.batch, drop_last = true, seed = o.seed })

-- Training -----------------------------------------------------------------------------------------

accel.manual_seed(o.seed)
local model = accel.models.GPT2 { vocab_size = 256, n_positions = o.block, n_embd = 48, n_layer = 2, n_head = 4 }
local optimizer = accel.optim.AdamW(model:parameters(), { lr = o.lr })
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)

local progress = { steps = 0 }
function progress:state_dict() return { steps = self.steps } end
function progress:load_state_dict(state) self.steps = state.steps end
accelerator:register_for_checkpointing(progress) -- with --resume the state is loaded here, the position in the stream included
if progress.steps > 0 then accelerator:print(("continues after step %d"):format(progress.steps)) end

while progress.steps < o.steps do
  local before = progress.steps
  for batch in loader() do -- a resumed pass first, then whole ones
    local loss = model(batch.tokens, { labels = batch.tokens })
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    progress.steps = progress.steps + 1
    local mean = accelerator:reduce(loss:detach(), "mean"):item()
    local begins = accelerator:gather(batch.document):tolist()
    accelerator:print(("step %d: loss %.6f, documents %s"):format(progress.steps, mean, table.concat(begins, " ")))
    io.stdout:flush() -- lines before a checkpoint outlive kill -9
    if progress.steps % o.checkpointing_steps == 0 then accelerator:save_state(nil, { asynchronous = true }) end
    if progress.steps == o.steps then break end
  end
  if progress.steps == before then
    accel.util.cli.fail(declared, ("the shards hold fewer than %d blocks of %d bytes; give more, or a smaller --batch or --block"):format(
      o.batch, o.block))
  end
end
accelerator:end_training()
