--- Random numbers of updates with a fixed number of micro-batches (micro_batches). What a script draws inside a micro-batch, by accel.randn,
--- in the model or by math.random, is a function of the seed, the update and the number of the micro-batch in it. So it does not depend on
--- which rank computes a micro-batch, on the number of ranks, or on how often it is computed: an elastic job does updates again.
---
--- A micro-batch begins when the loader hands it out. Its draws end with the backward that averages: later ones, up to the next batch, are
--- the same on all ranks. math.random then continues the sequence that it had before the update. The Accelerator makes it, the loader enters.
local accel = require "accel"
local class = require "accel.util.class"
local recording = require "accel.util.recording"

---@class accel.accelerator.MicroBatchRandom
---@field again boolean? the next micro-batch belongs to an update that begins again
local MicroBatchRandom = class("accel.accelerator.MicroBatchRandom")

-- Draws of a call that do not belong to rows are numbered through a step. Each micro-batch has a range of these numbers, from 1 on, and the
-- draws after the average have the last one. 0 is for draws between two updates.
local AFTER <const> = 1 << 20 -- calls of a micro-batch before the average, at most

---@param micro_batches integer of an update over all ranks
function MicroBatchRandom:init(micro_batches)
  self.last, self.stride = micro_batches + 1, ((1 << 31) - 2 * AFTER) // (micro_batches + 2)
  self.inside = false
end

--- A micro-batch is handed out.
---@param number integer in its update, from 1
---@param starts boolean whether it is this rank's first one of an update
function MicroBatchRandom:enter(number, starts)
  local state = accel.get_rng_state()
  if starts and not self.inside and not self.again then self.between = state.math end
  self.again, self.inside = false, true
  state.drawn, state.math = number * self.stride, nil
  accel.set_rng_state(state)
  if self.between then math.randomseed(state.seed, state.step << 32 | number) end
end

--- Draws belong to no micro-batch from now on. replayed: by a recorded step, which keeps the state of tensors' draws itself.
---@param replayed? boolean
function MicroBatchRandom:leave(replayed)
  if not self.inside then return end
  self.inside = false
  local state = accel.get_rng_state()
  state.math = self.between
  if not replayed and not recording.running then
    state.drawn, state.ordinal = self.last * self.stride, math.max(state.ordinal, AFTER)
  end
  accel.set_rng_state(state)
end

return MicroBatchRandom
