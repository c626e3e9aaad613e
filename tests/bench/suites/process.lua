-- Benches of whole processes: their size, their start, and what they hold at most.
return function(h, suites)
  suites.size = { about = "bytes of the program and its libraries, stripped", run = function()
    local root = h.exe:match "^(.*)/bin/[^/]*$"
    for _, path in ipairs { h.exe, root .. "/lib/libaccel.so", root .. "/lib/accel/accel_onednn.so",
      root .. "/lib/lua/5.4/accel/core.so" } do
      local text = h.capture(([[f=%s; t=/tmp/accel-bench-strip.$$; [ -e "$f" ] && strip -o $t "$(readlink -f "$f")" &&
        stat -c %%s $t; rm -f $t]]):format(h.quote(path)))
      local n = tonumber((text or ""):match "%d+")
      if n then h.row { what = "stripped " .. path:match "[^/]*$", unit = "KiB", ours = { n / 1024 } }
      else h.skip(path:match "[^/]*$", "not there, or no strip") end
    end
  end }

  suites.start = { about = "exec to the end of the first MLP step, the whole process", run = function()
    local sides = { { name = "accel", command = h.timed(h.ours "first_step.lua") } }
    for _, side in ipairs(h.torch("first_step", "", { "tuned" })) do
      side.command = h.timed(side.command)
      sides[#sides + 1] = side
    end
    local got = h.alternate(sides, h.options.rounds * (h.quick and 1 or 2))
    local function ms(v) return h.map(v, function(us) return us / 1000 end) end
    local peers = {}
    for name, v in pairs(h.peers(got, "us")) do peers[name] = ms(v) end
    h.row { what = "exec to end of first MLP step", unit = "ms", ours = ms(got.accel.us), peers = peers,
      goal = { most = 30 } }
    if next(peers) then
      h.row { what = "  beside PyTorch", unit = "ms", ours = ms(got.accel.us), peers = peers, goal = { ratio = 50 } }
    end
  end }

  suites.memory = { about = "peak memory: MLP step, GPT-2 124M bf16 step, memory low", run = function()
    local first = h.alternate(h.both("first_step.lua", "first_step", "--memory", { "tuned" }), 1)
    h.row { what = "first MLP step", unit = "MB", ours = first.accel.peak_mb, peers = h.peers(first, "peak_mb") }
    local model = (h.quick and "--layers 2 --width 64 --heads 2 --vocab 500"
      or "--layers 12 --width 768 --heads 12 --vocab 50304") .. " --batch 4 --seq 64"
    local folder = h.shared("gpt", "gpt.lua", model)
    local args = ("%s --dtype bf16 --steps 4 --drop 1 --data %s"):format(model, h.quote(folder))
    local got = h.alternate(h.both("gpt.lua", "gpt", args, { "eager", "tuned", "chunked", "compile" }), 1)
    h.row { what = "GPT-2 124M B4 T64 bf16", unit = "MB", ours = got.accel.peak_mb, peers = h.peers(got, "peak_mb"),
      differs = h.losses(got, 1e-3), goal = { ratio = 1 / 0.75 } }
    local sizes = h.quick and "--layers 2 --width 64 --heads 2 --vocab 500 --batch 2 --seq 64" or ""
    local function side(name, memory, dtype)
      return { name = name, peer = name ~= "accel", command = h.ours("low_memory.lua", ("%s --memory %s --dtype %s"):format(sizes, memory, dtype)) }
    end
    for _, dtype in ipairs { "f32", "bf16" } do
      local two = h.alternate({ side("accel", "low", dtype), side("normal", "normal", dtype) })
      local label = dtype == "f32" and "memory low, 124M B4 T256 bf16" or "  the same, parameters of bf16"
      local differs = h.losses(two, 0.02)
      h.row { what = label, unit = "MB", ours = two.accel.peak_mb, peers = { normal = two.normal.peak_mb }, differs = differs,
        goal = { ratio = dtype == "f32" and 1.9 or 1 / 0.5 } }
      h.row { what = "  time of a step", unit = "ms", ours = two.accel.ms, peers = { normal = two.normal.ms }, differs = differs,
        goal = { ratio = 1 / 1.4 } }
    end
  end }
end
