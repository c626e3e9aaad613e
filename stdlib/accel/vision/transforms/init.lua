--- accel.vision.transforms: transforms of pictures, by the names of torchvision.transforms.v2, loaded on first use.
return require "accel.util.lazy" ("accel.vision.transforms", { functional = "functional" })
