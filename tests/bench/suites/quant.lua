-- The bench of products with quantised weights: one row and several times matrices of 4096 x 4096, beside PyTorch's products in f32 and
-- bf16, bitsandbytes' where it is installed, and what threads of a C program read in the same rounds.
local KINDS <const> = { "f32", "bf16", "int8", "nf4", "nf4_double" }

return function(h, suites)
  suites.quant = { about = "one row times quantised weights, and their share of reading", run = function()
    local sides = h.both("quant.lua", "quant", "", { "tuned" })
    local tool, why = h.compile("memory.c", "cc", "-march=native -pthread")
    if tool then
      sides[#sides + 1] = { name = "memory", peer = true,
        command = ("%s%s %d %d"):format(h.pin, h.quote(tool), h.options.threads, h.quick and 4 or 64) }
    else
      h.skip("memory", why)
    end
    local got = h.alternate(sides)
    local limits = got.memory
    got.memory = nil
    for _, rows in ipairs { 1, 8 } do
      for _, kind in ipairs(KINDS) do
        local key = ("%s_%d"):format(kind, rows)
        h.row { what = ("%d x 4096 by 4096 x 4096, %s"):format(rows, kind:gsub("_", " ")), unit = "us", ours = got.accel[key],
          peers = h.peers(got, key) }
        if rows == 1 then
          local n = got.accel["bytes_" .. kind][1]
          local rates = h.map(got.accel[key], function(us) return n / us / 1e3 end)
          h.row { what = "  read", unit = "GB/s", ours = rates, higher = true }
          if limits then
            local read = h.median(limits.read)
            h.row { what = "  share of reading", unit = "%", higher = true, goal = { least = 80 },
              ours = h.map(rates, function(r) return 100 * r / read end) }
          end
        end
      end
    end
    h.row { what = "bf16 to nf4, one row", unit = "us", ours = got.accel.nf4_1, peers = { bf16 = got.accel.bf16_1 }, goal = { ratio = 2.5 } }
  end }
end
