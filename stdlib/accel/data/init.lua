--- accel.data: data sets, samplers, collation and the loader, loaded on first use. The guide data shows which class reads which file.
return require "accel.util.lazy" ("accel.data", {
  Dataset = "dataset", IterableDataset = "iterable_dataset", TensorDataset = "tensor_dataset",
  ListDataset = "list_dataset", TokenFile = "token_file", IndexedDataset = "indexed_dataset", IndexedDatasetBuilder = "indexed_dataset",
  GPTDataset = "gpt_dataset", BlendedDataset = "gpt_dataset", BERTDataset = "bert_dataset",
  T5Dataset = "t5_dataset", IDX = "idx", CSV = "csv", numpy = "numpy", DatasetFolder = "dataset_folder",
  Subset = "views", ConcatDataset = "views", MapDataset = "views", BatchDataset = "views",
  ColumnsDataset = "column_views", CacheDataset = "column_views",
  JSONL = "jsonl", JSON = "json", Parquet = "parquet", Arrow = "arrow", TableDataset = "table_dataset", WebDataset = "webdataset",
  TFRecord = "tfrecord", MDS = "mds", ShardStream = "shard_stream", load_dataset = "load_dataset",
  random_split = "random_split",
  Sampler = "samplers", SequentialSampler = "samplers", RandomSampler = "samplers",
  SubsetRandomSampler = "samplers", BatchSampler = "samplers",
  BatchSamplerShard = "shards", IterableDatasetShard = "shards",
  WeightedRandomSampler = "weighted_sampler", LengthGroupedSampler = "length_grouped_sampler",
  DataLoader = "dataloader", worker_dataset = "worker_spec", get_worker_info = "worker_info",
  default_collate = "collate", PadCollate = "pad_collate",
})
