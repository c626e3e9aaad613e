-- The bench of checkpoints: saving and loading 257 MB of weights and moments, beside what the same disk does with the same bytes in
-- order, and beside torch.save and safetensors; what an asynchronous save costs the steps around it.
local children = require "children"

return function(h, suites)
  suites.checkpoint = { about = "checkpoints of 257 MB: save, load, asynchronous save", run = function()
    local folder = children.folder()
    local args = ("--folder %s"):format(h.quote(folder))
    local sides = { h.accel("checkpoint.lua", args) }
    local tool, no_tool = h.compile("disk.c", "cc", "-O2")
    if tool then
      sides[#sides + 1] = { name = "disk", peer = true,
        command = ("%s%s %s %d"):format(h.pin, h.quote(tool), h.quote(folder), h.quick and 16 or 245) }
    else
      h.skip("the disk itself", no_tool)
    end
    local python, why = h.python()
    if python then
      sides[#sides + 1] = { name = "torch", peer = true, command = ("%s%s%s -B %s %s%s"):format(h.pin, h.env,
        h.quote(h.options.python or "python3"), h.quote(h.here .. "/sides/checkpoint.py"), args, h.quick and " --quick" or "") }
    elseif h.wants_peers() then
      h.skip("PyTorch", why)
    end
    local got = h.alternate(sides)
    local a, p, d = got.accel, got.torch or {}, got.disk or {}
    local function row(what, ours, name, theirs, ratio)
      h.row { what = what, unit = "GB/s", ours = ours, peers = { [name] = theirs }, higher = true, goal = ratio and { ratio = ratio } }
    end
    if got.disk then
      row("save a checkpoint, on disk", a.save, "disk", d.write, 0.9)
      row("load it, not in memory", a.load, "disk", d.read, 0.9)
      row("load it, in the page cache", a.load_warm, "disk", d.read_warm)
    end
    row("save a checkpoint, on disk", a.save, "torch", p.save, 2)
    row("load it, not in memory", a.load, "torch", p.load, 5)
    row("load it, in the page cache", a.load_warm, "torch", p.load_warm, 5)
    row("one file: accel.save", a.save_file, "safetens", p.save_safetensors)
    row("one file: accel.load", a.load_file, "torch", p.load_file)
    row("load into tensors, page cache", a.load_warm, "safetens", p.load_safetensors)
    h.row { what = "compare all checksums", unit = "GB/s", ours = a.verify, higher = true }
    h.row { what = "asynchronous save: stall", unit = "ms", ours = a.stall_ms }
    h.row { what = ("  of 10 steps of %.0f ms"):format(h.median(a.step_ms)), unit = "%", ours = a.stall, goal = { most = 1 } }
    h.row { what = "  their time, all in all, longer by", unit = "%", ours = a.slower }
    h.row { what = "  memory of the copy", unit = "MB", ours = a.copy_mb }
  end }
end
