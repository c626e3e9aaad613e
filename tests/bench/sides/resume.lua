-- Side of the bench of resuming: GPT-2 124M and AdamW under the Accelerator. With --make a step is taken, the state saved, and the loss
-- of the next step kept; else a process that goes on from there: seconds of load_state, of its first step (1 row of 64 tokens), and
-- from the start of the process to the end of that step, whose loss must be the one that was kept.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { folder = "", make = false, layers = 12, width = 768, heads = 12, vocab = 50257 }
if o.quick then o.layers, o.width, o.heads, o.vocab = 2, 64, 2, 512 end
local path, clock = o.folder .. "/accel", accel.clock

local accelerator = accel.Accelerator { cpu = true }
accel.manual_seed(1)
local model = accel.models.GPT2 { vocab_size = o.vocab, n_positions = 64, n_embd = o.width, n_layer = o.layers, n_head = o.heads,
  resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 }
local optimizer
model, optimizer = accelerator:prepare(model, accel.optim.AdamW(model:parameters(), { lr = 1e-4 }))
local ids = accel.arange(64):remainder(o.vocab):view(1, 64)

local function step()
  local loss = accel.cross_entropy(model(ids):view(-1, o.vocab), ids:view(-1))
  accelerator:backward(loss)
  optimizer:step()
  optimizer:zero_grad()
  return loss:item()
end

if o.make then
  step()
  accelerator:save_state(path)
  accel.save(o.folder .. "/accel.safetensors", { loss = accel.tensor { step() } })
  return
end

--- Seconds since this process was started; the kernel counts hundredths.
local function age()
  local file <close> = assert(io.open "/proc/self/stat")
  local fields = file:read("a"):match "%) (.*)"
  local i = 0
  for word in fields:gmatch "%S+" do
    i = i + 1
    if i == 20 then return clock() - tonumber(word) / 100 end
  end
end

local t = clock()
accelerator:load_state(path)
local loaded = clock()
local loss = step()
local done = clock()
local kept = accel.load(o.folder .. "/accel.safetensors").loss:item()
assert(loss == kept, ("the loss after resuming is %.9g, and was %.9g"):format(loss, kept))
side.finish { load = (loaded - t) * 1e3, step = (done - loaded) * 1e3, all = (done - t) * 1e3, process = age() * 1e3 }
