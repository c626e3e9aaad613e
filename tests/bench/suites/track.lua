-- The bench of accel.track: what a scalar costs the thread that trains, beside torch.utils.tensorboard's add_scalar, and how soon it is in
-- the file. One thread of training and one that writes, on either side.
local children = require "children"

return function(h, suites)
  local function python() return h.quote(h.options.python or "python3") end

  local function run()
    local folder = h.quote(children.folder())
    local quick = h.quick and " --quick" or ""
    local ours = ("%s %s --folder %s%s"):format(h.quote(h.exe), h.quote(h.here .. "/sides/track.lua"), folder, quick)
    local sides = { { name = "accel", command = ours } }
    if h.wants_peers() then
      local version = h.capture(python() .. " -c 'import torch.utils.tensorboard, tensorboard; print(tensorboard.__version__)' 2>/dev/null")
      if version then
        h.note("  peer: tensorboard %s, torch.utils.tensorboard", version:gsub("%s+$", ""))
        sides[2] = { name = "tensorboard", peer = true,
          command = ("%s %s %s%s"):format(python(), h.quote(h.here .. "/sides/track.py"), folder, quick) }
      else
        h.skip("tensorboard", "pip install torch tensorboard")
      end
    end
    local got = h.alternate(sides)
    local function row(what, key, unit, goal)
      h.row { what = what, unit = unit, ours = got.accel[key], peers = h.peers(got, key), goal = goal }
    end
    row("add_scalar, event file", "events", "us", { most = 0.3, ratio = 100 })
    row("1,000,000 scalars in the file", "written", "s")
    if not got.accel.store then return h.skip("run store", "libsqlite3 (package libsqlite3-0)") end
    row("log_scalar, run store", "store", "us", { most = 0.3 })
    row("Run:log of 3 values", "log", "us")
    row("1,000,000 scalars in the store", "stored", "s")
  end

  suites.track = { about = "what logging a value costs a step", run = run }
end
