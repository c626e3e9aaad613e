-- The bench of layers with kernels of their own that no other bench has: sampling, resizing, pools of three dims, CTC.
return function(h, suites)
  suites.layers = { about = "grid_sample, antialiased resize, 3-d pools, CTC", run = function()
    local got = h.alternate(h.both("layers.lua", "layers", "", { "tuned" }))
    local function row(what, key)
      h.row { what = what, unit = "ms", ours = got.accel[key .. "_f"], peers = h.peers(got, key .. "_f") }
      h.row { what = "  gradients", unit = "ms", ours = got.accel[key .. "_b"], peers = h.peers(got, key .. "_b") }
    end
    row("grid_sample, bilinear, 8x32x64x64", "grid_bilinear")
    row("grid_sample, bicubic, border", "grid_bicubic")
    row("resize 224 to 96, antialias, bilinear", "antialias_bilinear")
    row("resize 224 to 96, antialias, bicubic", "antialias_bicubic")
    row("resize 64 to 128, bicubic", "bicubic_up")
    row("max pool 3x3x3 by 2, 8x8x16x32x32", "max_pool3d")
    row("average pool 3x3x3 by 2", "avg_pool3d")
    row("CTC, 200 steps, 40 classes, 16 rows of 40", "ctc")
  end }
end
