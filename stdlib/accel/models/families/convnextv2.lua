--- ConvNeXt version 2: ConvNeXt with global response normalisation in place of scaled parts.
--- example: #accel.models.ConvNextV2Model({}, { device = "meta" }):parameters() --> 198
return require "accel.models.vision.convnext" { model_type = "convnextv2", prefix = "ConvNextV2", v2 = true }
