-- The bench of what a profile costs: a GPT's training step without one, with one, and with every option. It has no peer: the step itself
-- is what it stands beside.
return function(h, suites)
  suites.profiler = { about = "what a profile adds to the step of a GPT 6x384, B8 T256", run = function()
    local args = h.quick and "--layers 2 --width 32 --heads 2 --vocab 65 --batch 2 --seq 16 --steps 3" or ""
    local got = h.alternate { h.accel("profiler.lua", args) }
    local a = got.accel
    local function row(what, key)
      h.row { what = what, unit = "ms", ours = a[key], peers = { off = a.off }, goal = { ratio = 1 / 1.03 } }
    end
    h.row { what = "step of a GPT 6x384", unit = "ms", ours = a.off }
    row("  with a profile", "plain")
    row("  with shapes, memory, flops, lines, modules", "all")
    h.row { what = "  spans of a step", unit = "", ours = a.spans }
  end }
end
