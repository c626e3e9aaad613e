--- Vocabularies and the trigram baseline.
local accel = require "accel"
local text = accel.text

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

do -- characters: ids in code-point order, round trip
  local s = "To be, or n\u{f6}t\n\u{4f60}\u{1f600}e\0"
  local vocab = text.CharVocab.from_text(s)
  assert(vocab.chars[1] == "\0" and vocab.chars[2] == "\n" and vocab.chars[#vocab] == "\u{1f600}")
  local ids = vocab:encode(s)
  assert(ids.dtype == "i64" and ids:numel() == utf8.len(s) and vocab:decode(ids) == s)
  local list = vocab:encode_list(s)
  local i = 0
  for c in s:gmatch(utf8.charpattern) do
    i = i + 1
    assert(ids:tolist()[i] == list[i] and vocab.chars[list[i] + 1] == c)
  end
  assert(vocab:decode { 0, 1 } == "\0\n" and vocab:encode "":numel() == 0)
  fails("character 'z' is not in the vocabulary", vocab.encode, vocab, "bez")
  fails("character 'z' is not in the vocabulary", vocab.encode_list, vocab, "bez")
  fails("not valid UTF%-8 at byte 3 %(value 0xff%)", text.CharVocab.from_text, "ab\xff")
  fails("outside of 0 ..", vocab.decode, vocab, { 999 })
  fails("appears twice", text.CharVocab, { "a", "a" })
  local same = text.CharVocab(vocab.chars)
  assert(same:decode(ids) == s)
end

do -- bytes
  local vocab, all = text.ByteVocab(), {}
  for i = 0, 255 do all[i + 1] = string.char(i) end
  local s = table.concat(all):rep(40)
  local ids = vocab:encode(s)
  assert(#vocab == 256 and ids:numel() == #s and vocab:decode(ids) == s and #vocab:encode_list(s) == #s)
  assert(vocab:encode_list(s)[5000] == s:byte(5000))
  fails("id 256 is outside", vocab.decode, vocab, { 256 })
end

do -- trigram: probabilities sum to one, everywhere
  local ids = { 0, 1, 2, 0, 1, 3, 0, 1, 2, 2, 1, 0, 0 }
  local model = text.Trigram(ids, 5)
  for a = 0, 4 do
    for b = 0, 4 do
      local sum = 0
      for c = 0, 4 do sum = sum + model:probability(a, b, c) end
      assert(math.abs(sum - 1) < 1e-12, ("%d %d: %g"):format(a, b, sum))
    end
  end
  -- by hand: contexts after (0,1) are 2 3 2; the pair (1,2) has 1 left neighbour, 1 has 3 pairs with
  -- different left sides out of (1,2) (1,3) (1,0); single counts over 8 different pairs: .0 has 4, .1 has
  -- 2, .2 has 2, .3 has 1
  local pairs_seen = { [0] = 0, 0, 0, 0, 0 }
  local seen = {}
  for i = 1, #ids - 1 do
    local key = ids[i] .. "," .. ids[i + 1]
    if not seen[key] then
      seen[key] = true
      pairs_seen[ids[i + 1]] = pairs_seen[ids[i + 1]] + 1
    end
  end
  local total = pairs_seen[0] + pairs_seen[1] + pairs_seen[2] + pairs_seen[3]
  local p2 = (pairs_seen[2] - 0.75 + 0.75 * 4 / 5) / total
  local p12 = (1 - 0.75 + 0.75 * 3 * p2) / 3
  local p012 = (2 - 0.75 + 0.75 * 2 * p12) / 3
  assert(math.abs(model:probability(0, 1, 2) - p012) < 1e-12)
  fails("at least 3 tokens", text.Trigram, { 1, 2 }, 5)
end

do -- a deterministic sequence becomes certain, a uniform one stays uniform
  local cycle = {}
  for i = 1, 3000 do cycle[i] = i % 3 end
  assert(text.Trigram(cycle, 3):loss(cycle) < 0.01)
  local random, noise = accel.util.Random(4), {}
  for i = 1, 40000 do noise[i] = random:below(4) end
  local loss = text.Trigram(noise, 4):loss(noise)
  assert(math.abs(loss - math.log(4)) < 0.01, loss)
end
