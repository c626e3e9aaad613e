--- Decoders given labels: the loss is that of the shifted logits, as Hugging Face computes it, with the same gradients;
--- heads that are watched or replaced are asked for their logits.
local accel = require "accel"
local nn = accel.nn
local models = accel.models

local function close(a, b, what)
  local d = (a - b):abs():max():item()
  assert(d < 1e-6, ("%s: off by %g"):format(what, d))
end
local function refused(pattern, ...)
  local ok, message = pcall(...)
  assert(not ok and tostring(message):find(pattern), tostring(message))
end

accel.manual_seed(3)
local ids = accel.randint(1, 9, { 2, 5 })
local labels = ids:clone()
labels[{ 1, { 1, 2 } }] = -100

for name, tiny in pairs { GPT2 = "gpt2", Llama = "llama", MixtralForCausalLM = "mixtral" } do
  local model = models[name](models.tiny[tiny]):eval()
  local function plain(logits)
    return accel.cross_entropy(logits:narrow(2, 1, 4):reshape(8, -1), labels:narrow(2, 2, 4):reshape(8))
  end
  local want = plain((model(ids)))
  want:backward()
  local grads = {}
  for key, p in model:named_parameters() do
    grads[key] = p.grad
    p.grad = nil
  end
  local loss = model(ids, { labels = labels })
  assert(#loss.shape == 0)
  close(loss:detach(), want:detach(), name)
  loss:backward()
  for key, p in model:named_parameters() do close(p.grad, grads[key], name .. ": gradient of " .. key) end

  -- with other options, with a cache
  local mask = accel.ones(2, 5, { dtype = "i64" })
  mask[{ 2, 5 }] = 0
  close(model(ids, { labels = labels, attention_mask = mask }):detach(),
    plain((model(ids, { attention_mask = mask }))):detach(), name .. ", mask")
  accel.no_grad(function()
    close(model(ids, model:new_cache(2, 5), { labels = labels }), want:detach(), name .. ", options third")
  end)

  -- a watched head runs, and so does one that is no plain linear layer
  local seen = 0
  local hook = model.lm_head:register_forward_hook(function() seen = seen + 1 end)
  close(model(ids, { labels = labels }):detach(), want:detach(), name .. ", watched")
  assert(seen == 1)
  hook:remove()
  local Twice = nn.Linear:extend("Twice")
  function Twice:forward(x) return nn.Linear.forward(self, x) * 2 end
  local head = Twice(model.lm_head.in_features, model.lm_head.out_features, { bias = false })
  head.weight = model.lm_head.weight
  model.lm_head = head
  close(model(ids, { labels = labels }):detach(), plain((model(ids))):detach(), name .. ", another head")

  refused("labels %(2, 4%) do not fit ids %(2, 5%)", model, ids, { labels = labels:narrow(2, 1, 4) })
  refused("labels must be a tensor, got number", model, ids, { labels = 3 })
end

-- one token has no next one: nothing to average, as with Hugging Face
do
  local model = models.GPT2(models.tiny.gpt2)
  local v = model(ids:narrow(2, 1, 1), { labels = ids:narrow(2, 1, 1) }):item()
  assert(v ~= v)
  refused("labels are for a model with a head", models.GPT2Model(models.tiny.gpt2), ids, { labels = labels })
end

-- Mixtral adds the loss that balances its experts
do
  local model = models.MixtralForCausalLM(models.tiny.mixtral):eval()
  local bare = model(ids, { labels = labels })
  local loss, aux = model(ids, { labels = labels, output_router_logits = true })
  close(loss:detach(), (bare + model.config.router_aux_loss_coef * aux):detach(), "mixtral")
end
