-- Image processors: odd borders of center crops, by hand. Transformers takes the smaller half first, on both backends, and where the
-- picture is smaller than the crop, the torchvision backend pads the smaller half first and the pil backend the larger.
local accel = require "accel"
local dir = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/processor-"))

local function pixels(config, backend, h, w)
  config.do_normalize, config.do_rescale = false, false
  accel.write_file(dir .. "/preprocessor_config.json", accel.json.encode(config))
  local processor = assert(accel.vision.AutoImageProcessor.from_pretrained(dir, { backend = backend }))
  local x = (accel.arange(h * w) + 1):to "u8":view(1, h, w)
  return processor(accel.cat({ x, x, x }, 1)).pixel_values:select(1, 1):select(1, 1):tolist()
end
local function text(rows)
  local out = {}
  for i, row in ipairs(rows) do
    for k, v in ipairs(row) do row[k] = math.tointeger(v) end
    out[i] = table.concat(row, " ")
  end
  return table.concat(out, ", ")
end
local function check(got, want) assert(text(got) == want, text(got)) end

for _, backend in ipairs { "torchvision", "pil" } do
  local function clip(size) return { image_processor_type = "CLIPImageProcessor", do_resize = false, crop_size = size } end
  check(pixels(clip { height = 2, width = 1 }, backend, 5, 4), "6, 10") -- borders of 3: 1 before, 2 after
  check(pixels(clip { height = 2, width = 2 }, backend, 9, 2), "7 8, 9 10") -- of 7: 3 and 4
  check(pixels(clip { height = 1, width = 4 }, backend, 1, 1), backend == "pil" and "0 0 1 0" or "0 1 0 0")
  -- ConvNext resizes to shortest_edge / crop_pct, here the size it has, then crops: borders of 7 rows and 3 columns
  check(pixels({ image_processor_type = "ConvNextImageProcessor", size = { shortest_edge = 1 }, crop_pct = 0.25 }, backend, 8, 4), "14")
end
print "ok"
