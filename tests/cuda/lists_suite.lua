-- Ops over lists of tensors on the CUDA device against the CPU: tensors of several dtypes that do not lie in one run, lists longer than
-- one launch takes, step counts that move on. Runs as ops_suite.lua does.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"
local _ <close> = accel.no_grad()

local BAR = { f32 = 8, f64 = 8, bf16 = 1, f16 = 1 } -- roundings; the twin's results are equal

-- make(draw, number) returns what an op left behind, on either device.
local function same(name, make)
  local got = {}
  for _, device in ipairs { "cpu", "cuda" } do
    accel.manual_seed(1)
    local function draw(dtype, ...) return accel.rand({ ... }, { dtype = dtype, device = "cpu" }):to(device) end
    local function number(v) return accel.full({}, v, { device = device }) end
    got[device] = make(draw, number)
  end
  assert(#got.cpu == #got.cuda and #got.cpu > 0, name)
  for i, want in ipairs(got.cpu) do suite.expect(("%s: tensor %d"):format(name, i), got.cuda[i], want, { bar = BAR[want.dtype] }) end
end

same("adamw_step_, strided", function(draw, number)
  local function t(dtype) return draw(dtype, 5, 7):t() end
  local p, g, m, v, w = t "f32", t "bf16", t "f64", t "f32", t "f32"
  local q, step = draw("f32", 7, 5), number(3)
  accel.adamw_step_({ p, q }, { g, g }, { m, q * 1 }, { v, q * 1 }, number(0.1), step, { max_exp_avg_sqs = { w, q * 2 } })
  return { p, q, m, v, w, step }
end)

same("sgd_step_, a long list", function(draw, number)
  local p, g, b = {}, {}, {}
  for i = 1, 90 do
    p[i], g[i] = draw(i % 7 == 0 and "f64" or "f32", i), draw("f32", i)
    b[i] = p[i] * 0.5
  end
  accel.sgd_step_(p, g, b, number(0.1), 0.9, 0, 0.01, true)
  for _, t in ipairs(b) do p[#p + 1] = t end
  return p
end)

same("adamw_step_, pieces, ends and places that no vector starts at", function(draw, number)
  local p, g, m, v, step = {}, {}, {}, {}, number(3)
  for i, dtype in ipairs { "f32", "bf16", "f64", "f16" } do
    local n = 9001 + i
    p[i], g[i] = draw(dtype, n), draw("bf16", n + 1):narrow(1, 2, n)
    m[i], v[i] = draw("f32", n), draw("f32", n + 3):narrow(1, i, n)
  end
  accel.adamw_step_(p, g, m, v, number(0.1), step)
  for i = 1, 4 do p[#p + 1], p[#p + 2] = m[i], v[i] end
  return p
end)

same("adafactor_step_, strided and in batches", function(draw, number)
  local step, p, g, r, c, v = number(3), {}, {}, {}, {}, {}
  for i = 1, 40 do
    p[#p + 1], g[#g + 1] = draw("f32", i + 1, i % 3 * 40 + 1):t(), draw("bf16", i + 1, i % 3 * 40 + 1):t()
    r[#r + 1], c[#c + 1] = draw("f32", i % 3 * 40 + 1, 1), draw("f32", 1, i + 1)
    if i % 2 == 0 then
      p[#p + 1], g[#g + 1], v[#v + 1] = draw("f32", i), draw("f32", i), draw("f32", i)
    end
  end
  p[#p + 1], g[#g + 1], r[#r + 1], c[#c + 1] = draw("f32", 1100, 70), draw("f32", 1100, 70), draw("f32", 1100, 1), draw("f32", 1, 70)
  accel.adafactor_step_(p, g, r, c, v, number(0.1), step)
  local all = { step }
  for _, list in ipairs { p, r, c, v } do
    for _, t in ipairs(list) do all[#all + 1] = t end
  end
  return all
end)

same("muon_step_, a number for each", function(draw, number)
  local p, q = draw("f32", 3, 4), draw("bf16", 9):to "f32"
  accel.muon_step_({ p, q }, { p * 2, q * 3 }, { 0.5, 2 }, number(0.1), 0.2)
  return { p, q }
end)

same("clip_grad_norm_, strided", function(draw)
  local p, q = draw("f32", 5, 7):t(), draw("bf16", 3, 4):t()
  local n = accel.clip_grad_norm_({ p, q }, 0.5)
  return { p, q, n }
end)
suite.finish()
