-- Regular expressions match what the package `tokenizers` matches with them, where Python has it: those of published
-- tokenizers that look ahead and behind, atomic groups, classes over all of Unicode, ignored case, and random ones.
--   accel-run tests/stdlib/text/regex_package_test.lua [SEED]
local accel = require "accel"
local src, tmp = os.getenv "ACCEL_TEST_SRC" or ".", os.getenv "ACCEL_TEST_TMP" or "/tmp"
if not os.execute "python3 -c 'import tokenizers' >/dev/null 2>&1" then
  print "skip: python3 has no package tokenizers"
  os.exit(77, true)
end
local seed, path = arg[1] or "7", tmp .. "/regex.json"
assert(os.execute(("python3 '%s/tests/stdlib/text/record_regex.py' '%s' %s"):format(src, path, seed)))
local f = assert(io.open(path, "rb"))
local want = accel.json.decode(f:read "a")
f:close()
os.remove(path)

local base = accel.json.decode(accel.text.train_bpe({ "" }, { vocab_size = 256 }):to_str())
base.pre_tokenizer = { type = "ByteLevel", add_prefix_space = false, use_regex = false, trim_offsets = false }

-- A function that puts `with` in the place of matches; or nil and why the pattern is refused.
local function replacer(pattern, with)
  base.normalizer = { type = "Replace", pattern = { Regex = pattern }, content = with }
  local ok, tok = pcall(accel.text.Tokenizer.from_str, accel.json.encode(base))
  if not ok then return nil, tostring(tok) end
  local native = tok.native
  return function(text) return native:decode(native:encode(text, nil, { offsets = false }):field "ids", false) end
end

local n, refused = 0, 0
for i, case in ipairs(want.replaced) do
  local replace, why = replacer(case.pattern, "<>")
  if replace then
    for k, text in ipairs(case.texts) do
      local got = replace(text)
      n = n + 1
      assert(got == case.out[k],
        ("seed %s: %s in %q: %q instead of %q"):format(seed, case.pattern, text, got, case.out[k]))
    end
  else
    assert(i > 40 and (why:find "atomic group" or why:find "lookaround"), case.pattern .. ": " .. why)
    refused = refused + 1
  end
end
for _, case in ipairs(want.classes) do
  local replace = assert(replacer(case.pattern, ""))
  for _, block in ipairs(case.blocks) do
    local first, parts, left, sum = block[1], {}, 0, 0
    for c = first, first + 4095 do
      if c < 0xD800 or c > 0xDFFF then parts[#parts + 1] = utf8.char(c) end
    end
    for _, c in utf8.codes(replace(table.concat(parts))) do left, sum = left + 1, sum + c end
    n = n + 1
    assert(left == block[2] and sum == block[3],
      ("%s: of U+%04X to U+%04X %d are left, not %d"):format(case.pattern, first, first + 4095, left, block[2]))
  end
end
print(("%d the same, %d patterns refused"):format(n, refused))
assert(refused < 120)
