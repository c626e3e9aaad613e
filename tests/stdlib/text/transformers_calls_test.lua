-- tok(text, pair, options) answers as Transformers' tokenizers do: padding, truncation, what overflows, masks, offsets.
local accel = require "accel"
local src, tmp = os.getenv "ACCEL_TEST_SRC" or ".", os.getenv "ACCEL_TEST_TMP" or "/tmp"
if not os.execute "python3 -c 'import transformers, tokenizers' >/dev/null 2>&1" then
  print "skip: python3 with transformers is not here"
  os.exit(77, true)
end
local reference, path = src .. "/tests/reference/tokenizers", tmp .. "/calls.json"
assert(os.execute(("python3 '%s/tests/stdlib/text/record_calls.py' '%s' '%s' 2>/dev/null"):format(src, path, reference)))
local f = assert(io.open(path, "rb"))
local calls = accel.json.decode(f:read "a")
f:close()

local function shown(v)
  if type(v) ~= "table" then return tostring(v) end
  local parts = {}
  for i, x in ipairs(v) do parts[i] = shown(x) end
  return "{" .. table.concat(parts, ",") .. "}"
end

local n, errors = 0, 0
for _, call in ipairs(calls) do
  local tok = assert(accel.text.Tokenizer.from_file(("%s/%s.json"):format(reference, call.name)))
  tok.pad_token, tok.truncation_side = call.pad, call.side
  local ok, got = pcall(tok, call.text, call.pair, call.options)
  local what = ("%s %s of %s | %s"):format(call.name, accel.json.encode(call.options), shown(call.text), shown(call.pair))
  if call.error then
    errors = errors + 1
    assert(not ok, what .. ": an error is expected: " .. call.error)
  else
    assert(ok, what .. ": " .. tostring(got))
    for key, want in pairs(call.result) do
      n = n + 1
      -- Transformers gives one text with return_length as a list
      if key == "length" and type(want) == "table" and type(got[key]) ~= "table" then want = want[1] end
      assert(shown(got[key]) == shown(want), ("%s: %s is %s, not %s"):format(what, key, shown(got[key]), shown(want)))
    end
  end
end
print(("%d fields the same, %d calls refused"):format(n, errors))
assert(n > 500 and errors > 0)
os.remove(path)
