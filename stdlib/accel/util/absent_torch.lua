--- Rows of util/absent.lua for the public names of PyTorch 2.15 that stay out: the namespaces (torch, Tensor, F, nn, linalg, fft), what to use, the names.
return {
  -- other kinds of tensors
  { "Tensor", "tensors are dense: x:nonzero() gives the positions of the elements that are not 0, x:index_put puts elements",
    [[ccol_indices coalesce col_indices crow_indices dense_dim indices is_coalesced row_indices sparse_dim sparse_mask sparse_resize_
      sparse_resize_and_clear_ to_dense to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr values
      resize_as_sparse_ to_padded_tensor]] },
  { "torch", "tensors are dense: accel.zeros(shape):index_put(indices, values) makes one of positions and values",
    [[sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor
      resize_as_sparse_]] },
  { "torch Tensor", "tensors are dense: accel.matmul and accel.addmm multiply matrices", "dsmm hsmm hspmm saddmm smm spmm sspaddmm" },
  { "torch Tensor", "accel.quantize_4bit, accel.quantize_int8 and accel.quantize_blockwise make quantised tensors, x.quant_state describes one",
    [[int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme choose_qparams_optimized
      fused_moving_avg_obs_fake_quant]] },
  -- memory
  { "Tensor", "make a new tensor: accel.empty(shape), x:reshape(shape) or x:new_empty(shape); x.data = y gives x other memory",
    "resize resize_ resize_as resize_as_ set_ new" },
  { "torch", "make a new tensor: accel.empty_like(other)", "resize_as_" },
  { "Tensor", "views share memory: x:storage_offset() and x:stride() describe one, x:data_ptr() is its address", "storage_type untyped_storage" },
  { "Tensor", "x:data_ptr() is the address of the first element", "const_data_ptr" },
  { "torch", "accel.from_bytes takes a string, accel.load the file of accel.save, accel.data.TokenFile maps a file of numbers",
    "frombuffer from_file" },
  { "Tensor", "the pool waits for the streams that use a tensor", "record_stream" },
  { "Tensor", "x:stride() lists the strides", "dim_order" },
  -- Python's objects
  { "Tensor", "work on whole tensors, or on x:tolist()", "apply_ map_ map2_" },
  { "Tensor", "tensors have no subclasses: put one into a table of your class", "as_subclass" },
  { "Tensor", "module:load_state_dict(state, { assign = true }) puts tensors in place", "module_load" },
  { "Tensor", "x.grad_fn names the operation that made x", "output_nr" },
  { "Tensor", "the gradient has the dtype of its tensor", "grad_dtype" },
  { "Tensor", "dims and tensors have no names: keep them in a table", "name" },
  { "Tensor", "accel.no_grad() stops the recording of gradients", "volatile" },
  { "Tensor", "multiply the log probabilities by the reward and call backward on their sum", "reinforce" },
  { "torch Tensor", "compare tensors by x:equal(y)", "hash_tensor" },
  { "torch Tensor", "x:narrow, x:slice and x[{ ... }] cut tensors, accel.slice_scatter puts a part back", "slice_inverse" },
  { "torch Tensor", "placements are in accel.parallel; x.shape is the local shape", "is_distributed" },
  { "Tensor", 'devices are "cpu", "cuda:0" and "meta": x:to "cuda:0"', "ipu" },
  { "torch", "type(x) of Lua, x.dtype", "typename" },
  { "torch", "accel.is_tensor(x) tells tensors from other values", "is_storage" },
  { "torch", "classes are accel.util.class", "classproperty" },
  -- modes, threads and random numbers
  { "torch", "results do not depend on threads or runs; accel.Accelerator { deterministic = \"world\" } makes them independent of the ranks",
    "use_deterministic_algorithms are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled" },
  { "torch", "accel.manual_seed(n) sets the seed", "seed initial_seed thread_safe_generator" },
  { "torch", "accel.autograd.detect_anomaly() finds the operation that made a NaN", "is_anomaly_enabled is_anomaly_check_nan_enabled" },
  { "torch", "accel.is_grad_enabled() tells whether gradients are recorded", "is_inference_mode_enabled" },
  { "torch", "warnings are printed once each", "is_warn_always_enabled" },
  { "torch", "ACCEL_NUM_THREADS sets the number of threads", "init_num_threads" },
  { "torch", "accel.launch and accel.data.DataLoader start processes and threads", "prepare_multiprocessing_environment fork wait" },
  { "torch", "accel.compile(fn) fuses a function, Lua's loops and conditions run as they are", "while_loop" },
  { "torch", "scripts are Lua: there is no other form of them", [[import_ir_module import_ir_module_from_buffer parse_ir parse_schema
      parse_type_comment merge_type_from_type_comment unify_type_list]] },
  { "torch", "`accel-run env` describes this build", "compiled_with_cxx11_abi" },
  -- sequences and draws
  { "torch", "accel.arange(start, stop, step) ends before stop, accel.linspace includes it", "range" },
  { "torch", "draw bernoulli_ for each trial and sum", "binomial" },
  { "torch", "accel.bincount and accel.searchsorted count elements by bin along each dim", "histogramdd" },
  { "torch", "x:cumsum and x:index_add sum over parts of any lengths", "segment_reduce" },
  -- parts of modules
  { "torch", "nn.functional.batch_norm, and nn.SyncBatchNorm across ranks", [[batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt
      batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats native_batch_norm]] },
  { "torch", "nn.functional.layer_norm and nn.functional.group_norm", "native_layer_norm native_group_norm" },
  { "torch", "nn.functional.channel_shuffle", "native_channel_shuffle" },
  { "torch", "nn.functional.dropout(x, p, training)", "native_dropout dropout_ feature_dropout feature_dropout_" },
  { "torch", "nn.functional.alpha_dropout(x, p, training)", "alpha_dropout_ feature_alpha_dropout feature_alpha_dropout_" },
  { "torch", "x:norm(p, dim)", "native_norm norm_except_dim nuclear_norm frobenius_norm" },
  { "torch", "nn.RNN, nn.LSTM, nn.GRU and their cells", "gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell" },
  { "torch", "nn.functional.conv1d, conv2d and conv3d", "convolution conv_tbc" },
  { "torch", "nn.functional.pad(x, pad, { value = 0 })", "constant_pad_nd" },
  { "torch", "nn.functional.grid_sample and nn.functional.affine_grid", "grid_sampler grid_sampler_2d grid_sampler_3d affine_grid_generator" },
  { "torch", "nn.functional.max_pool1d(x, kernel_size, { return_indices = true })", "max_pool1d_with_indices" },
  { "torch", "nn.functional.rrelu(x, lower, upper)", "rrelu rrelu_" },
  { "torch", "nn.Embedding { max_norm = 1 } keeps the norm of its rows", "embedding_renorm_" },
  { "torch", "x:dist(other) is the method; accel.dist is the module for ranks", "dist" },
  -- linear algebra
  { "linalg", "linalg.lu_factor and linalg.lu_solve factor any square matrix, linalg.eigh symmetric ones", "ldl_factor ldl_factor_ex ldl_solve" },
  { "torch Tensor", "linalg.qr gives q and r", "geqrf" },
  { "torch", "linalg.eigh gives all eigenvalues, linalg.svd all singular ones", "lobpcg" },
  { "torch Tensor", "linalg.cholesky, linalg.matrix_rank, linalg.cond, linalg.lstsq, linalg.eigvals and linalg.eigh; PyTorch raises as well",
    "cholesky matrix_rank cond lstsq eig symeig" },
}
