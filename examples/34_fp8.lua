--- fp8: the same GPT trained in bf16 and in fp8 by three recipes, and the final loss of each.
---
---   accel-run [--num-processes N] examples/34_fp8.lua [--steps N] [--width N] [TEXT]
---
--- Learns the characters of TEXT (default: this script). Every linear layer whose dims are multiples of 16 multiplies in 8 bits: on
--- GPUs that support it by cuBLASLt, otherwise emulated with the same numbers, which is slower than bf16 but shows the effect on a
--- model. Prints the mean of the last losses by recipe, and how far they are from bf16. In Python: accelerate's benchmarks/fp8
--- (transformer_engine, torchao, ms_amp).
local accel = require "accel"

local declared = {
  name = "34_fp8.lua", usage = "[options] [TEXT]", summary = "Trains a GPT in bf16 and in fp8, and compares.",
  { "steps", "int", 100, "N", "updates" },
  { "width", "int", 64, "N", "of the model, a multiple of 16" },
}
local o, words = accel.util.cli(declared)
if o.steps < 1 then accel.util.cli.fail(declared, ("option '--steps' must be positive, got %d"):format(o.steps)) end
if o.width < 16 or o.width % 16 ~= 0 then
  accel.util.cli.fail(declared, ("option '--width' must be a multiple of 16, got %d"):format(o.width))
end

local T <const>, B <const> = 32, 8
local path = words[1] or arg[0]
local file = io.open(path, "rb")
local bytes = file and file:read "a"
if not bytes or #bytes <= T then
  io.stderr:write(path, file and ": the text is too short\n" or ": cannot be read\n")
  os.exit(1)
end
local ids = accel.from_bytes(bytes, "u8"):to "i64":remainder(128)

--- Trains from the same start on the same batches. Returns the mean of the last losses, and the Accelerator.
local function train(precision, recipe)
  accel.AcceleratorState._reset_state()
  local accelerator = accel.Accelerator { mixed_precision = precision, kwargs_handlers = recipe and { recipe } }
  accel.manual_seed(1)
  local model = accel.models.GPT2LMHeadModel { vocab_size = 128, n_positions = T, n_embd = o.width, n_layer = 2, n_head = 4,
    resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 }
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
  model, optimizer = accelerator:prepare(model, optimizer)
  local losses, last = 0, math.max(1, o.steps // 5)
  for step = 1, o.steps do
    local from = accel.randint(0, ids:numel() - T, { B }, { generator = accel.Generator(step) }):tolist()
    local rows = {}
    for i = 1, B do rows[i] = ids:narrow(1, from[i] + 1, T) end
    local x = accelerator:split_between_processes(accel.stack(rows, 1), function(part) return part end)
    local loss = model(x, { labels = x })
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    if step > o.steps - last then losses = losses + accelerator:reduce(loss:detach(), "mean"):item() end
  end
  return losses / last, accelerator
end

local want, main = train "bf16"
main:print(("%-28s %.4f"):format("bf16", want))
for _, entry in ipairs {
  { "TE, delayed scaling", accel.TERecipeKwargs { amax_history_len = 16, amax_compute_algo = "max" } },
  { "AO, scales of the moment", accel.AORecipeKwargs {} },
  { "MS-AMP O2, states in 8 bits", accel.MSAMPRecipeKwargs {} },
} do
  local got, accelerator = train("fp8", entry[2])
  accelerator:print(("%-28s %.4f, %.1f %% from bf16"):format(entry[1], got, 100 * math.abs(got / want - 1)))
end
