--- Bounds of templates, which come with model files and are not trusted: their size, and the cost of a rendering. `problem`
--- is how the parts of accel.text.jinja report an error at a line of the template.
local M = {}

M.SOURCE = 1 << 17 -- bytes of a template
M.TOKENS = 20000 -- words and marks in its tags
M.DEPTH = 100 -- nesting of tags and of expressions
M.CALLS = 30 -- macros within macros
M.RANGE = 100000 -- numbers of a range
M.STRING = 1 << 20 -- bytes of a string, and of the result, in addition to four times the input
M.ITEMS = 1 << 17 -- entries of a list
M.STEPS, M.SHARE = 500000, 1 << 14 -- steps (budget.lua), and as many again for each so many bytes that are read or written
M.NUMBER = 4096 -- characters that may be a number
M.INPUT_DEPTH = 64 -- nesting of the values that are given

--- Raises an error of the template. Template:render and Template.parse convert it to text.
---@param line integer?
---@param fmt string
---@param ... any
function M.problem(line, fmt, ...)
  error({ template_error = true, line = line, message = select("#", ...) > 0 and fmt:format(...) or fmt }, 0)
end

--- A string of the template as a message shows it.
function M.quoted(s)
  if #s > 40 then s = s:sub(1, 37) .. "..." end
  return "'" .. s:gsub("[%c\128-\255]", "?") .. "'"
end

return M
