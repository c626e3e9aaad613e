--- accel-run ui: the page of a run store, until Ctrl-C.
local accel = require "accel"
local command = require "accel.cli.command"
local Store = require "accel.track.store"

local PROGRAM <const> = "accel-run ui"

return function(...)
  local o, words = command.parse({
    name = PROGRAM, usage = "[DIR]", summary = "Shows the runs of a store (DIR/runs.db, or a file) as a page on this machine.",
    { "port", "int", 0, "N", "port on 127.0.0.1; 0: any free one" },
    { "token", "string", nil, "WORD", "the secret in the address [a new one]" },
    { "filter", "string", nil, "TEXT", "open the page with these runs only, such as group=NAME or lr>0.01" },
    { "wait", "flag", false, nil, "wait for a store that is not there yet" },
    epilog = "From another machine: ssh -L PORT:127.0.0.1:PORT HOST, then the same address.",
  }, 0, 1, ...)
  if o.port < 0 or o.port > 65535 then return command.refuse(PROGRAM, "--port: a port is 0 to 65535, got %d", o.port) end
  local where = words[1] or "."
  local core = require "accel.track.core"
  local ready, why = core.http_library()
  if not ready then return command.refuse(PROGRAM, "%s", why) end
  local store, message, code = Store.open(where)
  while not store and o.wait and code == "not_found" and not accel.interrupted() do
    core.pause(0.5)
    store, message, code = Store.open(where)
  end
  if not store then
    return command.refuse(PROGRAM, "%s%s", message, code == "not_found" and require "accel.cli.runs_store".below(where) or "")
  end
  store:close()
  if o.token and (#o.token < 8 or o.token:find "[^%w_-]") then
    return command.refuse(PROGRAM, "--token takes 8 or more of A-Z a-z 0-9 _ -")
  end
  local ok, server = pcall(require "accel.track.ui.server", where, { port = o.port, token = o.token })
  if not ok then return command.refuse(PROGRAM, "%s", (tostring(server):gsub("^[^ ]*:%d+: ", ""))) end
  accel.on_interrupt "flag"
  print(server.url .. (o.filter and "#filter=" .. o.filter:gsub("[^%w_.-]", function(c) return ("%%%02X"):format(c:byte()) end) or ""))
  io.stdout:flush()
  io.stderr:write("Ctrl-C ends it.\n")
  while not accel.interrupted() do server:poll(1) end
  server:close()
  return true
end
