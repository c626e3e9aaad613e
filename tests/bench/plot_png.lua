-- Curves over two logarithmic axes as a PNG, for suites/scale.lua: lines with points, a grid at the ticks, a legend. Labels are drawn with
-- letters of 3 by 5 dots, so that no font is needed. The file itself is written by accel.vision.io, which needs libpng.
local accel = require "accel"

local M = {}

local WIDTH <const>, HEIGHT <const>, SCALE <const> = 900, 560, 3
local LEFT <const>, RIGHT <const>, TOP <const>, BOTTOM <const> = 110, 30, 50, 70
local COLOURS <const> = { { 31, 119, 180 }, { 214, 39, 40 }, { 44, 160, 44 }, { 148, 103, 189 } }
local LIMIT <const> = { 120, 120, 120 }

-- Rows of a letter from above, an octal digit each: 4 is the left dot.
local FONT <const> = {}
for letter, rows in ([[0:75557 1:26227 2:71747 3:71717 4:55711 5:74717 6:74757 7:71222 8:75757 9:75717 a:25755 b:65656 c:34443 d:65556 e:74647
  f:74644 g:34553 h:55755 i:72227 j:11152 k:55655 l:44447 m:57755 n:65555 o:25552 p:65644 q:25563 r:65655 s:34216 t:72222 u:55557 v:55552
  w:55775 x:55255 y:55222 z:71247 .:00002 ,:00024 -:00700 /:11244 =:07070 (:12221 ):42224 %:51245 +:02720 _:00007]]):gmatch "(%S):(%d+)" do
  FONT[letter] = rows
end

-- An image as rows of three bytes a dot.
local function canvas()
  local dots, self = {}, {}
  for i = 1, WIDTH * HEIGHT do dots[i] = 0xffffff end
  function self.dot(x, y, colour)
    if x >= 0 and x < WIDTH and y >= 0 and y < HEIGHT then dots[y * WIDTH + x + 1] = colour[1] << 16 | colour[2] << 8 | colour[3] end
  end
  function self.box(x, y, w, h, colour)
    for j = y, y + h - 1 do
      for i = x, x + w - 1 do self.dot(i, j, colour) end
    end
  end
  function self.line(x0, y0, x1, y1, colour, thick)
    local n = math.max(1, math.abs(x1 - x0), math.abs(y1 - y0))
    for k = 0, n do
      local x, y = math.floor(x0 + (x1 - x0) * k / n + 0.5), math.floor(y0 + (y1 - y0) * k / n + 0.5)
      self.box(x, y, thick, thick, colour)
    end
  end
  function self.text(x, y, text, colour)
    for letter in text:lower():gmatch "." do
      local rows = FONT[letter]
      for r = 1, rows and 5 or 0 do
        local bits = tonumber(rows:sub(r, r))
        for c = 0, 2 do
          if bits >> (2 - c) & 1 == 1 then self.box(x + c * SCALE, y + (r - 1) * SCALE, SCALE, SCALE, colour) end
        end
      end
      x = x + 4 * SCALE
    end
  end
  function self.tensor()
    local packed = accel.tensor(dots, { dtype = "i64" }):view(HEIGHT, WIDTH)
    local planes = {}
    for i, factor in ipairs { 65536, 256, 1 } do planes[i] = (packed:div(factor, { rounding_mode = "floor" }) % 256):to "u8" end
    return accel.stack(planes, 1)
  end
  return self
end

local function width_of(text) return #text * 4 * SCALE end

--- 1, 2 and 5 times powers of ten in a range.
local function decades(lo, hi)
  local out = {}
  for e = math.floor(math.log(lo, 10)), math.ceil(math.log(hi, 10)) do
    for _, m in ipairs { 1, 2, 5 } do
      local v = m * 10.0 ^ e
      if v >= lo * 0.999 and v <= hi * 1.001 then out[#out + 1] = v end
    end
  end
  return out
end

local function short(v) return v == math.floor(v) and ("%d"):format(v) or ("%.3g"):format(v) end

--- Writes the curves. Both axes are logarithmic.
---@param path string
---@param title string
---@param series table[] {name, x = numbers, y = numbers}, all above 0
---@param xlabel string
---@param ylabel string
---@return boolean? ok, string? message
function M.write(path, title, series, xlabel, ylabel)
  local x0, x1, y0, y1, xs = math.huge, 0, math.huge, 0, {}
  for _, s in ipairs(series) do
    for i, x in ipairs(s.x) do
      x0, x1, y0, y1 = math.min(x0, x), math.max(x1, x), math.min(y0, s.y[i]), math.max(y1, s.y[i])
      xs[x] = true
    end
  end
  if x0 > x1 then return nil, "no points" end
  if x0 == x1 then x0, x1 = x0 / 2, x1 * 2 end
  y0, y1 = y0 / 1.3, y1 * 1.3
  local w, h, at = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM, canvas()
  local function X(v) return math.floor(LEFT + math.log(v / x0) / math.log(x1 / x0) * w + 0.5) end
  local function Y(v) return math.floor(TOP + h - math.log(v / y0) / math.log(y1 / y0) * h + 0.5) end
  local grey <const>, black <const> = { 225, 225, 225 }, { 40, 40, 40 }
  for _, y in ipairs(decades(y0, y1)) do
    at.line(LEFT, Y(y), LEFT + w, Y(y), grey, 1)
    local label = short(y)
    at.text(LEFT - 10 - width_of(label), Y(y) - 7, label, black)
  end
  for x in accel.pairs(xs) do
    at.line(X(x), TOP, X(x), TOP + h, grey, 1)
    local label = short(x)
    at.text(X(x) - width_of(label) // 2, TOP + h + 10, label, black)
  end
  at.line(LEFT, TOP, LEFT, TOP + h, black, 2)
  at.line(LEFT, TOP + h, LEFT + w, TOP + h, black, 2)
  at.text(LEFT, 15, title, black)
  at.text(10, TOP - 18, ylabel, black)
  at.text(LEFT + w - width_of(xlabel), HEIGHT - 25, xlabel, black)
  local legend = LEFT
  for k, s in ipairs(series) do
    local colour = s.name == "limit" and LIMIT or COLOURS[(k - 1) % #COLOURS + 1]
    for i, x in ipairs(s.x) do
      if i > 1 then at.line(X(s.x[i - 1]), Y(s.y[i - 1]), X(x), Y(s.y[i]), colour, 2) end
      at.box(X(x) - 4, Y(s.y[i]) - 4, 9, 9, colour)
    end
    at.box(legend, HEIGHT - 22, 14, 9, colour)
    at.text(legend + 22, HEIGHT - 25, s.name, colour)
    legend = legend + 50 + width_of(s.name)
  end
  local ok, done, why = pcall(require "accel.vision.io".write_png, at.tensor(), path)
  if not ok then return nil, tostring(done) end
  return done, why
end

return M
