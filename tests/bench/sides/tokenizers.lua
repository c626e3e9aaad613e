-- Side of the bench of tokenizers: one tokenizer over texts, on one thread. Prints one JSON object of figures, and writes
-- OUT.ids and OUT.txt, which the other side's must equal.   tokenizers.lua TOKENIZER.json OUT TEXT... [--quick]
local accel = require "accel"
local path, out = arg[1], arg[2]
local Tokenizer = accel.text.Tokenizer
local quick = arg[#arg] == "--quick" and table.remove(arg) ~= nil
local BLOCK, PASSES = 4000, quick and 1 or 2

local blocks, lines, bytes, line_bytes = {}, {}, 0, 0
for i = 3, #arg do
  local f <close> = assert(io.open(arg[i], "rb"))
  local text = f:read(quick and 20000 or "a")
  local from = 1
  while from <= #text do
    local to = text:find("\n", from + BLOCK, true) or #text
    blocks[#blocks + 1] = text:sub(from, to)
    from = to + 1
  end
  bytes = bytes + #text
  for line in text:gmatch "[^\n]+" do
    lines[#lines + 1] = line
    line_bytes = line_bytes + #line
  end
end

-- Megabytes a second of the fastest of several ways.
local function best(n, ways)
  local least = math.huge
  for _ = 1, PASSES do
    for _, way in ipairs(ways) do
      local began = accel.clock()
      way()
      least = math.min(least, accel.clock() - began)
    end
  end
  return n / least / 1e6
end

local function each(tok, texts, opts)
  return function()
    local ids = {}
    for i, text in ipairs(texts) do ids[i] = tok:encode(text, opts).ids end
    return ids
  end
end
local function batch(tok, texts)
  return function()
    local ids = {}
    for i, encoding in ipairs(tok:encode_batch(texts)) do ids[i] = encoding.ids end
    return ids
  end
end
local no_offsets = { offsets = false }

local began = accel.clock()
local tok = assert(Tokenizer.from_file(path))
local figures = { load = (accel.clock() - began) * 1e3 }
began = accel.clock()
local ids = batch(tok, blocks)()
figures.first = bytes / (accel.clock() - began) / 1e6
figures.ids = best(bytes, { each(tok, blocks, no_offsets), batch(tok, blocks) })
figures.offsets = best(bytes, { each(tok, blocks) })
figures.lines = best(line_bytes, { each(tok, lines, no_offsets), batch(tok, lines) })
local texts
figures.decode = best(bytes, { function() texts = tok:decode_batch(ids) end })

local rows = {}
for i, list in ipairs(ids) do rows[i] = table.concat(list, " ") end
for _, list in ipairs(batch(tok, lines)()) do rows[#rows + 1] = table.concat(list, " ") end
assert(accel.write_file(out .. ".ids", table.concat(rows, "\n") .. "\n"))
assert(accel.write_file(out .. ".txt", table.concat(texts, "\n") .. "\n"))
print(accel.json.encode(figures))
