--- Options that accel takes for the sake of ported scripts and that have no effect: setting one warns, once for each owner and option.
--- no_effect_reasons.lua has them in one table.
---
---   no_effect("accel.nn.Dropout", { inplace = o.inplace })
local M = {}

local told = {}

--- The reason. nil: the option has an effect.
---@param owner string
---@param name string
---@return string?
function M.reason(owner, name)
  local all = require "accel.util.no_effect_reasons"
  return all[owner] and all[owner][name]
end

--- Warns of the given options that have no effect. false, 0 and nil count as the defaults.
---@param owner string
---@param given table<string, any>
function M.warn(owner, given)
  for name, value in next, given do
    local why = value and value ~= 0 and M.reason(owner, name)
    local key = why and owner .. ": " .. name
    if why and not told[key] then
      told[key] = true
      warn(("%s has no effect: %s; leave it out"):format(key, why))
    end
  end
end

--- Warns, once, of an option that has no effect with the other options of a call.
---@param who string "tokenizer"
---@param name string
---@param why string
function M.once(who, name, why)
  local key = who .. ": " .. name
  if told[key] then return end
  told[key] = true
  warn(("%s has no effect %s"):format(key, why))
end

--- The same for those of a list that are given. false counts as not given.
---@param who string
---@param o table
---@param names string[]
---@param why string
function M.given(who, o, names, why)
  for _, name in ipairs(names) do
    if o[name] then M.once(who, name, why) end
  end
end

--- Forgets past warnings, for tests.
function M.reset() told = {} end

return setmetatable(M, { __call = function(_, ...) return M.warn(...) end })
