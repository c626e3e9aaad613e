-- The bench of AdamW over the 124M parameters of GPT-2, beside PyTorch's fused one and beside copying.
local BYTES <const> = 28 -- of a parameter: p, g, m, v are read, p, m, v written, all f32

return function(h, suites)
  suites.adamw = { about = "AdamW over 124M parameters, and its share of copy bandwidth", run = function()
    local sizes = h.quick and "--layers 1 --width 64 --vocab 500" or "--layers 12 --width 768 --vocab 50304"
    local args = ("%s --data %s"):format(sizes, h.quote(h.shared("adamw", "adamw.lua", sizes)))
    local sides = h.both("adamw.lua", "adamw", args, { "eager", "tuned" })
    local tool, why = h.compile("memory.c", "cc", "-march=native -pthread")
    if tool then
      sides[#sides + 1] = { name = "memory", peer = true,
        command = ("%s%s %d %d"):format(h.pin, h.quote(tool), h.options.threads, h.quick and 4 or 256) }
    else
      h.skip("memory", why)
    end
    local got = h.alternate(sides)
    local limits = got.memory
    got.memory = nil
    h.row { what = "AdamW step, 124M f32", unit = "ms", ours = got.accel.ms, peers = h.peers(got, "ms"),
      differs = h.losses(got, 1e-4, "sums", "sums of |parameters|"), goal = { ratio = 1.2 } }
    local n = got.accel.parameters[1]
    local rates = h.map(got.accel.ms, function(ms) return BYTES * n / ms / 1e6 end)
    h.row { what = "  bandwidth, 28 bytes each", unit = "GB/s", ours = rates, higher = true }
    if limits then
      local plain, past = h.median(limits.copy), h.median(limits.copy_nt)
      h.row { what = "  copy, the better of two", unit = "GB/s", higher = true,
        ours = past > plain and limits.copy_nt or limits.copy,
        share = past > plain and "(past the caches)" or "(plain)" }
      local most = math.max(plain, past)
      h.row { what = "  share of copy", unit = "%", higher = true, goal = { least = 80 },
        ours = h.map(rates, function(r) return 100 * r / most end) }
    end
  end }
end
