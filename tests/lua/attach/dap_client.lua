-- A client of accel-run dap, as editors are: requests go through a named pipe, what comes back is read from a file. The tests of the adapter
-- share it. t: support.lua.
local accel = require "accel"

return function(t)
  local n = 0
  local Client = {}
  Client.__index = Client

  function Client.new()
    n = n + 1
    local base = ("%s/dap%d"):format(t.tmp, n)
    local self = setmetatable({ seq = 0, out = base .. ".out", at = 1, events = {}, responses = {} }, Client)
    os.execute(("mkfifo '%s.in'"):format(base))
    local command = ("exec '%s' dap <'%s.in' >'%s.out' 2>'%s.err'"):format(t.exe, base, base, base)
    self.process = accel.process.spawn("/bin/sh", { "sh", "-c", command }, t.env)
    self.err = base .. ".err"
    self.pipe = assert(io.open(base .. ".in", "w"))
    return self
  end

  function Client:send(command, arguments)
    self.seq = self.seq + 1
    local text = accel.json.encode { seq = self.seq, type = "request", command = command, arguments = arguments or {} }
    self.pipe:write(("Content-Length: %d\r\n\r\n%s"):format(#text, text))
    self.pipe:flush()
    return self.seq
  end

  function Client:read()
    local text = t.read(self.out)
    while true do
      local length, from = text:match("^Content%-Length: (%d+)\r\n\r\n()", self.at)
      if not length or #text < from + tonumber(length) - 1 then return end
      local message = accel.json.decode(text:sub(from, from + tonumber(length) - 1))
      self.at = from + tonumber(length)
      if message.type == "event" then self.events[#self.events + 1] = message
      else self.responses[message.request_seq] = message end
    end
  end

  function Client:ask(command, arguments)
    local seq = self:send(command, arguments)
    local r = t.wait(command, function()
      self:read()
      return self.responses[seq]
    end)
    assert(r.command == command)
    return r.body, r.success, r.message
  end

  -- The first event of a name that has not been taken, for which ok(body) holds.
  function Client:event(name, ok)
    return t.wait("event " .. name .. "\n" .. t.read(self.err), function()
      self:read()
      for i, e in ipairs(self.events) do
        if e.event == name and (not ok or ok(e.body)) then
          table.remove(self.events, i)
          return e.body or true
        end
      end
    end)
  end

  return Client
end
