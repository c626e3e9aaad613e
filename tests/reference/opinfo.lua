-- Runs accel on the samples of PyTorch's test database that make/opinfo.py wrote, and compares results, gradients, second gradients,
-- in-place forms, dtypes, shapes and errors:   accel-run tests/reference/opinfo.lua FOLDER [--verbose] [--list] [--strided | --transposed] [op ...]
-- --strided, --transposed: inputs and cotangents that are not contiguous.
--
-- Every difference that is not in opinfo/known.lua is a failure. What accel has no counterpart of is counted.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path

local compare = require "opinfo.compare"
local decode = require "opinfo.decode"
local report = require "opinfo.report"
local spell = require "opinfo.spell"

local folder, verbose, list, only = nil, false, false, {}
for _, word in ipairs(arg) do
  if word == "--verbose" then verbose = true
  elseif word == "--list" then list = true
  elseif word == "--strided" or word == "--transposed" then decode.layout = word:sub(3)
  elseif not folder then folder = word
  else only[word] = true end
end
assert(folder, "usage: opinfo.lua FOLDER [--verbose] [--list] [--strided | --transposed] [op ...]")
local read = decode.reader(folder)
local tell = report.new(verbose, list)

local function note(...) return tell:note(...) end
local arguments, flat = decode.arguments, decode.flat

local function leaves_of(inputs)
  local leaves = {}
  for _, t in ipairs(inputs) do
    if t.requires_grad then leaves[#leaves + 1] = t end
  end
  return leaves
end

local function gradients(outs, leaves, cots, again)
  local from, with = {}, {}
  for _, o in ipairs(outs) do
    if accel.is_tensor(o) and o.requires_grad then
      from[#from + 1] = o
      with[#with + 1] = cots[#from] and cots[#from]:to(o.dtype)
    end
  end
  if #from ~= #cots then return nil, ("%d results with a gradient instead of %d"):format(#from, #cots) end
  return (accel.grad(from, leaves, { grad_outputs = with, create_graph = again, allow_unused = true }))
end

local function check_case(entry, i, case, data, fn)
  local args, kwargs, inputs = arguments(case, data)
  local ok, out = pcall(function() return table.pack(fn(args, kwargs, entry)) end)
  if case.error then
    if not ok and report.missing(out) then return note(entry, i, "raises", out) end
    if ok then return note(entry, i, "error", "accel gives a result; PyTorch raises " .. case.error) end
    return
  end
  if not ok then return note(entry, i, "raises", out) end
  local outs = flat(out)
  local bad
  local function fail(what, why) bad = note(entry, i, what, why) or bad end
  if #outs < #case.out then return note(entry, i, "results", ("%d instead of %d"):format(#outs, #case.out)) end
  local random = spell.random[entry.op]
  for k, want in ipairs(case.out) do
    local why = compare.value(outs[k], want, data, case.exact and case.exact[k], entry.dtype, random)
    if why then fail("result " .. k, why) end
  end
  if bad or random then return bad end
  if case.grad then
    local cots = {}
    for k, key in ipairs(case.cot) do cots[k] = decode.copy(data[key]) end
    local leaves = leaves_of(inputs)
    local grads, why
    local done, message = pcall(function() grads, why = gradients(outs, leaves, cots, case.second ~= nil) end)
    if not done then return note(entry, i, "gradient", tostring(message)) end
    if not grads then return note(entry, i, "gradient", why) end
    local n = 0
    for k, key in ipairs(case.grad) do
      if inputs[k].requires_grad then
        n = n + 1
        local differs = compare.gradient(grads[n], key and data[key], case.exact_grad and case.exact_grad[k] and data[case.exact_grad[k]],
          entry.dtype, inputs[k])
        if differs then fail("gradient " .. k, differs) end
      end
    end
    if not bad and case.second then
      local from, with, at = {}, {}, 0
      for k, key in ipairs(case.second_cot) do
        if inputs[k].requires_grad then
          at = at + 1
          local g = grads[at]
          if key and g and g.requires_grad then from[#from + 1], with[#with + 1] = g, data[key] end
        end
      end
      local seconds = {}
      done, message = pcall(function()
        if #from > 0 then seconds = accel.grad(from, leaves, { grad_outputs = with, allow_unused = true }) end
      end)
      if not done then return note(entry, i, "second gradient", tostring(message)) end
      n = 0
      for k, key in ipairs(case.second) do
        if inputs[k].requires_grad then
          n = n + 1
          local differs = compare.gradient(seconds[n], key and data[key], nil, entry.dtype, inputs[k], 100)
          if differs then fail("second gradient " .. k, differs) end
        end
      end
    end
  end
  local inplace = spell.inplace(entry)
  if inplace and (case.inplace or case.inplace_error) and not bad then
    args, kwargs, inputs = arguments(case, data)
    for _, t in ipairs(inputs) do t.requires_grad = false end
    local first = args[1]
    local made, got = pcall(inplace, args, kwargs, entry)
    if case.inplace_error then
      if made then fail("in place", "accel gives a result; PyTorch raises " .. case.inplace_error) end
    elseif not made then
      fail("in place", got)
    else
      if got ~= first then fail("in place", "does not return its first argument") end
      local why = compare.value(got, { tensor = case.inplace }, data, case.exact and case.exact[1], entry.dtype)
      if why then fail("in place", why) end
    end
  end
  return bad
end

-- Ops that follow the memory of their input or need it packed: other layouts are other cases.
local packed = {}
for name in ("as_strided as_strided.partial_views as_strided_copy as_strided_scatter view view_as view_copy view_as_complex"):gmatch "%S+" do packed[name] = true end

local small -- the tensors of a folder of make/opinfo_small.py: all in one file
for _, entry in ipairs(read "ops.json") do
  if not next(only) or only[entry.full] or only[entry.op] then
    local fn = not (decode.layout and packed[entry.full]) and spell.find(entry)
    if not fn then
      tell:absent(entry.full)
    elseif entry.file then
      local cases = entry.cases or read(entry.file .. ".json")
      local data
      if entry.cases then
        small = small or decode.tensors(folder .. "/ops.safetensors")
        data = small
      else
        data = decode.tensors(folder .. "/" .. entry.file .. ".safetensors")
      end
      for i, case in ipairs(cases) do tell:case(entry, check_case(entry, i, case, data, fn)) end
    end
  end
end
tell:finish "ops"
