-- Cases of complex numbers: see op_cases.lua. Inputs are real, short floats go in as f32, and results come out
-- as pairs.
local accel = require "accel"
local c = require "op_cases"
local real, range, case = c.real, c.range, c.case

local L = {}

local function wide(x) return x.dtype == "f64" and x or x:to "f32" end
local function out(y) return y:is_complex() and accel.view_as_real(y) or y end
local function number(x) return accel.view_as_complex(wide(x):contiguous()) end
local function more(call) return { call = call, ints = false, wide_result = true, loss = 8, floor = 1, needs_contiguous = true } end

local unary = more(function(f, x) return out(f(number(x))) end)
for _, name in ipairs { "view_as_real", "real", "imag", "conj", "angle", "sgn", "adjoint" } do
  L[name] = { case("matrix", { range(0.5, 2, 3, 4, 2) }, unary), case("empty", { range(0.5, 2, 0, 2, 2) }, unary) }
end
L.view_as_complex = { case("vector", { real(3, 2) }, more(function(f, x) return out(f(wide(x):contiguous())) end)) }
local both = more(function(f, x, y) return out(f(wide(x), wide(y))) end)
for _, name in ipairs { "complex", "polar" } do
  L[name] = { case("vector", { real(3), real(3) }, both), case("broadcast", { real(2, 1), real(3) }, both) }
end

return L
