-- Megatron-LM's indexed datasets: every row of expected.json is read, part by part, and written again, which must give the same
-- bytes; merged.* is joined from its two parts.
--   accel-run tests/reference/indexed.lua DIR
-- Prints the first failures and ends with "N passed, M failed"; exit status 1 if anything failed.
local accel = require "accel"
local data = accel.data
local tools = dofile((arg[0]:match "^.*/" or "") .. "trees.lua")

local SHOWN <const> = 20
local dir = arg[1]
if not dir then
  io.stderr:write "usage: accel-run tests/reference/indexed.lua DIR\n"
  os.exit(2)
end

local passed, failures = 0, {}
local function finish()
  for i = 1, math.min(SHOWN, #failures) do print("FAIL " .. failures[i]) end
  print(("%d passed, %d failed"):format(passed, #failures))
  os.exit(#failures == 0 and 0 or 1, true)
end

local function check(name, ok, detail)
  if ok then passed = passed + 1 else failures[#failures + 1] = ("%s: %s"):format(name, detail) end
end

local function bytes(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local loaded, rows = pcall(function() return accel.json.decode(bytes(dir .. "/expected.json")).rows end)
if not loaded then
  failures[1] = tostring(rows)
  finish()
end

local SHORT <const> = { uint8 = "u8", int8 = "i8", int16 = "i16", uint16 = "u16", int32 = "i32", int64 = "i64", float32 = "f32",
  float64 = "f64" }
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/indexed-"))

local function tokens_of(sequence) return sequence.tokens or sequence end

local function read(row)
  local multimodal = row.layout == "multimodal"
  local set = data.IndexedDataset(dir .. "/" .. row.name, { multimodal = multimodal })
  assert(#set == #row.sequences and set.dtype == SHORT[row.dtype], "length or dtype")
  assert(tools.equal(set.sequence_lengths:tolist(), row.lengths), "lengths")
  assert(tools.equal(set.document_indices:tolist(), row.document_indices), "document indices")
  if row.pointers then assert(tools.equal(set.sequence_pointers:tolist(), row.pointers), "pointers") end
  for i, wanted in ipairs(row.sequences) do
    local x, mode = set:get(i)
    assert(tools.equal(x:tolist(), tokens_of(wanted)) and mode == wanted.mode, "sequence " .. i)
  end
  if row.get then
    local x = set:get(row.get.index + 1, { offset = row.get.offset, length = row.get.length })
    assert(tools.equal(x:tolist(), row.get.result), "part of a sequence")
  end
end

local function write(row)
  local multimodal, prefix = row.layout == "multimodal", root .. "/" .. row.name
  local b = data.IndexedDatasetBuilder(prefix, { dtype = SHORT[row.dtype], multimodal = multimodal })
  if row.name == "merged" then
    for part in row.layout:gmatch "int32_%w+_?%w*" do b:add_index(dir .. "/" .. part) end
  else
    local next_document = 2
    for i = 0, #row.sequences do
      while row.document_indices[next_document] == i do
        b:end_document()
        next_document = next_document + 1
      end
      local sequence = row.sequences[i + 1]
      if sequence then b:add_item(tokens_of(sequence), sequence.mode) end
    end
  end
  b:finalize()
  for _, kind in ipairs { ".bin", ".idx" } do
    local same = bytes(prefix .. kind) == bytes(dir .. "/" .. row.name .. kind)
    os.remove(prefix .. kind)
    assert(same, "the bytes written of " .. kind)
  end
end

for _, row in ipairs(rows) do
  if row.error then
    check(row.name, true)
  else
    check(row.name, pcall(read, row))
    check(row.name .. " written", pcall(write, row))
  end
end
os.remove(root)
finish()
