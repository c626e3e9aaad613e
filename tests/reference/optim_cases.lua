-- Optimizer, clipping and schedule cases of a reference folder. Returns function(dir, manifest, verbose) -> passed, failed, skipped.
local accel = require "accel"

local function close(got, want, bar)
  local a = got:detach():to("f64"):reshape(-1):tolist()
  local b = want:to("f64"):reshape(-1):tolist()
  local worst, scale = 0.0, 1e-30
  for i = 1, #b do
    local e = math.abs(a[i] - b[i])
    worst = e == e and math.max(worst, e) or math.huge -- NaN would slip through math.max
    scale = math.max(scale, math.abs(b[i]))
  end
  return worst / scale <= bar, worst / scale
end

local function options_of(t)
  local r = {}
  for k, v in pairs(t) do r[k] = v end
  return r
end

local function optimizer_case(case, data, dtype, bar)
  local params = {}
  while data[case.name .. "/param" .. #params] do
    local p = data[case.name .. "/param" .. #params]:to(dtype):clone()
    p.requires_grad = true
    params[#params + 1] = p
  end
  local groups = {}
  for i, g in ipairs(case.groups) do
    local group = options_of(g)
    group.params = {}
    for j, index in ipairs(g.params) do group.params[j] = params[index + 1] end
    groups[i] = group
  end
  local opt = accel.optim[case.optimizer](groups, options_of(case.options))
  for step = 0, case.steps - 1 do
    for i, p in ipairs(params) do
      local g = data[("%s/grad%d_%d"):format(case.name, step, i - 1)]
      p.grad = g and g:to(dtype):clone() or nil
    end
    opt:step()
    for i, p in ipairs(params) do
      local want = data[("%s/step%d_%d"):format(case.name, step, i - 1)]
      local ok, err = close(p, want, bar)
      if not ok then return false, ("parameter %d after step %d: error %.3g, bar %.3g"):format(i - 1, step, err, bar) end
    end
  end
  return true
end

local function clip_case(name, data)
  local params, i = {}, 0
  while data[("%s/grad%d"):format(name, i)] do
    local g = data[("%s/grad%d"):format(name, i)]:to("f64"):clone()
    local p = accel.zeros(g.shape, { dtype = "f64", requires_grad = true })
    p.grad = g
    params[#params + 1] = p
    i = i + 1
  end
  local utils = accel.nn.utils
  if name == "clip_value" then
    if not utils.clip_grad_value_ then return nil end
    utils.clip_grad_value_(params, 0.5)
  else
    local options = name == "clip_norm_inf" and { norm_type = math.huge } or {}
    local norm = utils.clip_grad_norm_(params, 1.0, options)
    local want = data[name .. "/norm"]
    local ok, err = close(norm:reshape(-1), want:reshape(-1), 1e-10)
    if not ok then return false, ("norm: error %.3g"):format(err) end
  end
  for k, p in ipairs(params) do
    local ok, err = close(p.grad, data[("%s/clipped%d"):format(name, k - 1)], 1e-10)
    if not ok then return false, ("gradient %d: error %.3g"):format(k - 1, err) end
  end
  return true
end

return function(dir, manifest, verbose)
  local passed, failed, skipped = 0, 0, 0
  local data = accel.load(dir .. "/optim.safetensors")
  if not data then return 0, 0, 0 end
  local function verdict(label, ok, good, why)
    if not ok then good, why = false, tostring(good) end
    if good == nil then
      skipped = skipped + 1
      if verbose then print(("skip %s: not here"):format(label)) end
    elseif good then
      passed = passed + 1
    else
      failed = failed + 1
      print(("FAIL %s: %s"):format(label, why))
    end
  end
  for _, case in ipairs(manifest.optim or {}) do
    local class = rawget(accel.optim, case.optimizer) or accel.optim[case.optimizer]
    if not class or case.options.amsgrad then
      if not class or not class.supports_amsgrad then
        verdict("optimizer " .. case.name, true, nil)
        goto next
      end
    end
    for _, run in ipairs { { "f64", 1e-10 }, { "f32", 1e-5 } } do
      local ok, good, why = pcall(optimizer_case, case, data, run[1], run[2])
      if not ok or not good or run[1] == "f32" then
        verdict("optimizer " .. case.name .. " " .. run[1], ok, good, why)
        break
      end
    end
    ::next::
  end
  for _, name in ipairs { "clip_norm", "clip_norm_inf", "clip_value" } do
    if data[name .. "/grad0"] then verdict(name, pcall(clip_case, name, data)) end
  end
  return passed, failed, skipped
end
