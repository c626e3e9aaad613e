--- accel.vision: pictures and their transforms, by torchvision's names, loaded on first use. The guide vision-and-sound has examples.
return require "accel.util.lazy" ("accel.vision", { io = "io", transforms = "transforms", pillow = "pillow", ImageFolder = "image_folder",
  AutoImageProcessor = "image_processor", ImageProcessor = "image_processor" })
