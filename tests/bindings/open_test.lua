-- A pipe or a device in the place of a file is refused at once and by its path, whoever reads: a pipe without a writer
-- would be waited for until the end of days. Scripts come from pipes where a shell says so.
--   accel-run tests/bindings/open_test.lua
local accel = require "accel"
local core = require "accel.file.core"

local tmp = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/open")
local function shell(fmt, ...)
  local pipe <close> = assert(io.popen((fmt:format(...)) .. " 2>&1; echo \"status $?\""))
  return pipe:read "a"
end

-- What stands where the file should be; each is made by a link, so that one path serves all readers.
assert(shell("mkfifo '%s/pipe'", tmp):find "status 0")
local kinds <const> = { { tmp .. "/pipe", "is a pipe" }, { "/dev/zero", "is a device" } }

local names <const> = { "x.safetensors", "x.gguf", "x.json", "x.yaml", "x.lua", "x.bin", "x.csv", "x.idx", "x.pt", "tokenizer.json", "config.json",
  "chat_template.jinja", "MANIFEST.json", "model.safetensors", "model.safetensors.index.json", "latest", "x.txt" }

local d = tmp .. "/f"
assert(accel.makedirs(d))
local readers <const> = {
  open_read = function() return core.open_read(d .. "/x.txt") end,
  load = function() return accel.load(d .. "/x.safetensors") end,
  open_safetensors = function() return accel.open_safetensors(d .. "/x.safetensors") end,
  load_pt = function() return accel.load(d .. "/x.pt") end,
  gguf = function() return core.open_gguf(d .. "/x.gguf") end,
  json = function() return require "accel.util.read_json"(d .. "/x.json") end,
  config_yaml = function() return require("accel.config.read").file(d .. "/x.yaml") end,
  config_json = function() return require("accel.config.read").file(d .. "/x.json") end,
  config_lua = function() return require("accel.config.sandbox").config(d .. "/x.lua") end,
  tokens = function() return accel.data.TokenFile(d .. "/x.bin") end,
  csv = function() return accel.data.CSV.open(d .. "/x.csv") end,
  idx = function() return accel.data.IDX.read(d .. "/x.idx") end,
  tokenizer = function() return accel.text.Tokenizer.from_file(d .. "/tokenizer.json") end,
  train_bpe = function() return accel.text.train_bpe { files = { d .. "/x.txt" } } end,
  chat_template = function() return require("accel.text.chat_template").find(d, {}) end,
  model = function() return accel.models.from_pretrained(d) end,
  checkpoint = function() return require("accel.ckpt").open(d) end,
}

local n = 0
for _, kind in ipairs(kinds) do
  for _, name in ipairs(names) do
    os.remove(d .. "/" .. name)
    assert(require "lfs".link(kind[1], d .. "/" .. name, true))
  end
  for who, read in next, readers do
    local began = accel.clock()
    local ok, value, why = pcall(read)
    local text = ok and why or value
    if ok then assert(value == nil or value == false, who .. " took what is not a file: " .. kind[2]) end
    assert(type(text) == "string" or type(text) == "table", who)
    text = tostring(text)
    assert(text:find(d, 1, true), ("%s names no path: %s"):format(who, text))
    assert(text:find(kind[2], 1, true), ("%s, %s: %s"):format(who, kind[2], text))
    assert(accel.clock() - began < 5, who)
    n = n + 1
  end
end

-- Scripts. A pipe that a shell names is read, one that lies in a folder is not waited for.
local run = assert(io.open "/proc/self/cmdline"):read "a":match "^[^%z]+"
run = run:find "/" and run or "accel-run"
local function runs(how, fmt, ...) assert(shell(fmt, ...):find("one\nstatus 0", 1, true), how) end
runs("-", "echo 'print(\"one\")' | '%s' -", run)
runs("/dev/stdin", "echo 'print(\"one\")' | '%s' /dev/stdin", run)
runs("/dev/fd/5", "echo 'print(\"one\")' | '%s' /dev/fd/5 5<&0", run)
local said = shell("timeout 20 '%s' '%s/pipe'", run, tmp)
assert(said:find("not a regular file", 1, true) and not said:find "status 0" and not said:find "status 124", said)

for name in require "lfs".dir(d) do os.remove(d .. "/" .. name) end
for name in require "lfs".dir(tmp) do os.remove(tmp .. "/" .. name) end
os.remove(tmp)
print(("%d readers and kinds"):format(n))
