-- Products with quantised weights: microseconds of one matrix of 4096 x 4096, of so many that no cache holds them; bytes of one.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options {}
local N = o.quick and 256 or 4096
local HELD <const> = 160e6 -- bytes of all matrices of a kind

local out = {}
local w = accel.randn(N, N)
local kinds = {
  f32 = function() return w:clone() end,
  bf16 = function() return w:to "bf16" end,
  int8 = function() return accel.quantize_int8(w) end,
  nf4 = function() return accel.quantize_4bit(w, "nf4") end,
  nf4_double = function() return accel.quantize_4bit(w, "nf4", 64, true) end,
}
accel.no_grad(function()
  for kind, make in accel.pairs(kinds) do
    local first = make()
    local bytes = first:numel() * first:element_size()
    local list = { first }
    while #list * bytes < (o.quick and 1 or HELD) do list[#list + 1] = make() end
    out["bytes_" .. kind] = bytes
    for _, rows in ipairs { 1, 8 } do
      local x = accel.randn(rows, N):to(kind == "f32" and "f32" or "bf16")
      local product = (kind == "f32" or kind == "bf16") and accel.linear or accel.linear_quantized
      out[("%s_%d"):format(kind, rows)] = 1e6 / #list * side.time(function()
        for _, q in ipairs(list) do local y <close> = product(x, q) end -- luacheck: ignore y
      end, o.quick, 0.5)
    end
  end
end)
side.finish(out)
