--- vision.ImageFolder: photographs in one folder for each class, as torchvision.datasets.ImageFolder.
---
---   local T = accel.vision.transforms
---   local set = accel.vision.ImageFolder("train", { transform = T.Compose { T.RandomResizedCrop(224), T.ToTensor() } })
---   local loader = accel.data.DataLoader { dataset = set, batch_size = 32, shuffle = true, num_workers = 2 }
---
--- A sample is { picture, number of its class from 0 }. Without a transform, a picture is u8 [3, height, width], even
--- if the file has 16 bits.
local folder = require "accel.data.dataset_folder"
local check = require "accel.util.check"
local io_ = require "accel.vision.io"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local EXTENSIONS <const> = { "jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp" } -- torchvision's

--- example: local dir = accel.mkdtemp "/tmp/example-" require "lfs".mkdir(dir .. "/a") accel.write_file(dir .. "/a/1.ppm", "P6 2 1 255\n123456")
---   return accel.vision.ImageFolder(dir):get(1)[1].shape --> {3, 1, 2}
---@class accel.vision.ImageFolder : accel.data.DatasetFolder
local ImageFolder = folder.DatasetFolder:extend("accel.vision.ImageFolder")

--- - transform: a function of the picture. With workers, one of accel.vision.transforms
--- - target_transform: a function of the class's number
--- - mode: channels, as io.read_image has them
--- - apply_exif_orientation: turn photographs as their EXIF tag asks
--- - draft: decode JPEGs at the smallest scale that has at least this size, which is faster for transforms that shrink pictures
--- - allow_empty: accept classes without pictures
---@param root string
---@param opts? {transform: function?, target_transform: function?, mode: string?, apply_exif_orientation: boolean?,
--- draft: integer?, allow_empty: boolean?}
function ImageFolder:init(root, opts)
  local o = options("ImageFolder", opts, { transform = options.none, target_transform = options.none, mode = "RGB",
    apply_exif_orientation = false, draft = options.none, allow_empty = false })
  if type(root) ~= "string" then raise("ImageFolder: root must be a string, got %s", check.shown(root)) end
  self:scan("ImageFolder", root, EXTENSIONS, o.allow_empty)
  self.transform, self.target_transform = o.transform, o.target_transform
  self.mode, self.read = o.mode, { apply_exif_orientation = o.apply_exif_orientation, draft = o.draft, bits = 8 }
  self.plain = { mode = o.mode, apply_exif_orientation = o.apply_exif_orientation, draft = o.draft, allow_empty = o.allow_empty }
  self.maker = "accel.vision.image_folder:make"
end

--- The picture in a file.
---@param path string
---@return accel.Tensor u8 [channels, height, width]
function ImageFolder:load(path)
  local picture, message = io_.read_image(path, self.mode, self.read)
  return picture or raise("ImageFolder: %s", message)
end

return { ImageFolder = ImageFolder, make = folder.maker(ImageFolder) }
