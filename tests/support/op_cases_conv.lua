-- Cases of convolutions, pools, unfold and fold: see op_cases.lua. Shapes are small, since every element is
-- varied; `big` ones are cut into tiles that threads share.
local c = require "op_cases"
local real, case, args, big = c.real, c.case, c.args, c.big

local L = {}

-- A weight without bias leaves a hole in the list of arguments.
local function nobias(options)
  return { call = function(f, x, w) return f(x, w, options or {}) end }
end

L.conv1d = {
  case("plain", { real(2, 3, 6), real(4, 3, 3), real(4) }),
  case("no bias", { real(2, 2, 5), real(3, 2, 2) }, nobias()),
  case("unbatched", { real(2, 7), real(3, 2, 3), real(3) }, args { padding = 1 }),
  case("strided", { real(1, 2, 9), real(2, 2, 3), real(2) }, args { stride = 2, padding = 2 }),
  case("dilated", { real(1, 2, 9), real(2, 2, 3), real(2) }, args { dilation = 3, padding = 1 }),
  case("stride and dilation", { real(1, 1, 11), real(2, 1, 3) },
    nobias { stride = 4, dilation = 2, padding = 3 }),
  case("grouped", { real(2, 4, 5), real(6, 2, 2), real(6) }, args { groups = 2 }),
  case("depthwise", { real(1, 3, 6), real(3, 1, 3), real(3) }, args { groups = 3, padding = 1 }),
  case("longer than the stride", { real(1, 2, 8), real(1, 2, 2) }, nobias { stride = 5 }),
  case("empty batch", { real(0, 2, 5), real(3, 2, 3), real(3) }),
  case("no channels", { real(2, 0, 5), real(3, 0, 3), real(3) }),
  big(args { padding = 3, stride = 2 }, real(3, 5, 3001), real(18, 5, 7), real(18)),
}
L.conv2d = {
  case("plain", { real(2, 3, 5, 4), real(4, 3, 3, 2), real(4) }),
  case("no bias", { real(1, 2, 4, 4), real(2, 2, 3, 3) }, nobias { padding = 1 }),
  case("unbatched", { real(2, 4, 5), real(3, 2, 2, 3), real(3) }),
  case("strided", { real(2, 2, 7, 6), real(3, 2, 3, 3), real(3) }, args { stride = 2, padding = 1 }),
  case("uneven", { real(1, 2, 7, 6), real(2, 2, 2, 3), real(2) },
    args { stride = { 3, 2 }, padding = { 0, 2 }, dilation = { 2, 1 } }),
  case("dilated", { real(1, 2, 7, 7), real(2, 2, 3, 3), real(2) }, args { dilation = 2, padding = 2 }),
  case("1 x 1", { real(2, 3, 3, 4), real(5, 3, 1, 1), real(5) }),
  case("1 x 1 strided", { real(2, 3, 5, 4), real(2, 3, 1, 1), real(2) }, args { stride = 2 }),
  case("grouped", { real(1, 4, 4, 4), real(6, 2, 3, 3), real(6) }, args { groups = 2, padding = 1 }),
  case("depthwise", { real(2, 3, 5, 5), real(3, 1, 3, 3), real(3) }, args { groups = 3, padding = 1 }),
  case("depthwise strided", { real(1, 2, 6, 7), real(4, 1, 3, 3), real(4) },
    args { groups = 2, padding = 1, stride = 2 }),
  case("whole", { real(2, 3, 3, 3), real(2, 3, 3, 3), real(2) }),
  case("much padding", { real(1, 1, 2, 2), real(1, 1, 2, 2), real(1) }, args { padding = 3 }),
  case("empty batch", { real(0, 2, 4, 4), real(3, 2, 3, 3), real(3) }),
  big(args { padding = 1 }, real(4, 17, 28, 30), real(33, 17, 3, 3), real(33)),
  big(args { padding = 1, stride = 2, groups = 2 }, real(3, 16, 33, 41), real(30, 8, 3, 3), real(30)),
  big(args { groups = 24, padding = 2 }, real(2, 24, 31, 33), real(24, 1, 5, 5), real(24)),
  big({}, real(5, 40, 13, 13), real(50, 40, 1, 1), real(50)),
}
L.conv3d = {
  case("plain", { real(1, 2, 3, 4, 3), real(2, 2, 2, 3, 2), real(2) }),
  case("strided", { real(1, 1, 5, 4, 5), real(2, 1, 3, 2, 3), real(2) },
    args { stride = { 2, 1, 2 }, padding = 1, dilation = { 1, 2, 1 } }),
  case("unbatched", { real(2, 3, 3, 3), real(2, 1, 2, 2, 2), real(2) }, args { groups = 2 }),
  case("empty batch", { real(0, 1, 3, 3, 3), real(1, 1, 2, 2, 2) }, nobias()),
  big(args { padding = 1 }, real(2, 6, 9, 14, 15), real(16, 6, 3, 3, 3), real(16)),
}
L.conv_transpose1d = {
  case("plain", { real(2, 3, 4), real(3, 2, 3), real(2) }),
  case("strided", { real(1, 2, 4), real(2, 3, 3), real(3) },
    args { stride = 2, padding = 1, output_padding = 1 }),
  case("dilated", { real(1, 2, 4), real(2, 2, 2) }, nobias { dilation = 3, output_padding = 2, padding = 1 }),
  case("grouped", { real(1, 4, 3), real(4, 2, 2), real(4) }, args { groups = 2, stride = 3 }),
  case("unbatched", { real(2, 3), real(2, 2, 3), real(2) }),
  case("empty batch", { real(0, 2, 3), real(2, 2, 3), real(2) }),
  big(args { stride = 2, padding = 1 }, real(3, 18, 1001), real(18, 5, 7), real(5)),
}
L.conv_transpose2d = {
  case("plain", { real(2, 3, 3, 4), real(3, 2, 2, 3), real(2) }),
  case("strided", { real(1, 2, 3, 3), real(2, 3, 3, 3), real(3) },
    args { stride = 2, padding = 1, output_padding = 1 }),
  case("uneven", { real(1, 2, 3, 2), real(2, 2, 2, 3) },
    nobias { stride = { 3, 1 }, padding = { 1, 0 }, output_padding = { 2, 1 }, dilation = { 1, 2 } }),
  case("grouped", { real(1, 4, 2, 3), real(4, 1, 2, 2), real(2) }, args { groups = 2, stride = 2 }),
  case("unbatched", { real(2, 3, 2), real(2, 2, 3, 3), real(2) }, args { padding = 1 }),
  case("stride beyond the kernel", { real(1, 1, 2, 2), real(1, 2, 1, 2), real(2) }, args { stride = 3 }),
  case("empty batch", { real(0, 2, 3, 3), real(2, 2, 3, 3), real(2) }),
  big(args { stride = 2, padding = 1, output_padding = 1 },
    real(3, 33, 14, 15), real(33, 16, 3, 3), real(16)),
}
L.conv_transpose3d = {
  case("plain", { real(1, 2, 2, 2, 3), real(2, 2, 2, 2, 2), real(2) }),
  case("strided", { real(1, 2, 2, 2, 2), real(2, 1, 2, 3, 1) },
    nobias { stride = { 2, 1, 2 }, padding = { 0, 1, 0 } }),
  case("empty batch", { real(0, 1, 2, 2, 2), real(1, 1, 2, 2, 2) }, nobias()),
  big(args { stride = 2, padding = 1 }, real(2, 8, 6, 7, 7), real(8, 6, 3, 3, 3), real(6)),
}
-- Sums of many products in 16 bits.
for _, list in pairs(L) do
  for _, k in ipairs(list) do k.loss = 4 end
end

-- ---- pools ----
L.max_pool1d = {
  case("plain", { real(2, 3, 6) }, args(2)),
  case("overlapping", { real(1, 2, 7) }, args(3, { stride = 2, padding = 1 })),
  case("dilated", { real(1, 2, 8) }, args(2, { dilation = 3, stride = 1 })),
  case("unbatched, ceil", { real(2, 7) }, args(2, { ceil_mode = true })),
  case("indices", { real(1, 2, 6) }, args(3, { stride = 1, return_indices = true })),
  case("empty batch", { real(0, 2, 4) }, args(2)),
  big(args(3, { stride = 2, padding = 1 }), real(20, 7, 999)),
}
L.max_pool2d = {
  case("plain", { real(2, 2, 4, 6) }, args(2)),
  case("overlapping", { real(1, 2, 7, 6) }, args(3, { stride = 2, padding = 1 })),
  case("uneven", { real(1, 1, 6, 9) },
    args({ 2, 3 }, { stride = { 1, 2 }, padding = { 0, 1 }, dilation = { 2, 1 } })),
  case("ceil", { real(1, 2, 5, 5) }, args(2, { ceil_mode = true })),
  case("unbatched", { real(2, 4, 4) }, args(2)),
  case("indices", { real(1, 2, 4, 5) }, args(2, { return_indices = true, stride = 1 })),
  case("empty batch", { real(0, 2, 4, 4) }, args(2)),
  big(args(3, { stride = 2, padding = 1 }), real(6, 12, 41, 37)),
}
L.max_pool3d = {
  case("plain", { real(1, 2, 4, 4, 4) }, args(2)),
  case("uneven, indices", { real(1, 1, 5, 6, 4) },
    args({ 2, 3, 2 }, { stride = { 1, 2, 2 }, padding = { 1, 1, 0 }, dilation = { 2, 1, 1 }, return_indices = true })),
  case("unbatched, ceil", { real(1, 5, 3, 5) }, args(2, { ceil_mode = true })),
  case("empty batch", { real(0, 2, 4, 4, 4) }, args(2)),
  big(args(3, { stride = 2, padding = 1 }), real(2, 6, 19, 21, 17)),
}
L.avg_pool3d = {
  case("padded", { real(1, 2, 4, 4, 3) }, args({ 3, 2, 2 }, { stride = 2, padding = { 1, 1, 0 } })),
  case("unbatched, ceil, exclude", { real(1, 5, 4, 5) },
    args(3, { stride = 2, padding = 1, ceil_mode = true, count_include_pad = false })),
  case("divisor", { real(1, 1, 3, 4, 3) }, args(2, { divisor_override = 3 })),
  case("empty batch", { real(0, 2, 4, 4, 4) }, args(2)),
  big(args(3, { stride = 2, padding = 1 }), real(2, 6, 19, 21, 17)),
}
L.adaptive_max_pool3d = {
  case("indices", { real(1, 2, 5, 4, 3) }, args({ 2, 3, 1 }, true)),
  case("unbatched", { real(2, 3, 4, 4) }, args(2)),
}
L.adaptive_avg_pool3d = {
  case("plain", { real(1, 2, 5, 4, 3) }, args { 2, 3, 1 }),
  case("wider, unbatched", { real(2, 2, 3, 2) }, args(3)),
}
L.avg_pool1d = {
  case("plain", { real(2, 3, 6) }, args(2)),
  case("padded", { real(1, 2, 7) }, args(3, { stride = 2, padding = 1 })),
  case("exclude", { real(1, 2, 7) }, args(3, { stride = 2, padding = 1, count_include_pad = false })),
  case("unbatched, ceil", { real(2, 7) }, args(2, { ceil_mode = true })),
  case("empty batch", { real(0, 2, 4) }, args(2)),
  big(args(3, { stride = 2, padding = 1 }), real(20, 7, 999)),
}
L.avg_pool2d = {
  case("plain", { real(2, 2, 4, 6) }, args(2)),
  case("padded", { real(1, 2, 7, 6) }, args(3, { stride = 2, padding = 1 })),
  case("exclude", { real(1, 2, 7, 6) }, args(3, { stride = 2, padding = 1, count_include_pad = false })),
  case("ceil", { real(1, 2, 5, 6) },
    args({ 2, 3 }, { stride = { 2, 2 }, padding = { 1, 1 }, ceil_mode = true })),
  case("ceil, exclude", { real(1, 1, 6, 6) },
    args(3, { stride = 2, padding = 1, ceil_mode = true, count_include_pad = false })),
  case("divisor", { real(1, 2, 4, 4) }, args(2, { stride = 1, divisor_override = 3 })),
  case("unbatched", { real(2, 4, 4) }, args(2)),
  case("empty batch", { real(0, 2, 4, 4) }, args(2)),
  big(args(3, { stride = 2, padding = 1 }), real(6, 12, 41, 37)),
}
L.adaptive_avg_pool1d = {
  case("plain", { real(2, 3, 7) }, args(3)),
  case("wider", { real(1, 2, 3) }, args(5)),
  case("unbatched", { real(2, 6) }, args(1)),
  case("nothing", { real(2, 2, 6) }, args(0)),
  case("empty batch", { real(0, 2, 4) }, args(2)),
  big(args(100), real(20, 7, 999)),
}
L.adaptive_avg_pool2d = {
  case("plain", { real(2, 2, 7, 5) }, args { 3, 4 }),
  case("one", { real(2, 3, 4, 5) }, args(1)),
  case("wider", { real(1, 2, 3, 2) }, args { 2, 5 }),
  case("unbatched", { real(2, 6, 4) }, args { 2, 2 }),
  case("empty batch", { real(0, 2, 4, 4) }, args(2)),
  big(args { 7, 6 }, real(6, 30, 40, 37)),
  big(args(1), real(6, 130, 11, 13)),
}
L.adaptive_max_pool1d = {
  case("plain", { real(2, 3, 7) }, args(3)),
  case("indices", { real(1, 2, 7) }, args(2, true)),
  case("unbatched", { real(2, 6) }, args(1)),
  case("empty batch", { real(0, 2, 4) }, args(2)),
  big(args(100), real(20, 7, 999)),
}
L.adaptive_max_pool2d = {
  case("plain", { real(2, 2, 7, 5) }, args { 3, 4 }),
  case("indices", { real(1, 2, 5, 5) }, args(2, true)),
  case("unbatched", { real(2, 6, 4) }, args { 2, 2 }),
  case("empty batch", { real(0, 2, 4, 4) }, args(2)),
  big(args { 7, 6 }, real(6, 30, 40, 37)),
}

-- ---- patches ----
L.unfold = {
  case("plain", { real(2, 2, 4, 5) }, args { kernel_size = { 2, 3 } }),
  case("all", { real(1, 2, 6, 7) }, args(2, { dilation = 2, padding = 1, stride = { 2, 1 } })),
  case("unbatched", { real(2, 4, 4) }, args(2)),
  case("empty batch", { real(0, 2, 4, 4) }, args(2)),
  big(args(3, { padding = 1, stride = 2 }), real(4, 9, 33, 31)),
}
L.fold = {
  case("plain", { real(2, 12, 9) }, args({ 4, 5 }, { 2, 3 })),
  case("all", { real(1, 8, 21) }, args({ 6, 7 }, 2, { dilation = 2, padding = 1, stride = { 2, 1 } })),
  case("unbatched", { real(8, 9) }, args({ 4, 4 }, 2)),
  case("empty batch", { real(0, 8, 9) }, args({ 4, 4 }, 2)),
  big(args({ 33, 31 }, 3, { padding = 1, stride = 2 }), real(4, 81, 272)),
}
for _, name in ipairs { "fold", "unfold" } do
  for _, k in ipairs(L[name]) do k.loss = 2 end
end

return L
