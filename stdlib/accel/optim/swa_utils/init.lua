--- accel.optim.swa_utils: averages of a model's parameters over training (PyTorch's torch.optim.swa_utils), also of sharded models.
return require "accel.util.lazy"("accel.optim.swa_utils", {
  AveragedModel = "averaged_model", SWALR = "swalr", update_bn = "update_bn", get_ema_multi_avg_fn = "averages", get_swa_multi_avg_fn = "averages",
  get_ema_avg_fn = "averages", get_swa_avg_fn = "averages",
})
