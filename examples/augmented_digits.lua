--- A data set in a separate module, so that loader workers can recreate it (21_data_workers.lua): handwritten digits,
--- each drawn anew every time with a random shift, contrast and noise.
local accel = require "accel"
local data = accel.data

local Augmented = data.Dataset:extend "AugmentedDigits"

---@param folder string with the IDX files
---@param opts? {work: integer?} how often each picture is drawn, to make reading it dear
function Augmented:init(folder, opts)
  self.folder, self.work = folder, opts and opts.work or 1
  self.digits = data.IDX(folder .. "/train-images-idx3-ubyte", folder .. "/train-labels-idx1-ubyte")
end

function Augmented:len() return self.digits:len() end

--- How workers make it again: the module's name and plain arguments.
function Augmented:worker_spec() return { module = "augmented_digits", args = { self.folder, { work = self.work } } } end

-- Random numbers belong to the sample's place in the epoch, however many workers there are.
function Augmented:get(i)
  local pixels, label = table.unpack(self.digits:get(i)) -- [1, rows, columns]
  local picture
  for _ = 1, self.work do
    picture = accel.nn.functional.pad(pixels, { 1, 1, 1, 1 })
    picture = picture:narrow(2, math.random(3), pixels.shape[2]):narrow(3, math.random(3), pixels.shape[3])
    picture = (picture * (0.8 + 0.4 * math.random()) + accel.randn(picture.shape, { device = pixels.device }) * 0.05):clamp(0, 1)
  end
  return { picture, label }
end

return Augmented
