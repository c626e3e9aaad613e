--- Bounds of templates, which come with model files and are not trusted: what one may hold, and what its rendering may cost.
--- `problem` is how the parts of accel.text.jinja report an error at a line of the template.
local M = {}

M.SOURCE = 1 << 20 -- bytes of a template
M.DEPTH = 100 -- nesting of tags and of expressions
M.CALLS = 30 -- macros within macros
M.RANGE = 100000 -- numbers of a range
M.STRING = 16 << 20 -- bytes of a string, and of the result
M.ITEMS = 1 << 20 -- entries of a list
M.WORK = 20000000 -- steps; a string's bytes count 1/16 each
M.INPUT_DEPTH = 64 -- nesting of the values that are given

--- Raises an error of the template; Template:render and Template.parse make text of it.
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
