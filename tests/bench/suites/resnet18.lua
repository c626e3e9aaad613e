-- The bench of a ResNet-18 on images of 32x32: a training step with SGD.
return function(h, suites)
  local function one(dtype)
    return function()
      local sizes = h.quick and "--batch 2 --width 8" or "--batch 64 --width 64"
      local steps, drop = h.quick and 2 or 6, h.quick and 1 or 2
      local args = ("%s --dtype %s --steps %d --drop %d --data %s"):format(sizes, dtype, steps, drop,
        h.quote(h.shared("resnet18", "resnet18.lua", sizes)))
      local got = h.alternate(h.both("resnet18.lua", "resnet18", args))
      local differs = h.losses(got, dtype == "f32" and 1e-3 or 2e-3)
      h.row { what = "step B64 3x32x32 " .. dtype, unit = "ms", ours = got.accel.ms, peers = h.peers(got, "ms"),
        differs = differs, goal = { ratio = 1.2 } }
      h.row { what = "  forward", unit = "ms", ours = got.accel.forward_ms, peers = h.peers(got, "forward_ms") }
      h.row { what = "  backward", unit = "ms", ours = got.accel.backward_ms, peers = h.peers(got, "backward_ms") }
    end
  end
  for _, dtype in ipairs { "f32", "bf16" } do
    suites["resnet18_" .. dtype] = { group = "resnet18", run = one(dtype),
      about = ("training step of a ResNet-18, 64 images of 3x32x32, %s"):format(dtype) }
  end
end
