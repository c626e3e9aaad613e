-- Jupyter's messages as frames: signatures against RFC 4231, messages that are malformed, unsigned or signed with another key, bytes that are
-- not UTF-8.
local accel = require "accel"
local message = accel.host_chunk "jupyter/message"

local ok, why = pcall(accel.console.hmac, "key", "text")
if not ok then
  print("skipped: " .. tostring(why))
  os.exit(77)
end

-- RFC 4231, test cases 1, 2 and 6
assert(accel.console.hmac(("\x0b"):rep(20), "Hi There") == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7")
assert(message.sign("Jefe", { "what do ya ", "want ", "", "for nothing?" }) == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
assert(accel.console.hmac(("\xaa"):rep(131), "Test Using Larger Than Block-Size Key - Hash Key First")
  == "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54")
assert(message.sign("", { "a" }) == "")
assert(accel.console.same(("ab"):rep(32), ("ab"):rep(32)) and not accel.console.same(("ab"):rep(32), ("ab"):rep(31) .. "ac"))
assert(not accel.console.same("ab", "ab") and not accel.console.same("", ""))

-- there and back
local m = { header = message.header("execute_request", "s"), content = { code = "print '\u{e9}'", list = accel.json.array {} } }
local frames = message.pack("k", { "peer\0\255", "two" }, m)
assert(#frames == 8 and frames[3] == "<IDS|MSG>" and frames[4] == accel.console.hmac("k", table.concat(frames, "", 5, 8)))
local got = assert(message.unpack("k", frames))
assert(got.ids[1] == "peer\0\255" and got.ids[2] == "two" and #got.ids == 2 and got.content.code == m.content.code)
assert(got.header.msg_type == "execute_request" and got.header.msg_id == m.header.msg_id and got.header.version == "5.3")
assert(frames[8]:find('"list":[]', 1, true), frames[8])
local unsigned = message.pack("", {}, m)
assert(unsigned[2] == "" and message.unpack("", unsigned))
frames[9] = "a buffer, which no signature covers"
assert(message.unpack("k", frames))

local function dropped(key, list, text)
  local r, reason = message.unpack(key, list)
  assert(r == nil and reason:find(text, 1, true), tostring(reason))
end
dropped("other", frames, "wrong signature")
dropped("k", unsigned, "without a signature")
dropped("k", {}, "without a delimiter")
dropped("k", { "<IDS|MSG>", "x", "{}" }, "2 parts after its delimiter")
for i = 5, 8 do -- a signature is of every part
  local changed = table.move(frames, 1, 8, 1, {})
  changed[i] = changed[i] .. " "
  dropped("k", changed, "wrong signature")
end
for i, part in ipairs { "[]", "1", "", "{", "null", "\255", '"{}"', ("["):rep(5000), ('{"a":'):rep(5000) } do
  for at = 1, 4 do
    local parts = { '{"msg_type":"x","msg_id":"y"}', "{}", "{}", "{}" }
    parts[at] = part
    local list = { "<IDS|MSG>", message.sign("k", parts), table.unpack(parts) }
    assert(message.unpack("k", list) == nil, ("%d %d"):format(i, at))
  end
end
dropped("", { "<IDS|MSG>", "", "{}", "{}", "{}", "{}" }, "lacks msg_type")
dropped("", { "<IDS|MSG>", "", '{"msg_type":1,"msg_id":"y"}', "{}", "{}", "{}" }, "lacks msg_type")

local random = math.random
for _ = 1, 3000 do -- any frames, cut and changed: a reason and no error
  local list = {}
  for i = 1, random(0, 9) do
    local f = random(3) == 1 and "<IDS|MSG>" or frames[random(8)]
    local at = random(0, #f)
    list[i] = random(3) == 1 and f or f:sub(1, at) .. string.char(random(0, 255)) .. f:sub(at + 2)
  end
  local r, reason = message.unpack(random(2) == 1 and "k" or "", list)
  assert(type(r) == "table" or type(reason) == "string")
end

assert(message.utf8 "a\u{e9}\u{10ffff}" == "a\u{e9}\u{10ffff}")
assert(message.utf8 "a\xffb\xc3" == "a\u{fffd}b\u{fffd}" and message.utf8 "\xed\xa0\x80" == ("\u{fffd}"):rep(3))
local a, b = message.uuid(), message.uuid()
assert(a ~= b and a:find "^%x+%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x+$" and #a == 36)
print "messages of Jupyter: right"
