-- Cases of ops that move pieces: flips, repeats, slices, padding, resizing, and writes by index. See op_cases.lua.
local accel = require "accel"
local c = require "op_cases"
local real, range, constant, index, mask = c.real, c.range, c.constant, c.index, c.mask
local case, args, big = c.case, c.args, c.big

local L = {}

-- x, then the dim, then the other inputs
local function along(d)
  return { call = function(f, x, ...) return f(x, d, ...) end }
end

-- ---- moved as they are ----
L.flip = {
  case("first", { real(3, 2) }, args { 1 }),
  case("last", { real(2, 5) }, args { -1 }),
  case("two of three", { real(2, 3, 4) }, args { 1, 3 }),
  case("none", { real(2, 3) }, { args = { {} } }),
  case("rank 0", { real() }, args { 1 }),
  case("empty", { real(2, 0) }, args { 1, 2 }),
  big(args { 2 }, real(70, 1031)),
  big(args { 1, 2 }, real(1031, 70)),
}
L.roll = {
  case("row", { real(5) }, args(2)),
  case("as one row", { real(2, 3) }, args(-1)),
  case("along the first", { real(4, 3) }, args(1, 1)),
  case("two dims", { real(3, 4) }, args({ 1, -2 }, { 1, -1 })),
  case("far", { real(2, 3) }, args({ -7 }, { 2 })),
  case("rank 0", { real() }, args(3)),
  case("empty", { real(0, 3) }, args({ 1, 1 }, { 1, 2 })),
  big(args({ 5, 31 }, { 1, 2 }), real(70, 1031)),
  big(args(777), real(70, 1031)),
}
L.tile = {
  case("twice", { real(3) }, args { 2 }),
  case("both dims", { real(2, 3) }, args { 2, 3 }),
  case("new dims", { real(2) }, args { 2, 1, 2 }),
  case("fewer repeats than dims", { real(2, 1, 3) }, args { 2 }),
  case("not at all", { real(2, 3) }, args { 0, 2 }),
  case("rank 0", { real() }, args { 3 }),
  case("empty", { real(0, 3) }, args { 2, 2 }),
  big(args { 2, 3 }, real(101, 307)),
}
local times = index(3, 3)
local n_times = 0
for _, v in ipairs(c.values(times, 2)) do n_times = n_times + v end
L.repeat_interleave = {
  case("as one row", { real(2, 3) }, args(2)),
  case("along the first", { real(2, 3) }, args(3, 1)),
  case("along the last", { real(2, 3) }, args(2, -1)),
  case("not at all", { real(2, 3) }, args(0, 2)),
  case("rank 0", { real() }, args(2)),
  case("empty", { real(0, 3) }, args(2, 1)),
  case("each its own", { real(3, 2), times }, {
    call = function(f, x, n) -- values on meta are not there to be added up
      return f(x, n, 1, { output_size = n.device == "meta" and n_times or nil })
    end,
  }),
  case("a tensor for all", { real(2, 3) }, {
    call = function(f, x)
      return f(x, accel.full({ 1 }, 2, { dtype = "i64", device = x.device }), 2, { output_size = 6 })
    end,
  }),
  big(args(3, 2), real(101, 307)),
  big(args(5, 1), real(101, 307)),
}
L.diagonal = {
  case("main", { real(3, 4) }),
  case("above", { real(3, 4) }, args(2)),
  case("below", { real(2, 4, 3) }, args(-1, -2, -1)),
  case("outside", { real(2, 3) }, args(5)),
  case("first and last", { real(3, 2, 3) }, args(0, 3, 1)),
  case("empty", { real(0, 3) }),
  big(args(3), real(500, 300)),
}
L.diag = {
  case("of a matrix", { real(3, 4) }, args(1)),
  case("of a vector", { real(3) }),
  case("above", { real(2) }, args(2)),
  case("below", { real(2) }, args(-1)),
  case("empty", { real(0) }),
  big({}, real(300)),
}
L.movedim = {
  case("one", { real(2, 3, 4) }, args(1, 3)),
  case("two", { real(2, 3, 2) }, args({ 1, 2 }, { 3, 1 })),
  case("back", { real(2, 3, 4) }, args(-1, 1)),
  case("rank 0", { real() }, args(1, 1)),
  case("empty", { real(0, 2) }, args(1, 2)),
}
L.unbind = {
  case("first", { real(3, 2) }),
  case("last", { real(2, 3) }, args(-1)),
  case("row", { real(3) }),
  case("empty", { real(2, 0) }),
  case("no places", { real(0, 2) }),
}
local function grid(indexing)
  return { call = function(f, ...) return f({ ... }, indexing) end }
end
L.meshgrid = {
  case("two", { real(2), real(3) }, grid("ij")),
  case("picture", { real(2), real(3), real(2) }, grid("xy")),
  case("one", { real(3) }, grid("xy")),
  case("rank 0", { real(), real(2) }, grid("ij")),
  case("empty", { real(0), real(2) }, grid("ij")),
}
L.slice = {
  case("middle", { real(5, 2) }, args(1, 2, 4)),
  case("every other", { real(2, 5) }, args(2, { step = 2 })),
  case("from the end", { real(7) }, args(1, -5, -2, 2)),
  case("nothing", { real(3, 2) }, args(1, 3, 2)),
  case("behind the end", { real(3) }, args(1, 4)),
  case("empty", { real(0, 3) }, args(2, 1, 3, 2)),
  big(args(2, 3, 900, 3), real(70, 1031)),
}
local function over(...)
  local a = { ... }
  return { call = function(f, x, src) return f(x, src, table.unpack(a)) end }
end
L.slice_scatter = {
  case("rows", { real(4, 2), real(2, 2) }, over(1, 2, 3)),
  case("every other", { real(2, 5), real(2, 3) }, over(-1, { step = 2 })),
  case("broadcast", { real(3, 4), real(4) }, over(1, 2)),
  case("nothing", { real(3, 2), real(0, 2) }, over(1, 3, 2)),
  case("all", { real(3), real(3) }, over()),
  big(over(2, 3, 900, 3), real(70, 1031), real(70, 300)),
}

-- ---- padding and resizing ----
L.pad = {
  case("last", { real(2, 3) }, args { 1, 2 }),
  case("both dims, a value", { real(2, 3) }, args({ 1, 0, 2, 1 }, "constant", 1.5)),
  case("cropped", { real(2, 5) }, args { -1, -2 }),
  case("cropped and padded", { real(3, 4) }, args { 2, -3, -1, 2 }),
  case("cropped away", { real(2, 3) }, args { -2, -1 }),
  case("reflect", { real(2, 3, 4) }, args({ 3, 1, 2, 2 }, "reflect")),
  case("reflect, cropped", { real(5) }, args({ -2, 3 }, "reflect")),
  case("replicate", { real(2, 3) }, args({ 2, 1, 0, 3 }, "replicate")),
  case("circular", { real(3, 4) }, args({ 4, 1, 1, 3 }, "circular")),
  case("circular, cropped", { real(3, 5) }, args({ -1, 2, 1, -1 }, "circular")),
  case("nothing", { real(3) }, args {}),
  case("rank 0", { real() }, { args = { {} } }),
  case("from empty", { real(0, 2) }, args { 1, 1, 2, 0 }),
  case("empty", { real(2, 0, 3) }, args({ 1, 1 }, "reflect")),
  big(args({ 3, 5, 2, 1 }), real(90, 1031)),
  big(args({ 3, 5, 2, 1 }, "reflect"), real(90, 1031)),
  big(args({ 7, 0 }, "circular"), real(3, 50000)),
}
local function to(size, mode, corners)
  return { args = { { size = size, mode = mode, align_corners = corners } } }
end
local function by(factor, mode, corners)
  return { args = { { scale_factor = factor, mode = mode, align_corners = corners } } }
end
L.interpolate = {
  case("nearest twice", { real(1, 2, 3, 4) }, by(2)),
  case("nearest, down", { real(2, 1, 7) }, to(3)),
  case("nearest, odd", { real(1, 1, 2, 3, 5) }, by({ 1.5, 0.7, 2.3 })),
  case("nearest_exact", { real(1, 2, 5, 3) }, to({ 3, 7 }, "nearest_exact")),
  case("linear", { real(2, 2, 5) }, to(8, "linear")),
  case("linear, corners", { real(2, 1, 4) }, to(7, "linear", true)),
  case("bilinear", { real(1, 2, 3, 4) }, by({ 2, 1.6 }, "bilinear")),
  case("bilinear, down, corners", { real(1, 1, 5, 6) }, to({ 3, 1 }, "bilinear", true)),
  case("bicubic", { real(1, 1, 4, 5) }, to({ 7, 3 }, "bicubic")),
  case("bicubic, corners", { real(1, 1, 3, 4) }, by(1.7, "bicubic", true)),
  case("trilinear", { real(1, 1, 2, 3, 4) }, to({ 3, 2, 5 }, "trilinear")),
  case("area", { real(1, 2, 5, 7) }, to({ 2, 3 }, "area")),
  case("area, up", { real(1, 1, 3) }, to(5, "area")),
  case("antialias, down", { real(1, 2, 7, 9) }, args({ 3, 4 }, { mode = "bilinear", antialias = true })),
  case("antialias, cubic", { real(1, 1, 8, 5) }, args({ 3, 7 }, { mode = "bicubic", antialias = true })),
  case("recomputed", { real(1, 1, 5) }, args { scale_factor = 1.7, mode = "linear", recompute_scale_factor = true }),
  case("empty", { real(0, 2, 3) }, to(5)),
  big(by(2), real(2, 3, 60, 70)),
  big(to({ 111, 97 }, "bilinear"), real(2, 3, 60, 70)),
  big(to({ 31, 40 }, "bicubic", true), real(2, 3, 60, 70)),
}
for _, k in ipairs(L.interpolate) do k.loss = 8 end

local function sampled(options) return { args = { options }, ints = false, loss = 8 } end
-- coordinates up to 1.3, where x is 2 to 5 wide: far from the corners of the weights
L.grid_sample = {
  case("bilinear", { real(2, 2, 3, 4), range(-1.3, 1.3, 2, 2, 3, 2) }, sampled()),
  case("border", { real(1, 2, 4, 3), range(-1.3, 1.3, 1, 2, 2, 2) }, sampled { padding_mode = "border", align_corners = true }),
  case("nearest", { real(1, 2, 4, 3), constant(-1.3, 1.3, 1, 2, 2, 2) }, sampled { mode = "nearest", padding_mode = "reflection" }),
  case("bicubic", { real(1, 2, 4, 5), range(-1.3, 1.3, 1, 2, 2, 2) }, sampled { mode = "bicubic", padding_mode = "reflection" }),
  case("three dims", { real(1, 2, 2, 3, 4), range(-1.3, 1.3, 1, 2, 1, 2, 3) }, sampled { padding_mode = "reflection" }),
  case("empty", { real(0, 2, 3, 4), range(-1, 1, 0, 2, 3, 2) }, sampled()),
  big(sampled(), real(2, 11, 30, 33), range(-1.3, 1.3, 2, 25, 31, 2)),
}

-- ---- written by index ----
L.scatter = {
  case("rows", { real(3, 4), index(3, 2, 4), real(2, 4) }, along(1)),
  case("columns, larger src", { real(3, 4), index(4, 2, 6), real(3, 7) }, along(-1)),
  case("a number", { real(3, 4), index(3, 2, 4) }, {
    call = function(f, x, i) return f(x, 1, i, 2) end,
  }),
  case("rank 0", { real(), index(1), real() }, along(1)),
  case("nothing", { real(3, 4), index(3, 0, 4), real(2, 4) }, along(1)),
  big(along(2), real(200, 330), index(330, 200, 300), real(200, 300)),
}
L.index_copy = {
  case("rows", { real(4, 3), index(4, 6), real(6, 3) }, along(1)),
  case("columns", { real(2, 4), index(4, 2), real(2, 2) }, along(2)),
  case("nothing", { real(2, 4), index(4, 0), real(2, 0) }, along(2)),
  big(along(1), real(100, 330), index(100, 400), real(400, 330)),
}
local function filled(d)
  return { call = function(f, x, i) return f(x, d, i, 3) end }
end
L.index_fill = {
  case("rows", { real(4, 3), index(4, 3) }, filled(1)),
  case("columns", { real(2, 3, 4), index(4, 2) }, filled(-1)),
  case("nothing", { real(2, 4), index(4, 0) }, filled(2)),
  case("tensor", { real(2, 3), index(3, 2), real() }, { call = function(f, x, i, v) return f(x, 2, i, v) end, floor = 8 }),
  big(filled(2), real(100, 330), index(330, 100)),
}
local function named(dims)
  return { call = function(f, x, ...) return f(x, { ... }, dims) end }
end
L.index = {
  case("two dims", { real(3, 4), index(3, 5), index(4, 5) }, named()),
  case("one, wide", { real(4, 3), index(4, 2, 3) }, named()),
  case("rows of eight", { real(3, 2, 8), index(3, 5), index(2, 5) }, named()),
  case("broadcast", { real(3, 4, 2), index(3, 2, 1), index(4, 3) }, named()),
  case("in the middle", { real(2, 3, 4, 2), index(3, 3), index(4, 3) }, named { 2, 3 }),
  case("not neighbours", { real(3, 2, 4), index(3, 2), index(4, 2) }, named { 1, 3 }),
  case("last first", { real(3, 4), index(4, 2), index(3, 2) }, named { 2, 1 }),
  case("rank 0", { real(3, 2), index(3) }, named()),
  case("nothing", { real(3, 4), index(3, 0), index(4, 1) }, named()),
  big(named(), real(60, 70, 33), index(60, 900), index(70, 900)),
  big(named { 1, 3 }, real(60, 70, 33), index(60, 900), index(33, 900)),
}
local function put(n, accumulate, dims)
  return { call = function(f, x, ...)
    local t = { ... }
    return f(x, { table.unpack(t, 1, n) }, t[n + 1] or 2, accumulate or false, dims)
  end }
end
L.index_put = {
  case("two dims", { real(3, 4), index(3, 5), index(4, 5), real(5) }, put(2)),
  case("rows, broadcast", { real(4, 3), index(4, 2), real(3) }, put(1)),
  case("a number", { real(3, 4), index(3, 2), index(4, 2) }, put(2)),
  case("a tensor of one", { real(3, 4), index(3, 2), real(1, 1) }, put(1)),
  case("added", { real(3, 4), index(3, 9), index(4, 9), real(9) }, put(2, true)),
  case("added rows", { real(3, 4, 2), index(3, 2, 1), index(4, 3), real(2, 3, 2) }, put(2, true)),
  case("in the middle", { real(2, 3, 4, 2), index(3, 3), index(4, 3), real(2, 3, 2) }, put(2, false, { 2, 3 })),
  case("not neighbours", { real(3, 2, 4), index(3, 3), index(4, 3), real(3, 2) }, put(2, false, { 1, 3 })),
  case("nothing", { real(3, 4), index(3, 0), real(0, 4) }, put(1)),
  big(put(2), real(60, 70, 33), index(60, 900), index(70, 900), real(900, 33)),
  big(put(2, true), real(60, 70, 33), index(60, 900), index(70, 900), real(900, 33)),
  big(put(2, true, { 1, 3 }), real(60, 70, 33), index(60, 900), index(33, 900), real(900, 70)),
}
for _, name in ipairs { "index", "index_put" } do
  for _, k in ipairs(L[name]) do k.loss = 4 end
end
L.masked_scatter = {
  case("plain", { real(3, 4), mask(3, 4), real(12) }),
  case("broadcast", { real(2, 3), mask(3), real(2, 4) }),
  case("rank 0", { real(), mask(), real(1) }),
  case("empty", { real(0, 3), mask(3), real(2) }),
  big({}, real(200, 330), mask(200, 330), real(66000)),
}

return L
