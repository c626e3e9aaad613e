--- Distributed inference: prompts are shared out over the ranks, the answers brought together.
---
---   accel-run [--num-processes N] examples/19_distributed_inference.lua [--tokens N] [PROMPT ...]
---
--- Every rank holds the whole model and continues its part of the prompts. Nothing is sent until the end, when
--- gather_object gives all ranks the answers of all, in the order of the prompts. A real script would read the model
--- with models.GPT2.from_pretrained(DIR). Here it is a tiny one that learns the alphabet first, so that you can check
--- its answers: "abc" continues with "defghi". The same answers on 1, 2 and 4 ranks. In Python:
--- examples/inference/distributed/.
local accel = require "accel"
local nn, optim, models = accel.nn, accel.optim, accel.models

local declared = {
  name = "19_distributed_inference.lua", usage = "[options] [PROMPT ...]",
  summary = "Continues prompts of small letters with the alphabet, on as many ranks as there are.",
  { "tokens", "int", 6, "N", "letters to add" },
  { "steps", "int", 60, "N", "steps in which the model learns the alphabet" },
  { "seed", "int", 1, "N", "of weights" },
}
local o, prompts = accel.util.cli(declared)
if #prompts == 0 then prompts = { "abc", "xyz", "hello", "m", "qrstu", "lua", "zebra" } end

local accelerator = accel.Accelerator()

-- A model ------------------------------------------------------------------------------------------

local letters = "abcdefghijklmnopqrstuvwxyz"
local vocab = accel.text.CharVocab.from_text(letters)
for _, prompt in ipairs(prompts) do
  if not prompt:find "^%l+$" then
    accel.util.cli.fail(declared, ("prompt '%s' has to be made of small letters"):format(prompt))
  end
end

accel.manual_seed(o.seed)
local model = models.GPT2 { vocab_size = #vocab, n_positions = 32, n_embd = 32, n_layer = 1, n_head = 2 }
local optimizer = optim.AdamW(model:parameters(), { lr = 1e-2 })
local rows = {} -- 16 letters from each one on
for i = 1, 26 do rows[i] = vocab:encode((letters .. letters):sub(i, i + 15)) end
local ids = accel.stack(rows, 1)
for _ = 1, o.steps do -- each rank makes the same steps, so all have the same model
  local logits = model(ids:narrow(2, 1, 15))
  nn.functional.cross_entropy(logits:reshape(-1, #vocab), ids:narrow(2, 2, 15):reshape(-1)):backward()
  optimizer:step()
  optimizer:zero_grad()
end
model:eval()

-- Inference ----------------------------------------------------------------------------------------

-- This rank's part: consecutive prompts. The first ranks have one more if the division leaves a remainder. A rank may
-- get none.
local mine = accelerator:split_between_processes(prompts)
local answers = {}
for i, prompt in ipairs(mine) do
  local new = model:generate(vocab:encode(prompt), { max_new_tokens = o.tokens, temperature = 0, eos_token_id = false })
  answers[i] = { prompt = prompt, continued = vocab:decode(new) }
end

local all = accel.accelerator.gather_object(answers) -- one flat list, on every rank
for _, answer in ipairs(all) do accelerator:print(("%8s | %s"):format(answer.prompt, answer.continued)) end
accelerator:print(("%d prompts"):format(#all))
