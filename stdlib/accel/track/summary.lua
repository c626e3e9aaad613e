--- Summaries of TensorBoard's event files that are more than a number, encoded as protocol buffers: texts, histograms, and the
--- begin and end of a session of its HParams plugin. The host puts them into events (host/track/events.c). Used by
--- summary_writer.lua and tensorboard.lua.
local proto = require "accel.util.proto"

local M = {}

local int, double, bytes, packed_doubles = proto.int, proto.double, proto.bytes, proto.packed_doubles

-- ---- tensorboard/compat/proto/summary.proto, tensor.proto ----

local DT_FLOAT <const>, DT_STRING <const> = 1, 7
local CLASS_TENSOR <const> = 2

local function value(tag, rest) return bytes(1, bytes(1, tag) .. rest) end
local function tensor(dtype, n, rest) return bytes(8, int(1, dtype) .. bytes(2, bytes(2, int(1, n))) .. rest) end
local function of_plugin(name, content, class)
  return bytes(9, bytes(1, bytes(1, name) .. (content and bytes(2, content) or "")) .. (class and int(4, class) or ""))
end

--- A text, in Markdown.
---@param tag string
---@param text string
---@return string bytes
function M.text(tag, text)
  return value(tag, of_plugin("text", nil, CLASS_TENSOR) .. tensor(DT_STRING, 1, bytes(8, text)))
end

--- How often numbers fall between limits of equal distance. NaN and infinities are left out.
---@param list number[]
---@param bins integer
---@return number[] limits upper ends. The first is the smallest number
---@return integer[] counts the first is 0
---@return {n: integer, sum: number, squares: number, least: number, most: number}
function M.bins(list, bins)
  local least, most, n, sum, squares = math.huge, -math.huge, 0, 0.0, 0.0
  for _, x in ipairs(list) do
    if x - x == 0 then
      least, most, n, sum, squares = math.min(least, x), math.max(most, x), n + 1, sum + x, squares + x * x
    end
  end
  if n == 0 then least, most = 0.0, 0.0 end
  local width = (most - least) / bins
  if width == 0 or width ~= width or width == math.huge then bins, width = 1, nil end
  local counts, limits = {}, {}
  for i = 1, bins do counts[i], limits[i] = 0, width and least + i * width or most end
  limits[bins] = most -- a limit is the upper end of its bin, which belongs to the bin
  for _, x in ipairs(list) do
    if x - x == 0 then
      local i = width and math.min(bins, math.max(1, math.ceil((x - least) / width))) or 1
      counts[i] = counts[i] + 1
    end
  end
  -- the first bin begins at the end of the previous one: without that, it would begin at 0
  table.insert(counts, 1, 0)
  table.insert(limits, 1, least)
  return limits, counts, { n = n, sum = sum, squares = squares, least = least, most = most }
end

--- The same as a summary.
---@param tag string
---@param list number[]
---@param bins integer
---@return string bytes
function M.histogram(tag, list, bins)
  local limits, counts, of = M.bins(list, bins)
  return value(tag, bytes(5, double(1, of.least) .. double(2, of.most) .. double(3, of.n) .. double(4, of.sum)
    .. double(5, of.squares) .. packed_doubles(6, limits) .. packed_doubles(7, counts)))
end

--- Images of one tag, as TensorBoard's add_images has them: one is TAG, several are TAG/0, TAG/1, ...
---@param tag string
---@param images {data: string, width: integer, height: integer, channels: integer}[]
---@return string[] bytes of each
function M.images(tag, images)
  local out = {}
  for i, img in ipairs(images) do
    out[i] = value(#images > 1 and ("%s/%d"):format(tag, i - 1) or tag,
      bytes(4, int(1, img.height) .. int(2, img.width) .. int(3, img.channels) .. bytes(4, img.data)))
  end
  return out
end

-- ---- tensorboard/plugins/hparams/plugin_data.proto ----

local function hparams(tag, field, message)
  return value("_hparams_/" .. tag, of_plugin("hparams", bytes(field, message), CLASS_TENSOR) .. tensor(DT_FLOAT, 0, ""))
end

local function hparam(x)
  if type(x) == "number" then return double(2, x) end
  if type(x) == "boolean" then return int(4, x and 1 or 0) end
  return bytes(3, tostring(x))
end

local STRING <const>, BOOLEAN <const>, NUMBER <const> = 1, 2, 3 -- api.proto, DataType

--- The common fields of a folder's sessions: the names of their hyperparameters and metrics.
---@param flat table<string, number|string|boolean>
---@param names string[]
---@param metrics string[] tags
---@param seconds number since 1970
---@return string bytes
function M.experiment(flat, names, metrics, seconds)
  local out = { double(3, seconds) }
  for _, name in ipairs(names) do
    local kind = type(flat[name])
    out[#out + 1] = bytes(4, bytes(1, name) .. int(4, kind == "number" and NUMBER or kind == "boolean" and BOOLEAN or STRING))
  end
  for _, tag in ipairs(metrics) do out[#out + 1] = bytes(5, bytes(1, bytes(2, tag))) end
  return hparams("experiment", 2, table.concat(out))
end

--- The beginning of a session with its hyperparameters.
---@param flat table<string, number|string|boolean>
---@param names string[] its keys, in order
---@param seconds number since 1970
---@return string bytes
function M.session_start(flat, names, seconds)
  local out = {}
  for i, name in ipairs(names) do out[i] = bytes(1, bytes(1, name) .. bytes(2, hparam(flat[name]))) end
  return hparams("session_start_info", 3, table.concat(out) .. double(5, seconds))
end

--- Its end.
---@param ok boolean
---@param seconds number since 1970
---@return string bytes
function M.session_end(ok, seconds) return hparams("session_end_info", 4, int(1, ok and 1 or 2) .. double(2, seconds)) end

return M
