-- accel.console.channel: messages over a socket, over two of them, over pipes (bindings/lac_channel.c); the prompts over it are tests/lua/attach's.
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
