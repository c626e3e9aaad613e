--- Samples of a data set as one batch: by its get_batch where it has one, else collated.

---@param dataset table
---@param positions integer[]
---@param collate? fun(samples: any[]): any given by the user; get_batch is not asked then
return function(dataset, positions, collate)
  if dataset.get_batch and not collate then return dataset:get_batch(positions) end
  local samples = {}
  for k, i in ipairs(positions) do samples[k] = dataset:get(i) end
  return (collate or require("accel.data.collate").default_collate)(samples)
end
