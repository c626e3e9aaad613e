-- The bench of resuming: from a saved state to the next step of GPT-2 124M, beside Accelerate's load_state. The files are in the page
-- cache on both sides.
local children = require "children"

return function(h, suites)
  suites.resume = { about = "load_state of GPT-2 124M and the first step after it", run = function()
    local folder = children.folder()
    local args = ("--folder %s"):format(h.quote(folder))
    assert(os.execute(h.ours("resume.lua", args .. " --make") .. " >/dev/null"))
    local sides = { h.accel("resume.lua", args) }
    local python, why = h.python()
    local command = ("%s%s%s -B %s %s%s"):format(h.pin, h.env, h.quote(h.options.python or "python3"),
      h.quote(h.here .. "/sides/resume.py"), args, h.quick and " --quick" or "")
    if python and os.execute(command .. " --make >/dev/null 2>&1") then
      sides[#sides + 1] = { name = "accelerate", peer = true, command = command }
    elseif h.wants_peers() then
      h.skip("Accelerate", why or "no Accelerate and Transformers: pip install accelerate transformers")
    end
    local got = h.alternate(sides)
    local a, p = got.accel, got.accelerate or {}
    local function row(what, key, ratio)
      h.row { what = what, unit = "ms", ours = a[key], peers = { accelerate = p[key] }, goal = ratio and { ratio = ratio } }
    end
    row("load_state of model and AdamW", "load", 10)
    row("the first step, of 64 tokens", "step")
    row("load_state and the first step", "all")
    row("the process, start to end", "process")
  end }
end
