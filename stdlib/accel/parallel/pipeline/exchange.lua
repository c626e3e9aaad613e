--- Part of PipelineParallel (runner.lua): messages between stages. The first time that a batch of a shape passes between two
--- stages, the receiver sends the list of missing arguments of its first block, and the sender replies which of them have
--- gradients. After that both know, and only the tensors' bytes are sent.
local accel = require "accel"
local absent = require "accel.parallel.absent"
local arguments = require "accel.parallel.pipeline.arguments"
local dist = require "accel.dist"

---@param Pipeline table
return function(Pipeline)
  --- The arguments that the stage lacks, found by a run of forward on shapes alone.
  local function lacks(self, batch, stage, micro)
    local state, run = accel.get_rng_state(), { stage = stage, finds = {} }
    do
      local _ <close> = accel.no_grad()
      self:_run(run, batch.micro[micro])
    end
    accel.set_rng_state(state)
    return run.finds
  end

  --- The same in a dry run without peers: both sides find the missing arguments, and those with gradients, by a run in which other
  --- stages' tensors require gradients.
  local function foretold(self, batch, stage, micro)
    local state, run = accel.get_rng_state(), { stage = stage, finds = {}, learns = batch.learns }
    local function learn(on)
      for t, how in next, self._foreign do
        if how == "learns" and batch.learns then t:requires_grad_(on) end
      end
    end
    learn(true)
    self:_run(run, batch.micro[micro])
    learn(false)
    accel.set_rng_state(state)
    return run.finds
  end

  --- The agreement on a stage's inputs: a list of {path, dtype, shape, learns}.
  local function agreement(self, batch, e, receives, cell)
    local key = ("%d|%s"):format(e.stage, batch.signature)
    local known = self._agreed[key]
    if known then return known end
    local axis, list, flags = self._axis, nil, nil
    if absent.simulated then
      self._agreed[key] = foretold(self, batch, e.stage, e.micro)
      return self._agreed[key]
    end
    if receives then
      list = lacks(self, batch, e.stage, e.micro)
      local from = axis.ranks[e.from + 1]
      dist.send_object_list({ list }, from)
      local got = { false }
      dist.recv_object_list(got, from)
      flags = got[1]
    else
      local got, to = { false }, axis.ranks[e.to + 1]
      dist.recv_object_list(got, to)
      list, flags = got[1], {}
      for i, item in ipairs(list) do
        local t = arguments.at(cell.stopped, item.path)
        flags[i] = batch.learns and accel.is_tensor(t) and t.requires_grad
      end
      dist.send_object_list({ flags }, to)
    end
    for i, item in ipairs(list) do item.learns = flags[i] end
    self._agreed[key] = list
    return list
  end

  --- Starts to send the arguments at which a stage's forward stopped. The tensors stay in its cell for backward. Sends are waited for
  --- only at the end of the batch: a busy receiver does not block a sender.
  local function send_forward(self, batch, e)
    local cell = batch.cells[e.stage - 1][e.micro]
    local list = agreement(self, batch, e, false, cell)
    local sent, flags = {}, {}
    for i, item in ipairs(list) do
      sent[i], flags[i] = arguments.at(cell.stopped, item.path), item.learns
      batch.sends[#batch.sends + 1] = dist.isend(sent[i]:detach():contiguous(), self._axis.ranks[e.to + 1],
        { tag = e.stage * 64 + i })
    end
    cell.sent, cell.flags, cell.stopped = sent, flags, nil
    if not batch.learns then batch.cells[e.stage - 1][e.micro] = nil end
  end

  local function receive_forward(self, batch, e, works)
    local list, got = agreement(self, batch, e, true), {}
    batch.paths[e.stage] = list
    for i, item in ipairs(list) do
      got[i] = accel.empty(item.shape, { dtype = item.dtype })
      works[#works + 1] = dist.irecv(got[i], self._axis.ranks[e.from + 1], { tag = e.stage * 64 + i })
    end
    works[#works + 1] = { wait = function()
      for i, item in ipairs(list) do
        if item.learns then got[i]:requires_grad_(true) end
      end
    end }
    batch.inbox[e.stage][e.micro] = got
  end

  local function send_backward(self, batch, e)
    local stage = e.stage + 1
    local received = batch.outbox[stage][e.micro]
    batch.outbox[stage][e.micro], batch.inbox[stage][e.micro] = nil, nil
    for i, item in ipairs(batch.paths[stage]) do
      if item.learns then
        local g = received[i].grad or accel.zeros(item.shape, { dtype = item.dtype })
        batch.sends[#batch.sends + 1] = dist.isend(g:contiguous(), self._axis.ranks[e.to + 1], { tag = 8192 + e.stage * 64 + i })
      end
    end
  end

  local function receive_backward(self, batch, e, works)
    local cell = batch.cells[e.stage][e.micro]
    cell.grads = {}
    for i, t in ipairs(cell.sent) do
      if cell.flags[i] then
        local g = accel.empty(t.shape, { dtype = t.dtype, device = t.device })
        cell.grads[#cell.grads + 1] = g
        works[#works + 1] = dist.irecv(g, self._axis.ranks[e.from + 1], { tag = 8192 + e.stage * 64 + i })
      end
    end
  end

  local function finish(works)
    for _, work in ipairs(works) do work:wait() end
    return {}
  end

  --- Frees the sent tensors.
  local function forget_sent(sends)
    local left = {}
    for _, work in ipairs(sends) do
      if not work:is_completed() then left[#left + 1] = work end
    end
    return left
  end

  --- Adjacent messages are sent at the same time. Those agreed on for the first time are sent one by one.
  ---@param batch table
  ---@param events table[]
  ---@param first integer
  ---@param last integer
  function Pipeline:_exchange(batch, events, first, last)
    local rank, works = self._axis.rank, {}
    batch.sends = forget_sent(batch.sends)
    for i = first, last do
      local e = events[i]
      local new = e.what == "F" and not self._agreed[("%d|%s"):format(e.stage, batch.signature)]
      if new then works = finish(works) end
      if e.what == "F" and e.from == rank then send_forward(self, batch, e)
      elseif e.what == "F" then receive_forward(self, batch, e, works)
      elseif e.from == rank then send_backward(self, batch, e)
      else receive_backward(self, batch, e, works) end
      if new then works = finish(works) end
    end
    finish(works)
  end

  --- Waits until everything of a batch was sent.
  ---@param batch table
  function Pipeline._sent(_, batch) finish(batch.sends) end

  --- Parameters that several stages on different ranks have: each with the group of these ranks. Groups are made the first time, by all
  --- ranks of the world together.
  function Pipeline:_shared()
    local known = self._shared_params
    if known then return known end
    known = require "accel.parallel.pipeline.shared"(self.module, self._owners, self._axis)
    rawset(self, "_shared_params", known)
    return known
  end
end
