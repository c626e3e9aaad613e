--- ConvNeXt: stages of depthwise convolutions with scaled parts.
--- example: #accel.models.ConvNextModel({}, { device = "meta" }):parameters() --> 180
return require "accel.models.vision.convnext" { model_type = "convnext", prefix = "ConvNext", v2 = false }
