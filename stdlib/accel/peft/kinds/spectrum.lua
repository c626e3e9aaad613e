--- Places of the entries that FourierFT and WaveFT learn.
local raise = require "accel.util.raise"
local targets = require "accel.peft.targets"
local torch_random = require "accel.peft.kinds.torch_random"

local M = {}

--- Sets at.rows and at.columns, from 0, as PEFT draws them. Returns their number.
---@param config table with random_loc_seed and n_frequency_pattern
---@param at accel.peft.Place
---@param n integer the number unless a pattern has another
---@return integer
function M.places(config, at, n)
  n = targets.by_pattern(at.full, config.n_frequency_pattern, n)
  local size = at.inputs * at.outputs
  if n > size then raise("'%s': n_frequency = %d exceeds the %d values of its weight; choose less", at.full, n, size) end
  at.rows, at.columns = {}, {}
  for i, place in ipairs(torch_random.permutation(torch_random.generator(config.random_loc_seed), size, n)) do
    at.rows[i], at.columns[i] = place // at.inputs, place % at.inputs
  end
  return n
end

return M
