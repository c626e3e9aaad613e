--- accel.display: values in a notebook as tables, curves and pictures. Elsewhere it prints them as text.
local accel = require "accel"
local base64 = require "accel.util.base64"
local image = require "accel.track.image"
local options = require "accel.util.options"
local plot = require "accel.util.plot"
local raise = require "accel.util.raise"

local forms <const> = {}

-- Series as accel.util.plot takes them, from a list of numbers or a tensor as well.
local function series(value)
  if accel.is_tensor(value) then return { { name = "", y = value:detach():to("f64"):to("cpu"):view(-1):tolist() } } end
  if type(value) ~= "table" then raise("display: curves are a tensor, a list of numbers, or a list of {name =, x =, y =}, got %s", type(value)) end
  if type(value[1]) == "number" then return { { name = "", y = value } } end
  return value
end

function forms.value(value, width) return accel.host_chunk("repl/rich").bundle(value, width) end

function forms.plot(value)
  local curves = series(value)
  return { ["text/plain"] = plot.text(curves, {}), ["image/svg+xml"] = plot.svg(curves, { xlabel = "", ylabel = "" }) }
end

function forms.image(value)
  local list = image.images("display", value)
  if #list ~= 1 then raise("display: one picture at a time, got %d", #list) end
  local img = list[1]
  return { ["text/plain"] = ("%s of %d x %d"):format(img.mime, img.width, img.height), [img.mime] = base64.encode(img.data) }
end

function forms.svg(value) return { ["text/plain"] = ("SVG of %d bytes"):format(#value), ["image/svg+xml"] = value } end
function forms.html(value) return { ["text/plain"] = value, ["text/html"] = value } end

--- Shows a value: in a notebook as a table, a curve or a picture, at a prompt and in scripts as text. Returns nothing. Raises if the value
--- does not fit the form.
--- example: accel.display(3)
---@param value any
---@param opts? table
---  as "value"|"plot"|"image"|"svg"|"html" = "value": value: as a prompt prints it, tensors and lists of records as HTML tables. plot: a
---  tensor, a list of numbers or a list of {name =, x =, y =} as curves. image: a tensor of pixels (HW or CHW, floats from 0 to 1 or u8) or
---  the bytes of a PNG or JPEG file. svg, html: text of this kind
return function(value, opts)
  local o = options("display", opts, { as = "value" })
  local form = forms[o.as]
  if not form then raise("display: as must be value, plot, image, svg or html, got '%s'", tostring(o.as)) end
  if (o.as == "svg" or o.as == "html") and type(value) ~= "string" then raise("display: %s is a string, got %s", o.as, type(value)) end
  local data = form(value, 80)
  local show = accel.host_chunk("repl/server").display
  if show then return show(data) end
  io.write(data["text/plain"], data["text/plain"]:find "\n$" and "" or "\n")
end
