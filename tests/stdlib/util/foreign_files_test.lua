-- Files of at most 1 MiB that are made to be slow or large: every reader takes or refuses each within 50 ms of the processor (YAML 100 ms) and
-- 28 MiB of memory (a table of Lua for each "[]," of a JSON text is 25). Machines that others use get three times as long and five tries.
--   accel-run tests/stdlib/util/foreign_files_test.lua
-- tier: slow
local accel = require "accel"
local core = require "accel.file.core"
local read_json = require "accel.util.read_json"
local config = require "accel.config.read"

local M <const> = 1 << 20
local tmp = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/foreign-")

local function each(n, fmt, separator)
  local parts = {}
  for i = 1, n do parts[i] = fmt:format(i, i) end
  return table.concat(parts, separator or "")
end
local function tensors(header) return ("<s8"):pack(header) end
local function gguf(n_tensors, n_keys, rest) return "GGUF" .. ("<I4I8I8"):pack(3, n_tensors, n_keys) .. rest end
local function tokenizer(key, value)
  local parts = { version = '"1.0"', added_tokens = "[]", model = '{"type":"BPE","vocab":{"a":0},"merges":[]}' }
  parts[key] = value
  local out = {}
  for name, text in next, parts do out[#out + 1] = ('"%s":%s'):format(name, text) end
  return "{" .. table.concat(out, ",") .. "}"
end
local function split(pattern)
  return tokenizer("pre_tokenizer", ('{"type":"Split","pattern":{"Regex":%s},"behavior":"Isolated","invert":false}'):format(
    accel.json.encode(pattern)))
end

local readers <const> = {
  json = { "x.json", read_json }, yaml = { "x.yaml", config.file }, safetensors = { "x.safetensors", accel.load },
  open = { "x.safetensors", accel.open_safetensors }, gguf = { "x.gguf", core.open_gguf }, tokenizer = { "x.json", accel.text.Tokenizer.from_file },
  csv = { "x.csv", accel.data.CSV.open }, idx = { "x.idx", accel.data.IDX.read }, pt = { "x.pt", accel.load },
}
local cases <const> = {
  { "json", ("["):rep(M) }, { "json", '{"a":[' .. ("[],"):rep(M // 3 - 10) .. "[]]}" }, { "json", '{"a":[' .. ("{},"):rep(M // 3 - 10) .. "{}]}" },
  { "json", "{" .. each(85000, '"%d":1', ",") .. "}" }, { "json", '{"a":[' .. ("1,"):rep(M // 2 - 10) .. "1]}" },
  { "json", '{"a":[' .. ("1e9,"):rep(M // 4 - 10) .. "1]}" }, { "json", '{"a":"' .. ("\\u0041"):rep(M // 6 - 10) .. '"}' },
  { "json", '{"a":0.' .. ("1"):rep(M - 20) .. "}" },
  { "yaml", "a: " .. ("["):rep(M - 10) }, { "yaml", each(90000, "k%d: 1\n") }, { "yaml", each(70000, "- &a%d 1\n") }, { "yaml", ("#"):rep(M - 2) },
  { "yaml", '"' .. ("a"):rep(M - 10) .. '": 1' }, { "yaml", "a:" .. (" "):rep(M - 10) .. "1" }, { "yaml", 'a: "' .. ("\n"):rep(M - 10) .. '"' },
  { "yaml", "a: >\n" .. (" b\n"):rep(M // 3 - 10) }, { "yaml", ("? "):rep(M // 2) }, { "yaml", ("- "):rep(M // 2) },
  { "yaml", "a: &x [1,1,1,1,1,1,1,1]\nb: &y [*x,*x,*x,*x,*x,*x]\n"
    .. "c: &z [*y,*y,*y,*y,*y,*y]\nd: &w [*z,*z,*z,*z,*z,*z]\ne: &v [*w,*w,*w,*w]\nf: [*v,*v,*v]\n" },
  { "safetensors", tensors("{" .. each(16000, '"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}', ",") .. "}") },
  { "open", tensors("{" .. each(16000, '"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}', ",") .. "}") },
  { "safetensors", tensors('{"a":' .. ("["):rep(M - 30)) }, { "safetensors", tensors('{"__metadata__":{' .. each(80000, '"%d":""', ",") .. "}}") },
  { "safetensors", tensors('{"a":{"dtype":"F32","shape":[' .. ("1,"):rep(M // 2 - 50) .. '1],"data_offsets":[0,4]}}') .. "\0\0\0\0" },
  { "gguf", gguf(1 << 40, 1 << 40, ("\0"):rep(M - 30)) }, { "gguf", gguf(0, 1, ("<s8I4I4I8"):pack("k", 9, 8, M // 8 - 20) .. ("\0"):rep(M - 200)) },
  { "tokenizer", tokenizer("model", '{"type":"BPE","vocab":{"a":0,"b":2147483646},"merges":[]}') },
  { "tokenizer", tokenizer("model", '{"type":"BPE","vocab":{"a0":0,' .. each(55000, '"a%d":%d', ",") .. '},"merges":[]}') },
  { "tokenizer", tokenizer("normalizer", '{"type":"Sequence","normalizers":[' .. ('{"type":"NFC"},'):rep(40000) .. '{"type":"NFC"}]}') },
  { "tokenizer", tokenizer("normalizer", '{"type":"Precompiled","precompiled_charsmap":"' .. ("A"):rep(900000) .. '"}') },
  { "tokenizer", split "(a{1000}){1000}" }, { "tokenizer", split "(((a{0,99}){0,99}){0,99}){0,99}" },
  { "tokenizer", split(("("):rep(5000) .. (")"):rep(5000)) },
  { "tokenizer", split("(?i:" .. ("\\p{L}?"):rep(5000) .. ")") }, { "tokenizer", split("[" .. ("\\p{L}\\p{N}"):rep(5000) .. "]") },
  { "tokenizer", split(("(.*)*"):rep(2000)) }, { "tokenizer", split(("[^\\s]"):rep(10000)) }, { "tokenizer", split(each(9000, "a%d", "|")) },
  { "tokenizer", split("[" .. (function()
    local parts = {}
    for i = 1, 9000 do parts[i] = utf8.char(0x9000 - 2 * i) end
    return table.concat(parts)
  end)() .. "]") },
  { "csv", 'a,b\n"' .. ("x"):rep(M - 20) }, { "csv", (","):rep(M - 10) .. "\n" }, { "csv", 'a\n"' .. ('""'):rep(M // 2 - 10) .. '"\n' },
  { "idx", "\0\0\8\255" .. ("\255"):rep(1020) }, { "pt", "PK\3\4" .. ("\0"):rep(M - 10) }, { "pt", ("PK\1\2"):rep(M // 4) },
}

local function highest()
  for line in io.lines "/proc/self/status" do
    local kib = line:match "^VmHWM:%s*(%d+)"
    if kib then return math.tointeger(tonumber(kib)) end
  end
end

local slowest, largest = 0, 0
for i, case in ipairs(cases) do
  local name, read = readers[case[1]][1], readers[case[1]][2]
  local path = tmp .. "/" .. name
  local file <close> = assert(io.open(path, "wb"))
  file:write(case[2])
  file:close()
  assert(#case[2] <= M + 64, i)
  local limit, best, most = case[1] == "yaml" and 0.1 or 0.05, math.huge, 0
  for _ = 1, 5 do
    collectgarbage()
    collectgarbage()
    local clear <close> = io.open("/proc/self/clear_refs", "w") -- the highest memory from here on
    if clear then clear:write "5" clear:close() end
    local before, began = highest(), os.clock()
    local ok, value, message = pcall(read, path)
    best = math.min(best, os.clock() - began)
    most = clear and math.max(most, highest() - before) or 0
    assert(ok or type(value) == "table" or tostring(value):find(name, 1, true), ("%d: %s"):format(i, tostring(value)))
    assert(not ok or value ~= nil or type(message) == "string", i)
    if best <= limit then break end
  end
  slowest, largest = math.max(slowest, best), math.max(largest, most)
  local what = ("case %d, %s: %q"):format(i, case[1], case[2]:sub(1, 60))
  assert(best <= 3 * limit, ("%.3f s for %s"):format(best, what))
  assert(most <= 28 * 1024, ("%.1f MiB for %s"):format(most / 1024, what))
end
os.execute(("rm -rf '%s'"):format(tmp))
print(("%d files, the slowest %.0f ms, the largest %.1f MiB"):format(#cases, 1000 * slowest, largest / 1024))
