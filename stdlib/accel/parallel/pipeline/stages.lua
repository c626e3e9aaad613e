--- The division of a model into stages of a pipeline, by a plan that is data: names in the order in which forward reaches them,
--- blocks' names with * (model.pipeline_plan):
---
---   { "wte", "wpe", "h.*", "ln_f", "lm_head" }
---
--- Blocks are shared out, so many to each stage that the products of all stages take about as long (balance.lua). A module between blocks
--- belongs to the stage of the block before it, or, as { "shared", next = true }, to the stage of the block after it. Modules before all
--- blocks belong to the first stage. A module may be named twice, if forward reaches it twice: every stage that needs it has it, and their
--- gradients are summed. Without a plan of the whole model, all modules other than blocks are on every stage.
local accel = require "accel"
local absent = require "accel.parallel.absent"
local Module = require "accel.nn.module"
local ModuleList = require "accel.nn.module_list"
local Sequential = require "accel.nn.sequential"
local balance = require "accel.parallel.pipeline.balance"
local class = require "accel.util.class"
local core = require "accel.parallel.core"
local find = require("accel.parallel.tensor_parallel").find
local raise = require "accel.util.raise"

local M = {}

--- A plan whose blocks are the modules of some classes, the outermost ones.
local function plan_of_classes(model, classes)
  local plan, wanted = {}, {}
  for _, name in ipairs(classes) do wanted[name] = true end
  for name, module in pairs(model:named_modules()) do
    local inside, last = false, plan[#plan]
    if last then inside = name:sub(1, #last[1] + 1) == last[1] .. "." end
    local cls = getmetatable(module).__name or ""
    if not inside and name ~= "" and (wanted[cls] or wanted[cls:match "[^.]*$"]) then plan[#plan + 1] = { name, block = true } end
  end
  if #plan == 0 then
    raise("pipeline: %s has no module of the classes %s", getmetatable(model).__name or "the model", table.concat(classes, ", "))
  end
  return plan
end

--- A plan for a model without one: the children of a Sequential, or of the ModuleList with the most parameters, are the blocks.
local function default_plan(model)
  if class.isinstance(model, Sequential) then return { "*" } end
  local best, most = nil, 0
  for name, module in pairs(model:named_modules()) do
    if class.isinstance(module, ModuleList) then
      local n = 0
      for _, p in ipairs(module:parameters()) do n = n + p:numel() end
      if n > most then best, most = name, n end
    end
  end
  if not best then
    raise("pipeline: %s has no ModuleList of blocks to divide; give a plan: { \"embed\", \"blocks.*\", \"head\" }",
      getmetatable(model).__name or "the model")
  end
  return { best .. ".*" }
end

--- Costs of the blocks, each with the modules after it, the first also with the modules before it. false: unknown.
local function costs_of(blocks, entries)
  local costs, last = {}, 1
  for i = 1, #blocks do costs[i] = 0 end
  for _, e in ipairs(entries) do
    last = e.block or last
    local at, cost = e.next or last, balance.cost(e.module)
    costs[at] = costs[at] and cost and costs[at] + cost or false
  end
  return costs
end

--- The stage of each block: by count, by names at which stages begin, equally many, or by cost.
local function share_out(blocks, entries, stages, o)
  local of, points = {}, o.split_points or "auto"
  local counts = o.stage_layers or points == "even" and balance.even(#blocks, stages)
    or points == "auto" and balance.by_cost(costs_of(blocks, entries), stages)
  if type(points) == "table" then
    local stage, at = 0, {}
    for _, name in ipairs(points) do at[name] = true end
    for i, b in ipairs(blocks) do
      if at[b.name] or at[b.short] then
        stage, at[b.name], at[b.short] = stage + 1, nil, nil
      end
      of[i] = stage
    end
    local left = next(at)
    if left then raise("pipeline: split_points: '%s' is not a block of the model; blocks are '%s' .. '%s'", left, blocks[1].name,
      blocks[#blocks].name) end
    if stage ~= stages - 1 then
      raise("pipeline: %d split_points make %d stages, but there are %d", #points, stage + 1, stages)
    end
    return of
  end
  local total, stage = 0, 0
  for _, n in ipairs(counts) do total = total + n end
  if #counts ~= stages or total ~= #blocks then
    raise("pipeline: stage_layers (%s) share out %d blocks over %d stages, but there are %d over %d", table.concat(counts, ", "),
      total, #counts, #blocks, stages)
  end
  for _, n in ipairs(counts) do
    if n == 0 then raise("pipeline: %d blocks are too few for %d stages", #blocks, stages) end
    for _ = 1, n do of[#of + 1] = stage end
    stage = stage + 1
  end
  return of
end

--- The blocks with their stages, and by parameter and buffer the set of stages that need it.
---@param model accel.nn.Module
---@param stages integer
---@param o {plan: string[]?, block_classes: string[]?, split_points: ("auto"|"even"|string[])?, stage_layers: integer[]?}
---@return {module: accel.nn.Module, name: string, stage: integer}[] blocks
---@return table<accel.Tensor, table<integer, boolean>> owners
---@return table<accel.nn.Module, table<integer, boolean>> others modules of the plan other than blocks, with the stages that need them
function M.assign(model, stages, o)
  local plan, blocks, owners = o.plan, {}, {}
  if not plan then plan = o.block_classes and plan_of_classes(model, o.block_classes) or model.pipeline_plan or default_plan(model) end
  local complete = plan == o.plan or plan == model.pipeline_plan
  local entries = {}
  for _, entry in ipairs(plan) do
    local text = type(entry) == "table" and entry[1] or entry
    local found = find(model, text)
    if #found == 0 then
      raise("pipeline: '%s' of the plan names no module of %s", text, getmetatable(model).__name or "the model")
    end
    local is_block = text:find("*", 1, true) ~= nil or type(entry) == "table" and entry.block
    for _, f in ipairs(found) do
      if is_block then
        blocks[#blocks + 1] = { module = f.module, name = f.name, short = f.name:match "^[^.]+%.(.*)$" or f.name }
      end
      entries[#entries + 1] = { module = f.module, block = is_block and #blocks or nil,
        next = type(entry) == "table" and entry.next and #blocks + 1 or nil }
    end
  end
  local of, stage = share_out(blocks, entries, stages, o), 0
  for i, b in ipairs(blocks) do b.stage = of[i] end
  local function own(t, s)
    owners[t] = owners[t] or {}
    owners[t][s] = true
  end
  local others = {}
  for _, e in ipairs(entries) do
    if e.block then stage = of[e.block] end
    local at = e.next and of[e.next] or stage
    if not e.block then
      others[e.module] = others[e.module] or {}
      others[e.module][at] = true
    end
    for _, list in ipairs { e.module:parameters(), e.module:buffers() } do
      for _, t in ipairs(list) do own(t, at) end
    end
  end
  local function own_all(t)
    for s = 0, stages - 1 do own(t, s) end
  end
  for name, p in pairs(model:named_parameters()) do
    if not owners[p] and not complete then
      own_all(p) -- its position in forward is unknown: every stage has it
    elseif not owners[p] then
      raise("pipeline: parameter '%s' belongs to no module of the plan; add the module at its position in forward", name)
    end
  end
  for _, b in ipairs(model:buffers()) do
    if not owners[b] then own_all(b) end
  end
  return blocks, owners, complete and others or {}
end

--- Keeps only shapes of other ranks' parameters. keeps(stages) returns whether this rank has one of them.
---@param owners table<accel.Tensor, table<integer, boolean>>
---@param keeps fun(stages: table<integer, boolean>): boolean
---@return table<accel.Tensor, boolean> foreign those that are elsewhere
function M.drop_foreign(owners, keeps)
  local foreign = {}
  local _ <close> = accel.no_grad()
  for t, stages in next, owners do
    if not keeps(stages) then
      foreign[t] = t.requires_grad and "learns" or "frozen"
      t.grad = nil
      core.replace(t, accel.unscoped(accel.empty, t.shape, { dtype = t.dtype, device = absent.device }))
      if t.requires_grad then t:requires_grad_(false) end
    end
  end
  return foreign
end

M.is_module = Module.is_module

return M
