-- Runs accel's modules and optimizers on the samples of PyTorch's ModuleInfo and OptimizerInfo that make/modinfo.py wrote, and compares
-- results, gradients, states and parameters:   accel-run tests/reference/modinfo.lua FOLDER [--verbose] [--list] [name ...]
-- Differences that are meant stand in opinfo/known.lua.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path

local compare = require "opinfo.compare"
local decode = require "opinfo.decode"
local report = require "opinfo.report"

local folder, only, verbose, list = nil, {}, false, false
for _, word in ipairs(arg) do
  if word == "--verbose" then verbose = true
  elseif word == "--list" then list = true
  elseif not folder then folder = word
  else only[word] = true end
end
assert(folder, "usage: modinfo.lua FOLDER [--verbose] [--list] [name ...]")
local read = decode.reader(folder)
local tell = report.new(verbose, list)

-- Dims among the arguments of modules, which count from 1 here.
local dims = { dim = true, start_dim = true, end_dim = true }
local first_is_dim = { Softmax = true, LogSoftmax = true, Softmin = true, GLU = true, CosineSimilarity = true, Flatten = "both", Unflatten = true }
local other = { LinearCrossEntropyLoss = true } -- another class under the same name

local function class_of(name)
  local ok, class = pcall(function() return accel.nn[name] end)
  return ok and class or nil
end

local function named(kwargs)
  local o
  for key, v in pairs(kwargs) do
    o = o or {}
    o[key] = dims[key] and decode.dim(v) or v
  end
  return o
end

local function call(fn, args, kwargs)
  local o = named(kwargs)
  local n = args.n
  local list_ = table.move(args, 1, n, 1, {})
  if o then
    n = n + 1
    list_[n] = o
  end
  return fn(table.unpack(list_, 1, n))
end

local function check_module(entry, i, case, data)
  local class = class_of(entry.module)
  local args, kwargs = decode.arguments(case, data)
  if first_is_dim[entry.module] then
    args[1] = decode.dim(args[1])
    if first_is_dim[entry.module] == "both" then args[2] = decode.dim(args[2]) end
  end
  if entry.module:find "^BatchNorm" then -- momentum None is false
    if args.n >= 3 and args[3] == nil then args[3] = false end
    if type(case.kwargs.momentum) == "table" and case.kwargs.momentum.none then kwargs.momentum = false end
  end
  local ok, module = pcall(call, class, args, kwargs)
  if not ok then return tell:note(entry, i, "constructor", module) end
  local done, why = pcall(function()
    module:to(entry.dtype)
    module:train(entry.training)
    local state = {}
    for key, at in pairs(case.state) do state[key] = data[at] end
    module:load_state_dict(state)
  end)
  if not done then return tell:note(entry, i, "state", why) end
  local given, options, inputs = decode.arguments(case.forward, data)
  if given.n == 0 and options.input then given, options.input = { options.input, n = 1 }, nil end
  local loose = entry.dtype == "f32" and 16 or 1 -- f32 has no result without rounding beside it
  local out
  ok, out = pcall(function() return table.pack(call(function(...) return module(...) end, given, options)) end)
  if case.error then
    return ok and tell:note(entry, i, "error", "accel gives a result; PyTorch raises " .. case.error) or nil
  end
  if not ok then return tell:note(entry, i, "raises", out) end
  local bad
  local function fail(what, text) bad = tell:note(entry, i, what, text) or bad end
  local outs = decode.flat(out)
  for k, want in ipairs(case.out) do
    local differs = compare.value(outs[k], want, data, nil, entry.dtype, false, loose)
    if differs then fail("result " .. k, differs) end
  end
  if case.cot and not bad then
    local from, with = {}, {}
    for _, o in ipairs(outs) do
      if accel.is_tensor(o) and o.requires_grad then
        from[#from + 1] = o
        with[#with + 1] = case.cot[#from] and data[case.cot[#from]]
      end
    end
    if #from ~= #case.cot then
      fail("gradient", ("%d results with a gradient instead of %d"):format(#from, #case.cot))
    else
      local leaves, names = {}, {}
      for k, t in ipairs(inputs) do
        if t.requires_grad then
          leaves[#leaves + 1] = t
          names[#names + 1] = { "gradient " .. k, case.grad[k], t }
        end
      end
      for name, p in module:named_parameters() do
        if p.requires_grad then
          leaves[#leaves + 1] = p
          names[#names + 1] = { "gradient of " .. name, case.param_grad[name], p }
        end
      end
      if #leaves > 0 then
        local got, grads = pcall(function() return accel.grad(from, leaves, { grad_outputs = with, allow_unused = true }) end)
        if not got then
          fail("gradient", grads)
        else
          for k, row in ipairs(names) do
            local differs = compare.gradient(grads[k], row[2] and data[row[2]], nil, entry.dtype, row[3], loose)
            if differs then fail(row[1], differs) end
          end
        end
      end
    end
  end
  local after = module:state_dict()
  for key, at in pairs(case.after or {}) do
    if not after[key] then fail("state", "no " .. key)
    else
      local differs = compare.value(after[key]:detach(), { tensor = at }, data, nil, entry.dtype, false, loose)
      if differs then fail("state " .. key, differs) end
    end
  end
  return bad
end

local function check_optimizer(entry, i, case, data)
  local class = accel.optim[entry.optimizer]
  local _, kwargs = decode.arguments({ args = {}, kwargs = case.kwargs }, data)
  local params = {}
  for k, key in ipairs(case.params) do params[k] = accel.nn.Parameter(data[key]:clone()) end
  local ok, optimizer = pcall(class, params, kwargs)
  if not ok then return tell:note(entry, i, "constructor", tostring(optimizer) .. " (" .. tostring(case.desc) .. ")") end
  for s, step in ipairs(case.steps) do
    for k, key in ipairs(step.grad) do params[k].grad = data[key]:clone() end
    local done, why = pcall(function() optimizer:step() end)
    if not done then return tell:note(entry, i, "step", why) end
    for k, key in ipairs(step.param) do
      local differs = compare.value(params[k]:detach(), { tensor = key }, data, nil, "f64")
      if differs then
        return tell:note(entry, i, ("step %d, parameter %d (%s)"):format(s, k, tostring(case.desc)), differs)
      end
    end
  end
end

local function sweep(file, key, check, find)
  for _, entry in ipairs(read(file)) do
    entry.full = entry[key]
    if not next(only) or only[entry.full] then
      if not find(entry) then
        tell:absent(entry.full)
      else
        local data = accel.load(folder .. "/" .. entry.file .. ".safetensors") or {}
        for i, case in ipairs(entry.cases) do tell:case(entry, check(entry, i, case, data)) end
      end
    end
  end
end

sweep("modules.json", "module", check_module, function(entry)
  return not other[entry.module] and entry.from:find "^nn%.modules" and class_of(entry.module)
end)
sweep("optimizers.json", "optimizer", check_optimizer, function(entry)
  entry.dtype = "f64"
  local ok, class = pcall(function() return accel.optim[entry.optimizer] end)
  return ok and class
end)
tell:finish "modules and optimizers"
