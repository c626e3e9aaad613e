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

-- "{5,20}", "0.1", "true", "cos" as values.
local function value_of(text)
  if text:find "^{" then
    local list = {}
    for item in text:sub(2, -2):gmatch "[^,]+" do list[#list + 1] = value_of(item) end
    return list
  end
  return tonumber(text) or (text == "true") or (text ~= "false" and text) or false
end

-- "7, gamma=0.3" as positional and named arguments of a schedule.
local function arguments_of(text)
  local plain, named, at = {}, {}, 1
  while at <= #text do
    local key, equals = text:match("^%s*([%a_][%w_]*)=()", at)
    at = equals or at
    local item, after = text:match("^%s*(%b{}),?()", at)
    if not item then item, after = text:match("^%s*([^,]*),?()", at) end
    if key then named[key] = value_of(item) else plain[#plain + 1] = value_of(item) end
    at = after
  end
  plain[#plain + 1] = named
  return table.unpack(plain)
end

-- A schedule as the manifest names it: Class(arguments), get_scheduler(name, arguments), LambdaLR(0.95^step), or
-- SequentialLR(first then second, milestones={m}).
local function schedule_of(name, optimizer)
  local S = accel.optim.lr_scheduler
  local class, text = name:match "^([%w_]+)%((.*)%)$"
  if not class then error("not the name of a schedule: " .. name) end
  if not S[class] then return nil end
  if class == "get_scheduler" then
    local which, rest = text:match "^([%w_]+),%s*(.*)$"
    return S.get_scheduler(which, optimizer, arguments_of(rest))
  elseif class == "LambdaLR" then
    local base = assert(tonumber(text:match "^(.*)%^step$"))
    return S.LambdaLR(optimizer, function(step) return base ^ step end)
  elseif class == "SequentialLR" then
    local parts, milestones = text:match "^(.*), milestones=(%b{})$"
    local list = {}
    for part in (parts .. " then "):gmatch "(.-) then " do list[#list + 1] = schedule_of(part, optimizer) end
    return S.SequentialLR(optimizer, list, value_of(milestones))
  end
  return S[class](optimizer, arguments_of(text))
end

local function schedule_case(name, want, base)
  local p = accel.zeros(1, { requires_grad = true })
  local optimizer = accel.optim.SGD({ p }, { lr = base })
  local schedule = schedule_of(name, optimizer)
  if not schedule then return nil end
  for step, rate in ipairs(want) do
    local got = optimizer.param_groups[1].lr
    if not (math.abs(got - rate) <= 1e-12) then
      return false, ("step %d: %.17g instead of %.17g"):format(step - 1, got, rate)
    end
    optimizer:step()
    schedule:step()
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
    if not accel.optim[case.optimizer] then
      verdict("optimizer " .. case.name, true, nil)
      goto next
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
  for name, want in pairs(manifest.schedules or {}) do
    verdict("schedule " .. name, pcall(schedule_case, name, want, manifest.schedules_base_lr))
  end
  return passed, failed, skipped
end
