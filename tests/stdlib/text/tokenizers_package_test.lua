-- Token for token the same as the package `tokenizers`, where Python has it: tinyshakespeare and the licences of Debian,
-- 10,000 random strings, nine tokenizers; and the merges that it learns are those that train_bpe learns.
--   accel-run tests/stdlib/text/tokenizers_package_test.lua [SEED]
local accel = require "accel"
local src, build = os.getenv "ACCEL_TEST_SRC" or ".", os.getenv "ACCEL_TEST_BUILD" or "build/dev"
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/package"

if not os.execute "python3 -c 'import tokenizers' >/dev/null 2>&1" then
  print "skip: python3 has no package tokenizers"
  os.exit(77, true)
end

local texts = {}
for _, path in ipairs { src .. "/../shared/data/tinyshakespeare.txt", "/usr/share/common-licenses/GPL-3",
  "/usr/share/common-licenses/Apache-2.0", "/usr/share/common-licenses/MPL-2.0", "/usr/share/common-licenses/GFDL-1.3" } do
  local f = io.open(path, "rb")
  if f then
    texts[#texts + 1] = path
    f:close()
  end
end
if #texts == 0 then texts[1] = src .. "/LICENSE" end

local seed = arg[1] or "20240"
print("seed " .. seed)
local record = ("python3 '%s/tests/stdlib/text/record_tokenizers.py' '%s' '%s/tests/reference/tokenizers' %s '%s'"):format(src,
  tmp, src, seed, table.concat(texts, "' '"))
assert(os.execute(record), "the package did not do its part")
assert(os.execute(("'%s/bin/accel-run' '%s/tests/reference/tokenizers.lua' '%s'"):format(build, src, tmp)), "texts differ")

-- training
local f = assert(io.open(tmp .. "/train.json", "rb"))
local want = accel.json.decode(f:read "a")
f:close()
local tok = assert(accel.text.train_bpe { files = { texts[1] }, vocab_size = 3000, special_tokens = { "<a>", "<b>" },
  min_frequency = 2 })
local model = accel.json.decode(tok:to_str()).model
assert(#model.merges == #want.merges, ("%d merges, not %d"):format(#model.merges, #want.merges))
for i, merge in ipairs(want.merges) do
  local mine = model.merges[i]
  assert(mine[1] == merge[1] and mine[2] == merge[2],
    ("merge %d: '%s' '%s' instead of '%s' '%s'"):format(i, mine[1], mine[2], merge[1], merge[2]))
end
local n = 0
for token, id in next, want.vocab do
  n = n + 1
  assert(model.vocab[token] == id, ("'%s' has id %s instead of %d"):format(token, tostring(model.vocab[token]), id))
end
assert(tok:get_vocab_size() == n)
os.execute(("rm -rf '%s'"):format(tmp))
