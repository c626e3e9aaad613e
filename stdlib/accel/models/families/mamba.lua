--- Mamba (Gu and Dao 2023): layers of a causal convolution and a selective state space, without attention. The scan runs time after time.
--- example: #accel.models.MambaForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 12
local Parameter = require "accel.nn.parameter"
local PreTrainedModel = require "accel.models.pretrained_model"
local StateCache = require "accel.models.state_cache"
local accel = require "accel"
local activation = require "accel.models.activation"
local causal_head = require "accel.models.causal_head"
local check = require "accel.util.check"
local config = require "accel.models.config"
local context = require "accel.models.context"
local means = require "accel.autograd.means"
local nn = require "accel.nn"
local raise = require "accel.util.raise"
local run_layer = require "accel.models.run_layer"

local schema = config.schema("mamba", {
  vocab_size = config.size(50280), hidden_size = config.size(768), state_size = config.count(16), num_hidden_layers = config.count(32),
  layer_norm_epsilon = config.number(1e-5), expand = config.count(2), intermediate_size = config.size(), conv_kernel = config.count(4),
  use_bias = config.flag(false), use_conv_bias = config.flag(true), hidden_act = config.activation "silu",
  initializer_range = config.number(0.1),
  residual_in_fp32 = config.flag(true), time_step_rank = config.any_of(config.size(), config.word("auto",
    { "auto" })), time_step_scale = config.unused(),
  time_step_min = config.number(0.001, 1e-12), time_step_max = config.number(0.1, 1e-12), time_step_init_scheme = config.unused(),
  time_step_floor = config.number(1e-4), rescale_prenorm_residual = config.unused(), use_mambapy = config.unused(),
  use_associative_scan = config.unused(),
  tie_word_embeddings = config.flag(true), pad_token_id = config.in_files(config.token(), 0),
  bos_token_id = config.in_files(config.token(), 0),
  eos_token_id = config.in_files(config.tokens(), 0), fused_add_norm = config.unused(), rms_norm = config.unused(),
  ssm_cfg = config.unused(),
  d_model = config.unused(), d_inner = config.unused(), n_layer = config.unused(), pad_vocab_size_multiple = config.unused(),
}, function(c)
  c.intermediate_size = c.intermediate_size or c.expand * c.hidden_size
  if c.time_step_rank == nil or c.time_step_rank == "auto" then c.time_step_rank = (c.hidden_size + 15) // 16 end
end)
local Root = PreTrainedModel:define("MambaPreTrainedModel", { schema = schema, _no_split_modules = { "MambaBlock" },
  base_model_prefix = "backbone" })

--- State i of the scan starts with the eigenvalue -i. D and norms start with ones, the bias of steps with values between
--- time_step_min and time_step_max.
function Root:initialize(t, at)
  local c = self.config
  if at.key == "A_log" then
    t:detach():copy_(accel.arange(1, c.state_size + 1, { device = t.device }):to(t.dtype):log():unsqueeze(1):expand(t.shape[1], t.shape[2]))
  elseif at.key == "D" then
    t:detach():fill_(1)
  elseif at.name:find "dt_proj%.bias$" then
    local low, high = math.log(c.time_step_min), math.log(c.time_step_max)
    local step = (accel.rand(t.shape, { device = t.device }) * (high - low) + low):exp():clamp(c.time_step_floor)
    t:detach():copy_((step + (-((-step):exp() - 1)):log()):to(t.dtype)) -- its softplus is the step
  else
    PreTrainedModel.initialize(self, t, at)
  end
end

---@class accel.models.MambaMixer : accel.nn.Module
local Mixer = nn.Module:extend("MambaMixer")

function Mixer:init(c)
  local I, N = c.intermediate_size, c.state_size
  self.n, self.rank, self.kernel, self.act = N, c.time_step_rank, c.conv_kernel, activation.find(c.hidden_act)
  self.A_log = Parameter(accel.zeros(I, N))
  self.D = Parameter(accel.zeros(I))
  self.conv1d = nn.Conv1d(I, I, c.conv_kernel, { groups = I, bias = c.use_conv_bias })
  self.in_proj = nn.Linear(c.hidden_size, 2 * I, { bias = c.use_bias })
  self.x_proj = nn.Linear(I, c.time_step_rank + 2 * N, { bias = false })
  self.dt_proj = nn.Linear(c.time_step_rank, I)
  self.out_proj = nn.Linear(I, c.hidden_size, { bias = c.use_bias })
end

--- The state space over x [B, T, I], from a state [B, I, N] or nil: y [B, T, I], and the state after the last time.
function Mixer:scan(x, state)
  local N, T = self.n, x.shape[2]
  local dt, b, c = table.unpack(self.x_proj(x):split({ self.rank, N, N }, 3))
  local step = accel.softplus(self.dt_proj(dt)) -- [B, T, I]
  local decay = (step:unsqueeze(4) * -(self.A_log:to(x.dtype):exp())):exp() -- [B, T, I, N]
  local input = (step * x):unsqueeze(4) * b:unsqueeze(3)
  local out = {}
  for t = 1, T do
    local now = input:select(2, t)
    state = state and decay:select(2, t) * state + now or now
    out[t] = accel.matmul(state, c:select(2, t):unsqueeze(3)):squeeze(3)
  end
  return accel.stack(out, 2) + x * self.D, state
end

--- x [B, T, hidden] -> [B, T, hidden]. mask [B, T, 1]: padding is zero before and after the convolution.
function Mixer:forward(x, mask, cache, layer)
  local K, T = self.kernel, x.shape[2]
  local y, z = table.unpack(self.in_proj(x):chunk(2, 3))
  if mask then y = y * mask end
  local kept = cache and cache.states[layer]
  y = y:transpose(2, 3)
  local before = kept and kept.conv or accel.zeros({ y.shape[1], y.shape[2], K - 1 }, { dtype = y.dtype, device = y.device })
  local wide = accel.cat({ before, y }, 3)
  y = self.act(self.conv1d(wide)):transpose(2, 3)
  if mask then y = y * mask end
  local state
  y, state = self:scan(y, kept and kept.state)
  if cache then cache.states[layer] = { conv = wide:narrow(3, T + 1, K - 1):clone(), state = state } end
  return self.out_proj(y * self.act(z))
end

---@class accel.models.MambaBlock : accel.nn.Module
local Block = nn.Module:extend("MambaBlock")

function Block:init(c)
  self.norm = nn.RMSNorm(c.hidden_size, { eps = c.layer_norm_epsilon })
  self.mixer = Mixer(c)
  self.wide = c.residual_in_fp32
end

--- x + mixer(norm(x)). With residual_in_fp32 the sum is f32 from the first layer on. The mixer computes in the dtype of the embeddings.
function Block:forward(x, mask, cache, layer, dtype)
  local y = self.mixer(self.norm(x:to(dtype)), mask, cache, layer)
  if self.wide and (x.dtype == "bf16" or x.dtype == "f16") then x = x:to "f32" end
  return x + y:to(x.dtype)
end

---@class accel.models.MambaModel : accel.models.PreTrainedModel
local Model = Root:define("MambaModel", { is_base = true, gradient_checkpointing = false })

function Model:build(c)
  self.embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
  self.layers = nn.ModuleList()
  for _ = 1, c.num_hidden_layers do self.layers:append(Block(c)) end
  self.norm_f = nn.RMSNorm(c.hidden_size, { eps = c.layer_norm_epsilon })
end

function Root:context_length() return math.huge end -- luacheck: no self
function Root:cache_shape() return self.config.num_hidden_layers, 1, self.config.state_size end

--- An empty cache of states for so many sequences.
---@param batch integer
---@return accel.models.StateCache
function Root:new_cache(batch, _, opts) -- luacheck: no self
  if type(opts) == "table" and (opts.implementation or opts.config and next(opts.config)) then
    raise "mamba: its cache is a state of fixed size, which has no other implementation"
  end
  return StateCache(batch)
end

--- Hidden states [B, T, hidden_size] of ids [B, T].
---@param ids accel.Tensor
---@param cache? accel.models.StateCache|accel.models.DecoderOptions
---@param opts? accel.models.DecoderOptions position_ids change nothing
---@return accel.Tensor
function Model:forward(ids, cache, opts, ...)
  check.surplus("forward", ...)
  local o = context.options("mamba", cache, opts)
  context.check_ids("mamba", ids)
  context.check_whole("mamba", ids.shape[2])
  local x, mask, T = self.embeddings(ids), o.attention_mask, ids.shape[2]
  if mask then mask = mask:narrow(2, mask.shape[2] - T + 1, T):ne(0):to(x.dtype):unsqueeze(3) end
  local dtype = x.dtype
  for i, layer in ipairs(self.layers) do x = run_layer(self, layer, o.cache, x, mask, o.cache, i, dtype) end
  if o.cache then o.cache:advance(T) end
  return self.norm_f(x:to(dtype))
end

---@class accel.models.MambaForCausalLM : accel.models.PreTrainedModel
local Causal = Root:define("MambaForCausalLM", { tied_weights = { ["lm_head.weight"] = "backbone.embeddings.weight" } })

function Causal:build(c)
  self.backbone = Model:part(c)
  self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, { bias = false })
end

--- Logits [B, T, vocab] of ids [B, T], or with labels [B, T] the mean loss of each next token.
---@param ids accel.Tensor
---@param cache? accel.models.StateCache|accel.models.DecoderOptions
---@param opts? accel.models.DecoderOptions
---@return accel.Tensor
function Causal:forward(ids, cache, opts, ...)
  check.surplus("forward", ...)
  local own
  own, cache, opts = causal_head.options("mamba", ids, cache, opts)
  return means.from(self, causal_head.run(self.lm_head, self.backbone(ids, cache, opts), own), cache, opts)
end

--- The counts of the means that the loss of forward is the sum of: its labels.
---@param ids accel.Tensor token ids
---@param cache? table as in forward
---@param opts? table options of forward
---@return accel.Tensor[]?
function Causal:_loss_counts(ids, cache, opts) -- luacheck: no self
  return { causal_head.count((causal_head.options("mamba", ids, cache, opts))) }
end

return { MambaModel = Model, MambaForCausalLM = Causal }
