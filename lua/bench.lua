-- accel-run bench [NAME...]: runs tests/bench of the source tree, installed with the program as share/accel/bench.
local accel = ...

local M = {}

--- Arguments are the words of the command line after `bench`. false if there are no benches.
function M.run(...)
  local exe = accel.process.program()
  local path = exe and (exe:match "^(.*)/[^/]*/[^/]*$" or "..") .. "/share/accel/bench/run.lua"
  local chunk, why = loadfile(path or "")
  if not chunk then
    io.stderr:write("accel-run: the benches do not run: ", tostring(why), "\n")
    return false
  end
  rawset(_G, "arg", { [0] = path, ... })
  chunk(...)
  return true
end

return M
