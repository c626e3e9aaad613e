-- The habits that make technical English hard to read, and the phrases that are never right. One list for prose.lua (pages) and
-- prose_text.lua (comments, messages and help in sources). Load it with dofile.
local M = {}

-- Name, what to count, counts of Accelerate and nng. Each pattern is one word or a run of words between frontiers.
M.habits = {
  { "semicolon", { ";" }, 1.3, 0.6 },
  { "what-clause used as a noun", { "%f[%w][Ww]hat (%l+)%f[%W]" }, 0.4, 0.0,
    only = " is are a an the it they was were has have does do of others no some each this one " },
  { "that of / those of", { "%f[%w]that of%f[%W]", "%f[%w]those of%f[%W]" }, 0.03, 0.0 },
  { "things that say or tell", { "%f[%w]says%f[%W]", "%f[%w]said%f[%W]", "%f[%w]tells%f[%W]", "%f[%w]told%f[%W]" }, 0.1, 0.04 },
  { "where-clause", { "%f[%w][Ww]here%f[%W]" }, 0.9, 0.6 },
  { "behind / beside / go on", { "%f[%w]behind%f[%W]", "%f[%w]beside%f[%W]", "%f[%w]go on%f[%W]", "%f[%w]goes on%f[%W]",
    "%f[%w]going on%f[%W]" }, 0.1, 0.1 },
  { "is no NOUN", { "%f[%w]is no %w", "%f[%w]are no %w", "%f[%w]was no %w", "%f[%w]be no %w" }, 0.0, 0.0 },
  { "trailing too / also", { ", too%f[%W]", ", also%f[%W]" }, 0.1, 0.1 },
  { "you / your (want more)", { "%f[%w][Yy]our?%f[%W]" }, 20.7, 0.7 },
  { "can / must / should / may (want more)", { "%f[%w]can%f[%W]", "%f[%w]must%f[%W]", "%f[%w]should%f[%W]", "%f[%w]may%f[%W]" }, 11.5, 14.7 },
}

local NEVER <const> = {
  "'%%s' is no%f[%W]", "%f[%w]is none of%f[%W]", "%f[%w]goes on behind%f[%W]", "one word too many", "%f[%w][Ww]hat of%f[%W]",
  "%f[%w](%w+) is no %l+ of%f[%W]", "%f[%w](%w+) is no %l+ for%f[%W]", "%f[%w](%w+) is no %l+ that%f[%W]",
}

--- How often a text has a habit.
---@param habit table
---@param text string
---@return integer
function M.count(habit, text)
  local n = 0
  for _, pattern in ipairs(habit[2]) do
    for word in text:gmatch(pattern) do n = n + ((not habit.only or habit.only:find(" " .. word .. " ", 1, true)) and 1 or 0) end
  end
  return n
end

--- The number of words of a text.
---@param text string
---@return integer
function M.words(text) return select(2, text:gsub("[%a']+", "")) end

--- Whether a text has a phrase that is never right ("there is no ... for" is right).
---@param text string
---@return boolean
function M.never(text)
  for _, pattern in ipairs(NEVER) do
    local at = 1
    while at do
      local first, last, before = text:find(pattern, at)
      if first and not (before and before:lower() == "there") then return true end
      at = last and last + 1
    end
  end
  return false
end

return M
