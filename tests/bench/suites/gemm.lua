-- The bench of matrix products: those of GPT-2 124M, forward (x W^T) and both gradients (dy W, dy^T x), in GFLOP/s
-- beside PyTorch's and beside what multiply-add instructions alone reach.
local SHAPES <const> = { -- what it is, inputs K, outputs N
  { "attention in", 768, 2304 }, { "attention out", 768, 768 }, { "MLP in", 768, 3072 }, { "MLP out", 3072, 768 },
  { "head", 768, 50257 }, { "head, padded", 768, 50304 },
}
local ROWS <const> = { 256, 1024 }

return function(h, suites)
  local function one(dtype)
    return function()
      local shapes, text = {}, {}
      for _, m in ipairs(h.quick and { 16 } or ROWS) do
        for _, s in ipairs(SHAPES) do
          local n, k = h.quick and s[3] // 16 or s[3], h.quick and s[2] // 16 or s[2]
          shapes[#shapes + 1] = { ("%s %dx%dx%d"):format(s[1], m, n, k) }
          text[#text + 1] = ("%d,%d,%d"):format(m, n, k)
        end
      end
      local folder = h.shared("gemm", "gemm.lua")
      local args = ("--dtype %s --data %s --shapes '%s'"):format(dtype, h.quote(folder), table.concat(text, ";"))
      local sides = h.both("gemm.lua", "gemm", args, { "tuned" })
      local tool, why = h.compile("peak.c", "cc", "-pthread")
      if tool then
        sides[#sides + 1] = { name = "peak", peer = true,
          command = ("%s%s %d %g"):format(h.pin, h.quote(tool), h.options.threads, h.quick and 0.01 or 0.3) }
      else
        h.skip("peak", why)
      end
      local got = h.alternate(sides)
      local peaks = got.peak
      got.peak = nil
      local peak
      if peaks then
        peak = peaks[dtype] and h.median(peaks[dtype])
        h.row { what = "peak of multiply-add, f32", unit = "GF/s", ours = peaks.f32, higher = true }
        for _, unit in ipairs { "avx512_bf16", "amx_bf16" } do
          if peaks[unit] then h.row { what = "peak of " .. unit, unit = "GF/s", ours = peaks[unit], higher = true } end
        end
      end
      local differs = h.losses(got, dtype == "f32" and 1e-4 or 1e-3, "means", "means of |product|")
      local function row(what, key)
        h.row { what = what, unit = "GF/s", ours = got.accel[key], peers = h.peers(got, key), higher = true,
          differs = differs,
          share = peak and ("%.0f %% of peak"):format(100 * h.median(got.accel[key]) / peak) }
      end
      for i, s in ipairs(shapes) do row(s[1], "y" .. i) end
      row("geometric mean, forward", "y_mean")
      row("  gradient of the input", "dx_mean")
      row("  gradient of the weight", "dw_mean")
    end
  end
  for _, dtype in ipairs { "f32", "bf16" } do
    suites["gemm_" .. dtype] = { group = "gemm", run = one(dtype),
      about = ("matrix products of GPT-2 124M, %s, against the peak"):format(dtype) }
  end
end
