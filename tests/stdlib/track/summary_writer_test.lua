-- Event files, by a decoder of their own written from the format (TensorBoard's record_writer and event.proto): framing and checksums,
-- every kind of value, a file cut at every byte, kill -9, a disk that takes no more; and TensorBoard's own reader where python3 has it.
--   accel-run tests/stdlib/track/summary_writer_test.lua
local accel = require "accel"

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/events-"))

--- CRC-32C by its definition, bit by bit.
local function crc32c(bytes)
  local crc = 0xFFFFFFFF
  for i = 1, #bytes do
    crc = crc ~ bytes:byte(i)
    for _ = 1, 8 do crc = crc & 1 == 1 and crc >> 1 ~ 0x82F63B78 or crc >> 1 end
  end
  return crc ~ 0xFFFFFFFF
end
assert(crc32c "123456789" == 0xE3069283)
local function masked(bytes)
  local c = crc32c(bytes)
  return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF
end
assert(masked "\x1a\x11CRC test, one two" == 0x5794d08a)

--- The records of a file up to one that is not whole, and where that begins.
local function records(bytes)
  local list, at = {}, 1
  while #bytes - at + 1 >= 12 do
    local n, crc = string.unpack("<I8I4", bytes, at)
    assert(masked(bytes:sub(at, at + 7)) == crc, "checksum of a length")
    if #bytes - at + 1 < 16 + n then break end
    local data = bytes:sub(at + 12, at + 11 + n)
    assert(masked(data) == string.unpack("<I4", bytes, at + 12 + n), "checksum of a record")
    list[#list + 1] = data
    at = at + 16 + n
  end
  return list, at
end

local function varint(s, at)
  local v, shift = 0, 0
  repeat
    local b = s:byte(at)
    v, shift, at = v | (b & 127) << shift, shift + 7, at + 1
  until b < 128
  return v, at
end

--- Fields of a message: number -> list of values; those with a length as bytes.
local function message(s)
  local out, at = {}, 1
  while at <= #s do
    local key, value
    key, at = varint(s, at)
    local wire = key & 7
    if wire == 0 then value, at = varint(s, at)
    elseif wire == 1 then value, at = s:sub(at, at + 7), at + 8
    elseif wire == 5 then value, at = s:sub(at, at + 3), at + 4
    else
      assert(wire == 2, "wire type " .. wire)
      local n
      n, at = varint(s, at)
      value, at = s:sub(at, at + n - 1), at + n
    end
    out[key >> 3] = out[key >> 3] or {}
    table.insert(out[key >> 3], value)
  end
  return out
end

local function double(s) return (string.unpack("<d", s)) end

--- Events of a file: { step =, wall =, version =, values = { tag -> value message } }.
local function events(bytes)
  local list = {}
  for i, record in ipairs((records(bytes))) do
    local m = message(record)
    local e = { wall = double(m[1][1]), step = m[2] and m[2][1] or 0, version = m[3] and m[3][1], values = {} }
    for _, v in ipairs(m[5] and message(m[5][1])[1] or {}) do
      local value = message(v)
      e.values[value[1][1]] = value
    end
    list[i] = e
  end
  return list
end

local function only_file(folder)
  local names = {}
  for _, name in ipairs(assert(accel.listdir(folder))) do
    if name:find "tfevents" then names[#names + 1] = folder .. "/" .. name end
  end
  assert(#names == 1, accel.inspect(names))
  assert(names[1]:find "/events%.out%.tfevents%.%d+%.[^/]+$")
  return names[1]
end

local function read(path)
  local f <close> = assert(io.open(path, "rb"))
  return f:read "a"
end

--- A scalar is simple_value, or a tensor of one float.
local function number_of(value)
  if value[2] then return (string.unpack("<f", value[2][1])) end
  local tensor = message(value[8][1])
  return tensor[5] and (string.unpack("<f", tensor[5][1])) or (string.unpack("<f", tensor[4][1]))
end

local whole
do -- what was written is what was logged
  local w = accel.track.SummaryWriter(root .. "/a")
  local before = os.time()
  for step = 1, 50 do w:add_scalar("loss", 1 / step, step) end
  w:add_scalar("t", accel.tensor(3.5), 7, 1234.5)
  w:add_text("note", "hello *there*", 3)
  w:add_histogram("h", accel.arange(101), 4)
  assert(w:close() and w:close())
  whole = read(only_file(root .. "/a"))
  local list, last = events(whole), nil
  assert(list[1].version == "brain.Event:2" and math.abs(list[1].wall - before) < 5)
  local n = 0
  for _, e in ipairs(list) do
    if e.values.loss then
      n = n + 1
      assert(e.step == n and math.abs(number_of(e.values.loss) - 1 / n) < 1e-7)
    end
    if e.values.t then
      assert(e.step == 7 and e.wall == 1234.5 and number_of(e.values.t) == 3.5)
      last = true
    end
    if e.values["note/text_summary"] then assert(e.step == 3 and e.values["note/text_summary"][8][1]:find("hello *there*", 1, true)) end
    if e.values.h then
      local h = message(e.values.h[5] and e.values.h[5][1] or "")
      if h[3] then assert(double(h[3][1]) == 101 and double(h[1][1]) == 0 and double(h[2][1]) == 100) end
      assert(e.step == 4)
    end
  end
  assert(n == 50 and last)
  local _, at = records(whole)
  assert(at == #whole + 1, "the file ends with a record")
end

do -- cut at any byte, all records before the cut are there
  local full = records(whole)
  local previous = 0
  for n = 0, #whole - 1, 7 do
    local list = records(whole:sub(1, n))
    assert(#list <= #full and #list >= previous)
    for i = 1, #list do assert(list[i] == full[i]) end
    previous = #list
  end
end

do -- kill -9: what was logged more than a second before is there
  local script = root .. "/killed.lua"
  assert(accel.write_file(script, ([[
    local accel = require "accel"
    local w = accel.track.SummaryWriter(%q)
    for step = 1, 100 do w:add_scalar("x", step, step) end
    local till = accel.clock() + 2 -- twice what is promised, for machines that are busy
    while accel.clock() < till do end
    local stat = io.open "/proc/self/stat"
    os.execute("kill -9 " .. stat:read "n")
  ]]):format(root .. "/killed")))
  os.execute(("'%s' '%s' >/dev/null 2>&1"):format(accel.process.program(), script))
  local n = 0
  for _, e in ipairs(events(read(only_file(root .. "/killed")))) do n = n + (e.values.x and 1 or 0) end
  assert(n == 100, n)
end

do -- a disk that takes no more: nothing stops the caller, close says so, what is there is whole
  local script = root .. "/full.lua"
  assert(accel.write_file(script, ([[
    local accel = require "accel"
    local w = accel.track.SummaryWriter(%q)
    for step = 1, 2000 do w:add_scalar("x", step, step) end
    local ok, message = w:close()
    print(ok, message)
  ]]):format(root .. "/full")))
  local pipe = assert(io.popen(("ulimit -f 8; '%s' '%s' 2>&1"):format(accel.process.program(), script)))
  local text = pipe:read "a"
  assert(pipe:close(), text)
  assert(text:find "^nil%s.*tfevents", text)
  for _, name in ipairs(accel.listdir(root .. "/full")) do records(read(root .. "/full/" .. name)) end
end

-- TensorBoard's own reader
if os.execute "python3 -c 'import tensorboard' >/dev/null 2>&1" then
  local code = [[
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1]); a.Reload()
for e in a.Scalars("loss"): print(e.step, repr(e.value))
print(a.Tags()["tensors"], a.Tags()["histograms"])
]]
  assert(accel.write_file(root .. "/read.py", code))
  local pipe = assert(io.popen(("python3 '%s/read.py' '%s/a' 2>/dev/null"):format(root, root)))
  local n = 0
  for line in pipe:lines() do
    local step, value = line:match "^(%d+) ([%d.e-]+)$"
    if step then
      n = n + 1
      assert(tonumber(step) == n and math.abs(tonumber(value) - 1 / n) < 1e-7)
    else
      assert(line:find "note/text_summary" and line:find "h", line)
    end
  end
  assert(pipe:close() and n == 50)
end
