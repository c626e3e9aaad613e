-- Where Accelerate puts modules: every row of trees.json (sizes, ties, largest layers), maps.json (device maps, balanced memory), clean.json
-- and sizes.json (sizes as text, bytes of dtypes) of a folder, and shards.lua's rows beside them.
--   accel-run tests/reference/device_maps.lua DIR
-- Prints the first failures and ends with "N passed, M failed"; exit status 1 if anything failed.
--
-- Where the reference answers a crash (IndexError, RuntimeError, AttributeError, TypeError), any answer passes, and an error does. The order of a
-- map counts, but for what clean_device_map merged: the reference appends those in the order of a hash.
-- tensors_without_non_persistent: the reference compares the names of nested buffers without their path and so leaves them all in; expected
-- here is the list without them.
-- Buffers of a block that is cut: the reference gives them no device, or, where it merges the block's other parts, one without room for them.
-- Expected here is a map that puts every parameter where the reference has it, and every buffer somewhere; both rows and warning may differ in that.
local accel = require "accel"
local ordered = require "accel.util.ordered"
local A = accel.accelerator
local device_of = require "accel.accelerator.device_map".device_of
local here = arg[0]:match "^.*/" or ""
local tools = dofile(here .. "trees.lua")

local SHOWN <const> = 20
local dir = arg[1]
if not dir then
  io.stderr:write "usage: accel-run tests/reference/device_maps.lua DIR\n"
  os.exit(2)
end

local passed, failures = 0, {}
local function finish()
  for i = 1, math.min(SHOWN, #failures) do print("FAIL " .. failures[i]) end
  if #failures > SHOWN then print(("... and %d more"):format(#failures - SHOWN)) end
  print(("%d passed, %d failed"):format(passed, #failures))
  os.exit(#failures == 0 and 0 or 1, true)
end

local function read(name)
  local file <close> = assert(io.open(dir .. "/" .. name, "rb"))
  return assert(accel.json.decode(file:read "a"))
end

local loaded, trees, maps, clean, sizes = pcall(function()
  return read("trees.json").trees, read("maps.json").rows, read("clean.json").rows, read "sizes.json"
end)
if not loaded then
  failures[1] = tostring(trees)
  finish()
end

local function check(name, ok, made, wanted)
  if ok then
    passed = passed + 1
  else
    failures[#failures + 1] = ("%s:\n  made   %s\n  wanted %s"):format(name, accel.inspect(made), accel.inspect(wanted))
  end
end

local function same(name, made, wanted) check(name, tools.equal(made, wanted), made, wanted) end

--- { name = value } as the list of pairs that the files have, in order.
local function pairs_of(map)
  local out = {}
  for key, value in ordered.iterate(map) do out[#out + 1] = { key, value } end
  return out
end

local function table_of(list)
  local out = {}
  for _, pair in ipairs(list) do out[pair[1]] = pair[2] end
  return out
end

local CRASHES <const> = { IndexError = true, RuntimeError = true, AttributeError = true, TypeError = true }

--- Whether what fn gave is what a row says: its result, one of the alternatives, or an error where it has one.
local function answers(name, row, alternatives, ok, made, equal)
  if row.error then
    return check(name, CRASHES[row.error] or not ok, made, row)
  end
  local good = ok and equal(made, row.result)
  for _, other in ipairs(alternatives or {}) do good = good or ok and equal(made, other.result) end
  check(name, good, made, row.result)
end

local models = {}
for i, record in ipairs(trees) do
  local tree, name = record.tree, ("tree %d "):format(i - 1)
  local model = tools.tie(tools.build(tree), tree.tied)
  models[i - 1] = model
  local own = A.compute_module_sizes(model)
  local wanted_sizes = {} -- asking the reference for a module without tensors of its own leaves a zero there
  for key, bytes in next, record.sizes do
    if bytes ~= 0 or rawget(own, key) then wanted_sizes[key] = bytes end
  end
  same(name .. "sizes", table_of(pairs_of(own)), wanted_sizes)
  local tied = A.find_tied_parameters(model)
  table.sort(tied, function(a, b) return table.concat(a, " ") < table.concat(b, " ") end)
  same(name .. "tied_found", tied, record.tied_found)
  local names, kept, persistent = {}, {}, model:state_dict()
  for key in pairs(A.named_module_tensors(model, { recurse = true })) do names[#names + 1] = key end
  same(name .. "module_tensors", names, record.module_tensors)
  local parameters, wanted = model:named_parameters(), {}
  for key in pairs(A.named_module_tensors(model, { recurse = true, remove_non_persistent = true })) do kept[#kept + 1] = key end
  for _, key in ipairs(record.tensors_without_non_persistent) do
    if rawget(persistent, key) or rawget(parameters, key) then wanted[#wanted + 1] = key end
  end
  same(name .. "tensors_without_non_persistent", kept, wanted)
  for _, row in ipairs(record.max_layer) do
    local direct = {}
    for _, list in ipairs { model:named_parameters(nil, false), model:named_children(), model:named_buffers(nil, false) } do
      for key, value in pairs(list) do direct[#direct + 1] = { key, value } end
    end
    same(name .. "max_layer", { A.get_max_layer_size(direct, own, row.no_split) }, row.result)
  end
  same(name .. "buffer_bytes", A.compute_module_total_buffer_size(model), record.buffer_bytes)
  local total, layer, layers = A.calculate_maximum_sizes(model)
  same(name .. "maximum_sizes", { total, { layer, layers } }, record.maximum_sizes)
  for _, row in ipairs(record.sizes_cast) do
    local cast = A.compute_module_sizes(model, { dtype = row.dtype, special_dtypes = row.special_dtypes })
    same(name .. "sizes_cast", table_of(pairs_of(cast)), row.sizes)
  end
end

--- Maps are equal in order; merged parts may stand anywhere.
local function equal_maps(made, wanted, merged)
  if not tools.equal(table_of(pairs_of(made)), table_of(wanted)) then return false end
  return merged or tools.equal(pairs_of(made), wanted)
end

local warned
function _G.warn(...)
  warned = table.concat { ... }:match "need ([%d.]+) bytes" or warned
end

--- Whether a map differs from the reference's only in that it has places for the buffers of blocks that are cut.
local function adds_buffers(model, made, wanted)
  local theirs, added = table_of(wanted), false
  for name in pairs(model:named_parameters()) do
    if device_of(name, made) ~= device_of(name, theirs) then return false end
  end
  for name in pairs(model:named_buffers()) do
    if device_of(name, made) == nil then return false end
    added = added or made[name] ~= nil and name:find(".", 1, true) ~= nil
  end
  return added
end

local function equal_memory(made, wanted) return tools.equal(made, table_of(wanted)) end

for i, row in ipairs(maps) do
  local name, model = ("map %d of tree %d "):format(i, row.tree), models[row.tree]
  local function arguments(extra)
    local o = { max_memory = table_of(row.max_memory), no_split_module_classes = row.no_split_module_classes, dtype = row.dtype,
      special_dtypes = row.special_dtypes }
    for key, value in next, extra do o[key] = value end
    return o
  end
  local how = { offload_buffers = row.offload_buffers, fallback_allocation = row.fallback_allocation, clean_result = row.clean_result }
  local other = row.alternatives or {}
  local function infer(key, extra)
    warned = nil
    local ok, made = pcall(A.infer_auto_device_map, model, arguments(extra))
    local adds = false
    answers(name .. key, row[key], other[key], ok, made, function(a, b)
      if equal_maps(a, b, row.clean_result) then return true end
      adds = adds_buffers(model, a, b)
      return adds
    end)
    if row[key].result and not adds then
      check(name .. key .. " warning", tonumber(warned) == row[key].warned_buffer_bytes, warned, row[key].warned_buffer_bytes)
    end
  end
  infer("device_map", how)
  for _, key in ipairs { "balanced", "balanced_low_zero" } do
    local ok, made = pcall(A.get_balanced_memory, model, arguments { low_zero = key == "balanced_low_zero" })
    answers(name .. key, row[key], other[key], ok, made, equal_memory)
  end
  if row.device_map_of_balanced then
    how.max_memory = table_of(row.balanced.result)
    infer("device_map_of_balanced", how)
  end
end

for i, row in ipairs(clean) do
  local name, model = ("clean %d"):format(i), models[row.tree]
  local function map_of(from)
    local map = ordered()
    for k = from, #row.map do map[row.map[k][1]] = row.map[k][2] end
    return map
  end
  check(name, equal_maps(A.clean_device_map(map_of(1)), row.clean, true), nil, row.clean)
  for key, from in accel.pairs { check = 1, check_short = 2 } do
    local ok, message = pcall(A.check_device_map, model, map_of(from))
    local wanted = row[key].message and row[key].message:match "following parameters: (.*)"
    local said = not ok and tostring(message):match "following parameters: (.*)"
    check(name .. key, ok == not row[key].error and (ok or said == wanted), message, row[key])
  end
end

for _, row in ipairs(sizes.convert_file_size_to_int) do
  local ok, made = pcall(A.convert_file_size_to_int, row.text)
  if row.accelerate.error and ok then
    check("size " .. accel.inspect(row.text), made == require("accel.util.sizes").parse(row.text), made, row.accelerate) -- accel has more units
  else
    answers(("size %s"):format(accel.inspect(row.text)), row.accelerate, nil, ok, made, tools.equal)
  end
end
for _, row in ipairs(sizes.dtype_byte_size) do
  local ok, made = pcall(A.dtype_byte_size, row.dtype)
  answers("bytes of " .. row.dtype, row.bytes, nil, ok, made, tools.equal)
end
finish()
