--- The file of a sweep (YAML or JSON): its keys, and faults with file, line and key. Used by accel.cli.sweep.
---
---   script: train.lua               the script, relative to the file
---   args: [--epochs, 3]             words that every run gets
---   name: width-and-rate            group of the runs (the file's name)
---   method: grid                    grid, random or halving
---   metric: val/loss                series that the runs are compared by
---   goal: minimize                  or maximize
---   parameters:
---     lr: {min: 1e-4, max: 1e-1, scale: log}
---     width: [16, 32, 64]
---   runs: 20                        of random and halving
---   seed: 0
---   halving: {min: 100, factor: 3}  steps of the first rung, and 1 in so many goes on
---   parallel: 2                     runs at once
---   num_processes: 1                ranks of a run
local accel = require "accel"
local nearest = require "accel.util.nearest"
local open_read = require("accel.file.core").open_read
local trials = require "accel.cli.sweep_trials"

local M = {}

local MOST_BYTES <const> = 1024 * 1024
local MOST_WIDE <const> = 1 << 53 -- integers that a draw can tell apart
local METHODS <const> = { grid = true, random = true, halving = true }

--- A plain value of a node: YAML's numbers and truth values, else text.
local function value_of(node)
  local text = node.text
  if node.style ~= "plain" then return text end
  if text == "true" then return true elseif text == "false" then return false end
  if text:find "^[-+]?%d+$" then return math.tointeger(tonumber((text:gsub("^%+", "")))) or text end
  if text:find "^[-+]?[%d.]+[eE]?[-+]?%d*$" and text:find "%d" then return tonumber((text:gsub("^%+", ""))) or text end
  return text
end

---@class accel.cli.SweepFile
---@field path string
---@field script string
---@field args string[]
---@field name string
---@field method "grid"|"random"|"halving"
---@field metric string?
---@field goal "minimize"|"maximize"
---@field parameters {name: string, values: any[]?, min: number?, max: number?, log: boolean?, integer: boolean?}[]
---@field runs integer?
---@field seed integer
---@field halving {min: integer, factor: integer}?
---@field parallel integer?
---@field num_processes integer

--- Reads and checks it. On failure returns nil and a message with file, line and key.
---@param path string
---@return accel.cli.SweepFile? file, string? message
function M.read(path)
  local handle, why = open_read(path)
  if not handle then return nil, why end
  local text = handle:read(MOST_BYTES + 1) or ""
  handle:close()
  if #text > MOST_BYTES then return nil, path .. ": more than 1 MiB" end
  local root, message = accel.yaml.decode(text)
  if message then return nil, ("%s: %s"):format(path, message) end
  local failed = {}
  local function fail(line, fmt, ...) error(setmetatable({ ("%s:%d: "):format(path, line or 1) .. fmt:format(...) }, failed), 0) end

  local function entries(node, line, where, keys)
    if node.kind ~= "map" then fail(line, "%s must be a table of keys and values", where) end
    local out, names = {}, {}
    for key in accel.pairs(keys or {}) do names[#names + 1] = key end
    for _, entry in ipairs(node) do
      if keys and not keys[entry.key] then
        local near = nearest(entry.key, names)
        fail(entry.line, "unknown key '%s'%s; %s", entry.key, where == "the file" and "" or " in " .. where,
          near and ("did you mean '%s'?"):format(near) or "there are " .. table.concat(names, ", "))
      end
      if out[entry.key] then fail(entry.line, "%s is there twice", entry.key) end
      out[entry.key] = entry
    end
    return out
  end
  local function scalar(entry, kind, least, words)
    local node = entry.value
    local value = node.kind == "scalar" and value_of(node)
    if kind == "text" then
      value = node.kind == "scalar" and node.text ~= "" and node.text or nil
      if value and words and not words[value] then
        local names = {}
        for word in accel.pairs(words) do names[#names + 1] = word end
        local near = nearest(value, names)
        fail(entry.line, "%s is '%s'; expected %s%s", entry.key, value, table.concat(names, ", "),
          near and (" (did you mean %s?)"):format(near) or "")
      end
      return value or fail(entry.line, "%s must be a text", entry.key)
    end
    if kind == "integer" and (math.type(value) ~= "integer" or value < least) then
      fail(entry.line, "%s must be an integer of %d or more", entry.key, least)
    elseif kind == "number" and type(value) ~= "number" then
      fail(entry.line, "%s must be a number", entry.key)
    end
    return value
  end
  local function list(entry, node)
    local out = {}
    for i, item in ipairs(node) do
      if item.kind ~= "scalar" then fail(item.line or entry.line, "%s: entry %d must be a number or a text", entry.key, i) end
      out[i] = item
    end
    return out
  end
  local function values(entry, node)
    local out, seen = list(entry, node), {}
    if #out == 0 then fail(entry.line, "%s has no values", entry.key) end
    for i, item in ipairs(out) do
      out[i] = value_of(item)
      local word = trials.word(out[i]) -- 10 and "10" are the same to a run
      if seen[word] then fail(item.line or entry.line, "%s has the value %s twice", entry.key, word) end
      seen[word] = true
    end
    return out
  end

  local function parameter(entry)
    local node, out = entry.value, { name = entry.key, line = entry.line }
    if not entry.key:find "^[%a_][%w_.-]*$" then fail(entry.line, "'%s' is not an option's name: letters, digits, . _ and -", entry.key) end
    if node.kind == "list" then
      out.values = values(entry, node)
      return out
    elseif node.kind == "scalar" then
      out.values = { value_of(node) }
      return out
    end
    local keys = entries(node, entry.line, entry.key, { values = true, min = true, max = true, scale = true })
    if keys.values then
      for _, other in ipairs { "min", "max", "scale" } do
        if keys[other] then fail(keys[other].line, "%s has no effect in %s next to values; give one of them", other, entry.key) end
      end
      if keys.values.value.kind ~= "list" then fail(keys.values.line, "values of %s must be a list", entry.key) end
      out.values = values(entry, keys.values.value)
      return out
    end
    if not keys.min or not keys.max then fail(entry.line, "%s needs values, or min and max", entry.key) end
    out.min, out.max = scalar(keys.min, "number"), scalar(keys.max, "number")
    if not (out.min < out.max) then fail(keys.max.line, "%s: max must be above min", entry.key) end
    if out.max - out.min == math.huge then fail(keys.max.line, "%s: min and max are too far apart", entry.key) end
    out.log = keys.scale ~= nil and scalar(keys.scale, "text", nil, { linear = true, log = true }) == "log"
    if out.log and out.min <= 0 then fail(keys.min.line, "%s: a logarithmic scale needs a min above 0", entry.key) end
    out.integer = math.type(out.min) == "integer" and math.type(out.max) == "integer"
    if out.integer and (out.min < -MOST_WIDE or out.max > MOST_WIDE) then
      fail(keys.max.line, "%s: integers must be within 2^53 of 0", entry.key)
    end
    return out
  end

  local function read()
    if not root then fail(1, "the file is empty") end
    local e = entries(root, 1, "the file", { script = true, args = true, name = true, method = true, metric = true, goal = true,
      parameters = true, runs = true, seed = true, halving = true, parallel = true, num_processes = true })
    local f = { path = path, args = {}, parameters = {} }
    for _, key in ipairs { "script", "parameters" } do
      if not e[key] then fail(1, "%s is missing; add it", key) end
    end
    f.script = scalar(e.script, "text")
    if f.script:sub(1, 1) ~= "/" then f.script = (path:match "^(.*/)" or "") .. f.script end
    if f.script:sub(1, 1) == "-" then f.script = "./" .. f.script end -- no option
    local script = open_read(f.script)
    if not script then fail(e.script.line, "script: there is no file %s", f.script) end
    script:close()
    if e.args then
      if e.args.value.kind ~= "list" then fail(e.args.line, "args must be a list of words") end
      for i, item in ipairs(list(e.args, e.args.value)) do f.args[i] = item.text end
    end
    f.name = e.name and scalar(e.name, "text") or path:match "([^/]+)$":gsub("%.%w+$", "")
    if not f.name:find "^[%w_.-]+$" then fail(e.name and e.name.line, "name: '%s' must consist of letters, digits, . _ and -", f.name) end
    f.method = e.method and scalar(e.method, "text", nil, METHODS) or "grid"
    f.metric = e.metric and scalar(e.metric, "text")
    f.goal = e.goal and scalar(e.goal, "text", nil, { minimize = true, maximize = true }) or "minimize"
    if e.goal and not f.metric then fail(e.goal.line, "goal has no effect without metric; add it") end
    entries(e.parameters.value, e.parameters.line, "parameters")
    for i, entry in ipairs(e.parameters.value) do
      f.parameters[i] = parameter(entry)
      if f.method == "grid" and not f.parameters[i].values then
        fail(entry.line, "%s: a grid needs a list of values; with min and max, method must be random or halving", entry.key)
      end
    end
    if #f.parameters == 0 then fail(e.parameters.line, "parameters has no entries") end
    f.runs = e.runs and scalar(e.runs, "integer", 1)
    if f.method == "grid" and f.runs then fail(e.runs.line, "runs has no effect on a grid; leave it out") end
    if f.method ~= "grid" and not f.runs then fail(e.method.line, "%s needs runs: how many; add it", f.method) end
    if f.method == "grid" and e.seed then fail(e.seed.line, "seed has no effect on a grid; leave it out") end
    f.seed = e.seed and scalar(e.seed, "integer", 0) or 0
    f.parallel = e.parallel and scalar(e.parallel, "integer", 1)
    f.num_processes = e.num_processes and scalar(e.num_processes, "integer", 1) or 1
    if e.halving then
      if f.method ~= "halving" then fail(e.halving.line, "halving has no effect with method %s; leave it out", f.method) end
      local h = entries(e.halving.value, e.halving.line, "halving", { min = true, factor = true })
      if not h.min then fail(e.halving.line, "halving needs min: the steps of the first rung; add it") end
      f.halving = { min = scalar(h.min, "integer", 1), factor = h.factor and scalar(h.factor, "integer", 2) or 3 }
    elseif f.method == "halving" then
      fail(e.method.line, "halving needs its table, such as halving: {min: 100, factor: 3}; add it")
    end
    if f.method == "halving" and not f.metric then fail(e.method.line, "halving compares runs by metric; add it") end
    return f
  end
  local ok, result = pcall(read)
  if ok then return result end
  if getmetatable(result) == failed then return nil, result[1] end
  error(result, 0)
end

return M
