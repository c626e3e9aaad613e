--- PipelineParallel(model, mesh, opts): a model whose blocks are shared out over ranks that work on micro-batches one after the other.
--- Every rank runs the model's own forward, with the parameters of the other ranks on the meta device: other ranks' blocks compute only
--- shapes, and masks, positions and the counts of random draws are the same as on one rank. When forward reaches the first block of a
--- rank's part, the arguments on meta are replaced by the tensors received from the previous rank. When it reaches the first block of the
--- next part, it stops, and its arguments are sent. The only information about the model is the names of its blocks.
---
---   local model = accel.nn.parallel.PipelineParallel(net, mesh, { num_micro_batches = 8, schedule = "1f1b" })
---   local loss = model(ids, { labels = ids })     -- forwards and backwards of all micro-batches: gradients are there
---
--- In training the model, or loss_fn, returns a loss. The call returns the mean over all labels of the batch on every rank (means.lua), and
--- gradients of that mean are added to ->grad. Otherwise it returns the model's results, for the whole batch, on every rank of the
--- pipeline.
local accel = require "accel"
local absent = require "accel.parallel.absent"
local Module = require "accel.nn.module"
local arguments = require "accel.parallel.pipeline.arguments"
local check = require "accel.util.check"
local core = require "accel.parallel.core"
local dist = require "accel.dist"
local Means = require "accel.parallel.pipeline.means"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local schedule = require "accel.parallel.pipeline.schedule"
local stages = require "accel.parallel.pipeline.stages"

local WHO <const> = "PipelineParallel"
local STOP <const> = setmetatable({}, { __tostring = function() return "a stage of a pipeline ended" end })

--- A module that runs on several ranks, one after the other.
--- example: local net = accel.nn.Sequential(accel.nn.Linear(2, 2), accel.nn.Linear(2, 1))
---   local mesh = accel.parallel.init_device_mesh("cpu", { 1 }, { mesh_dim_names = { "pp" } })
---   return accel.nn.parallel.PipelineParallel(net, mesh, { num_micro_batches = 2 }):eval()(accel.ones(4, 2)).shape --> { 4, 1 }
---@class accel.nn.parallel.PipelineParallel : accel.nn.Module
---@field module accel.nn.Module
local Pipeline = Module:extend "accel.nn.parallel.PipelineParallel"

require "accel.nn.parallel.transparent"(Pipeline, WHO)

local declared = {
  num_micro_batches = 1, schedule = "1f1b", virtual_stages = 1, plan = options.none, split_points = options.none,
  block_classes = options.none, stage_layers = options.none, loss_fn = options.none, init_sync = true, gather_output = true,
}

local function read(opts)
  local o = options(WHO, opts, declared)
  check.word(WHO, "schedule", o.schedule, { "gpipe", "1f1b", "interleaved", "zero_bubble" })
  check.positive(WHO, "num_micro_batches", o.num_micro_batches)
  check.positive(WHO, "virtual_stages", o.virtual_stages)
  if o.schedule == "zero_bubble" and o.virtual_stages > 1 then
    raise("%s: schedule 'zero_bubble' has one part of the model on each rank; leave virtual_stages out", WHO)
  end
  if o.virtual_stages > 1 and o.schedule == "1f1b" then o.schedule = "interleaved" end
  if o.schedule == "interleaved" and o.virtual_stages == 1 then o.schedule = "1f1b" end
  if type(o.split_points) == "string" then check.word(WHO, "split_points", o.split_points, { "auto", "even" }) end
  if o.loss_fn ~= nil then check.callable(WHO, "loss_fn", o.loss_fn) end
  return o
end

--- Optional functions that the owner sets, raw: _around(self) before every batch, returns a value to close after it; _start(self) before a
--- training batch, _before_last(self) before its last backward, and _finish(self) after it, in place of summing shared parameters'
--- gradients; _read_batch(args) returns, for a call with a batch of names, the model's two arguments and the loss's targets, a loss
--- function, and the counts of its loss, if known. The fields of _means say over which ranks a mean is.
---@param model accel.nn.Module
---@param where accel.parallel.DeviceMesh|accel.parallel.Axis a mesh has a dimension "pp", or it is the only one
---@param opts? {num_micro_batches: integer?, schedule: "gpipe"|"1f1b"|"interleaved"|"zero_bubble"?, virtual_stages: integer?, plan: string[]?,
--- split_points: ("auto"|"even"|string[])?, stage_layers: integer[]?, loss_fn: function?, init_sync: boolean?, gather_output: boolean?}
--- block_classes (string[]): blocks are the modules of these classes. split_points: "auto" (the default) shares blocks out by the products
--- of their forward, with the head in the last stage; "even": equally many; or the names of the blocks at which stages begin. virtual_stages: parts
--- of the model that each rank has.
--- loss_fn(output, ...): the loss of what the model returned, with its arguments
function Pipeline:init(model, where, opts)
  if not Module.is_module(model) then raise("%s: %s", WHO, Module.not_a_module(model)) end
  local o = read(opts)
  local axis = where.axes and (where.axes.pp or where.axes[where.mesh_dim_names[1]]) or where
  for key, value in next, { module = model, options = o, _axis = axis, training = model.training, _agreed = {},
    _means = Means(model),
    _losses = setmetatable({}, { __mode = "k" }) } do
    rawset(self, key, value)
  end
  if axis.size == 1 then o.virtual_stages = 1 end
  local region = rawget(model, "parallel_region")
  if o.schedule == "zero_bubble" and region and region.overlapped then
    region.overlapped = false
    if dist.get_rank() == 0 then
      warn(WHO .. ": enable_async_tp has no effect with schedule 'zero_bubble', which computes gradients of weights at another time")
    end
  end
  local n = axis.size * o.virtual_stages
  if o.init_sync and axis.size > 1 then require("accel.parallel.tensor_parallel").synchronize(model, axis.group) end
  local blocks, owners, others = stages.assign(model, n, o)
  rawset(self, "_blocks", blocks)
  rawset(self, "_last", n - 1)
  rawset(self, "_foreign", stages.drop_foreign(owners, function(set)
    for stage in next, set do
      if stage % axis.size == axis.rank then return true end
    end
    return false
  end))
  rawset(self, "_owners", owners)
  for _, b in ipairs(blocks) do self:_watch(b) end
  for module, set in next, others do self:_skip(module, set) end
end

--- The parameters that this rank has.
---@return accel.Tensor[]
function Pipeline:parameters()
  local own = {}
  for _, p in ipairs(self.module:parameters()) do own[#own + 1] = not self._foreign[p] and p or nil end
  return own
end

-- Forward of one part -----------------------------------------------------------------------------

--- Every tensor among the arguments as another rank's. learns: with its requires_grad.
local function to_absent(args, learns)
  local out = table.move(args, 1, args.n, 1, { n = args.n })
  for i = 1, args.n do
    local t = out[i]
    if accel.is_tensor(t) and not absent.is(t) then
      out[i] = accel.empty(t.shape, { dtype = t.dtype, device = absent.device, requires_grad = learns and t.requires_grad })
    end
  end
  return out
end

--- A block reports the position of forward: see _at.
function Pipeline:_watch(b)
  local forward, weak = b.module.forward, setmetatable({ self }, { __mode = "v" })
  rawset(b.module, "pipeline_arguments", function(args)
    local self_ = weak[1]
    return self_ and self_._pass and self_:_at(b, args) or args
  end)
  rawset(b.module, "forward", function(block, ...)
    local self_ = weak[1]
    local run = self_ and self_._pass
    if not run then return forward(block, ...) end
    local args = self_:_at(b, table.pack(...))
    if b.stage == run.stage or run.learns then return forward(block, table.unpack(args, 1, args.n)) end
    local _ <close> = accel.no_grad()
    return forward(block, table.unpack(args, 1, args.n))
  end)
end

--- A module before the own blocks whose result an earlier stage sends, and whose parameters are here for another reason, as a table that
--- the head shares: shapes alone.
function Pipeline:_skip(module, set)
  local forward, weak = module.forward, setmetatable({ self }, { __mode = "v" })
  rawset(module, "forward", function(module_, ...)
    local self_ = weak[1]
    local run = self_ and self_._pass
    if not run or run.entered or set[run.stage] then return forward(module_, ...) end
    local args = to_absent(table.pack(...))
    return forward(module_, table.unpack(args, 1, args.n))
  end)
end

--- Forward has reached a block with these arguments: a block of an earlier part runs on meta, the own first block on the received
--- tensors, and at the next part's first block forward stops.
function Pipeline:_at(b, args)
  local run = self._pass
  if b.stage > run.stage then
    if run.arrivals then -- received tensors are passed on to the next
      arguments.visit(args, function(t, _, holder, key) holder[key] = run.arrivals[t] or t end)
    end
    run.stopped = args
    error(STOP, 0)
  end
  if b.stage < run.stage then return to_absent(args, run.learns) end
  if not run.entered then
    run.entered = true
    if run.stage > 0 then self:_enter(b, args) end
  end
  local arrivals = run.arrivals
  if arrivals then
    arguments.visit(args, function(t, path, holder, key)
      if not absent.is(t) then return end
      if not arrivals[t] then
        raise("%s: block '%s' takes a tensor (its argument %s) that an earlier stage made and that is not among the arguments of the"
          .. " stage's first block; pass it on from block to block", WHO, b.name, path)
      end
      holder[key] = arrivals[t]
    end)
  end
  return args
end

--- The first block of the own part: arguments on meta are received from the previous stage.
function Pipeline:_enter(b, args)
  local run, i = self._pass, 0
  if run.finds then
    arguments.visit(args, function(t, path)
      if absent.is(t) then
        run.finds[#run.finds + 1] = { path = path, dtype = t.dtype, shape = table.move(t.shape, 1, t.ndim, 1, {}),
          learns = run.learns and t.requires_grad }
      end
    end)
    error(STOP, 0)
  end
  run.arrivals = {}
  arguments.visit(args, function(t, path)
    if not absent.is(t) then return end
    i = i + 1
    local came = run.received[i]
    if not came or run.paths[i].path ~= path then
      raise("%s: block '%s' needs its argument %s from the stage before, but the first batch of this shape did not", WHO, b.name, path)
    end
    run.arrivals[t] = came
  end)
end

--- How many of the arguments the module takes. A model of the library refuses those that only loss_fn reads.
local function inputs_of(self, args)
  local takes = not self._inputs and self.options.loss_fn and self.module._forward_takes
  return self._inputs or takes and math.min(takes(self.module), args.n) or args.n
end

--- Runs forward for one part. Returns its results, packed, or nil if it stopped, and run.stopped then has the
--- arguments.
function Pipeline:_run(run, args)
  rawset(self, "_pass", run)
  local was = core.meta_absorbs(true)
  local out = table.pack(pcall(self.module, table.unpack(args, 1, inputs_of(self, args))))
  core.meta_absorbs(was)
  rawset(self, "_pass", nil)
  if out[1] then
    if run.stage < self._last or run.finds then
      raise("%s: forward ended before it came to a block of stage %d", WHO, run.finds and run.stage or run.stage + 1)
    end
    return table.pack(table.unpack(out, 2, out.n))
  end
  if out[2] ~= STOP then error(out[2], 0) end
end

require "accel.parallel.pipeline.exchange"(Pipeline)

-- A batch ----------------------------------------------------------------------------------------

--- Micro-batches of the arguments, equal ones.
local function cut(args, n)
  local rows = arguments.rows(args)
  if not rows then raise("%s: no argument is a tensor with rows to cut into micro-batches", WHO) end
  if rows % n ~= 0 then raise("%s: a batch of %d rows does not divide into %d micro-batches", WHO, rows, n) end
  local list, per = {}, rows // n
  for m = 1, n do
    list[m] = arguments.map_rows(args, rows, function(t) return t:narrow(1, (m - 1) * per + 1, per) end)
  end
  return list, per
end

--- A batch with rows of its start at its end, so that it divides by n, and its rows before.
local function pad(args, n)
  local rows = arguments.rows(args)
  if not rows or rows % n == 0 then return args, rows end
  local missing = n - rows % n
  return arguments.map_rows(args, rows, function(t)
    local list, left = { t }, missing
    while left > 0 do
      local k = math.min(left, rows)
      list[#list + 1], left = t:narrow(1, 1, k), left - k
    end
    return accel.cat(list, 1)
  end), rows
end

--- Into how many equal micro-batches a batch of evaluation is cut: n, or for the last batch of a data set the next number that divides its
--- rows. Rows that were there twice would count twice in a loss.
local function divisor(args, n)
  local rows = arguments.rows(args)
  if not rows or rows == 0 then return n end
  n = math.min(n, rows)
  while rows % n ~= 0 do n = n + 1 end
  return n
end

--- The gradient that a backward of one of n losses starts from. The Accelerator, which scales losses, replaces it.
function Pipeline._seed(_, loss, n) return accel.full(loss.shape, 1 / n, { dtype = loss.dtype, device = loss.device }) end

--- The loss of the model's output, and other results of the loss function.
function Pipeline:_loss(out, args)
  local fn, loss, more = self.options.loss_fn, out[1], nil
  if self._inputs then fn = self._batch_loss end
  if fn then loss, more = fn(out.n == 1 and out[1] or table.pack(table.unpack(out, 1, out.n)), table.unpack(args, 1, args.n)) end
  if not accel.is_tensor(loss) or loss:numel() ~= 1 then
    raise("%s: in training the model must return a loss of one element, got %s; give labels if it takes them, or loss_fn = function("
      .. "output, ...) ... end", WHO, check.shown(loss))
  end
  return loss, more
end

--- In evaluation: a batch's loss, recorded as far back as its label count requires.
local function evaluate_loss(self, out, args)
  local _ <close> = accel.enable_grad()
  out = arguments.map(out, function(t) return t:is_floating_point() and t:detach():requires_grad_() or t end)
  return table.pack(self:_loss(out, args))
end

--- In evaluation: a micro-batch's results. If the first is a loss, also its count.
local function evaluated(self, batch, m, out, args)
  if self._inputs and self._batch_loss then out = evaluate_loss(self, out, args) end
  if accel.is_tensor(out[1]) and out[1]:numel() == 1 and out[1].ndim == 0 then
    self._means:add(batch.call, m, out[1], args)
    out[1] = out[1]:detach()
  end
  return out
end

function Pipeline:_forward(batch, e)
  local stage, m = e.stage, e.action.micro
  local cell = { received = batch.inbox[stage] and batch.inbox[stage][m] or nil }
  local args = batch.micro[m]
  accel.micro_batch(batch.row0 + (m - 1) * batch.rows)
  local run = { stage = stage, received = cell.received, paths = batch.paths[stage] }
  local out = self:_run(run, args)
  cell.stopped = run.stopped
  if out and batch.learns then
    local loss, more = self:_loss(out, args)
    cell.losses = self._means:add(batch.call, m, loss, args)
    batch.more[m] = more
  elseif out then
    batch.results[m] = evaluated(self, batch, m, out, args)
  end
  if batch.learns or not out then batch.cells[stage][m] = cell end
end

function Pipeline:_backward(batch, e)
  local stage, m = e.stage, e.action.micro
  local cell = batch.cells[stage][m]
  batch.cells[stage][m] = nil
  local outs, grads = {}, {}
  if cell.losses then
    for i, mean in ipairs(cell.losses) do
      outs[i], grads[i] = mean.loss, self:_seed(mean.loss, #batch.micro)
      if mean.factor ~= 1 then grads[i] = (grads[i] * mean.factor):to(grads[i].dtype) end
    end
  else
    for i, t in ipairs(cell.sent) do
      if cell.flags[i] then outs[#outs + 1], grads[#grads + 1] = t, cell.grads[#grads + 1] end
    end
  end
  if self.options.schedule == "zero_bubble" and batch.learns then
    batch.deferred[m] = core.backward_inputs(outs, grads)
  elseif #outs > 0 then
    accel.backward(outs, grads)
  end
  batch.outbox[stage][m] = cell.received or {}
end

--- The part of a backward that zero_bubble has put off.
function Pipeline:_weights(batch, e, final)
  local m = e.action.micro
  local deferred = batch.deferred[m]
  batch.deferred[m] = nil
  local any = deferred:run()
  batch.put_off = batch.put_off or any
  if not any and final and self._before_last then -- sharding reduces when a gradient comes
    raise("%s: schedule 'zero_bubble' over sharded parameters needs trained weights of products in every stage; use '1f1b'", WHO)
  elseif not batch.put_off and final and not self._told then
    rawset(self, "_told", true)
    warn(("%s: schedule 'zero_bubble' has no effect on stage %d: none of its products has a trained weight whose gradient could be deferred,"
      .. " as layers of fp8 have none; use '1f1b'"):format(WHO, e.stage))
  end
end

--- Forward of one whole batch, and backward in training. parts: micro-batches, if not num_micro_batches.
function Pipeline:_batch(args, learns, parts)
  local o, axis = self.options, self._axis
  local _ <close> = self._around and self:_around() or nil
  local n = parts or o.num_micro_batches
  local chunks = o.virtual_stages
  local batch = { learns = learns, results = {}, paths = {}, cells = {}, inbox = {}, outbox = {}, deferred = {}, sends = {}, more = {},
    row0 = accel.get_rng_state().row0 }
  for stage = 0, self._last do batch.cells[stage], batch.inbox[stage], batch.outbox[stage] = {}, {}, {} end
  batch.micro, batch.rows = cut(args, n)
  batch.call = self._means:open(batch.micro, self._inputs, learns)
  batch.signature = arguments.signature(batch.micro[1]) .. (learns and " learns" or "")
  local events = schedule.plan(learns and o.schedule or "forward", axis.rank, axis.size, chunks, n)
  local i, final = 1, nil -- the last backward of all chunks, or part of one
  for k, e in ipairs(events) do
    if e.action and e.action.op ~= "F" then final = k end
  end
  while i <= #events do
    local e = events[i]
    if not e.action then
      local first = i
      while events[i + 1] and not events[i + 1].action do i = i + 1 end
      self:_exchange(batch, events, first, i)
    elseif e.action.op == "F" then
      self:_forward(batch, e)
    else
      if i == final and self._before_last then self:_before_last() end
      if e.action.op == "W" then self:_weights(batch, e, i == final) else self:_backward(batch, e) end
    end
    i = i + 1
  end
  accel.micro_batch(batch.row0)
  self:_sent(batch)
  return batch
end

--- Before a call adds to gradients that are summed over stages already: one rank keeps the sum, so that it counts once in the next.
local function keep_shared_once(self)
  if not self._summed then return end
  rawset(self, "_summed", false)
  local _ <close> = accel.no_grad()
  for _, shared in ipairs(self:_shared()) do
    local grad = shared.param.grad
    if grad and not shared.first then grad:zero_() end
  end
end

--- Sums the gradients of parameters that several stages have.
function Pipeline:_sum_shared()
  rawset(self, "_summed", true)
  local _ <close> = accel.no_grad()
  for _, shared in ipairs(self:_shared()) do
    local p = shared.param
    if not p.grad then p.grad = accel.zeros_like(p:detach()) end
    dist.all_reduce(p.grad, { group = shared.group })
  end
end

--- One training call: its loss, and other results of its loss function.
local function learn(self, args)
  local means, axis = self._means, self._axis
  if self._start then self:_start() end
  keep_shared_once(self)
  local again = means:set_apart(self:parameters())
  local batch = self:_batch(args, true)
  local loss = means:loss(batch.call, means:close(batch.call, axis, self._last % axis.size))
  if self._finish then
    self:_finish()
  else
    self:_sum_shared()
    means:finish(self:parameters())
  end
  if again then again() end
  self._losses[loss] = true
  if #batch.more > 0 then return loss, arguments.concatenate(batch.more) end
  return loss
end

--- Training: forwards and backwards of all micro-batches. Returns the mean loss, and on the ranks of the last stage other results of
--- the loss function. Otherwise returns the model's results.
function Pipeline:forward(...)
  local args, axis, o = table.pack(...), self._axis, self.options
  local named, loss_fn, counts = nil, nil, nil
  if self._read_batch then named, loss_fn, counts = self._read_batch(args) end
  args = named or args
  rawset(self, "_inputs", named and named.n - 1 or nil)
  rawset(self, "_batch_loss", loss_fn or nil)
  self._means.of_targets = counts
  if self.training and accel.is_grad_enabled() then return learn(self, args) end
  local _ <close> = accel.no_grad()
  local padded, rows, parts = args, arguments.rows(args), nil
  if named or self._means:of_arguments(args) then -- a loss: no row twice
    parts = divisor(args, o.num_micro_batches)
  else
    padded = pad(args, o.num_micro_batches)
  end
  local batch = self:_batch(padded, false, parts)
  local out
  if #batch.results > 0 then
    out = { n = batch.results[1].n }
    for k = 1, out.n do
      local list = {}
      for m, result in ipairs(batch.results) do list[m] = result[k] end
      out[k] = arguments.concatenate(list)
    end
    local loss, all = self._means:evaluated(batch.call), arguments.rows(padded)
    if loss then out[1] = accel.full({}, loss, { dtype = out[1].dtype, device = out[1].device }) end
    if all ~= rows then out = arguments.map_rows(out, all, function(t) return t:narrow(1, 1, rows) end) end
  end
  if axis.size > 1 and o.gather_output then
    local list = { out }
    dist.broadcast_object_list(list, { group_src = self._last % axis.size, group = axis.group })
    out = list[1]
  end
  if out then return table.unpack(out, 1, out.n) end
end

--- New ids after a prompt, as the model's own generate, without a cache of keys and values: every rank runs its blocks on the whole text.
---@param ids integer[]|integer[][]|accel.Tensor
---@param opts? table
function Pipeline:generate(ids, opts)
  if self.module.encode then
    raise("%s: generate: models with an encoder cannot generate in a pipeline; split them by tp_size", WHO)
  end
  local o = { use_cache = false }
  for key, value in next, opts or {} do o[key] = value end
  if o.use_cache then raise("%s: generate: a pipeline does not support a cache of keys and values; leave use_cache out", WHO) end
  return self.module.generate(self, ids, o)
end

--- Whether a loss is one whose gradients this pipeline has added up already.
---@param loss any
---@return boolean
function Pipeline:made(loss) return self._losses[loss] == true end

return Pipeline
