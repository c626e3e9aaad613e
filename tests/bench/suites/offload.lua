-- The benches of offloading: a file tier beside what the same disk does with the same bytes, and a Llama of 1 GB in bf16 beside Accelerate:
-- loading its sharded checkpoint, a forward of 8 tokens and the tokens that follow with all weights on disk, and in host memory; in memory
-- as the bound of both. Training: shard.lua.
local children = require "children"

return function(h, suites)
  local function made()
    local folder = children.folder()
    local args = ("--folder %s"):format(h.quote(folder))
    assert(os.execute(h.ours("offload.lua", args .. " --make") .. " >/dev/null"))
    return folder, args
  end
  local function row(what, unit, ours, name, theirs, ratio, higher)
    h.row { what = what, unit = unit, ours = ours, peers = { [name] = theirs }, higher = higher, goal = ratio and { ratio = ratio } }
  end

  suites.offload_disk = { group = "offload", about = "a tier of files against the disk itself", run = function()
    local folder = children.folder()
    local sides = { h.accel("offload.lua", ("--folder %s --disk"):format(h.quote(folder))) }
    local tool, no_tool = h.compile("disk.c", "cc", "-O2")
    if tool then
      sides[#sides + 1] = { name = "disk", peer = true,
        command = ("%s%s %s %d"):format(h.pin, h.quote(tool), h.quote(folder), h.quick and 64 or 768) }
    else
      h.skip("the disk itself", no_tool)
    end
    local got = h.alternate(sides)
    local a, d = got.accel, got.disk or {}
    row("write", "GB/s", a.write, "disk", d.write, 0.9, true)
    row("read", "GB/s", a.read, "disk", d.read, 0.9, true)
  end }

  suites.offload_model = { group = "offload", about = "a Llama of 1 GB on disk and in host memory", run = function()
    local _, args = made()
    local sides = { h.accel("offload.lua", args) }
    local python, why = h.python()
    if python then
      sides[#sides + 1] = { name = "accelerate", peer = true, command = ("%s%s%s -B %s %s"):format(h.pin, h.env,
        h.quote(h.options.python or "python3"), h.quote(h.here .. "/sides/offload.py"), args) }
    elseif h.wants_peers() then
      h.skip("Accelerate", why)
    end
    local got = h.alternate(sides)
    local a, p = got.accel, got.accelerate or {}
    row("load a sharded checkpoint", "GB/s", a.load, "accelerate", p.load, 3, true)
    row("token, weights on disk", "ms", a.disk_token_ms, "accelerate", p.disk_token_ms, 5)
    row("token, in host memory", "ms", a.host_token_ms, "accelerate", p.host_token_ms, 2)
    row("token, all in memory (bound)", "ms", a.memory_token_ms, "accelerate", p.memory_token_ms)
    row("8 tokens, weights on disk", "s", a.disk_s, "accelerate", p.disk_s)
    row("8 tokens, disk, cold page cache", "s", a.cold_s, "accelerate", p.cold_s)
    row("8 tokens, in host memory", "s", a.host_s, "accelerate", p.host_s)
    row("8 tokens, all in memory (bound)", "s", a.memory_s, "accelerate", p.memory_s)
  end }
end
