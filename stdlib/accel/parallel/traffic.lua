--- Bytes that a plan sends, from sizes alone: the bytes of one rank's collectives and messages in one update of a transformer decoder (like
--- GPT-2, Llama and Mixtral. For others it is an approximation, to order plans). accel-run plan chooses by these formulas. Tests count the
--- bytes of real runs and dry runs, which are equal.
---
--- Stages have equally many blocks, as Megatron-LM's (split_points = "even").
---
--- With n = rows of a micro-batch times tokens of this rank (T / cp / sp), a = n hidden bytes (an activation), P the rank's
--- parameters, D ranks that average gradients (dp cp sp), m micro-batches, L blocks of the rank:
---
---   tensor     all_reduce      m a (4 L, 1 with the embedding, 1 with the head). 12 m n of the loss (f32: the maximum, two sums)
---   sequence   all_gather      m a (4 L, 1, 1), and the position table.  reduce_scatter m a (4 L, 1, 1)
---              all_reduce      gradients of norms and row-parallel biases, m times.  12 m n of the loss
---   pipeline   send, recv      m a (a / tp if ranks have parts of the sequence) for each boundary, forward and backward
---              all_reduce      the table of a tied head.  broadcast 40: the loss, as a sum, its divisor and its dtype
---              send, recv      m n E of every block before a boundary: logits of routers whose losses the last stage adds up, and back
---   context    all_gather      4 L m (keys and values of the whole sequence, n cp kv).  reduce_scatter 2 L m n cp kv (their gradients, f32)
---              all_reduce      16 m of the last stage, with Ulysses as well: the sum of the loss and its labels. 8 m of every stage of a
---                              pipeline: these labels before it
---   ring       send, recv      L m (2 (cp - 1) n kv forward, cp (2 n kv + 2 n kv of f32) backward)
---   experts    all_to_all      L m (8 E, and 4 r hidden: rows r of k n that a balanced router sends, there and back, forward and backward)
---              all_reduce      with tensor parallelism k a in place of a feed-forward layer's a. Their parameters over the ranks that have them
---              all_gather      L m 12 k n D with a capacity: weights and choices of all ranks
---   Ulysses    all_to_all      4 L m (n hidden and n kv, twice each), forward and backward
---   data       all_reduce      P. 8 m of the D ranks, 16 m with losses of routers: counts of labels, and of tokens. 16 of a pipeline: its loss
---   ZeRO       reduce_scatter  every unit (a block, the rest) up to a multiple of 256 D elements. Between machines all_gather of the same
---   clipping   all_reduce 8 over a mesh. all_gather 8 D of sharded gradients, and 4 bytes per parameter with a gradient
local configuration = require "accel.models.config"
local balance = require "accel.parallel.pipeline.balance"
local schedule = require "accel.parallel.pipeline.schedule"

local M = {}

--- Elements that ranks cut units at (accel.shard.plan).
local CUT <const> = 256

---@class accel.parallel.TrafficModel
---@field layers integer
---@field hidden integer
---@field kv integer width of keys, and of values: hidden without grouped queries
---@field inner integer width of the feed-forward layer
---@field gated boolean three matrices in the feed-forward layer (SiLU, as of Llama), else two
---@field biased boolean linear layers and norms have biases, as GPT-2's
---@field vocab integer
---@field positions integer rows of a learned position table, 0: none
---@field tied boolean the head is the embedding
---@field experts integer? of a mixture in place of the feed-forward layer
---@field k integer? experts of a token
---@field capacity number? capacity factor in training
---@field balances boolean? the loss has the routers' losses in it

--- Parameters of a block without experts, of which `cut` are shared out over tp, and the tensors that they are in.
---@param d accel.parallel.TrafficModel
---@return integer cut
---@return integer whole
---@return integer tensors
function M.block(d)
  local c, b = d.hidden, d.biased and 1 or 0
  if d.experts then return 2 * c * (c + d.kv), (2 + d.experts) * c, 7 end
  local cut = c * (c + 2 * d.kv) + b * (c + 2 * d.kv) + c * c + (d.gated and 3 or 2) * c * d.inner + b * d.inner
  return cut, (2 + 2 * b) * c + 2 * b * c, d.biased and 12 or 9
end

--- Parameters of one expert, in three tensors.
---@param d accel.parallel.TrafficModel
---@return integer
function M.expert(d) return 3 * d.hidden * d.inner end

--- Rows that a balanced router sends of so many choices, of d ranks with as many each.
local function sent_rows(d, choices, ranks)
  local most = d.capacity and math.ceil(d.capacity * choices * ranks / d.experts) // ranks or choices
  local rows = 0
  for e = 1, d.experts do rows = rows + math.min(most, choices * e // d.experts - choices * (e - 1) // d.experts) end
  return rows
end

local function ceil(n, by) return -(-n // by) * by end

--- Parameters before and after the blocks: the table, positions, the last norm and an untied head.
local function ends(d, tp, rank)
  local rows = -(-d.vocab // tp)
  local first = math.min(rank * rows, d.vocab)
  local table_ = (math.min(first + rows, d.vocab) - first) * d.hidden
  return table_, d.positions * d.hidden, (d.biased and 2 or 1) * d.hidden, d.tied and 0 or table_
end

---@class accel.parallel.TrafficPlan
---@field tp integer?
---@field pp integer?
---@field cp integer?
---@field sp integer?
---@field dp integer?
---@field ep integer? of the dp cp sp ranks that divide experts
---@field sequence boolean? sequence parallelism between the layers of tensor parallelism
---@field ring boolean? keys and values use the ring. Otherwise they are gathered
---@field zero integer? stage, 0 to 3
---@field units "blocks"|"model"? of ZeRO: every block, as by DeepSpeed's stages (default), or the model as one
---@field micro_batches integer?
---@field virtual_stages integer?
---@field schedule string? of the pipeline ("1f1b")
---@field rows integer of a micro-batch
---@field tokens integer of a whole sequence
---@field width integer? bytes of an activation's element (4)
---@field stage integer? this rank's place in the pipeline, from 0
---@field tp_rank integer?

--- The traffic of one rank in an update: bytes by kind of collective, and rows { kind, bytes, what }. Bytes are payloads, as
--- accel.dist.records and --dry-run have them.
---@param d accel.parallel.TrafficModel
---@param p accel.parallel.TrafficPlan
---@return table<string, integer> totals
---@return table[] rows
---@return integer parameters that the rank has
---@return integer experts the number that belong to divided experts
function M.of(d, p)
  local tp, pp, cp, sp, dp, ep = p.tp or 1, p.pp or 1, p.cp or 1, p.sp or 1, p.dp or 1, p.ep or 1
  local m, w, stage, chunks = p.micro_batches or 1, p.width or 4, p.stage or 0, pp > 1 and p.virtual_stages or 1
  local data, totals, rows = dp * cp * sp, {}, {}
  local function add(kind, bytes, what)
    if bytes <= 0 then return end
    totals[kind] = (totals[kind] or 0) + bytes
    rows[#rows + 1] = { kind = kind, bytes = bytes, what = what }
  end
  local shares, last = balance.even(d.layers, pp * chunks), pp * chunks - 1
  local own, has_first, has_last = 0, false, false
  for v = stage, last, pp do
    own = own + shares[v + 1]
    has_first, has_last = has_first or v == 0, has_last or v == last
  end
  local n = p.rows * p.tokens // cp // sp
  local a = n * d.hidden * w
  local cut, whole, tensors = M.block(d)
  local table_, positions, norm, head = ends(d, tp, p.tp_rank or 0)
  local gate, choices, chosen = 0, 0, 0
  if d.experts then
    gate, choices = d.experts * d.hidden, n * d.k
    chosen = sent_rows(d, choices, data)
    if tp > 1 then add("all_reduce", m * 2 * chosen * d.hidden * w * own, "tensor parallelism: outputs of experts, and their inputs backward") end
    if ep > 1 then
      add("all_to_all", own * m * (8 * d.experts + 4 * chosen * d.hidden * w), "expert parallelism: tokens to their experts and back")
    end
    if d.capacity and data > 1 then add("all_gather", own * m * 12 * choices * data, "capacity of experts: choices of all ranks") end
    if d.balances and data > 1 and has_last then add("all_reduce", m * 8 * (2 * d.experts + 2), "losses of the routers") end
  end

  if tp > 1 and not p.sequence then
    add("all_reduce", m * a * (d.experts and 2 or 4) * own, "tensor parallelism: outputs forward, inputs backward")
    if has_first then add("all_reduce", m * a, "embedding, forward") end
    if has_last then add("all_reduce", m * a, "head, backward") end
  elseif tp > 1 then
    add("all_gather", m * a * 4 * own, "sequence parallelism: before layers, and in backward after them")
    add("reduce_scatter", m * a * (d.experts and 2 or 4) * own, "sequence parallelism: after layers, and in backward before them")
    if has_first then add("reduce_scatter", m * a, "embedding, forward") end
    if has_first then
      add("all_gather", m * a, "embedding, backward")
      add("all_gather", m * positions * w, "positions, backward")
    end
    if has_last then
      add("all_gather", m * a, "head, forward")
      add("reduce_scatter", m * a, "head, backward")
    end
    add("all_reduce", m * w * (own * (whole - gate) + (has_last and norm or 0)), "gradients of norms and biases of parts of the sequence")
  end
  if tp > 1 and has_last then add("all_reduce", m * 12 * n, "loss of logits that are shared out") end

  if pp > 1 then
    local hidden, boundaries = p.sequence and a // tp or a, 0
    for v = stage, last, pp do boundaries = boundaries + (v > 0 and 1 or 0) + (v < last and 1 or 0) end
    add("send", m * hidden * boundaries, "activations and their gradients to other stages")
    add("recv", m * hidden * boundaries, "activations and their gradients of other stages")
    if d.balances then -- the last stage adds up the losses of all routers: each boundary carries the logits of all blocks before it
      local passed, before = 0, 0
      for v = 0, last do
        if v % pp == stage then passed = passed + before + (v < last and before + shares[v + 1] or 0) end
        before = before + shares[v + 1]
      end
      add("send", m * n * d.experts * w * passed, "logits of routers, and their gradients, to other stages")
      add("recv", m * n * d.experts * w * passed, "logits of routers, and their gradients, of other stages")
    end
    if d.tied and (has_first or has_last) then add("all_reduce", table_ * w, "gradient of the tied table, over its stages") end
    add("broadcast", 40, "loss")
  end

  local kv = n * d.kv // tp
  if cp > 1 and p.ring then
    local bytes = own * m * (2 * (cp - 1) * kv * w + cp * (2 * kv * w + 2 * kv * 4))
    add("send", bytes, "keys and values round the ring, and their gradients")
    add("recv", bytes, "keys and values round the ring, and their gradients")
  elseif cp > 1 then
    add("all_gather", own * m * 4 * kv * cp * w, "keys and values, forward and backward")
    add("reduce_scatter", own * m * 2 * kv * cp * 4, "gradients of keys and values")
  end
  if cp * sp > 1 then
    if has_last then add("all_reduce", m * 16, "loss of parts of the sequence, and its labels") end
    if pp > 1 then add("all_reduce", m * 8, "labels of parts of the sequence, before the pipeline") end
  end
  if sp > 1 then add("all_to_all", own * m * 2 * (2 * a // tp + 2 * kv * w), "heads for positions and back") end

  local block, experts = cut // tp + whole, d.experts and d.experts // ep * (M.expert(d) // tp) or 0
  if ep == 1 then block, experts, tensors = block + experts, 0, tensors + 3 * (d.experts or 0) end
  local edp = data // ep
  local rest = (has_first and table_ + positions or 0) + (has_last and norm + head or 0)
  local tied_again = has_last and not has_first and d.tied and table_ or 0
  local parameters = own * block + rest + tied_again
  if data > 1 then
    if (p.zero or 0) == 0 then
      add("all_reduce", parameters * w, "data parallelism: gradients")
      if edp > 1 then add("all_reduce", own * experts * w, "expert parallelism: gradients of the same experts") end
    else
      local shared = pp > 1 and d.tied and (has_first or has_last) and table_ or 0 -- tensors shared by stages are not sharded
      local left, bytes = rest + tied_again - shared, 0
      if p.units == "model" then
        bytes = ceil(own * block + left, CUT * data)
      else
        bytes = own * ceil(block, CUT * data) + (left > 0 and ceil(left, CUT * data) or 0)
      end
      add("reduce_scatter", bytes * w, "ZeRO: gradients")
      add("all_reduce", shared * w, "data parallelism: the tied table")
      local count = own * tensors + (has_first and (d.positions > 0 and 2 or 1) or 0)
        + (has_last and (d.biased and 2 or 1) + (d.tied and 0 or 1) or 0)
      if shared > 0 and has_first then count = count - 1 end
      add("all_reduce", 4 * (count + 2), "ZeRO: which parameters had gradients, and whether ranks still train")
      if edp > 1 and experts > 0 then
        add("reduce_scatter", own * ceil(experts, CUT * edp) * w, "ZeRO: gradients of experts")
        add("all_reduce", 4 * (own * 3 * d.experts // ep + 2), "ZeRO: which experts had gradients")
      end
      if tp == 1 and pp == 1 and ep == 1 then add("all_gather", 8 * data, "norm of the gradients") end
    end
  end
  if data > 1 then
    add("all_reduce", m * 8 * (d.balances and 2 or 1), "data parallelism: counts of the means in the loss, labels and tokens of routers")
    if pp > 1 then add("all_reduce", 16, "data parallelism: loss of the pipeline") end
  end
  if tp > 1 or pp > 1 or ep > 1 then add("all_reduce", 8, "norm of the gradients") end
  return totals, rows, parameters + own * experts, own * experts
end

--- A model's sizes, from its config. For BERT, T5 and ViT they are approximate: T5's stacks count as one, with equal blocks.
---@param c table config of one of the families, with its defaults
---@return accel.parallel.TrafficModel
function M.model(c)
  c = configuration.plain(c)
  if c.n_embd then
    return { layers = c.n_layer, hidden = c.n_embd, kv = c.n_embd, inner = c.n_inner or 4 * c.n_embd, gated = false, biased = true,
      vocab = c.vocab_size, positions = c.n_positions, tied = c.tie_word_embeddings ~= false }
  end
  if c.d_model then
    return { layers = c.num_layers + (c.num_decoder_layers or c.num_layers), hidden = c.d_model, kv = c.num_heads * c.d_kv, inner = c.d_ff,
      gated = c.is_gated_act == true, biased = false, vocab = c.vocab_size, positions = 0, tied = c.tie_word_embeddings ~= false }
  end
  if not c.num_key_value_heads then
    return { layers = c.num_hidden_layers, hidden = c.hidden_size, kv = c.hidden_size, inner = c.intermediate_size, gated = false, biased = true,
      vocab = c.vocab_size or c.num_labels or 2, positions = c.max_position_embeddings or 0, tied = c.vocab_size ~= nil }
  end
  local head = c.head_dim or c.hidden_size // c.num_attention_heads
  return { layers = c.num_hidden_layers, hidden = c.hidden_size, kv = (c.num_key_value_heads or c.num_attention_heads) * head,
    inner = c.intermediate_size, gated = true, biased = false, vocab = c.vocab_size, positions = 0, tied = c.tie_word_embeddings == true,
    experts = c.num_local_experts, k = c.num_experts_per_tok, capacity = c.expert_capacity_factor,
    balances = c.output_router_logits or c.router_z_loss_coef ~= nil }
end

--- Idle share of a step in a pipeline.
---@param p accel.parallel.TrafficPlan
---@return number
function M.bubble(p)
  if (p.pp or 1) == 1 then return 0 end
  local chunks = p.virtual_stages or 1
  return schedule.bubble(chunks > 1 and "interleaved" or p.schedule or "1f1b", p.pp, chunks, p.micro_batches or 1)
end

return M
