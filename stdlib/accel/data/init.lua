--- accel.data: data sets and the loader, loaded on first use.
return require "accel.util.lazy" ("accel.data", {
  Dataset = "dataset", TensorDataset = "tensor_dataset", TokenFile = "token_file", DataLoader = "dataloader",
  default_collate = "collate",
})
