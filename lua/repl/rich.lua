-- Values as a notebook shows them: text as at a prompt, and HTML for tensors and lists of records. A value whose metatable has __display, a
-- function that returns { [MIME type] = text }, adds its own forms. Used by server.lua and accel.display.
local accel = ...
local show = accel.host_chunk "repl/show"

local M = {}

local ROWS <const>, COLUMNS <const> = 30, 20

--- Text as HTML.
---@return string
function M.escape(text) return (text:gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" })) end

local function cell(v)
  if math.type(v) == "float" then return ("%.5g"):format(v) end
  return M.escape(tostring(v))
end

-- rows: lists of cells. head: names of columns, or nil.
local function html_table(rows, head, caption)
  local out = { "<table>" }
  if caption then out[#out + 1] = "<caption>" .. M.escape(caption) .. "</caption>" end
  local function add(list, tag)
    local parts = {}
    for i, v in ipairs(list) do parts[i] = ("<%s>%s</%s>"):format(tag, v, tag) end
    out[#out + 1] = "<tr>" .. table.concat(parts) .. "</tr>"
  end
  if head then add(head, "th") end
  for _, row in ipairs(rows) do add(row, "td") end
  out[#out + 1] = "</table>"
  return table.concat(out, "\n")
end

local function numbers(t)
  local row, n = {}, t.shape[1]
  for i, v in ipairs(t:narrow(1, 1, math.min(n, COLUMNS)):contiguous():tolist()) do row[i] = cell(v) end
  if n > COLUMNS then row[#row + 1] = "&hellip;" end
  return row
end

local function tensor(t)
  local dims = #t.shape
  if t.device == "meta" or t:numel() == 0 or dims < 1 or dims > 2 then return nil end
  return accel.no_grad(function()
    local x, rows = t:detach():to "cpu", {}
    if dims == 1 then rows[1] = numbers(x) end
    for i = 1, dims == 2 and math.min(x.shape[1], ROWS) or 0 do rows[i] = numbers(x[i]) end
    if dims == 2 and x.shape[1] > ROWS then rows[#rows + 1] = { "&hellip;" } end
    return html_table(rows, nil, show.head(t))
  end)
end

-- Rows of { name = plain value }: a table with a column for each name.
local function records(list)
  if #list < 1 or getmetatable(list) ~= nil and getmetatable(list) ~= getmetatable(accel.json.array {}) then return nil end
  local columns, seen = {}, {}
  for i = 1, #list do
    if type(list[i]) ~= "table" or getmetatable(list[i]) ~= nil then return nil end
    for name, v in accel.pairs(list[i]) do
      if type(name) ~= "string" or type(v) == "table" or type(v) == "function" then return nil end
      if not seen[name] then
        seen[name], columns[#columns + 1] = true, name
      end
    end
  end
  for key in next, list do
    if math.type(key) ~= "integer" then return nil end
  end
  if #columns == 0 then return nil end
  local head, rows = {}, {}
  for i, name in ipairs(columns) do head[i] = M.escape(name) end
  for i = 1, math.min(#list, ROWS) do
    rows[i] = {}
    for k, name in ipairs(columns) do rows[i][k] = list[i][name] == nil and "" or cell(list[i][name]) end
  end
  if #list > ROWS then rows[#rows + 1] = { ("&hellip; %d more"):format(#list - ROWS) } end
  return html_table(rows, head)
end

--- The forms of a value by MIME type, text/plain among them.
---@return table<string, string>
function M.bundle(value, width)
  local ok, lines = pcall(show.value, value, width)
  local data = { ["text/plain"] = ok and table.concat(lines, "\n") or ("(cannot be shown: %s)"):format(tostring(lines)) }
  local meta = debug.getmetatable(value)
  local own = type(meta) == "table" and rawget(meta, "__display")
  local done, more
  if own then done, more = pcall(own, value)
  elseif accel.is_tensor(value) then done, more = pcall(tensor, value)
  elseif type(value) == "table" then done, more = pcall(records, value) end
  if done and type(more) == "string" then data["text/html"] = more end
  for kind, text in next, done and type(more) == "table" and more or {} do data[kind] = text end
  return data
end

return M
