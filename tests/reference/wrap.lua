-- Which modules become units of sharding and how these are cut: every row of fsdp1.json (flat units of torch's FSDP) and of
-- fsdp2.json (per parameter, as Accelerate drives it), on the models of trees.json in the same folder.
--   accel-run tests/reference/wrap.lua DIR
-- Rows where the reference's own ranks or world sizes disagree count as far as they agree. Prints the first failures and
-- ends with "N passed, M failed"; exit status 1 if anything failed.
local accel = require "accel"
local nn = accel.nn
local plan = require "accel.shard.plan"
local policies = require "accel.shard.policy"

local SHOWN <const> = 20
local dir = arg[1]
if not dir then
  io.stderr:write "usage: accel-run tests/reference/wrap.lua DIR\n"
  os.exit(2)
end

local function read(name)
  local file <close> = assert(io.open(name, "rb"))
  return assert(accel.json.decode(file:read "a"))
end

local function end_with(passed, failures)
  for i = 1, math.min(SHOWN, #failures) do print("FAIL " .. failures[i]) end
  if #failures > SHOWN then print(("... and %d more"):format(#failures - SHOWN)) end
  print(("%d passed, %d failed"):format(passed, #failures))
  os.exit(#failures == 0 and 0 or 1, true)
end

local loaded, trees, rows1, rows2 = pcall(function()
  return read(dir .. "/trees.json").trees, read(dir .. "/fsdp1.json").rows, read(dir .. "/fsdp2.json").rows
end)
if not loaded then end_with(0, { tostring(trees) }) end

-- Classes by name: those that policies know are the real ones, without what they would build by themselves.
local classes = {}
local function class_of(name)
  local base = ({ ModuleList = nn.ModuleList, ModuleDict = nn.ModuleDict,
    MultiheadAttention = nn.MultiheadAttention })[name] or nn.Module
  classes[name] = classes[name] or base:extend(name)
  classes[name].init = function() end
  return classes[name]
end

local function build(node)
  local module = class_of(node.class)()
  for _, p in ipairs(node.params) do
    module:register_parameter(p[1], nn.Parameter(accel.zeros(p[2], { dtype = p[3], device = "meta" })))
  end
  for _, b in ipairs(node.buffers) do module:register_buffer(b[1], accel.zeros(b[2], { device = "meta" })) end
  for _, child in ipairs(node.children) do module:register_module(child[1], build(child[2])) end
  return module
end

local function tie(model, groups)
  local function owner(name)
    local path, key = name:match "^(.*)%.([^.]+)$"
    return path and model:get_submodule(path) or model, key or name
  end
  for _, group in ipairs(groups) do
    local module, key = owner(group[1])
    local p = module[key]
    for i = 2, #group do
      module, key = owner(group[i])
      module:register_parameter(key, p)
    end
  end
end

local models = {}
local function model_of(index)
  if not models[index] then
    local node = assert(trees[index + 1], "no tree of that number").tree
    models[index] = build(node)
    tie(models[index], node.tied or {})
  end
  return models[index]
end

local function policy_of(r)
  local names = {}
  for _, name in ipairs(r.classes or {}) do names[name] = true end
  return {
    kind = r.policy, min_num_params = r.min_num_params, classes = r.classes,
    fn = function(m) return names[getmetatable(m).__name] and #m:children() == 0 end,
  }
end

-- The first difference, as text; nil when a is as b says. json.null is a nil.
local function differs(a, b, at)
  if b == accel.json.null then b = nil end
  if a == accel.json.null then a = nil end
  if type(a) ~= "table" or type(b) ~= "table" then
    if a == b then return nil end
    return ("%s: made %s, wanted %s"):format(at, accel.inspect(a), accel.inspect(b))
  end
  for key, value in accel.pairs(b) do
    local d = differs(a[key], value, at .. "." .. tostring(key))
    if d then return d end
  end
  for key, value in accel.pairs(a) do
    if b[key] == nil and value ~= accel.json.null then return ("%s.%s: not wanted"):format(at, key) end
  end
end

local function numels_of(params)
  local numels = {}
  for i, p in ipairs(params) do numels[i] = p:numel() end
  return numels
end

-- What one unit is on `world` ranks of FSDP 1.
local function cut_flat(unit, world)
  if #unit.params == 0 then return accel.json.null end
  local numels = numels_of(unit.params)
  local l = plan.fsdp1(numels, world, 4)
  local out = { unpadded = l.count, shard_numel = l.part, rank_padding = {} }
  out.rank_params = world <= 4 and {} or nil
  for r = 0, world - 1 do
    out.rank_padding[r + 1] = 0
    if out.rank_params then
      local held = {}
      for i = 1, #numels do
        local first, last = plan.held(l, numels, i, r)
        held[i] = first and { first, last } or accel.json.null
      end
      out.rank_params[r + 1] = held
    end
  end
  return out
end

local function layout_entries(unit, world)
  local numels, entries, at = numels_of(unit.params), {}, 0
  local l = plan.fsdp1(numels, world, 4)
  for i, n in ipairs(numels) do
    if l.offsets[i] > at then entries[#entries + 1] = { "pad", l.offsets[i] - at } end
    entries[#entries + 1], at = { "param", n }, l.offsets[i] + n
  end
  if l.count > at then entries[#entries + 1] = { "pad", l.count - at } end
  return entries
end

local function check_flat(r)
  local units = policies.flat(model_of(r.tree), policy_of(r))
  local wrapped, made = {}, {}
  for i, unit in ipairs(units) do wrapped[i] = unit.name end
  local d = differs(wrapped, r.wrapped, "wrapped")
  if d then return d end
  local last
  for _, world in ipairs { 1, 2, 3, 4, 8 } do
    local want = r.worlds[tostring(world)]
    if want then
      last = world
      local cuts = {}
      for i, unit in ipairs(units) do cuts[i] = cut_flat(unit, world) end
      d = differs(cuts, want, "worlds." .. world)
      if d then return d end
    end
  end
  for i, unit in ipairs(units) do
    made[i] = { name = unit.name, fqns = unit.names }
    if #unit.params > 0 then
      local shapes = {}
      for k, p in ipairs(unit.params) do shapes[k] = p.shape end
      made[i].numels, made[i].layout = numels_of(unit.params), layout_entries(unit, last)
      made[i].shapes, made[i].shared = shapes, unit.shared
    end
  end
  return differs(made, r.units, "units")
end

-- torch lists a unit's parameters by the module they lie in directly, deepest first, and the reference's keys are the unit's
-- name and the last part of the parameter's: of equal ones the last counts.
local function padded_of(units, world)
  local out = {}
  for _, unit in ipairs(units) do
    local own, users = {}, {}
    for _, p in ipairs(unit.params) do own[p] = true end
    for _, p in accel.pairs(unit.elsewhere) do own[p] = true end
    for _, module in ipairs(unit.users) do users[module] = true end
    local function visit(module)
      for _, child in ipairs(module:children()) do visit(child) end
      for key, value, kind in module:_fields() do
        if kind == "parameter" and users[module] and own[value] then
          own[value] = nil
          out[unit.name == "" and key or unit.name .. "." .. key] = select(2, plan.dim0(value.shape, world, 0))
        end
      end
    end
    visit(unit.module)
  end
  return out
end

local function check_per_parameter(r)
  local model = model_of(r.tree)
  local units, refused = policies.per_parameter(model, policy_of(r))
  local order = {}
  for i, unit in ipairs(units) do order[i] = unit.name end
  local d = differs(order, r.wrapped_bottom_up, "wrapped_bottom_up")
  if d then return d end
  local stops = r.accelerate_error and r.accelerate_error:match "^(.-):"
  if (refused[#refused] or false) ~= (stops or false) then
    return ("accelerate_error: made %s, wanted %s"):format(tostring(refused[#refused]), tostring(stops))
  end
  for world, want in accel.pairs(r.worlds) do
    local cuts, n = {}, math.tointeger(tonumber(world))
    local function cut(name, p)
      cuts[name] = {}
      for rank = 0, n - 1 do cuts[name][rank + 1] = plan.dim0(p.shape, n, rank) end
    end
    for _, unit in ipairs(units) do
      local prefix = unit.name == "" and "" or unit.name .. "."
      for i, p in ipairs(unit.params) do cut(prefix .. unit.names[i], p) end
      -- the reference cuts a tied parameter once in every unit, here it stays one
      for name, p in accel.pairs(unit.elsewhere) do cut(prefix .. name, p) end
    end
    d = differs(cuts, want, "worlds." .. world)
      or differs(padded_of(units, n), r.padded[world], "padded." .. world)
    if d then return d end
  end
end

local passed, failures = 0, {}
local function run(rows, kind, check)
  for i, r in ipairs(rows) do
    local ok, d = pcall(check, r)
    if ok and not d then
      passed = passed + 1
    else
      failures[#failures + 1] = ("%s row %d (tree %s, %s %s): %s"):format(kind, i, r.tree, r.policy,
        accel.inspect(r.min_num_params or r.classes), tostring(d))
    end
  end
end
run(rows1, "fsdp1", check_flat)
run(rows2, "fsdp2", check_per_parameter)
end_with(passed, failures)
