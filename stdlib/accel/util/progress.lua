--- A progress bar on stderr: share done, a few figures, rate and time left, in one line of at most 80 columns, redrawn
--- at most ten times a second. A narrow terminal gets fewer of them: the bar goes first, then the rate, then the later
--- figures. If stderr is not a terminal, it writes a plain line every few seconds instead.
---
---   local bar = Progress { label = "train", unit = "tok" }
---   if bar:due() then bar:update(step / steps, tokens, { { "loss", loss:item() } }) end
---   bar:finish()
---
--- `due` costs one clock reading, so figures that need the device are computed only when they are shown.
local accel = require "accel"
local class = require "accel.util.class"
local check = require "accel.util.check"
local options = require "accel.util.options"
local terminal = require "accel.util.terminal"

--- example: accel.util.Progress.duration(3725), accel.util.Progress.count(17923) --> "1:02:05", "17.9k"
---@class accel.util.Progress
local Progress = class("accel.util.Progress")

---@param opts? table
---  label string = "": the text before the bar
---  unit string = "it": of the rate
---  every number = 10: seconds between lines if stderr is not a terminal
---  out file*: its output file (default: stderr)
---  interactive boolean: redraw one line (default: whether stderr is a terminal)
---  width integer: columns (default: the terminal's, at most 80)
---  utf8 boolean: draw with characters beyond ASCII (default: by the locale)
function Progress:init(opts)
  local o = options("Progress", opts, {
    label = "", unit = "it", every = 10, out = options.none, interactive = options.none, width = options.none,
    utf8 = options.none,
  })
  self.label, self.unit, self.out = o.label, o.unit, o.out or io.stderr
  self.live = o.interactive
  if self.live == nil then self.live = terminal.interactive(2) end
  self.width = math.min(80, o.width or terminal.width()) - 1
  self.glyphs = o.utf8
  if self.glyphs == nil then self.glyphs = terminal.utf8() end
  self.interval = self.live and 0.1 or o.every
  self.start = accel.clock()
  self.next = self.start + (self.live and 0 or o.every)
  self.window = { { self.start, 0 } }
end

--- Whether the line is to be redrawn now.
function Progress:due() return accel.clock() >= self.next end

--- 90 -> "1:30"
---@param seconds number
function Progress.duration(seconds)
  if seconds ~= seconds or seconds == math.huge then return "?" end
  local s = math.floor(seconds + 0.5)
  if s >= 3600 then return ("%d:%02d:%02d"):format(s // 3600, s // 60 % 60, s % 60) end
  return ("%d:%02d"):format(s // 60, s % 60)
end

--- Three figures and a unit: 17923.4 -> "17.9k"
---@param n number
function Progress.count(n)
  local suffix = ""
  for _, unit in ipairs { { 1e9, "G" }, { 1e6, "M" }, { 1e3, "k" } } do
    if n >= 0.9995 * unit[1] then
      n, suffix = n / unit[1], unit[2]
      break
    end
  end
  return (n >= 99.95 and "%.0f%s" or n >= 9.995 and "%.1f%s" or "%.2f%s"):format(n, suffix)
end

--- Units per second over about the last five seconds.
---@param now number time in seconds
---@param amount number units so far
function Progress:rate(now, amount)
  local window = self.window
  window[#window + 1] = { now, amount }
  while #window > 2 and now - window[1][1] > 5 do table.remove(window, 1) end
  local first = window[1]
  return now > first[1] and (amount - first[2]) / (now - first[1]) or 0
end

local function bar_text(fraction, width, glyphs)
  local full = math.floor(fraction * width + 0.5)
  if glyphs then return utf8.char(0x2588):rep(full) .. utf8.char(0x2591):rep(width - full) end
  return "[" .. ("#"):rep(full) .. ("-"):rep(width - full) .. "]"
end

--- Shows the line. fraction: completed share, 0 to 1. amount: completed units. figures: list of {name, number or text}.
---@param fraction number
---@param amount number
---@param figures? table[]
function Progress:update(fraction, amount, figures, ...)
  check.surplus("Progress:update", ...)
  local now = accel.clock()
  fraction = math.max(0, math.min(1, fraction))
  local elapsed = now - self.start
  local parts = {}
  for _, figure in ipairs(figures or {}) do
    local value = figure[2]
    parts[#parts + 1] = ("%s %s"):format(figure[1],
      type(value) == "number" and math.type(value) == "float" and ("%.4f"):format(value) or tostring(value))
  end
  parts[#parts + 1] = ("%s %s/s"):format(Progress.count(self:rate(now, amount)), self.unit)
  if fraction < 1 then
    local left = fraction > 0 and elapsed * (1 - fraction) / fraction or math.huge
    parts[#parts + 1] = "ETA " .. Progress.duration(left)
  else
    parts[#parts + 1] = "in " .. Progress.duration(elapsed)
  end
  local head = ("%s%3.0f%%"):format(self.label ~= "" and self.label .. " " or "", 100 * fraction)
  local text = table.concat(parts, "  ")
  if self.live then
    while #parts > 1 and #head + 2 + #text > self.width do
      table.remove(parts, math.max(1, #parts - 1))
      text = table.concat(parts, "  ")
    end
    local room = math.min(24, self.width - #head - #text - 5)
    local middle = room >= 5 and " " .. bar_text(fraction, room, self.glyphs) .. "  " or "  "
    local line = head .. middle .. text
    if room < 5 then line = line:sub(1, self.width) end
    self.out:write("\r", line, "\27[K")
    self.drawn = true
  else
    self.out:write(head, "  ", text, "\n")
  end
  self.out:flush()
  self.next = now + self.interval
end

--- Writes a separate line. The bar is redrawn below it.
---@param text string
function Progress:log(text)
  if self.drawn then self.out:write("\r\27[K") end
  self.out:write(text, "\n")
  self.out:flush()
  self.drawn, self.next = false, 0
end

--- Ends the line.
function Progress:finish()
  if self.drawn then self.out:write("\n") end
  self.drawn = false
end

return Progress
