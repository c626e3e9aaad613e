--- Calls that all ranks of an elastic job make together: gather, reduce, save_state and others. If ranks are lost meanwhile, the ranks that
--- are left make them again. elastic.lua installs them on its Accelerator, accel.elastic.transaction repeats them.
---
---   between updates             the call is made again. If any rank has its results, all have, and nothing is made again
---   inside an update, at its    one attempt. If ranks are lost, the update begins again, and the call returns a value of
---   last micro-batch            the right kind from this rank alone: nothing of this round counts
---   at an earlier micro-batch   an error, since ranks have different numbers of these
---   in a loop of evaluation     gather_for_metrics and gather return no rows, and the loader deals the batch out again
local accel = require "accel"
local raise = require "accel.util.raise"
local saves = require "accel.accelerator.elastic_saves"
local walk = require "accel.util.walk"

local M = {}

local function map(x, fn)
  return walk.map(x, function(leaf) return accel.is_tensor(leaf) and fn(leaf:detach()) or leaf end)
end

local function own(_, x) return map(x, function(t) return t:clone() end) end

--- As if all ranks had this rank's tensors.
local function gathered(accelerator, x)
  return map(x, function(t)
    local list = {}
    for r = 1, accelerator.num_processes do list[r] = t.ndim == 0 and t:view(1) or t end
    return accel.cat(list, 1)
  end)
end

local function has_tensor(x)
  return walk.visit(x, function(leaf) return accel.is_tensor(leaf) or nil end) or false
end

--- The same tree without rows: tensors without rows, and empty lists in the place of lists of samples.
local function no_rows(x, as_objects)
  if accel.is_tensor(x) then
    if as_objects then return {} end
    x = x:detach()
    return x.ndim == 0 and x:view(1):narrow(1, 1, 0) or x:narrow(1, 1, 0)
  end
  if not walk.is_container(x) then return x end
  if (next(x) == nil or rawget(x, 1) ~= nil) and (as_objects or not has_tensor(x)) then return {} end
  local out = walk.empty_like(x)
  for key, value in walk.entries(x) do walk.set(out, key, no_rows(value, as_objects)) end
  return out
end

local function without_rows(_, x, as_objects)
  if type(as_objects) == "table" then as_objects = as_objects.use_gather_object end
  return require "accel.metrics.gathered".mark(no_rows(x, as_objects))
end

local function reduced(accelerator, x, reduction, scale, opts)
  for _, o in ipairs { type(reduction) == "table" and reduction or false, type(scale) == "table" and scale or false, opts or false } do
    if o then reduction, scale = o.reduction or type(reduction) == "string" and reduction, o.scale or type(scale) == "number" and scale end
  end
  local factor = (reduction or "sum") == "sum" and accelerator.num_processes or 1
  factor = factor * (scale or 1)
  return map(x, function(t) return factor == 1 and t:clone() or t * factor end)
end

local function objects(accelerator, list)
  local all = {}
  for _ = 1, accelerator.num_processes do table.move(list, 1, #list, #all + 1, all) end
  return all
end

--- By method: alone(accelerator, ...), the value for a round that does not count. rows: the call collects rows of the ranks' batches, and in
--- a loop of evaluation it returns without_rows. collects: it completes the sums that a loop of evaluation has made. remember(accelerator)
--- returns what to do before the call is made again. errors: all ranks raise its errors.
local CALLS <const> = {
  gather = { alone = gathered, rows = true },
  gather_for_metrics = { alone = without_rows, rows = true },
  gather_object = { alone = objects, rows = true },
  reduce = { alone = reduced, collects = true },
  broadcast = { alone = own },
  pad_across_processes = { alone = own },
  wait_for_everyone = { alone = function() end },
  save_state = { alone = function(_, folder) return type(folder) == "string" and folder or "?" end, remember = saves.remember, errors = true },
  load_state = { alone = function(_, folder) return type(folder) == "string" and folder or "?" end, errors = true },
  wait_for_save = { alone = function() end, remember = saves.remember, errors = true },
  check_trigger = { alone = function() return false end },
}

--- Gives the accelerator methods that outlive ranks.
---@param elastic accel.accelerator.Elastic
---@param accelerator accel.Accelerator
function M.install(elastic, accelerator)
  for name, how in next, CALLS do
    local method = accelerator[name]
    rawset(accelerator, name, function(self, ...)
      if self ~= accelerator then return method(self, ...) end
      return M.call(elastic, name, how, method, ...)
    end)
  end
end

-- Loops of evaluation ----------------------------------------------------------------------------

--- What a rank knows of the rows that it has taken from a loader that does not train.
---@class accel.accelerator.ElasticRows
---@field loader accel.accelerator.DataLoader? of the batch under way
---@field taken integer batches since the last call that collected rows
---@field calls integer complete calls that collected rows of the batch under way
---@field calling boolean such a call is under way
---@field void boolean the batch under way is dealt out again
---@field lost boolean a lost rank had rows of this pass that no call had collected

---@return accel.accelerator.ElasticRows
function M.rows() return { taken = 0, calls = 0, calling = false, void = false, lost = false } end

--- Training goes on: an evaluation before, of which nobody collected anything, is over.
---@param rows accel.accelerator.ElasticRows
function M.train(rows) rows.taken, rows.lost = 0, false end

--- A loader hands out a batch of evaluation.
---@param rows accel.accelerator.ElasticRows
---@param loader accel.accelerator.DataLoader
function M.take(rows, loader)
  if rows.loader ~= loader then M.train(rows) end
  rows.loader, rows.taken, rows.calls, rows.void = loader, rows.taken + 1, 0, false
end

local ADVICE <const> = "an elastic job can deal out the rows of a lost rank again only if each batch of evaluation ends with one"
  .. " gather_for_metrics of all its values; add up what that returns"

--- Ranks were lost. If a loop of evaluation can continue, the batch under way counts for nothing. Otherwise the next call that collects what
--- the ranks have of it raises.
---@param rows accel.accelerator.ElasticRows
---@param call integer of a batch, from 1, which collects rows and is complete on no rank. 0: there is none
function M.judge(rows, call)
  if call > 1 then raise("gather_for_metrics: a rank was lost between two calls for one batch; %s", ADVICE) end
  if rows.taken == 0 then return end
  rows.void = rows.taken == 1 and call == 1
  rows.lost, rows.taken = not rows.void, 0
end

-- Calls ------------------------------------------------------------------------------------------

--- One of CALLS.
function M.call(elastic, name, how, method, ...)
  local accelerator, transaction, rows = elastic.accelerator[1], elastic.transaction, elastic.rows
  if transaction.nested then return method(accelerator, ...) end
  local args = table.pack(...)
  local function fn()
    if rows.lost and (how.rows or how.collects) then raise("%s: a rank was lost with rows that no call had collected; %s", name, ADVICE) end
    return method(accelerator, table.unpack(args, 1, args.n))
  end
  local function alone(without) return (without or how.alone)(accelerator, table.unpack(args, 1, args.n)) end
  if elastic.observing then -- the members have a newer state, and save it themselves
    if how.errors then return alone() end
    return method(accelerator, ...)
  end
  local loop = accelerator.gradient_state
  local loader = loop.active_dataloader
  local trains = elastic:leads(loader)
  if trains then
    elastic:open(loader)
    if transaction.state == "open" then
      if not loop.sync_gradients then
        raise("%s: the ranks of an elastic job have different numbers of micro-batches, so they cannot meet at each of them; write"
          .. " `if accelerator.sync_gradients then` around it, or call model:eval() before a loop of evaluation", name)
      end
      local results = table.pack(transaction:run(fn))
      if results[1] then return table.unpack(results, 2, results.n) end
    end
    if transaction.state == "void" then return alone() end
  end
  local evaluates = not trains and loader ~= nil and rows.loader == loader
  if evaluates and rows.void then return alone(how.rows and without_rows) end
  rows.calling = evaluates and how.rows or false
  local restore = how.remember and how.remember(accelerator)
  local results = table.pack(transaction:repeat_call(fn, {
    errors = how.errors,
    complete = function()
      if rows.calling then rows.calls = rows.calls + 1 end
      if how.rows or how.collects then rows.taken = 0 end
      rows.calling = false
    end,
    again = function()
      if restore then restore() end
      return not rows.calling -- else its batch is dealt out again
    end,
    place = function() return rows.calling and rows.calls + 1 or 0 end,
  }))
  rows.calling = false
  if evaluates and rows.void and how.rows then return alone(without_rows) end
  return table.unpack(results, 1, results.n)
end

return M
