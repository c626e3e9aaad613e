--- parallelize_module(model, mesh, plan): tensor and sequence parallelism of a model by a plan, a table of names of modules, in which *
--- stands for one part of a name, and of their styles (styles.lua):
---
---   { ["h.*.attn.c_attn"] = { "colwise", pieces = 3 }, ["h.*.attn.c_proj"] = "rowwise", ["wte"] = "embedding_rowwise" }
---
--- Parameters keep their identity and become this rank's part. All ranks of the axis read the same batch.
local accel = require "accel"
local Module = require "accel.nn.module"
local adapters = require "accel.parallel.adapters"
local check = require "accel.util.check"
local coalesce = require "accel.dist.coalesce"
local nearest = require "accel.util.nearest"
local options = require "accel.util.options"
local partial = require "accel.parallel.partial"
local raise = require "accel.util.raise"
local styles = require "accel.parallel.styles"
local tensors = require "accel.util.tensors"
local verify = require "accel.dist.verify"

local WHO <const> = "parallelize_module"

local M = {}

--- A name with * for one part of it, as a pattern.
local function pattern_of(text)
  return "^" .. text:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0"):gsub("%*", "[^.]+") .. "$"
end

--- The name that a module has without adapters around the model and the layer (accel.peft).
local function plain_name(name) return (name:gsub("^base_model%.model%.", ""):gsub("%.base_layer$", "")) end

--- The model that a plan refers to: without the wrapper of adapters.
local function base_of(model)
  local own = package.loaded["accel.peft.state"]
  return own and own.is(model) and model:get_base_model() or model
end

--- Modules by name, in order, that an entry of a plan names, with the base model's prefix or without. Of layers with adapters it is the
--- base that is meant.
---@param model accel.nn.Module
---@param text string
---@return {name: string, module: accel.nn.Module}[]
function M.find(model, text)
  local found, prefix = {}, base_of(model).base_model_prefix
  for _, wanted in ipairs { text, prefix and prefix .. "." .. text } do
    local pattern = pattern_of(wanted)
    for name, module in pairs(model:named_modules()) do
      local adapter = rawget(module, "base_layer") ~= nil and rawget(module, "names") ~= nil
      if not adapter and plain_name(name):find(pattern) then found[#found + 1] = { name = name, module = module } end
    end
    if #found > 0 then return found end
  end
  return found
end

local function no_module(model, text)
  local names, generic = {}, {}
  for name in pairs(model:named_modules()) do
    local short = name:gsub("%.%d+", ".*")
    if name ~= "" and not generic[short] then generic[short], names[#names + 1] = true, short end
  end
  local near = nearest(text, names)
  raise("%s: '%s' of the plan names no module of %s%s", WHO, text, getmetatable(model).__name or "the model",
    near and ("; did you mean '%s'?"):format(near) or "")
end

--- Entries of a plan, checked: text, style, options and the modules that they name.
local function read(model, plan)
  local entries, taken = {}, {}
  if type(plan) ~= "table" then raise("%s: the plan must be a table of module names, got %s", WHO, check.shown(plan)) end
  for text, given in accel.pairs(plan) do
    local o = type(given) == "table" and given or { given }
    local style = o[1]
    if type(text) ~= "string" then raise("%s: keys of the plan are names of modules, got %s", WHO, check.shown(text)) end
    if not styles.known[style] then
      local near = type(style) == "string" and nearest(style, styles.known)
      raise("%s: '%s' has the style %s, which is not known%s", WHO, text, check.shown(style),
        near and ("; did you mean '%s'?"):format(near) or "")
    end
    local found = M.find(model, text)
    if #found == 0 and not o.optional then no_module(model, text) end
    for _, f in ipairs(found) do
      if taken[f.module] then
        raise("%s: '%s' is named twice by the plan, by '%s' and '%s'", WHO, f.name, taken[f.module], text)
      end
      taken[f.module] = text
    end
    entries[#entries + 1] = { text = text, style = style, found = found,
      options = { pieces = o.pieces, input = o.input, output = o.output } }
    for key in next, o do
      if key ~= 1 and key ~= "pieces" and key ~= "input" and key ~= "output" and key ~= "optional" then
        raise("%s: '%s' has an unknown option '%s'; choose from 'pieces', 'input', 'output', 'optional'", WHO, text, tostring(key))
      end
    end
  end
  return entries
end

--- The text that ranks must agree on: the plan, line by line.
local function lines_of(entries)
  local lines = {}
  for _, e in ipairs(entries) do
    lines[#lines + 1] = ("'%s' as %s%s%s%s"):format(e.text, e.style, e.options.pieces and " in " .. e.options.pieces or "",
      e.options.input and " input " .. e.options.input or "", e.options.output and " output " .. e.options.output or "")
  end
  return lines
end

local function check_divisible(model, axis)
  local c = model.config
  for _, key in ipairs(model.tp_divides or {}) do
    if c and c[key] and c[key] % axis.size ~= 0 then
      raise("%s: %s = %d does not divide by tp_size %d", WHO, key, c[key], axis.size)
    end
  end
end

--- Gives all ranks of the world, or of an axis, rank 0's parameters and buffers, after they were compared.
---@param model accel.nn.Module
---@param group? accel.dist.Group
function M.synchronize(model, group)
  local lines, list = {}, {}
  for name, p in pairs(model:named_parameters()) do
    lines[#lines + 1] = ("'%s' %s %s"):format(name, p.dtype, tensors.shape_string(p))
    list[#list + 1] = p
  end
  verify(WHO, "parameter", lines, "build the same model on all of them", group)
  coalesce.broadcast(list, 0, group)
  coalesce.broadcast(model:buffers(), 0, group)
end

---@param model accel.nn.Module
---@param where accel.parallel.DeviceMesh|accel.parallel.Axis a mesh has a dimension "tp", or it is the only one
---@param plan? table default: the model's own, model.tp_plan
---@param opts? {sequence_parallel: boolean?, enable_async_tp: boolean?, tp_comm_overlap: boolean?, init_sync: boolean?}
--- sequence_parallel (false): between the parallel layers every rank has a part of the sequence. enable_async_tp (false): gradients of
--- inputs are summed while weight gradients are computed, with the same bits. tp_comm_overlap (false): forward's products are computed in
--- parts, while other parts are gathered or summed. init_sync (true): parameters become the axis' first rank's
---@return accel.nn.Module model
function M.parallelize_module(model, where, plan, opts, ...)
  if not Module.is_module(model) then raise("%s: %s", WHO, Module.not_a_module(model)) end
  local o = options(WHO, opts, { sequence_parallel = false, enable_async_tp = false, tp_comm_overlap = false, init_sync = true },
    ...)
  local axis = where.axes and (where.axes.tp or where.axes[where.mesh_dim_names[1]]) or where
  local base = base_of(model)
  plan = plan or base.tp_plan
  if plan == nil then
    raise("%s: %s has no plan; give one: { [\"blocks.*.up\"] = \"colwise\", [\"blocks.*.down\"] = \"rowwise\" }", WHO,
      getmetatable(model).__name or "the model")
  end
  local entries = read(model, plan)
  verify(WHO, "plan row", lines_of(entries), "give all of them the same plan", axis.group or nil)
  if axis.size == 1 then return model end
  check_divisible(base, axis)
  if o.sequence_parallel and base.sp_plan == false then
    raise("%s: %s has no plan for sequence_parallel: its sequences are not of a length that divides", WHO,
      getmetatable(model).__name or "the model")
  end
  if o.init_sync then M.synchronize(model, axis.group) end
  local region = styles.Region(axis, o.sequence_parallel, o.enable_async_tp, o.tp_comm_overlap)
  for _, e in ipairs(entries) do
    for _, f in ipairs(e.found) do styles.apply(region, e.style, f.name, f.module, e.options) end
  end
  if o.sequence_parallel then -- by block, "h.0". Modules outside blocks by themselves
    for name, module in pairs(model:named_modules()) do
      if ("." .. name):find "^[^%d]*%.%d+$" or region.partial and region.partial[module] then partial.scope(region, module) end
    end
  end
  adapters.follow(region, model)
  region.entries = entries
  rawset(model, "tp_size", axis.size)
  rawset(model, "parallel_region", region)
  return model
end

--- A model has other modules or adapters than when it was shared out: those that the plan names are shared out as well. Values are the same
--- on all ranks.
---@param model accel.nn.Module
function M.follow(model)
  local region = model.parallel_region
  for _, e in ipairs(region.entries) do
    for _, f in ipairs(M.find(model, e.text)) do
      if not region.style_of[f.module] then
        if region.sequence then
          raise("%s: '%s' was added after the model was split, which sequence_parallel does not support; add it before", WHO, f.name)
        end
        styles.apply(region, e.style, f.name, f.module, e.options)
      end
    end
  end
  adapters.follow(region, model)
end

return M
