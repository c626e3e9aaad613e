--- accel-run dap: a debug adapter by the Debug Adapter Protocol (microsoft.github.io/debug-adapter-protocol), for editors: lua/attach/dap.lua over
--- standard input and output.
local accel = require "accel"
local command = require "accel.cli.command"

return function(...)
  command.parse({ name = "accel-run dap", usage = "",
    summary = "Serves a debug adapter on standard input and output, with one thread for each rank. Editors start it: "
      .. "accel-run help guide debugging has a launch.json." },
    0, 0, ...)
  return accel.host_chunk("attach/dap").run()
end
