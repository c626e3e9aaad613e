-- A decoder that tests train for real and play without ranks, on a mesh that the first argument spells: "tp=2,pp=2,model=llama,...". For real
-- it writes, per rank, the peak of its pool, the median step, and the collectives and messages of the last step into the folder given last.
local accel = require "accel"
local A = accel.accelerator
local c = {}
for key, value in (arg[1] or ""):gmatch "([%w_]+)=([%w_]+)" do c[key] = tonumber(value) or value end
local folder = arg[2]
local steps, C, L, T, B, V <const> = c.steps or 3, c.width or 64, c.layers or 4, c.tokens or 16, c.rows or 4, 512
local zero = c.zero and accel.FullyShardedDataParallelPlugin { sharding_strategy = c.zero == 3 and "FULL_SHARD" or "SHARD_GRAD_OP" }
local accelerator = accel.Accelerator {
  fsdp_plugin = zero or nil,
  parallelism_config = accel.ParallelismConfig { tp_size = c.tp or 1, pp_size = c.pp or 1, dp_shard_size = c.dp or 1, cp_size = c.cp or 1,
    sp_size = c.sp or 1, ep_size = c.ep or 1,
    tp_handler = (c.tp or 1) > 1 and A.TorchTensorParallelConfig { sequence_parallel = c.sequence == 1 } or nil,
    cp_handler = (c.cp or 1) > 1 and A.TorchContextParallelConfig { cp_comm_strategy = c.ring and "alltoall" or "allgather" } or nil,
    pp_handler = (c.pp or 1) > 1 and A.PipelineParallelConfig { num_micro_batches = c.micro_batches or 2, schedule = c.schedule or "1f1b",
      virtual_stages = c.virtual_stages or 1,
      loss_fn = c.late and function(y, x) return accel.cross_entropy(y:reshape(-1, V), x:reshape(-1)) end or nil } or nil },
}
accel.manual_seed(1)
local model
if c.model == "llama" then
  model = accel.models.Llama { vocab_size = V, hidden_size = C, intermediate_size = 2 * C, num_hidden_layers = L, num_attention_heads = 4,
    num_key_value_heads = 2, max_position_embeddings = T }
elseif c.model == "mixtral" then
  model = accel.models.MixtralForCausalLM { vocab_size = V, hidden_size = C, intermediate_size = 2 * C, num_hidden_layers = L,
    num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = T, num_local_experts = c.experts or 4,
    num_experts_per_tok = 2, output_router_logits = true, expert_capacity_factor = c.capacity and c.capacity / 100 or nil }
else
  model = accel.models.GPT2 { vocab_size = V, n_positions = T, n_embd = C, n_layer = L, n_head = 4, attn_pdrop = 0 }
end
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
local ids = accel.randint(0, V, { B * steps * accelerator.num_processes, T })
local loader = accel.data.DataLoader(accel.data.TensorDataset(ids), { batch_size = B, shuffle = true })
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
if c.balanced == 1 then -- a router whose experts get equally many tokens of every rank, whatever it learns
  for _, module in ipairs(accelerator:unwrap_model(model):modules()) do
    local run = module.experts and module.run_experts
    if run then
      rawset(module, "run_experts", function(self, x, weights, choices)
        local n, k = choices.shape[1], choices.shape[2]
        local kept = math.min(n * k, self.n_experts * (self:most(choices) or n * k))
        local own = accel.arange(0, n * k, { device = x.device })
        own = (own % self.n_experts):masked_fill(own:ge(kept), self.n_experts)
        return run(self, x, weights, own:reshape(n, k))
      end)
    end
  end
end
local cuts = (c.cp or 1) > 1 or (c.sp or 1) > 1
local n, mark, times = 0, 0, {}
for batch in loader() do
  local start, x = accel.clock(), batch[1]
  local records = accel.dist.records(1)
  mark = records[1] and records[1].number or 0
  if cuts then
    local labels = accel.cat({ x:narrow(2, 2, T - 1), x:narrow(2, 1, 1) }, 2)
    local _ <close> = accelerator:maybe_context_parallel { buffers = { x, labels }, buffer_seq_dims = { 2, 2 } }
    accelerator:backward((model(x, { shift_labels = labels })))
  else
    accelerator:backward((model(x, not c.late and { labels = x } or nil)))
  end
  accelerator:clip_grad_norm_(model:parameters(), 1.0)
  optimizer:step()
  n, times[#times + 1] = n + 1, accel.clock() - start
  if n == steps then break end
  optimizer:zero_grad()
end
if folder then
  table.sort(times)
  local out = { peak = accel.mem_stats().peak_bytes, time = times[(#times + 1) // 2], collectives = accel.json.array {} }
  for _, r in ipairs(accel.dist.records()) do
    if r.number > mark then
      out.collectives[#out.collectives + 1] = { kind = r.kind, dtype = r.kind ~= "barrier" and r.dtype or "u8", payload = r.payload }
    end
  end
  assert(accel.write_file(("%s/%d.json"):format(folder, accelerator.process_index), accel.json.encode(out)))
end
