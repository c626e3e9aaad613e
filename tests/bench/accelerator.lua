-- The suite of tests/bench/run.lua for what the Accelerator costs on one rank, beside what Accelerate costs there. h: the
-- harness of run.lua.
return function(h, suites)
  local env = "env OMP_NUM_THREADS=1 ACCEL_NUM_THREADS=1 "
  function suites.accelerator()
    local sides = {}
    for _, precision in ipairs { "no", "fp16", "bf16" } do
      sides[#sides + 1] = { name = precision, command = ("%s%s %s --precision %s"):format(env, h.quote(h.exe),
        h.quote(h.here .. "/sides/accelerator_step.lua"), precision) }
    end
    local peer = h.capture "python3 -c 'import torch, accelerate' 2>/dev/null && echo yes"
    if peer then
      sides[#sides + 1] = { name = "peer",
        command = env .. "python3 " .. h.quote(h.here .. "/sides/accelerator_step.py") .. " 2>/dev/null" }
    end
    local got = h.alternate(sides, h.options.rounds)
    local p = got.peer or {}
    h.line("step of Linear(8,1), B8, bare loop", "us", got.no.bare, p.bare)
    h.line("  with the Accelerator", "us", got.no.layered, p.layered)
    h.line("  what it adds", "us", got.no.over, p.over, "20 us")
    h.line("  what it adds with fp16", "us", got.fp16.over)
    h.line("  what it adds with bf16", "us", got.bf16.over)
  end
end
