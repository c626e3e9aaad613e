--- Counts, shares and pictures of util.Confusion; ids of text.WordVocab.
local accel = require "accel"
local Confusion, WordVocab = accel.util.Confusion, accel.text.WordVocab

local c = Confusion { "cat", "dog", "owl" }
assert(c:accuracy() == 0 and c:majority() == 0 and c:recall(1) == nil)
c:add(accel.tensor { 0, 0, 0, 1, 2 }, accel.tensor { 0, 0, 1, 1, 1 })
assert(math.abs(c:accuracy() - 3 / 5) < 1e-12 and math.abs(c:majority() - 3 / 5) < 1e-12)
assert(c.counts[1][1] == 2 and c.counts[1][2] == 1 and c.counts[3][2] == 1 and c.counts[3][3] == 0)
assert(math.abs(c:recall(1) - 2 / 3) < 1e-12 and c:recall(3) == 0)
assert(not pcall(c.add, c, { 3 }, { 0 }) and not pcall(c.add, c, { 0 }, { -1 }) and not pcall(c.add, c, { 0, 1 }, { 0 }))
assert(not pcall(Confusion, {}))

local text = c:text { width = 60, utf8 = false }
assert(text:find("1 cat  |* 2+ 1", 1, true) and text:find(" 67 %%"), text)
local many = {}
for i = 1, 26 do many[i] = "a long name " .. i end
local wide = Confusion(many)
wide:add({ 0, 25 }, { 0, 0 })
for _, width in ipairs { 40, 80 } do
  for line in wide:text { width = width, utf8 = false }:gmatch "[^\n]+" do
    assert(#line <= math.max(width, 70), ("%d columns: %s"):format(#line, line))
  end
end
assert(c:svg { title = "a < b" }:find("a &lt; b", 1, true))
do -- a batch with a mistake in it is not counted by half
  local half = Confusion { "a", "b" }
  for _, bad in ipairs { { { 0, 1 }, { 0, 2 } }, { { 0, 1 }, { 0, "x" } }, { { 0, 0.5 }, { 0, 0 } }, { { 0, 1 }, 3 } } do
    local ok, message = pcall(half.add, half, bad[1], bad[2])
    assert(not ok and tostring(message):find "Confusion: ", message)
  end
  assert(half:accuracy() == 0 and half.counts[1][1] == 0)
end

assert(table.concat(WordVocab.split "Don't stop: 3.5 Ways!", "|") == "don't|stop|:|3|.|5|ways|!")
local v = WordVocab.from_texts({ "to be or not to be", "be quiet" }, { min_count = 2 })
assert(#v == 6 and v.words[5] == "be" and v.words[6] == "to") -- by frequency
local ids, types = v:encode("To be or", "be to to", { max_length = 8 })
assert(v:decode(ids) == "[CLS] to be [SEP] be to to [SEP]" and table.concat(types) == "00001111", v:decode(ids))
assert(v:decode((v:encode "quiet")) == "[CLS] [UNK] [SEP]")
assert(#WordVocab.from_texts({ "a b c d" }, { max_size = 6 }) == 6)
-- options may follow the first text; what is not text is named
assert(#v:encode("to be to be to be", { max_length = 5 }) == 5 and #select(2, v:encode("to", nil, { max_length = 5 })) == 3)
for _, call in ipairs {
  { "expected one text or two, got nil", v.encode, v }, { "got 'to' and 3", v.encode, v, "to", 3 },
  { "unknown option 'max_len'", v.encode, v, "to", { max_len = 3 } },
  { "text 2 is 7", WordVocab.from_texts, { "a", 7 } },
} do
  local ok, message = pcall(table.unpack(call, 2, 5))
  assert(not ok and tostring(message):find(call[1], 1, true), message)
end
assert(not pcall(v.encode, v, "a", nil, { max_length = 1 }) and not pcall(v.decode, v, { 99 }))
