--- Curves in a terminal (Braille dots, or ASCII if the locale has no UTF-8) and as SVG: the loss plot at the end of a
--- run.
---
---   io.stdout:write(plot.text { { name = "train", x = at, y = losses }, { name = "val", x = .., y = .. } })
---
--- The first series is drawn as a line, later ones as marks (o, x, +) on top of it. Points that are not
--- finite are left out.
local options = require "accel.util.options"
local terminal = require "accel.util.terminal"

local M = {}

local marks = { "o", "x", "+" }
local colours = { "#1f77b4", "#d62728", "#2ca02c", "#9467bd" }

local function finite(v) return v == v and v ~= math.huge and v ~= -math.huge end

--- Range of all finite points: x0, x1, y0, y1. nil if there is none. A single value gets some room on either side.
--- `only` is the x that all points share, if any.
local function range(series)
  local x0, x1, y0, y1 = math.huge, -math.huge, math.huge, -math.huge
  for _, s in ipairs(series) do
    for i, y in ipairs(s.y) do
      local x = s.x and s.x[i] or i
      if finite(x) and finite(y) then
        x0, x1, y0, y1 = math.min(x0, x), math.max(x1, x), math.min(y0, y), math.max(y1, y)
      end
    end
  end
  if x0 > x1 then return nil end
  local only
  if x0 == x1 then only, x0, x1 = x0, x0 - 0.5, x1 + 0.5 end
  if y0 == y1 then y0, y1 = y0 - 0.5, y1 + 0.5 end
  return x0, x1, y0, y1, only
end

--- Calls dot(px, py) for each finite point of a series on a width x height raster, joined by lines when
--- asked.
local function trace(s, box, width, height, joined, dot)
  local function place(v, lo, hi, n) return math.floor((v - lo) / (hi - lo) * (n - 1) + 0.5) end
  local lx, ly
  for i, y in ipairs(s.y) do
    local x = s.x and s.x[i] or i
    if finite(x) and finite(y) then
      local px, py = place(x, box[1], box[2], width), height - 1 - place(y, box[3], box[4], height)
      local n = joined and lx and math.max(math.abs(px - lx), math.abs(py - ly)) or 0
      for k = 0, n - 1 do
        dot(lx + math.floor((px - lx) * k / n + 0.5), ly + math.floor((py - ly) * k / n + 0.5))
      end
      dot(px, py)
      lx, ly = px, py
    end
  end
end

--- Bits of the 2 x 4 dots of a Braille cell, by row then column.
local braille = { { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 } }

local function short(v)
  if v == math.floor(v) and math.abs(v) < 1e7 then return ("%d"):format(v) end
  return ("%.4g"):format(v)
end

--- The plot as text, with a final line end.
---@param series table[] {name: string, x: number[]?, y: number[]}
---@param opts? {width: integer?, height: integer?, utf8: boolean?, xlabel: string?}
---@return string
function M.text(series, opts, ...)
  local o = options("plot.text", opts, {
    width = math.min(80, terminal.width()), height = 12, utf8 = options.none, xlabel = "step",
  }, ...)
  if o.utf8 == nil then o.utf8 = terminal.utf8() end
  local x0, x1, y0, y1, only = range(series)
  if not x0 then return "(nothing to plot)\n" end
  local box = { x0, x1, y0, y1 }
  local left = 9
  local columns, rows = math.max(10, o.width - left - 1), math.max(3, o.height)
  local dots, over = {}, {}
  local cx, cy = o.utf8 and 2 or 1, o.utf8 and 4 or 1
  for k, s in ipairs(series) do
    if k == 1 then
      trace(s, box, columns * cx, rows * cy, true, function(px, py)
        local at = py // cy * columns + px // cx
        dots[at] = (dots[at] or 0) | (o.utf8 and braille[py % 4 + 1][px % 2 + 1] or 1)
      end)
    else
      local mark = marks[(k - 2) % #marks + 1]
      trace(s, box, columns, rows, false, function(px, py) over[py * columns + px] = mark end)
    end
  end
  local out = {}
  for row = 0, rows - 1 do
    local label = ""
    if row == 0 or row == rows - 1 or row == rows // 2 then
      label = ("%.3f"):format(y1 - (y1 - y0) * row / (rows - 1))
    end
    local line = {}
    for col = 0, columns - 1 do
      local at = row * columns + col
      local d = dots[at]
      line[#line + 1] = over[at] or (d and (o.utf8 and utf8.char(0x2800 + d) or ".")) or " "
    end
    out[#out + 1] = ("%7s |"):format(label) .. (table.concat(line):gsub(" +$", ""))
  end
  out[#out + 1] = (" "):rep(8) .. "+" .. ("-"):rep(columns)
  local first, last = short(x0), ("%s %s"):format(short(only or x1), o.xlabel)
  local names = {}
  for k, s in ipairs(series) do
    local mark = k == 1 and (o.utf8 and utf8.char(0x2812):rep(2) or "..") or marks[(k - 2) % #marks + 1]
    names[#names + 1] = mark .. " " .. terminal.visible(s.name or "")
  end
  local legend = table.concat(names, "   ")
  local length = utf8.len(legend) or #legend
  local function under_axis(middle, width)
    local gap = math.max(2, columns - #first - #last - width)
    out[#out + 1] = (" "):rep(left) .. first .. (" "):rep(gap // 2) .. middle .. (" "):rep(gap - gap // 2)
      .. last
  end
  if not only and columns - #first - #last - length >= 4 then
    under_axis(legend, length)
  else -- too narrow for one line, or one figure under the middle
    if only then out[#out + 1] = (" "):rep(left + (columns - #last) // 2) .. last else under_axis("", 0) end
    for _, name in ipairs(names) do out[#out + 1] = (" "):rep(left) .. name end
  end
  return table.concat(out, "\n") .. "\n"
end

local function escape(s)
  return (s:gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }))
end

--- Positions of labels on the x axis: five positions, or every whole number if these are fewer.
local function ticks(x0, x1, only)
  if only then return { only } end
  local n = math.tointeger(x0) and math.tointeger(x1) and math.tointeger(x1 - x0)
  n = n and n < 4 and n or 4
  local at = {}
  for k = 0, n do at[k + 1] = x0 + (x1 - x0) * k / n end
  return at
end

--- The plot as an SVG document.
---@param series table[]
---@param opts? {width: integer?, height: integer?, title: string?, xlabel: string?, ylabel: string?}
---@return string
function M.svg(series, opts, ...)
  local o = options("plot.svg", opts, {
    width = 720, height = 400, title = "", xlabel = "step", ylabel = "loss",
  }, ...)
  local x0, x1, y0, y1, only = range(series)
  if not x0 then x0, x1, y0, y1 = 0, 1, 0, 1 end
  local left, right, top, bottom = 60, 20, 30, 45
  local w, h = o.width - left - right, o.height - top - bottom
  local function X(v) return left + (v - x0) / (x1 - x0) * w end
  local function Y(v) return top + (y1 - v) / (y1 - y0) * h end
  local out = {
    ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" '):format(o.width, o.height)
      .. 'font-family="sans-serif" font-size="12">',
    '<rect width="100%" height="100%" fill="white"/>',
  }
  local function add(fmt, ...) out[#out + 1] = fmt:format(...) end
  for _, x in ipairs(ticks(x0, x1, only)) do
    add('<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>', X(x), top + h + 18, short(x))
  end
  for k = 0, 4 do
    local y = y0 + (y1 - y0) * k / 4
    add('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ddd"/>', left, Y(y), left + w, Y(y))
    add('<text x="%.1f" y="%.1f" text-anchor="end">%s</text>', left - 6, Y(y) + 4, ("%.3g"):format(y))
  end
  add('<text x="%.1f" y="18" text-anchor="middle" font-size="14">%s</text>', left + w / 2, escape(o.title))
  add('<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>', left + w / 2, o.height - 8, escape(o.xlabel))
  add('<text x="14" y="%.1f" text-anchor="middle" transform="rotate(-90 14 %.1f)">%s</text>', top + h / 2,
    top + h / 2,
    escape(o.ylabel))
  for k, s in ipairs(series) do
    local points, colour = {}, colours[(k - 1) % #colours + 1]
    for i, y in ipairs(s.y) do
      local x = s.x and s.x[i] or i
      if finite(x) and finite(y) then points[#points + 1] = ("%.1f,%.1f"):format(X(x), Y(y)) end
    end
    add('<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>', colour,
      table.concat(points, " "))
    add('<text x="%.1f" y="%.1f" text-anchor="end" fill="%s">%s</text>', left + w - 4, top + 16 * k, colour,
      escape(s.name or ""))
  end
  out[#out + 1] = "</svg>\n"
  return table.concat(out, "\n")
end

return M
