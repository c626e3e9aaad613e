--- accel.vision.transforms: transforms of pictures, by the names of torchvision.transforms.v2, loaded on first use.
---
---   local T = accel.vision.transforms
---   local train = T.Compose { T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToDtype("f32", { scale = true }),
---     T.Normalize({ 0.485, 0.456, 0.406 }, { 0.229, 0.224, 0.225 }) }
return require "accel.util.lazy" ("accel.vision.transforms", {
  functional = "functional", Transform = "transform",
  Resize = "shapes", CenterCrop = "shapes", Pad = "shapes", RandomCrop = "shapes", RandomResizedCrop = "shapes", RandomHorizontalFlip = "shapes",
  RandomVerticalFlip = "shapes", RandomRotation = "shapes", RandomAffine = "shapes", RandomPerspective = "shapes", FiveCrop = "shapes",
  TenCrop = "shapes",
  ColorJitter = "colours", Grayscale = "colours", RandomGrayscale = "colours", GaussianBlur = "colours", RandomInvert = "sometimes",
  RandomEqualize = "sometimes", RandomAutocontrast = "sometimes", RandomPosterize = "sometimes", RandomSolarize = "sometimes",
  RandomAdjustSharpness = "sometimes", Normalize = "colours", ToDtype = "colours", ConvertImageDtype = "colours", ToTensor = "colours",
  ToImage = "colours", RandomErasing = "colours",
  Compose = "containers", RandomApply = "containers", RandomChoice = "containers", RandomOrder = "containers", Lambda = "containers",
  AutoAugment = "augment", RandAugment = "augment", TrivialAugmentWide = "augment", MixUp = "batches", CutMix = "batches",
})
