--- accel.vision.transforms.functional: transforms of pictures as functions, by torchvision's names. Pictures are tensors of shape
--- [..., channels, height, width].
return require "accel.util.lazy" ("accel.vision.transforms.functional", {
  resize = "accel.vision.transforms.resize", resized_crop = "accel.vision.transforms.resize",
  crop = "accel.vision.transforms.geometry", center_crop = "accel.vision.transforms.geometry", hflip = "accel.vision.transforms.geometry",
  vflip = "accel.vision.transforms.geometry", five_crop = "accel.vision.transforms.geometry", ten_crop = "accel.vision.transforms.geometry",
  pad = "accel.vision.transforms.geometry", rotate = "accel.vision.transforms.geometry", affine = "accel.vision.transforms.geometry",
  perspective = "accel.vision.transforms.geometry", erase = "accel.vision.transforms.geometry",
  horizontal_flip = "accel.vision.transforms.geometry", vertical_flip = "accel.vision.transforms.geometry",
  rgb_to_grayscale = "accel.vision.transforms.colour", adjust_brightness = "accel.vision.transforms.colour",
  adjust_contrast = "accel.vision.transforms.colour", adjust_saturation = "accel.vision.transforms.colour",
  adjust_sharpness = "accel.vision.transforms.colour", adjust_hue = "accel.vision.transforms.colour",
  adjust_gamma = "accel.vision.transforms.colour", invert = "accel.vision.transforms.colour", solarize = "accel.vision.transforms.colour",
  posterize = "accel.vision.transforms.colour", autocontrast = "accel.vision.transforms.colour", equalize = "accel.vision.transforms.colour",
  gaussian_blur = "accel.vision.transforms.colour", mixup = "accel.vision.transforms.mix", cutmix = "accel.vision.transforms.mix",
  to_dtype = "accel.vision.transforms.values", convert_image_dtype = "accel.vision.transforms.values",
  to_tensor = "accel.vision.transforms.values", normalize = "accel.vision.transforms.values",
})
