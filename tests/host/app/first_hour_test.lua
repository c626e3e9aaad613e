-- What somebody meets in the first hour: a device that is not there, a first start with --resume auto, options after the script, an
-- output that cannot be written, a method called with a dot, a loader without brackets, a script given to accel.load. Each message names
-- the mistake once, on any number of ranks, and what to type.
-- tier: every change
local accel = require "accel"
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/hour-"))

local function write(name, text) assert(accel.write_file(root .. "/" .. name, text)) end

local function run(words)
  local pipe = assert(io.popen(("cd '%s' && exec env -u ACCEL_DEVICE '%s' %s 2>&1 </dev/null"):format(root, accel.process.program(), words)))
  local text = pipe:read "a"
  local _, _, status = pipe:close()
  return text, status
end

local function gives(words, status, ...)
  local text, got = run(words)
  assert(got == status, ("accel-run %s: status %s, wanted %d\n%s"):format(words, got, status, text))
  for _, part in ipairs { ... } do assert(text:find(part, 1, true), ("accel-run %s: lacks %q\n%s"):format(words, part, text)) end
  return text
end

local function lines(text) return select(2, text:gsub("\n", "")) end

write("plain.lua", "print 'ran'")
write("reads.lua", "print('ran', ...)")

do -- a GPU that is not there: one line
  local nowhere = "env ACCEL_CUDA_MODULE=accel_nowhere.so '" .. accel.process.program() .. "' "
  for _, words in ipairs { "--device cuda plain.lua", "--device cuda:1 --num-processes 2 plain.lua", "--device cuda --num-processes 3 plain.lua" } do
    local pipe = assert(io.popen(("cd '%s' && %s %s 2>&1"):format(root, nowhere, words)))
    local text = pipe:read "a"
    local _, _, status = pipe:close()
    assert(status == 1 and lines(text) == 1 and text:find("no device 'cuda[^']*' here: this build has no CUDA"), words .. "\n" .. text)
  end
end

do -- a first start, with and without its folder; a folder that holds something else
  write("resumes.lua", "require('accel').Accelerator { project_dir = arg[1] } print 'ran'")
  for _, ranks in ipairs { "", "--num-processes 2 " } do
    local text = gives(ranks .. "--resume auto resumes.lua new", 0,
      "accel: --resume auto: no checkpoint in new/checkpoints yet; starting from scratch\n")
    assert(select(2, text:gsub("no checkpoint", "")) == 1 and not text:find "cannot", text)
  end
  assert(os.execute(("mkdir -p '%s/old/checkpoints'"):format(root)))
  gives("--resume auto resumes.lua old", 0, "no checkpoint in old/checkpoints yet")
  assert(os.execute(("mkdir -p '%s/old/checkpoints/checkpoint_0'"):format(root)))
  write("old/checkpoints/checkpoint_0/MANIFEST.json", "{")
  assert(not gives("--resume auto resumes.lua old", 0):find "yet", "a damaged checkpoint is there")
end

do -- options after the script
  local told = "options of accel-run go before the script"
  gives("plain.lua --num-processes 2", 0, "warning: --num-processes has no effect", told, "ran")
  gives("plain.lua --num_processes=2", 0, told)
  assert(not gives("reads.lua --num-processes 2", 0):find(told, 1, true), "an option of the script's own")
  assert(not gives("plain.lua --mine", 0):find(told, 1, true))
  assert(select(2, gives("--num-processes 2 plain.lua --cpu", 0):gsub("has no effect", "")) == 1)
  write("declares.lua", "require('accel').util.cli { name = 'declares.lua', { 'n', 'int', 1, 'N', 'count' } }")
  gives("declares.lua --num-processes 2", 2, "unknown option '--num-processes'; " .. told)
  local text = gives("declares.lua --nn 2", 2, "did you mean '--n'?")
  assert(not text:find(told, 1, true), text)
end

do -- an action without its command, and the help of commands that have no options
  gives("tokenize texts.jsonl", 2, "did you mean accel-run data tokenize?")
  gives("convert a b", 2, "did you mean accel-run ckpt convert or accel-run data convert?")
  assert(not gives("ls", 2):find("accel-run plan", 1, true))
  assert(not gives("nothing-like-this", 2):find("did you mean", 1, true))
  for _, name in ipairs { "env", "help" } do
    local text = gives(name .. " --help", 0, "Usage: accel-run " .. name)
    assert(lines(text) == 2, text)
  end
end

do -- outputs are checked before the work
  for _, path in ipairs { "missing/trace.json", "." } do
    for _, ranks in ipairs { "", "--num-processes 2 " } do
      local text = gives(("%s--profile %s plain.lua"):format(ranks, path), 2, "--profile: cannot write '" .. path .. "'")
      assert(not text:find "ran" and lines(text) == 1, text)
    end
  end
  gives("--profile trace.json plain.lua", 0, "the trace is in trace.json")
  gives("--profile trace.json plain.lua", 0, "the trace is in trace.json")
  -- a trace that does not fit makes the status 1, also of a script that ends itself
  write("many.lua", "local a = require 'accel' for _ = 1, 300 do a.ones(3):sum() end print 'ran' if arg[1] then os.exit(tonumber(arg[1])) end")
  for words, status in pairs { [""] = 1, ["0"] = 1, ["3"] = 3 } do
    local command = ("cd '%s' && ulimit -f 8 && '%s' --profile big.json many.lua %s 2>&1"):format(root, accel.process.program(), words)
    local pipe = assert(io.popen(command))
    local text = pipe:read "a"
    local _, _, got = pipe:close()
    local told = text:find("ran", 1, true) and text:find("--profile: big.json: ", 1, true)
    assert(got == status and told, ("%s: status %d\n%s"):format(words, got, text))
  end
  write("file", "")
  local writable = require "accel.util.writable"
  local ok, why = writable.folder(root .. "/file/below")
  assert(not ok and why:find("file is not a folder", 1, true), why)
  ok, why = writable.file(root .. "/missing/file")
  assert(not ok and why:find("No such file", 1, true), why)
  ok, why = writable.file(root)
  assert(not ok and why:find("Is a directory", 1, true), why)
  assert(writable.file(root .. "/file") and writable.file(root .. "/other") and writable.folder(root .. "/a/b/c") and writable.folder(root))
  assert(not accel.listdir(root .. "/a") and not io.open(root .. "/other"), "the probe left something")
  for _, name in ipairs(accel.listdir(root)) do assert(not name:find "probe", name) end
  for _, words in ipairs { "quantize . file/out", "merge-weights . file/out", "gguf import some.gguf file/out", "gguf export . missing/out.gguf" } do
    gives(words, 1, "cannot write")
  end
  gives("plan . --num-processes 2 --output missing/plan.yaml", 2, "--output: cannot write missing/plan.yaml")
end

do -- a method called with a dot, in the library and in the script
  write("net.lua", [[
local accel = require "accel"
local Net = accel.nn.Module:extend "Net"
function Net:init() self.l = accel.nn.Linear(2, 3) end
function Net:forward(x)
  if x == nil or self.l then return self.l(x) end
end
local Plain = accel.nn.Module:extend "Plain"
function Plain:forward(x) return x:relu() end
local net, linear, plain, x = Net(), accel.nn.Linear(2, 3), Plain(), accel.ones(1, 2)
local both = accel.nn.Sequential(linear)
if arg[1] == "net" then net.forward(x) end
if arg[1] == "linear" then linear.forward(x) end
if arg[1] == "plain" then plain.forward(x) end
if arg[1] == "both" then both.forward(x) end
assert(net(x) and net:forward(x) and plain:forward(x))
if arg[1] == "field" then print(x.weight) end
local function forward(self, y) return self.shape, y:relu() end
local owner = { forward = forward }
if arg[1] == "other" then owner.forward(x, 3) end
]])
  for _, name in ipairs { "net", "linear", "plain", "both" } do
    gives("net.lua " .. name, 1, ("forward: use %s(...) or %s:forward(...), with a colon"):format(name, name))
  end
  gives("net.lua", 0)
  assert(not gives("net.lua field", 1, "no field or method 'weight'"):find "colon")
  assert(not gives("net.lua other", 1):find "colon")
end

do -- an op called with a dot on a tensor, a misspelt module, and a missing file whose nil is passed on
  write("slips.lua", [[
local accel = require "accel"
local x, linear = accel.ones(2, 3), accel.nn.Linear(2, 3)
if arg[1] == "tensor" then print(x.sum(1)) end
if arg[1] == "result" then print((x * 2).mean()) end
if arg[1] == "module" then print(accel.optm.Adam) end
if arg[1] == "state" then linear:load_state_dict(accel.load "missing.safetensors") end
if arg[1] == "optimizer" then accel.optim.Adam(linear:parameters()):load_state_dict(accel.load "missing.safetensors") end
if arg[1] == "argument" then accel.sum(1) end
]])
  gives("slips.lua tensor", 1, "use x:sum(...), with a colon")
  gives("slips.lua result", 1, "use x:mean(...), with a colon")
  gives("slips.lua module", 1, "did you mean accel.optim?")
  for _, name in ipairs { "state", "optimizer" } do gives("slips.lua " .. name, 1, "load_state_dict: missing.safetensors: cannot open") end
  assert(not gives("slips.lua argument", 1):find "colon")
end

do -- a loader without brackets; a script for accel.load
  write("loader.lua", [[
local accel = require "accel"
local loader = accel.data.DataLoader(accel.data.TensorDataset(accel.ones(4, 2)), { batch_size = 2 })
if arg[1] then loader = accel.Accelerator():prepare(loader) end
for batch in loader do print(batch) end
]])
  gives("loader.lua", 1, "write `for batch in loader() do`")
  gives("loader.lua prepared", 1, "write `for batch in loader() do`")
  gives([[-e 'accel.load "plain.lua"']], 1, "plain.lua is a Lua script", [[dofile "plain.lua" runs it]])
  assert(gives([[-e 'print(select(2, accel.load "absent.lua"))']], 0):find "No such file", "what is not there is no mistake of the name")
end
os.execute("rm -rf '" .. root .. "'")
