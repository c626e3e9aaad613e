-- Adapters as PEFT writes them: logits of every model with its adapter, which weights learn and how many, merging, and our files
-- against PEFT's.
--   accel-run tests/reference/adapters.lua DIR
-- Prints the first failures and ends with "N passed, M failed"; exit status 1 if anything failed.
local accel = require "accel"
local peft = accel.peft

local SHOWN <const> = 20
local dir = arg[1]
if not dir then
  io.stderr:write "usage: accel-run tests/reference/adapters.lua DIR\n"
  os.exit(2)
end

local passed, failures = 0, {}
local function check(name, ok, detail)
  if ok then passed = passed + 1 else failures[#failures + 1] = ("%s: %s"):format(name, detail or "differs") end
end
local function near(name, a, b, bar)
  local off = (a:detach() - b:detach()):abs():max():item() / math.max(b:detach():abs():max():item(), 1e-30)
  check(name, off <= bar, ("%.3g, bar %.3g"):format(off, bar))
end

local file <close> = assert(io.open(dir .. "/manifest.json", "rb"))
local out = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/adapters-")

local function base_of(case) return assert(accel.models.from_pretrained(dir .. "/" .. case.base)) end

local function run(case)
  local name, folder = case.name, dir .. "/" .. case.name
  local expected = accel.load(folder .. "/expected.safetensors")
  local p = assert(peft.PeftModel.from_pretrained(base_of(case), folder, { is_trainable = true })):eval()
  local y = p(expected.ids)
  near(name .. " logits", y, expected.y, 1e-5)

  for key, t in pairs(p:named_parameters()) do -- of DoRA, whose norms are constants in backward
    local grad = expected["grad." .. key]
    if grad and not t.grad then (y * y):mean():backward() end
    if grad then near(("%s gradient of %s"):format(name, key), t.grad, grad, 2e-5) end
  end

  local learns, wanted = {}, {}
  for key, t in pairs(p:named_parameters()) do learns[#learns + 1] = t.requires_grad and key or nil end
  for i, key in ipairs(case.trainable) do wanted[i] = key end
  table.sort(learns)
  table.sort(wanted)
  check(name .. " learns", table.concat(learns, " ") == table.concat(wanted, " "), table.concat(learns, " "))
  local some, all = p:get_nb_trainable_parameters()
  check(name .. " counts", some == case.counts[1] and all == case.counts[2], ("%d of %d"):format(some, all))

  -- our files: the same tensors under the same names; read again, the same logits
  assert(p:save_pretrained(out .. "/" .. name))
  local mine, theirs = accel.load(out .. "/" .. name .. "/adapter_model.safetensors"), accel.load(folder .. "/adapter_model.safetensors")
  for key, t in pairs(theirs) do
    check(("%s %s"):format(name, key), mine[key] and mine[key].shape == t.shape and accel.equal(mine[key], t), "missing or differs")
  end
  for key in pairs(mine) do check(("%s %s known"):format(name, key), theirs[key] ~= nil, "not in PEFT's file") end
  local again = assert(peft.PeftModel.from_pretrained(base_of(case), out .. "/" .. name))
  check(name .. " read again", accel.equal(again(expected.ids):detach(), y:detach()))
  local plain_y = base_of(case):eval()(expected.ids):detach()
  if not name:find "bias" then -- biases that learned are the model's own
    near(name .. " without", p:disable_adapter(function() return p(expected.ids) end), plain_y, name == "lora_gpt2" and 1 or 0)
  end

  if name:find "^prompt" then return end
  p:merge_adapter()
  near(name .. " merged", p(expected.ids), y, 1e-5)
  p:unmerge_adapter()
  check(name .. " unmerged", accel.equal(p(expected.ids):detach(), y:detach()))
  local plain = p:merge_and_unload()
  near(name .. " unloaded", plain(expected.ids), y, 1e-5)
  for key in pairs(plain:named_parameters()) do check(name .. " nothing left", not key:find "lora_" and not key:find "ia3_", key) end
end

for _, case in ipairs(accel.json.decode(file:read "a").cases) do
  local ok, message = xpcall(run, debug.traceback, case)
  if not ok then check(case.name, false, message) end
end
for i = 1, math.min(SHOWN, #failures) do print("FAIL " .. failures[i]) end
print(("%d passed, %d failed"):format(passed, #failures))
os.exit(#failures == 0 and 0 or 1, true)
