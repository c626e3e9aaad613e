--- accel.metrics: measures of a model over a whole data set, batch by batch and over all ranks, loaded on first use.
---
---   local metric = accel.metrics.glue "mrpc"                          -- accuracy and F1
---   for batch in eval_loader() do
---     metric:update(model(batch.x):argmax(-1), batch.labels)          -- each rank its own rows, without padding
---   end
---   print(metric:compute().f1)                                        -- the same on every rank, to the last bit
return require "accel.util.lazy" ("accel.metrics", {
  Accuracy = "accuracy", Combined = "combined", ExactSum = "exact_sum", F1 = "f1", Matthews = "matthews", Mean = "mean",
  MeanLoss = "mean", Metric = "metric", Pearson = "pearson", Perplexity = "perplexity", Precision = "f1", Recall = "f1",
  Spearman = "spearman",
  combine = "load", glue = "load", load = "load",
})
