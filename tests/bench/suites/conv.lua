-- Benches of convolutions one by one: the result, the gradient of the input and that of the weight.
return function(h, suites)
  -- images, channels, size, output channels, kernel, stride, padding, groups: the layers of a ResNet-50, depthwise and
  -- grouped ones, and two of a small network for digits
  local convs = {
    { "7x7 3-64 by 2 @224", "8,3,224,64,7,2,3,1" }, { "3x3 64 @56", "8,64,56,64,3,1,1,1" },
    { "1x1 64-256 @56", "8,64,56,256,1,1,0,1" }, { "1x1 256-64 @56", "8,256,56,64,1,1,0,1" },
    { "3x3 128 by 2 @56", "8,128,56,128,3,2,1,1" }, { "1x1 256-512 by 2 @56", "8,256,56,512,1,2,0,1" },
    { "3x3 128 @28", "8,128,28,128,3,1,1,1" }, { "1x1 128-512 @28", "8,128,28,512,1,1,0,1" },
    { "3x3 256 @14", "8,256,14,256,3,1,1,1" }, { "1x1 1024-256 @14", "8,1024,14,256,1,1,0,1" },
    { "3x3 512 @7", "8,512,7,512,3,1,1,1" }, { "1x1 512-2048 @7", "8,512,7,2048,1,1,0,1" },
    { "3x3 depthwise 128 @56", "8,128,56,128,3,1,1,128" }, { "3x3 depthwise 128 by 2 @56", "8,128,56,128,3,2,1,128" },
    { "3x3 128 in 32 groups @56", "8,128,56,128,3,1,1,32" }, { "3x3 1-8 @8, 64 images", "64,1,8,8,3,1,1,1" },
    { "3x3 8-16 by 2 @8, 64 images", "64,8,8,16,3,2,1,1" },
  }

  local function one(dtype)
    return function()
      local shapes = {}
      for i, c in ipairs(convs) do
        shapes[i] = h.quick and c[2]:gsub(",(%d%d%d?),(%d+),", ",8,%2,", 1) or c[2]
        if h.quick and i == 3 then break end
      end
      local args = ("--dtype %s --shapes '%s'"):format(dtype, table.concat(shapes, ";"))
      local got = h.alternate(h.both("conv.lua", "conv", args, { "tuned" }))
      local function row(what, key)
        h.row { what = what, unit = "ms", ours = got.accel[key], peers = h.peers(got, key) }
      end
      for i in ipairs(shapes) do
        row(convs[i][1], "f" .. i)
        row("  gradient of the input", "x" .. i)
        row("  gradient of the weight", "w" .. i)
      end
      row("max pool 3x3 by 2, 64 @112", "pool_f")
      row("  gradient", "pool_x")
    end
  end
  for _, dtype in ipairs { "f32", "bf16" } do
    suites["conv_" .. dtype] = { group = "conv", run = one(dtype),
      about = ("convolutions of ResNet-50 and others one by one, %s"):format(dtype) }
  end
end
