--- The trials of a sweep, and the rule that stops them early. Used by accel.cli.sweep.
---
--- Early stops follow ASHA (Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020) in the stopping form: rungs are
--- at min, min * factor, min * factor^2, ... steps. A run that reaches a rung goes on if its metric there is among the best 1 / factor of
--- all runs that have reached this rung so far, and at least if it is the best one. Nobody waits for others, so all slots stay busy.
local accel = require "accel"
local Random = require "accel.util.random"

local M = {}

--- A value as a word of the command line, which reads back as the same value.
---@param value any
---@return string
function M.word(value)
  if math.type(value) == "float" then
    for digits = 4, 17 do
      local text = ("%." .. digits .. "g"):format(value)
      if tonumber(text) == value then return text end
    end
  end
  return tostring(value)
end

local function draw(random, p)
  if p.values then return p.values[random:below(#p.values) + 1] end
  local u = (random:bits() >> 11) * 0x1p-53
  if p.integer then
    if not p.log then return p.min + random:below(p.max - p.min + 1) end
    local x = math.exp(math.log(p.min) + u * (math.log(p.max + 1) - math.log(p.min)))
    return math.max(p.min, math.min(p.max, math.floor(x)))
  end
  local x = p.log and math.exp(math.log(p.min) + u * (math.log(p.max) - math.log(p.min))) or p.min + u * (p.max - p.min)
  return math.max(p.min, math.min(p.max, tonumber(("%.6g"):format(x)))) -- a number that people can read
end

local function trial(list, file, at)
  local words, text = {}, {}
  for i, p in ipairs(file.parameters) do
    local value = at[p.name]
    words[i] = type(value) == "boolean" and ("--%s%s"):format(value and "" or "no-", p.name) or ("--%s=%s"):format(p.name, M.word(value))
    text[i] = ("%s=%s"):format(p.name, M.word(value))
  end
  list[#list + 1] = { index = #list + 1, parameters = at, words = words, text = table.concat(text, " "), key = M.key(at) }
end

--- A text that two trials share if they have the same parameters.
---@param parameters table<string, any>
---@return string
function M.key(parameters)
  local out = {}
  for name, value in accel.pairs(parameters) do out[#out + 1] = ("%s=%s"):format(name, M.word(value)) end
  return table.concat(out, "\n")
end

--- All trials in their order: of a grid the last parameter changes fastest, the others come from the seed.
---@param file accel.cli.SweepFile
---@return {index: integer, parameters: table, words: string[], text: string, key: string}[]
function M.list(file)
  local list = {}
  if file.method == "grid" then
    local at = {}
    local function fill(i)
      local p = file.parameters[i]
      if not p then
        local copy = {}
        for key, value in next, at do copy[key] = value end
        return trial(list, file, copy)
      end
      for _, value in ipairs(p.values) do
        at[p.name] = value
        fill(i + 1)
      end
    end
    fill(1)
    return list
  end
  local seen = {}
  for i = 1, file.runs do
    local random, at = Random(file.seed, i), nil
    for _ = 1, 100 do -- repeated draws of few values would be wasted runs
      at = {}
      for _, p in ipairs(file.parameters) do at[p.name] = draw(random, p) end
      if not seen[M.key(at)] then break end
    end
    if not seen[M.key(at)] then
      seen[M.key(at)] = true
      trial(list, file, at)
    end
  end
  return list
end

--- How many grid points there are, without making them.
---@param file accel.cli.SweepFile
---@return number
function M.count(file)
  if file.method ~= "grid" then return file.runs end
  local n = 1.0
  for _, p in ipairs(file.parameters) do n = n * #p.values end
  return n
end

--- Whether a run goes on from a rung. values: of all runs that have reached it, its own among them; nil or NaN is worse than all others.
---@param own number?
---@param values (number|false)[]
---@param factor integer
---@param goal "minimize"|"maximize"
---@return boolean
function M.goes_on(own, values, factor, goal)
  local function rank(x)
    if not x or x ~= x then return math.huge end
    return goal == "maximize" and -x or x
  end
  local better, mine = 0, rank(own)
  if mine == math.huge then return false end
  for _, x in ipairs(values) do
    if rank(x) < mine then better = better + 1 end
  end
  return better < math.max(1, #values // factor)
end

--- The rungs up to a number of steps.
---@param halving {min: integer, factor: integer}
---@param steps integer
---@return integer[]
function M.rungs(halving, steps)
  local out, at = {}, halving.min
  while at <= steps do
    out[#out + 1] = at
    if at > steps // halving.factor then break end -- the product could be above all integers
    at = at * halving.factor
  end
  return out
end

return M
