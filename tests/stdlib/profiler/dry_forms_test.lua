-- What a dry run replaces takes the forms of the original: each call of a script succeeds or raises the same under --dry-run as without it,
-- wherever its tensors lie. Nothing that it saves is left behind.
local accel = require "accel"
local runs = dofile((arg[0]:match "^.*/" or "") .. "../../support/dry_runs.lua")
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local out = tmp .. "/said.txt"

local SCRIPT <const> = [[
local accel = require "accel"
local there = accel.load "IN"                       -- of a file: on the CPU
local made = accel.arange(6, { dtype = "f32" })      -- on the default device
local one = accel.full({ 1 }, 2.5)
local model = accel.models.GPT2(accel.models.tiny.gpt2)
local accelerator = accel.Accelerator { project_dir = "DIR/project" }
local lora = accel.peft.get_peft_model(accel.models.GPT2(accel.models.tiny.gpt2), accel.peft.LoraConfig { r = 2 })
local net = accelerator:prepare(accel.nn.Linear(2, 2))
local calls, lines = {}, {}
local function add(fn) calls[#calls + 1] = fn end
for _, t in ipairs { there.x, made } do
  add(function() return t:to("i64").dtype end)
  add(function() return t:to({ dtype = "i64" }).dtype end)
  add(function() return t:to("i64", { device = "cpu" }).dtype end)
  add(function() return t:to("cpu", { dtype = "i64" }).dtype end)
  add(function() return t:to("i64", "cpu").dtype end)
  add(function() return t:to("cpu", "i64").dtype end)
  add(function() return t:to({ device = "cpu", dtype = "f64", copy = true }).dtype end)
  add(function() return t:to(there.k).dtype end)
  add(function() return t:to("float16").dtype end)
  add(function() return accel.to(t, "i64").dtype end)
  add(function() return accel.to(t, "cpu").dtype end)
  add(function() return accel.to(t, { dtype = "i64", device = "cpu" }).dtype end)
  add(function() return t:to(nil, "i32").dtype end)
  add(function() return t:to("cpu", nil).dtype end)
  add(function() return t:to().dtype end)
  add(function() return t:to({ dtyp = "i64" }) end)
  add(function() return t:to("i65") end)
  add(function() return t:to(3) end)
  add(function() return t:to({ dtype = 3 }) end)
  add(function() return accel.Tensor.to(3, "i64") end)
  add(function() return t:cpu().dtype end)
  add(function() return t:float().dtype .. t:long().dtype .. t:half().dtype end)
  add(function() return t:item() end)
  add(function() return math.type(t:sum():item()) end)
  add(function() return math.type(t:long():sum():item()) end)
  add(function() return type(t:gt(1):any():item()) end)
  add(function() return #t:tolist() end)
  add(function() return #t:view(2, 3):tolist()[2] end)
  add(function() return type(t:sum():tolist()) end)
  add(function() return (t + there.x + made).shape[1] end)
  add(function() return accel.bincount(t:long()).ndim + accel.one_hot(t:long()).ndim end)
end
add(function() there.x:add_(made) return there.x.dtype end)
add(function() return there.x:copy_(made).dtype end)
add(function() return accel.Tensor.item(nil) end)
add(function() return accel.Tensor.tolist("x") end)
add(function() return one:item("x") ~= nil end)
add(function() return accel.save("DIR/a.safetensors", { one = one, two = made:view(2, 3) }) end)
add(function() return accel.load("DIR/a.safetensors").two.shape[2] end)
add(function() return accel.save({ one = one }, "DIR/b.safetensors") end)
add(function() return accel.save("DIR/b.safetensors", one) end)
add(function() return accel.save("DIR/b.safetensors", { 1 }) end)
add(function() return accel.save("DIR/b.safetensors", { one = 3 }) end)
add(function() return accel.save("DIR/b.safetensors", { one = one }, { x = 3 }) end)
add(function() return accel.save("DIR/b.safetensors", model) end)
add(function() return accel.save("DIR/nowhere/b.safetensors", { one = one }) end)
add(function() return model:save_pretrained("DIR/model") end)
add(function() return model:save_pretrained("DIR/model2", { max_shard_size = "1KB" }) end)
add(function() return model:save_pretrained("DIR/model2", { max_shard_siz = 3 }) end)
add(function() return model:save_pretrained(3) end)
add(function() return lora:save_pretrained("DIR/lora") end)
add(function() return lora:save_pretrained("DIR/lora", { state = 3 }) end)
for _, name in ipairs { "model", "model2" } do
  add(function() return (accel.models.from_pretrained("DIR/" .. name)) ~= nil end)
end
add(function() return accel.peft.PeftModel.from_pretrained(model, "DIR/lora") ~= nil end)
add(function() return accelerator:save({ one = one }, "DIR/c.safetensors") end)
add(function() return accelerator:save({ one = one }, "DIR/c.safetensors", { safe_serialization = true }) end)
add(function() return accelerator:save({ one = one }, "DIR/c.safetensors", { safe = true }) end)
add(function() return accel.accelerator.save({ one = one }, "DIR/d.safetensors") end)
add(function() return accel.accelerator.save({ one = one }, "DIR/d.safetensors", { on = 1 }) end)
add(function() return accelerator:save({ one = one }, "DIR/c.bin") end)
add(function() return accelerator:save({ list = { 1 }, one = one }, "DIR/e", { safe_serialization = false }) end)
add(function() return accelerator:save_model(net, "DIR/pickled", { safe_serialization = false }) end)
add(function() return accelerator:save_model(net, "DIR/net") end)
add(function() return accelerator:save_model(net, "DIR/net", { max_shard_size = "1GB" }) end)
add(function() return accelerator:save_model(net, "DIR/net", { max = "1GB" }) end)
add(function() return accelerator:save_model(net, 3) end)
add(function() return accelerator:save_model(3, "DIR/net") end)
add(function() return accelerator:save_state("DIR/state") end)
add(function() return accelerator:save_state("DIR/state2", { asynchronous = true }) end)
add(function() return accelerator:save_state(3) end)
add(function() return accelerator:save_state("DIR/state3", { sync = true }) end)
add(function() return accel.dist.all_reduce(made:clone()) == nil end)
for i, fn in ipairs(calls) do
  local ok, value, message = pcall(fn)
  local text = ok and tostring(value) .. tostring(message ~= nil) or tostring(value)
  text = text:match "^[^\n]*":gsub("^[^ ]*:%d+: ", ""):gsub(" on meta", ""):gsub(", meta:1", "")
  lines[i] = ("%d %s %s"):format(i, ok and "ok" or "raised", text)
end
assert(accel.write_file("OUT", table.concat(lines, "\n") .. "\n"))
]]

assert(accel.save(tmp .. "/in.safetensors", { x = accel.arange(6, { dtype = "f32" }), k = accel.arange(2) }))

local function read(path)
  local f <close> = assert(io.open(path, "rb"))
  return f:read "a"
end

local function lines_of(mode, name)
  local dir = tmp .. "/" .. name
  assert(accel.makedirs(dir))
  local text = SCRIPT:gsub("DIR", dir):gsub("IN", tmp .. "/in.safetensors"):gsub("OUT", out)
  local path = tmp .. "/" .. name .. ".lua"
  assert(accel.write_file(path, text))
  os.remove(out)
  local pipe = assert(io.popen(("'%s' %s '%s' 2>&1"):format(accel.process.program(), mode, path)))
  local said = pipe:read "a"
  assert(pipe:close(), said)
  local list = {}
  for line in read(out):gsub(dir, "DIR"):gmatch "[^\n]+" do list[#list + 1] = line end
  return list, said, dir
end

local real = lines_of("", "real")
local played, said, dir = lines_of("--dry-run " .. runs.RATES, "played")
assert(#real == #played and #real > 90)
local different = {}
for i, line in ipairs(real) do
  if line ~= played[i] then different[#different + 1] = ("%s\n    dry run: %s"):format(line, played[i]) end
end
assert(#different == 0, table.concat(different, "\n"))
assert(said:find "not written, as in any dry run:" and said:find("item() at ", 1, true), said)
for name in require "lfs".dir(dir) do assert(name:sub(1, 1) == "." or name == "project", "left behind: " .. name) end

-- On an accelerator as well: values that a script reads to the CPU meet tensors that it keeps there.
local path = tmp .. "/kept.lua"
assert(accel.write_file(path, [[
local accel = require "accel"
local kept, loss = accel.zeros({}, { dtype = "f64", device = "cpu" }), accel.ones({}, { dtype = "f64" })
kept:add_(loss:to "cpu")
kept:copy_(loss:cpu())
assert(accel.stack({ kept, loss:to "cpu" }, 1).shape[1] == 2)
]]))
local pipe = assert(io.popen(("'%s' --dry-run --device cuda '%s' 2>&1"):format(accel.process.program(), path)))
local text = pipe:read "a"
assert(pipe:close(), text)
