-- Every text, pair, offset and decoding of a folder of recorded tokenizers: NAME.json beside NAME.cases.json.
--   accel-run tests/reference/tokenizers.lua [DIR]
-- Prints what differs; the last line is "N passed, M failed". Exit status 1 when something failed.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
local dir = arg[1] or here .. "/tokenizers"
local passed, failed, shown = 0, 0, 0

local function fail(fmt, ...)
  failed = failed + 1
  shown = shown + 1
  if shown <= 50 then print("FAIL " .. fmt:format(...)) end
end

local function text_of(x)
  if type(x) ~= "table" then return tostring(x) end
  local parts = {}
  for i, v in ipairs(x) do parts[i] = text_of(v) end
  return "{" .. table.concat(parts, " ") .. "}"
end

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  if #a ~= #b then return false end
  for i = 1, #a do
    if not same(a[i], b[i]) then return false end
  end
  return true
end

local function check(name, what, text, got, want)
  if same(got, want) then
    passed = passed + 1
  else
    fail("%s: %s of %q: %.400s instead of %.400s", name, what, text:sub(1, 400), text_of(got), text_of(want))
  end
end

local function read(path)
  local f, why = io.open(path, "rb")
  if not f then return nil, why end
  local text = f:read "a"
  f:close()
  return text
end

-- What a case does not say is not compared.
local function case(name, tok, c)
  local function compare(what, want, got)
    if want ~= nil then check(name, what, c.text, got(), want) end
  end
  local e = tok:encode(c.text)
  compare("ids", c.ids, function() return e.ids end)
  compare("offsets", c.offsets, function() return e.offsets end)
  compare("ids without offsets", c.ids, function() return tok:encode(c.text, { offsets = false }).ids end)
  if c.ids_plain or c.tokens_plain then
    local plain = tok:encode(c.text, { add_special_tokens = false })
    compare("ids_plain", c.ids_plain, function() return plain.ids end)
    compare("tokens_plain", c.tokens_plain, function() return plain.tokens end)
  end
  compare("decoded", c.decoded, function() return tok:decode(c.ids) end)
  compare("decoded_keep", c.decoded_keep, function() return tok:decode(c.ids, { skip_special_tokens = false }) end)
end

local function one(name)
  local tok, why = accel.text.Tokenizer.from_file(("%s/%s.json"):format(dir, name))
  if not tok then return fail("%s: %s", name, why) end
  local ok, cases = pcall(accel.json.decode, read(("%s/%s.cases.json"):format(dir, name)))
  if not ok or type(cases) ~= "table" then return fail("%s.cases.json: %s", name, tostring(cases)) end
  -- written and read again, it does the same
  local again = accel.text.Tokenizer.from_str(tok:to_str())
  for i, c in ipairs(cases.cases or {}) do
    local fine, message = pcall(case, name, tok, c)
    if not fine then fail("%s: %q: %s", name, c.text:sub(1, 400), tostring(message)) end
    if i % 10 == 0 then check(name, "ids after writing and reading", c.text, again:encode(c.text).ids, c.ids) end
  end
  for _, p in ipairs(cases.pairs or {}) do
    local e = tok:encode(p.a, p.b)
    check(name, "ids of the pair", p.a .. "|" .. p.b, e.ids, p.ids)
    check(name, "type_ids of the pair", p.a .. "|" .. p.b, e.type_ids, p.type_ids)
  end
end

local found = 0
local list = io.popen(("ls '%s' 2>/dev/null"):format((dir:gsub("'", "'\\''"))))
for file in list:lines() do
  local name = file:match "^(.*)%.cases%.json$"
  if name then
    found = found + 1
    one(name)
  end
end
list:close()
if found == 0 then fail("%s: no NAME.cases.json is there", dir) end
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0, true)
