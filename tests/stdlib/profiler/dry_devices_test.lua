-- The dry run of an accelerator keeps the CPU's tensors apart from the accelerator's: a call that takes both raises, as on a real one. Copies
-- take both. The dry run of the CPU has one device.
local accel = require "accel"
local runs = dofile((arg[0]:match "^.*/" or "") .. "../../support/dry_runs.lua")
local tmp = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/devices")
local path, out = tmp .. "/s.lua", tmp .. "/said.txt"

-- Each line: a call with own (on the default device), host (values on the CPU) and moved (own, which the script has moved to the CPU).
local CALLS <const> = {
  { "own + host", true }, { "host * own", true }, { "model(host)", true }, { "own + moved", true }, { "model(moved)", true },
  { "accel.cat { own, host }", true }, { "accel.where(own:gt(0), host, own)", true }, { "host:clone():add_(own)", true },
  { "own:clone():add_(moved)", true }, { "moved:clone():mul_(own)", true }, { "accel.nn.functional.mse_loss(own, host)", true },
  { "own + own" }, { "host + host" }, { "moved + host" }, { "moved:clone():add_(host)" }, { "host:clone():add_(moved)" },
  { "own:clone():copy_(host)" }, { "own:clone():copy_(moved)" }, { "host:clone():copy_(own)" }, { "moved:clone():copy_(own)" },
  { "host:to(own.device) + own" }, { "moved:to(own) + own" }, { "accel.cat { moved, host }" }, { "own:cpu():sum():item() + host:sum():item()" },
  { "moved:tolist()[1][1]" }, { "moved:sum():backward()" }, { "model(own):cpu():sum():backward()" },
}

local lines = { [[
local accel = require "accel"
local model = accel.nn.Linear(4, 4)
local own, host = accel.ones(4, 4, { requires_grad = true }), accel.ones(4, 4, { device = "cpu" })
local moved = own:cpu()
local lines = {}
local function try(f)
  local ok, why = pcall(f)
  lines[#lines + 1] = ok and "" or tostring(why)
end]] }
for _, call in ipairs(CALLS) do lines[#lines + 1] = ("try(function() return %s end)"):format(call[1]) end
lines[#lines + 1] = ("assert(accel.write_file(%q, table.concat(lines, '\\n') .. '\\n'))"):format(out)
assert(accel.write_file(path, table.concat(lines, "\n")))

for _, device in ipairs { "cpu", "cuda" } do
  local _, status, errors = runs.dry("--device " .. device .. " " .. runs.RATES, path, "")
  assert(status == 0, errors)
  local file <close> = assert(io.open(out))
  for _, call in ipairs(CALLS) do
    local said = file:read "l"
    if device == "cuda" and call[2] then
      assert(said:find "s.lua:%d+: .*tensors are on different devices: the CPU and the accelerator of this dry run; move one with :to%(device%)",
        call[1] .. ": " .. said)
    else
      assert(said == "", ("--device %s: %s: %s"):format(device, call[1], said))
    end
  end
end
