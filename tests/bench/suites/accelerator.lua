-- The bench of what the Accelerator costs on one rank, beside what Accelerate costs there.
return function(h, suites)
  suites.accelerator = { about = "what the Accelerator adds to a training step on one rank", run = function()
    local env = h.pin .. "env OMP_NUM_THREADS=1 ACCEL_NUM_THREADS=1 "
    local sides = {}
    for _, precision in ipairs { "no", "fp16", "bf16" } do
      sides[#sides + 1] = { name = precision, command = ("%s%s %s --precision %s%s"):format(env, h.quote(h.exe),
        h.quote(h.here .. "/sides/accelerator_step.lua"), precision, h.quick and " --quick" or "") }
    end
    local python, why = h.python()
    if python then
      local command = ("%s%s %s%s"):format(env, h.quote(h.options.python or "python3"),
        h.quote(h.here .. "/sides/accelerator_step.py"), h.quick and " --quick" or "")
      sides[#sides + 1] = { name = "accelerate", peer = true, command = command }
    elseif h.wants_peers() then
      h.skip("Accelerate", why)
    end
    local got = h.alternate(sides)
    local p = got.accelerate or {}
    h.line("step of Linear(8,1), B8, bare", "us", got.no.bare, p.bare)
    h.line("  with the Accelerator", "us", got.no.layered, p.layered)
    h.line("  what it adds", "us", got.no.over, p.over, { most = 20 })
    h.line("  what it adds with fp16", "us", got.fp16.over)
    h.line("  what it adds with bf16", "us", got.bf16.over)
  end }
end
