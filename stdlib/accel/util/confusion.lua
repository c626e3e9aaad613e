--- Confusion of a classifier: counts of (true class, predicted class), accuracy, and a picture of them for terminals and as SVG.
---
---   local confusion = Confusion { "cat", "dog" }
---   confusion:add(labels, logits:argmax(2))
---   print(confusion:accuracy())
---   io.stdout:write(confusion:text())
local check = require "accel.util.check"
local class = require "accel.util.class"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local terminal = require "accel.util.terminal"

--- example: local c = accel.util.Confusion { "a", "b" } c:add({ 0, 1, 1, 0 }, { 0, 1, 0, 0 }) return c:accuracy() --> 0.75
---@class accel.util.Confusion
---@field counts integer[][] counts[truth][prediction]
local Confusion = class("accel.util.Confusion")

---@param names string[] of the classes, in the order of their labels 0, 1, ...
function Confusion:init(names)
  if type(names) ~= "table" or #names == 0 then raise "Confusion: expected the list of class names" end
  self.names, self.counts = {}, {}
  for i, name in ipairs(names) do
    self.names[i], self.counts[i] = tostring(name), {}
    for k = 1, #names do self.counts[i][k] = 0 end
  end
end

local function list_of(x)
  if tensors.is_tensor(x) then return x:reshape(-1):tolist() end
  if type(x) ~= "table" then raise("Confusion: expected a tensor or a list of classes, got %s", check.shown(x)) end
  return x
end

--- Counts predictions of 0-based classes.
---@param truth accel.Tensor|integer[]
---@param predicted accel.Tensor|integer[] as many
function Confusion:add(truth, predicted)
  truth, predicted = list_of(truth), list_of(predicted)
  if #truth ~= #predicted then raise("Confusion: %d labels and %d predictions", #truth, #predicted) end
  local function class_of(x) return math.type(x) and self.counts[x + 1] and math.tointeger(x) + 1 end
  local places = {} -- all are looked at before any is counted
  for i, t in ipairs(truth) do
    local row, column = class_of(t), class_of(predicted[i])
    if not row or not column then
      raise("Confusion: label %s, prediction %s: there are %d classes, from 0", tostring(t), tostring(predicted[i]), #self.names)
    end
    places[2 * i - 1], places[2 * i] = row, column
  end
  for i = 1, #places, 2 do
    local row, column = self.counts[places[i]], places[i + 1]
    row[column] = row[column] + 1
  end
end

local function total(row)
  local n = 0
  for _, v in ipairs(row) do n = n + v end
  return n
end

--- Share of correct predictions. 0 before the first.
---@return number
function Confusion:accuracy()
  local right, all = 0, 0
  for i, row in ipairs(self.counts) do right, all = right + row[i], all + total(row) end
  return all > 0 and right / all or 0.0
end

--- Share of the most frequent true class: the score of always answering it.
---@return number
function Confusion:majority()
  local most, all = 0, 0
  for _, row in ipairs(self.counts) do most, all = math.max(most, total(row)), all + total(row) end
  return all > 0 and most / all or 0.0
end

--- Share of the true class i (from 1) that was found, or nil without any.
---@param i integer class, from 1
function Confusion:recall(i)
  local n = total(self.counts[i])
  return n > 0 and self.counts[i][i] / n or nil
end

local block = utf8.char
local shades = {
  utf8 = { " ", block(0x2591), block(0x2592), block(0x2593), block(0x2588) }, -- light to full
  ascii = { " ", "-", "+", "*", "#" },
}

local function fit(text, width)
  local n = utf8.len(text) or #text
  if n <= width then return text .. (" "):rep(width - n) end
  local cut = utf8.offset(text, width) or width
  return text:sub(1, cut - 1) .. "~"
end

--- The picture as text: a row per true class, shaded by the share of its predictions, with counts if they fit.
---@param opts? {width: integer?, utf8: boolean?}
---@return string
function Confusion:text(opts, ...)
  local o = options("Confusion:text", opts, { width = math.min(80, terminal.width()), utf8 = options.none }, ...)
  if o.utf8 == nil then o.utf8 = terminal.utf8() end
  local glyph = shades[o.utf8 and "utf8" or "ascii"]
  local n, digits, longest = #self.names, 1, 0
  for i, row in ipairs(self.counts) do
    longest = math.max(longest, utf8.len(self.names[i]) or #self.names[i])
    for _, v in ipairs(row) do digits = math.max(digits, #tostring(v)) end
  end
  local recall = 7
  local cell, numbers = digits + 2, true
  if longest + 3 + n * cell + recall > o.width then cell, numbers = 2, false end
  local names, columns = {}, {} -- long names are numbered, so that the columns can be
  for i, name in ipairs(self.names) do
    names[i], columns[i] = name, name
    if longest >= cell then
      names[i] = ("%" .. #tostring(n) .. "d %s"):format(i, name)
      columns[i] = numbers and tostring(i) or tostring(i % 10)
    end
  end
  if longest >= cell then longest = longest + #tostring(n) + 1 end
  local label = math.max(6, math.min(longest, o.width - recall - 3 - n * cell))
  local out, head = { fit("true", label) .. "   " .. fit("predicted", n * cell) .. " found" }, {}
  for k = 1, n do head[k] = (" "):rep(cell - (utf8.len(columns[k]) or #columns[k])) .. columns[k] end
  out[2] = (" "):rep(label) .. "  " .. table.concat(head)
  for i, row in ipairs(self.counts) do
    local sum, cells = total(row), {}
    for k, v in ipairs(row) do
      local shade = v == 0 and glyph[1] or glyph[2 + math.min(3, math.floor(4 * v / sum))]
      cells[k] = numbers and shade .. ("%" .. cell - 1 .. "s"):format(v > 0 and v or "") or shade:rep(2)
    end
    local share = self:recall(i)
    out[#out + 1] = fit(names[i], label) .. " |" .. table.concat(cells) .. " |"
      .. (share and ("%4.0f %%"):format(100 * share) or "   -")
  end
  return table.concat(out, "\n") .. "\n"
end

local function escape(s) return (s:gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" })) end

--- The picture as an SVG document.
---@param opts? {cell: integer?, title: string?}
---@return string
function Confusion:svg(opts, ...)
  local o = options("Confusion:svg", opts, { cell = 36, title = "" }, ...)
  local n, c, left, top = #self.names, o.cell, 120, 120
  local out = {
    ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">'):format(
      left + n * c + 20, top + n * c + 40),
    '<rect width="100%" height="100%" fill="white"/>',
  }
  local function add(fmt, ...) out[#out + 1] = fmt:format(...) end
  add('<text x="%d" y="20" font-size="14">%s</text>', 10, escape(o.title))
  add('<text x="%d" y="%d">true class, from left; predicted class, from above</text>', 10, top + n * c + 25)
  for i, row in ipairs(self.counts) do
    local sum = math.max(1, total(row))
    local x, y = left + (i - 1) * c, top + (i - 1) * c
    add('<text x="%d" y="%.1f" text-anchor="end">%s</text>', left - 6, y + c / 2 + 4, escape(self.names[i]))
    add('<text x="%.1f" y="%d" transform="rotate(-60 %.1f %d)">%s</text>', x + c / 2, top - 6, x + c / 2, top - 6,
      escape(self.names[i]))
    for k, v in ipairs(row) do
      local share = v / sum
      local level = math.floor(255 - 200 * share + 0.5)
      add('<rect x="%d" y="%d" width="%d" height="%d" fill="rgb(%d,%d,255)" stroke="#ccc"/>', left + (k - 1) * c, y, c, c, level,
        level)
      if v > 0 then
        add('<text x="%.1f" y="%.1f" text-anchor="middle" fill="%s">%d</text>', left + (k - 0.5) * c, y + c / 2 + 4,
          share > 0.6 and "white" or "black", v)
      end
    end
  end
  out[#out + 1] = "</svg>\n"
  return table.concat(out, "\n")
end

return Confusion
