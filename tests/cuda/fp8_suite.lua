-- fp8 on the device: a layer forward and backward, its scales, and states of optimizers in 8 bits are the CPU's, for every recipe. Runs as
-- ops_suite.lua does; with the stand-in for cuBLASLt products of 8 bits go there.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"
local nn = accel.nn

-- casts, which gave zeros: every code and back
local codes = {}
for i = 0, 255 do codes[i + 1] = string.char(i) end
for _, dtype in ipairs { "f8_e4m3", "f8_e5m2" } do
  local t = accel.from_bytes(table.concat(codes), dtype)
  for _, other in ipairs { "f32", "bf16", "f64" } do
    local there = t:to("cuda"):to(other)
    assert(accel.allclose(there:to("cpu"):to "f64", t:to "f64", { rtol = 0, atol = 0, equal_nan = true }), dtype .. " to " .. other)
    local back = there:to(dtype):to("cpu"):to_bytes()
    for i = 0, 255 do
      local value = t[i + 1]:item()
      assert(value ~= value or back:byte(i + 1) == i, ("%s by %s: code %d"):format(dtype, other, i))
    end
  end
end

-- Three steps of two layers, of dims that cuBLASLt takes and the second not; all that is compared, on the CPU.
local function train(device, recipe)
  accel.manual_seed(3)
  local model = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 16))
  local inputs = {}
  for step = 1, 3 do inputs[step] = accel.randn(8, 32) * step end
  model:to(device)
  local scaling = accel.fp8.convert_model(model, recipe)
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-2 })
  if not scaling.load_state_dict and recipe.opt_level == "O2" then accel.fp8.compress_states(optimizer) end
  local out = {}
  local function keep(t) out[#out + 1] = t:detach():to "cpu":to "f64" end
  for step = 1, 3 do
    scaling:enter(true, device)
    local y = model(inputs[step]:to(device))
    scaling:leave()
    y:square():mean():backward()
    keep(y)
    for _, p in ipairs(model:parameters()) do keep(p.grad) end
    optimizer:step()
    optimizer:zero_grad()
  end
  local state = scaling:state_dict()
  if state then
    for _, name in ipairs { "scale_fwd", "scale_bwd", "history_fwd", "history_bwd" } do keep(state[name]) end
  end
  return out, optimizer.state[model:parameters()[1]]
end

for name, recipe in accel.pairs {
  delayed = accel.TERecipeKwargs { amax_history_len = 3, amax_compute_algo = "max" },
  current = accel.AORecipeKwargs { module_filter_func = function() return true end },
  rowwise = accel.AORecipeKwargs { config = "rowwise", module_filter_func = function() return true end },
  mx = accel.TERecipeKwargs { use_mxfp8_block_scaling = true }, states = accel.MSAMPRecipeKwargs {},
} do
  local want, got, state = train("cpu", recipe), train("cuda", recipe)
  assert(#want == #got)
  for i, w in ipairs(want) do
    local scale = w:abs():max():item()
    -- a value beside the border of two codes may fall to either side once sums differ in their last bit
    local off = (got[i] - w):abs():mean():item()
    assert(off <= 2e-3 * scale + 1e-12, ("%s, tensor %d: off by %g of %g"):format(name, i, off, scale))
  end
  if name == "states" then
    assert(state.exp_avg.dtype == "f8_e4m3" and state.exp_avg.device:find "^cuda" and state.exp_avg_sq.dtype == "f16")
  end
end
assert(suite.failed == 0)
