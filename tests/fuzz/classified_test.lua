-- Malformed files whose error is known in advance: a valid document, one fault of a known class at a known byte, and the message and the
-- byte that must be reported. Half of them are JSON, half are safetensors files. Valid variants are read.
--   accel-run classified_test.lua [files]     seed: ACCEL_TEST_SEED
local accel = require "accel"
local sample = dofile((arg[0]:match "^.*/" or "") .. "../support/sample.lua")
local files = tonumber(arg[1]) or 1000
local random = accel.util.Random(sample.seed)
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/classified.safetensors"
print(("ACCEL_TEST_SEED=%d, %d files"):format(sample.seed, files))
local function below(n) return random:below(n) end
local function pick(list) return list[1 + below(#list)] end

-- ---- JSON ----

local SPACE <const> = { "", "", " ", "\n", "\t ", "\r\n" }
local keys = 0
-- A random value. Marks \1 stand where another value may be put.
local function value(depth)
  local kind = below(depth > 4 and 4 or 6)
  if kind == 0 then return pick { "null", "true", "false" } end
  if kind == 1 then return tostring(below(2000000) - 1000000) end
  if kind == 2 then return ("%d.%de%d"):format(below(100), below(1000), below(20) - 10) end
  if kind == 3 then return pick { '"a"', '""', '"\\u00e9\\n"', '"caf\xc3\xa9"', '"\\ud83d\\ude00"' } end
  local parts = {}
  for i = 1, below(4) do
    local v = pick(SPACE) .. value(depth + 1) .. pick(SPACE)
    if kind == 5 then
      keys = keys + 1
      v = ('"k%d":'):format(keys) .. v
    end
    parts[i] = v
  end
  local inner = table.concat(parts, ",")
  return kind == 4 and "[" .. inner .. "]" or "{" .. inner .. "}"
end

-- { what is put at the mark, the message, bytes of it before the fault }. The mark stands in a list, before the end.
local faults <const> = {
  { "]", "expected a value", 0 }, { "01", "leading zero", 0 }, { "-", "expected a digit", 1 }, { "1.", "expected a digit", 2 },
  { "1e", "expected a digit", 2 },
  { '"\2"', "control character in a string", 1 }, { '"\\ud800"', "lone surrogate", 1 }, { '"\\udc00"', "lone surrogate", 1 },
  { '"\\x"', "unknown escape", 1 }, { '"\xff"', "bad UTF-8", 1 }, { '"\xc0\x80"', "bad UTF-8", 1 }, { '"\xed\xa0\x80"', "bad UTF-8", 1 },
  { "NaN", "expected a value", 0 }, { "Infinity", "expected a value", 0 }, { "'a'", "expected a value", 0 }, { "1e999", "number is too large", 0 },
  { '{"a":1,"a":2}', 'duplicate key "a"', 7 }, { '{"a":1,"\\u0061":2}', 'duplicate key "a"', 7 }, { "// x\n1", "expected a value", 0 },
  { '{"a":1,}', "expected a key", 7 }, { "{a:1}", "expected a key", 1 }, { '{"a" 1}', "expected ':'", 5 }, { "[1 2]", "expected ',' or ']'", 3 },
  { '{"a":1 "b":2}', "expected ',' or '}'", 7 }, { ("["):rep(80), "nested deeper than 64", 63 },
  { "12345678901234567890123", "does not fit 64 bits", 0 } }

local counts = { json = 0, safetensors = 0, valid = 0 }
local function json_file()
  local before = "[" .. pick(SPACE) .. value(1) .. pick(SPACE) .. "," .. pick(SPACE)
  local after = pick(SPACE) .. "," .. value(1) .. "]" .. pick(SPACE)
  local fault = pick(faults)
  local text, at = before .. fault[1] .. after, fault[3] and #before + fault[3]
  if fault[1] == "]" then text = before .. "]" end
  local way = below(10)
  if way == 0 then -- more text after the value
    text = before .. "1" .. after .. "x"
    fault, at = { nil, "more text after the value" }, #text - 1
  elseif way == 1 then -- cut
    text = (before .. "1" .. after):match "^(.-)%s*$"
    text = text:sub(1, -2)
    fault, at = { nil, "the text ends too early" }, #text
  elseif way == 2 then
    local good = before .. "1" .. after
    assert(accel.json.decode(good), good)
    counts.valid = counts.valid + 1
    return
  end
  local ok, why = pcall(accel.json.decode, text)
  why = not ok and tostring(why) or "accepted"
  if ok or not why:find(fault[2], 1, true) or (at and not why:find(("(byte %d)"):format(at), 1, true)) then
    error(("expected '%s' at byte %s, got '%s' for %q"):format(fault[2], at, why, text), 0)
  end
  counts.json = counts.json + 1
end

-- ---- safetensors ----

local function entry(name, dtype, shape, from, to)
  return ('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'):format(name, dtype, table.concat(shape, ","), from, to)
end
local function header(entries, pad)
  local text = "{" .. table.concat(entries, ",") .. "}" .. (pad or "")
  return string.pack("<I8", #text) .. text
end

-- Each returns the file and what the message must have. `list`: entries that follow each other up to byte `at`.
local st_faults <const> = {
  function(list, at) return header(list) .. ("x"):rep(at - 1), at > 0 and "byte" end, -- too short
  function(list, at) return header(list) .. ("x"):rep(at + 1 + below(9)), "byte" end, -- too long
  function(list, at)
    list[#list + 1] = entry("late", "F32", { 1 }, at + 4, at + 8) -- a hole
    return header(list) .. ("x"):rep(at + 8), "late"
  end,
  function(list, at)
    list[#list + 1] = entry("over", "F32", { 2 }, at - 4, at + 4) -- an overlap
    return header(list) .. ("x"):rep(at + 4), "over"
  end,
  function(list, at)
    list[#list + 1] = entry("strange", "F33", { 1 }, at, at + 4)
    return header(list) .. ("x"):rep(at + 4), "F33"
  end,
  function(list, at)
    list[#list + 1] = entry("size", "F32", { 3 }, at, at + 8)
    return header(list) .. ("x"):rep(at + 8), "size"
  end,
  function(list, at)
    list[#list + 1] = entry("huge", "F32", { 4294967296, 4294967296, 4294967296 }, at, at + 8)
    return header(list) .. ("x"):rep(at + 8), "huge"
  end,
  function(list, at)
    list[#list + 1] = entry("minus", "F32", { -1 }, at, at + 4)
    return header(list) .. ("x"):rep(at + 4), "minus"
  end,
  function(list, at)
    list[#list + 1] = list[#list] -- a name twice
    return header(list) .. ("x"):rep(at), "duplicate key"
  end,
  function(list, at)
    list[#list + 1] = '"extra":{"dtype":"F32","shape":[1],"data_offsets":[' .. at .. "," .. at + 4 .. '],"more":1}'
    return header(list) .. ("x"):rep(at + 4), "extra"
  end,
  function(list, at) return header(list):sub(1, 7), "byte" end,
  function(list, at) return string.pack("<I8", 1 << 40) .. "{}", "byte" end,
  function(list, at) return header(list, "}") .. ("x"):rep(at), "more text after the value" end,
}
local DTYPES <const> = { { "F32", 4 }, { "BF16", 2 }, { "I64", 8 }, { "U8", 1 }, { "F64", 8 }, { "BOOL", 1 } }
local function safetensors_file()
  local list, at = {}, 0
  for i = 1, 1 + below(6) do
    local dtype, shape, n = pick(DTYPES), {}, 1
    for d = 1, below(4) do
      shape[d] = 1 + below(4)
      n = n * shape[d]
    end
    list[i] = entry("t" .. i, dtype[1], shape, at, at + n * dtype[2])
    at = at + n * dtype[2]
  end
  local good = below(6) == 0
  local text, want
  if good then text = header(list, (" "):rep(below(9))) .. ("\0"):rep(at)
  else text, want = pick(st_faults)(list, at) end
  do
    local file <close> = assert(io.open(tmp, "wb"))
    file:write(text)
  end
  local ok, result, why = pcall(accel.load, tmp)
  if good then
    assert(ok and result, tostring(why or result))
    counts.valid = counts.valid + 1
    return
  end
  why = ok and (result and "accepted" or tostring(why)) or tostring(result)
  if (ok and result) or not why:find(want, 1, true) or not why:find("classified.safetensors", 1, true) then
    error(("expected '%s', got '%s' for %q"):format(want, why, text), 0)
  end
  counts.safetensors = counts.safetensors + 1
end

for i = 1, files do (i % 2 == 0 and json_file or safetensors_file)() end
os.remove(tmp)
print(("%d classified files (%d JSON, %d safetensors), %d valid files"):format(counts.json + counts.safetensors, counts.json, counts.safetensors,
  counts.valid))
