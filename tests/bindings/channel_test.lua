-- accel.console.channel: messages over one socket and over two; private folders (bindings/attach/lac_channel.c). The prompts over them are
-- tests/lua/attach's.
local accel = require "accel"
local console = accel.console

local function pass(from, to, what)
  assert(from:send "one" and from:send "two")
  assert(to:receive() == "one" and to:receive() == "two" and to:receive() == nil, what)
end

do -- one descriptor for both ways
  local a, b = console.pair()
  local mine <close> = console.channel(a)
  local other <close> = console.channel(b)
  pass(mine, other, "there")
  pass(other, mine, "back")
  other:close()
  assert(mine:receive() == false and not mine:send "three")
end

do -- one to read from, another to write to, as a command has them on its standard input and output
  local in_, feeds = console.pair()
  local out, reads = console.pair()
  local both <close> = console.channel(in_, out)
  local feeder <close> = console.channel(feeds)
  local reader <close> = console.channel(reads)
  pass(feeder, both, "in")
  pass(both, reader, "out")
  assert(feeder:receive() == nil)
  console.channel(out):close()
end

do -- a folder of one's own, only inside of one that nobody else can write in
  local parent = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/channel"
  os.execute(("rm -rf '%s'"):format(parent))
  local folder = console.private_folder(parent, "x")
  assert(console.is_private(parent) and console.is_private(folder) and folder:find(parent .. "/x.", 1, true) == 1)
  os.execute(("chmod 777 '%s'"):format(parent))
  local ok, err = pcall(console.private_folder, parent, "x")
  assert(not ok and tostring(err):find("is not a folder of this user's alone", 1, true), err)
  os.execute(("rm -rf '%s'"):format(parent))
end
