"""Writes nn_cases.safetensors: what PyTorch's layers compute, for layers_cases_test.lua.

For every case: <case>/state/<key> before the call, <case>/in<i>, <case>/out<i>, <case>/cot<i> (what backward is
given for each output), <case>/din<i> and <case>/grad/<key> (gradients by inputs and parameters), <case>/after/<key>
(buffers that the call changed). Results are float64; what goes in is exact in float32 and stored so.

  python3 tests/stdlib/nn/make_nn.py
"""
import os

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils import weight_norm as old_weight_norm

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
out = {}


def draw(*shape):
    """Multiples of 1/8 between -2 and 2: exact in every format."""
    return torch.randint(-16, 17, shape).double() / 8


def case(name, module, *inputs, train=True, call=None, no_grad_in=()):
    """Runs module(*inputs) (or call(module, *inputs)), backward with random cotangents, and keeps everything."""
    module.train(train)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(draw(*p.shape) / 2 if p.dim() else torch.tensor(0.5))
        for key, b in module.named_buffers():
            if b.dtype.is_floating_point:
                b.copy_(draw(*b.shape).abs() + 0.5)
    before = {k: v.detach().clone() for k, v in module.state_dict().items()}
    inputs = [t.clone() for t in inputs]
    for i, t in enumerate(inputs):
        out[f"{name}/in{i}"] = t.clone()
        if t.dtype.is_floating_point and i not in no_grad_in:
            t.requires_grad_(True)
    y = call(module, *inputs) if call else module(*inputs)
    ys = [t for t in (y if isinstance(y, tuple) else (y,)) if t is not None]
    flat = []
    for t in ys:
        flat += list(t) if isinstance(t, tuple) else [t]
    cots = [draw(*t.shape) for t in flat]
    torch.autograd.backward(flat, cots)
    for key, t in before.items():
        out[f"{name}/state/{key}"] = t
    for i, (t, c) in enumerate(zip(flat, cots)):
        out[f"{name}/out{i}"], out[f"{name}/cot{i}"] = t.detach(), c
    for i, t in enumerate(inputs):
        if t.requires_grad:
            out[f"{name}/din{i}"] = t.grad if t.grad is not None else torch.zeros_like(t)
    for key, p in module.named_parameters():
        if p.grad is not None:
            out[f"{name}/grad/{key}"] = p.grad
    after = module.state_dict()
    for key, b in module.named_buffers():
        if key in before and not torch.equal(before[key], after[key]):
            out[f"{name}/after/{key}"] = after[key].detach().clone()


# linear, embedding
case("bilinear", nn.Bilinear(3, 2, 4), draw(2, 5, 3), draw(2, 5, 2))
ids = torch.tensor([[0, 3, 1], [3, 2, 0]])
case("embedding_padding", nn.Embedding(5, 3, padding_idx=3), ids)
case("embedding_max_norm", nn.Embedding(5, 3, max_norm=1.0), ids)
case("embedding_max_norm1", nn.Embedding(5, 3, max_norm=1.5, norm_type=1.0), ids)
case("bag_mean", nn.EmbeddingBag(6, 3), ids)
case("bag_sum_offsets", nn.EmbeddingBag(6, 3, mode="sum"), torch.tensor([1, 5, 2, 2, 4]), torch.tensor([0, 2, 2]))
case("bag_mean_offsets", nn.EmbeddingBag(6, 3, padding_idx=2), torch.tensor([1, 5, 2, 3, 4]), torch.tensor([0, 2, 3]))
case("bag_max_offsets", nn.EmbeddingBag(6, 3, mode="max"), torch.tensor([1, 5, 2, 3, 4]), torch.tensor([0, 2, 2]))
case("bag_max_padding", nn.EmbeddingBag(6, 3, mode="max", padding_idx=0), ids)
case("bag_weights", nn.EmbeddingBag(6, 3, mode="sum"), ids, draw(2, 3),
     call=lambda m, x, w: m(x, per_sample_weights=w))
case("bag_last", nn.EmbeddingBag(6, 3, mode="sum", include_last_offset=True), torch.tensor([1, 5, 2]),
     torch.tensor([0, 1, 3]))

# convolutions
case("conv1d", nn.Conv1d(2, 4, 3, stride=2, padding=1, dilation=2, groups=2), draw(2, 2, 9))
case("conv1d_same", nn.Conv1d(2, 3, 4, padding="same", dilation=2), draw(2, 2, 7))
case("conv1d_circular", nn.Conv1d(2, 3, 3, padding=2, padding_mode="circular"), draw(2, 2, 5))
case("conv1d_reflect_same", nn.Conv1d(1, 2, 4, padding="same", padding_mode="reflect"), draw(1, 1, 6))
case("conv2d", nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0), bias=False), draw(2, 2, 5, 4))
case("conv2d_valid", nn.Conv2d(1, 2, 2, padding="valid"), draw(1, 1, 3, 4))
case("conv2d_same", nn.Conv2d(2, 2, (3, 5), padding="same", groups=2), draw(1, 2, 4, 6))
case("conv2d_replicate", nn.Conv2d(1, 2, 3, padding=(1, 2), padding_mode="replicate"), draw(1, 1, 3, 4))
case("conv2d_unbatched", nn.Conv2d(2, 1, 2), draw(2, 3, 4))
case("conv3d", nn.Conv3d(1, 2, 2, padding=1), draw(1, 1, 2, 3, 2))
case("conv_transpose1d", nn.ConvTranspose1d(2, 4, 3, 2, 1, 1, groups=2, dilation=2), draw(1, 2, 4))
case("conv_transpose2d", nn.ConvTranspose2d(2, 3, (2, 3), stride=2, padding=(0, 1)), draw(1, 2, 3, 2))
case("conv_transpose2d_size", nn.ConvTranspose2d(1, 2, 3, stride=2, padding=1), draw(1, 1, 3, 3),
     call=lambda m, x: m(x, output_size=[6, 5]))
case("conv_transpose3d", nn.ConvTranspose3d(1, 2, 2, stride=2), draw(1, 1, 2, 1, 2))

# pooling: distinct values, so that no two are equally large
order = lambda *s: (torch.randperm(int(torch.tensor(s).prod())).double() / 8 - 2).reshape(s)
case("max_pool1d", nn.MaxPool1d(3, 2, 1), order(2, 2, 7))
case("max_pool2d", nn.MaxPool2d((2, 3), stride=(2, 1), padding=1, ceil_mode=True), order(1, 2, 5, 4))
case("max_pool2d_dilated", nn.MaxPool2d(2, 1, dilation=2), order(1, 1, 4, 5))
case("avg_pool1d", nn.AvgPool1d(3, 2, 1), draw(2, 2, 7))
case("avg_pool2d", nn.AvgPool2d(2, ceil_mode=True, padding=1, count_include_pad=False), draw(1, 2, 5, 4))
case("avg_pool2d_divisor", nn.AvgPool2d((2, 3), divisor_override=5), draw(1, 1, 4, 6))
case("adaptive_avg_pool1d", nn.AdaptiveAvgPool1d(3), draw(2, 1, 7))
case("adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((2, None)), draw(1, 2, 5, 3))
case("adaptive_max_pool1d", nn.AdaptiveMaxPool1d(3), order(2, 1, 7))
case("adaptive_max_pool2d", nn.AdaptiveMaxPool2d((3, 2)), order(1, 2, 5, 3))

# normalisation
case("batch_norm1d", nn.BatchNorm1d(3), draw(5, 3))
case("batch_norm1d_3d", nn.BatchNorm1d(3, eps=1e-2, momentum=0.3), draw(4, 3, 5))
case("batch_norm2d", nn.BatchNorm2d(2), draw(2, 2, 3, 2))
case("batch_norm2d_eval", nn.BatchNorm2d(2), draw(2, 2, 3, 2), train=False)
case("batch_norm2d_cumulative", nn.BatchNorm2d(2, momentum=None), draw(2, 2, 3, 2))
case("batch_norm2d_plain", nn.BatchNorm2d(2, affine=False, track_running_stats=False), draw(2, 2, 3, 2), train=False)
case("batch_norm3d", nn.BatchNorm3d(2), draw(2, 2, 2, 2, 2))
case("group_norm", nn.GroupNorm(2, 4), draw(2, 4, 3))
case("group_norm_plain", nn.GroupNorm(3, 3, eps=1e-3, affine=False), draw(2, 3, 2, 2))
case("instance_norm1d", nn.InstanceNorm1d(2, affine=True), draw(2, 2, 5))
case("instance_norm1d_unbatched", nn.InstanceNorm1d(2), draw(2, 5))
case("instance_norm2d_track", nn.InstanceNorm2d(2, affine=True, track_running_stats=True), draw(2, 2, 3, 2))
case("instance_norm2d_track_eval", nn.InstanceNorm2d(2, track_running_stats=True), draw(2, 2, 3, 2), train=False)
case("instance_norm3d", nn.InstanceNorm3d(1), draw(1, 1, 2, 2, 3))
case("layer_norm", nn.LayerNorm((3, 4)), draw(2, 3, 4))
case("rms_norm", nn.RMSNorm(4, eps=1e-3), draw(2, 3, 4))

# activations, away from their corners
x = draw(3, 4) + 1 / 32
for name, module in {
    "relu": nn.ReLU(), "relu6": nn.ReLU6(), "gelu": nn.GELU(), "gelu_tanh": nn.GELU("tanh"), "silu": nn.SiLU(),
    "tanh": nn.Tanh(), "sigmoid": nn.Sigmoid(), "logsigmoid": nn.LogSigmoid(), "softmax": nn.Softmax(0),
    "log_softmax": nn.LogSoftmax(-1), "softmin": nn.Softmin(1), "leaky_relu": nn.LeakyReLU(0.2), "elu": nn.ELU(1.5),
    "selu": nn.SELU(), "celu": nn.CELU(0.7), "hardtanh": nn.Hardtanh(-0.5, 1.5), "hardsigmoid": nn.Hardsigmoid(),
    "hardswish": nn.Hardswish(), "hardshrink": nn.Hardshrink(0.75), "softshrink": nn.Softshrink(0.75),
    "softplus": nn.Softplus(2.0, 3.0), "softsign": nn.Softsign(), "tanhshrink": nn.Tanhshrink(),
    "threshold": nn.Threshold(0.25, -3.0), "mish": nn.Mish(), "glu": nn.GLU(), "glu_dim": nn.GLU(1),
    "prelu": nn.PReLU(), "prelu_channels": nn.PReLU(4),
}.items():
    case(name, module, x * 2)
case("prelu_images", nn.PReLU(2), draw(1, 2, 2, 2))
case("softmax2d", nn.Softmax2d(), draw(1, 3, 2, 2))

# padding and rearranging
for name, module, shape in [
    ("zero_pad1d", nn.ZeroPad1d((1, 2)), (1, 2, 3)), ("zero_pad2d", nn.ZeroPad2d((1, -1, 2, 0)), (1, 2, 3, 3)),
    ("constant_pad1d", nn.ConstantPad1d(2, 1.5), (1, 2, 3)),
    ("constant_pad2d", nn.ConstantPad2d((0, 1, 1, 2), -0.5), (1, 1, 2, 3)),
    ("reflection_pad1d", nn.ReflectionPad1d((2, 1)), (1, 2, 4)),
    ("reflection_pad2d", nn.ReflectionPad2d((1, 2, 1, 0)), (1, 1, 3, 4)),
    ("replication_pad1d", nn.ReplicationPad1d((2, 1)), (1, 2, 3)),
    ("replication_pad2d", nn.ReplicationPad2d((1, 2, 1, 0)), (1, 1, 3, 4)),
    ("circular_pad1d", nn.CircularPad1d((2, 1)), (1, 2, 3)),
    ("circular_pad2d", nn.CircularPad2d((1, 2, 1, 0)), (1, 1, 3, 4)),
    ("pixel_shuffle", nn.PixelShuffle(2), (1, 8, 2, 3)), ("pixel_unshuffle", nn.PixelUnshuffle(2), (1, 2, 4, 6)),
    ("channel_shuffle", nn.ChannelShuffle(3), (2, 6, 2)),
    ("unfold", nn.Unfold((2, 3), dilation=1, padding=1, stride=(1, 2)), (1, 2, 3, 4)),
    ("fold", nn.Fold((3, 4), (2, 3), padding=1, stride=(1, 2)), (1, 12, 8)),
    ("flatten", nn.Flatten(1, 2), (2, 2, 3, 2)), ("unflatten", nn.Unflatten(1, (2, 3)), (2, 6, 2)),
    ("upsample_nearest", nn.Upsample(scale_factor=2), (1, 2, 3)),
    ("upsample_linear", nn.Upsample(scale_factor=2.5, mode="linear"), (1, 2, 3)),
    ("upsample_bilinear", nn.Upsample(size=(5, 4), mode="bilinear", align_corners=True), (1, 1, 3, 3)),
    ("upsample_bicubic", nn.Upsample(size=(5, 4), mode="bicubic"), (1, 1, 3, 3)),
]:
    case(name, module, draw(*shape))
case("cosine_similarity", nn.CosineSimilarity(dim=1, eps=1e-6), draw(2, 3, 4), draw(2, 3, 4))
case("pairwise_distance", nn.PairwiseDistance(3.0, eps=1e-3, keepdim=True), draw(4, 3), draw(4, 3))

# attention
E, H = 6, 2
mask = torch.tensor([[False, True, False, False], [False, False, True, False], [True, False, False, True]])
pad = torch.tensor([[False, False, False, True], [False, True, False, False]])
q, k, v = draw(3, 2, E), draw(4, 2, E), draw(4, 2, E)
case("mha", nn.MultiheadAttention(E, H), q, k, v)
case("mha_self", nn.MultiheadAttention(E, H, bias=False, batch_first=True), draw(2, 3, E),
     call=lambda m, x: m(x, x, x))
case("mha_key_value", nn.MultiheadAttention(E, H), q, k, call=lambda m, x, y: m(x, y, y, average_attn_weights=False))
case("mha_dims", nn.MultiheadAttention(E, H, kdim=4, vdim=3, add_bias_kv=True, add_zero_attn=True),
     q, draw(4, 2, 4), draw(4, 2, 3))
case("mha_masks", nn.MultiheadAttention(E, H), q, k, v, mask, pad,
     call=lambda m, q, k, v, a, p: m(q, k, v, attn_mask=a, key_padding_mask=p))
case("mha_masks_flash", nn.MultiheadAttention(E, H, add_bias_kv=True), q, k, v, mask, pad,
     call=lambda m, q, k, v, a, p: m(q, k, v, attn_mask=a, key_padding_mask=p, need_weights=False))
case("mha_float_mask", nn.MultiheadAttention(E, H), q, k, v, draw(2 * H, 3, 4), pad, no_grad_in=(3,),
     call=lambda m, q, k, v, a, p: m(q, k, v, attn_mask=a, key_padding_mask=p.double() * -2, need_weights=False))
causal = nn.Transformer.generate_square_subsequent_mask(3)
case("mha_causal", nn.MultiheadAttention(E, H, batch_first=True), draw(2, 3, E),
     call=lambda m, x: m(x, x, x, attn_mask=causal, is_causal=True, need_weights=False))
case("mha_causal_weights", nn.MultiheadAttention(E, H, batch_first=True), draw(2, 3, E),
     call=lambda m, x: m(x, x, x, attn_mask=causal, is_causal=True))
case("mha_unbatched", nn.MultiheadAttention(E, H), draw(3, E), draw(4, E), draw(4, E))

kw = dict(d_model=E, nhead=H, dim_feedforward=5, dropout=0.0)
pad3 = torch.tensor([[False, False, True], [False, False, False]])
case("encoder_layer", nn.TransformerEncoderLayer(**kw), draw(3, 2, E), pad3,
     call=lambda m, x, p: m(x, src_key_padding_mask=p))
case("encoder_layer_first", nn.TransformerEncoderLayer(**kw, norm_first=True, activation="gelu", batch_first=True,
                                                       bias=False, layer_norm_eps=1e-3), draw(2, 3, E),
     call=lambda m, x: m(x, src_mask=causal, is_causal=True))
case("encoder", nn.TransformerEncoder(nn.TransformerEncoderLayer(**kw), 2, nn.LayerNorm(E),
                                      enable_nested_tensor=False), draw(3, 1, E))
case("decoder_layer", nn.TransformerDecoderLayer(**kw), draw(3, 2, E), draw(4, 2, E), pad,
     call=lambda m, x, y, p: m(x, y, tgt_mask=causal, tgt_is_causal=True, memory_key_padding_mask=p))
case("decoder_layer_first", nn.TransformerDecoderLayer(**kw, norm_first=True, batch_first=True), draw(1, 3, E),
     draw(1, 4, E))
case("transformer", nn.Transformer(E, H, 1, 1, 5, dropout=0.0), draw(4, 1, E), draw(3, 1, E),
     call=lambda m, x, y: m(x, y, tgt_mask=causal))

# weight norm
case("weight_norm", old_weight_norm(nn.Linear(3, 2)), draw(4, 3))
case("weight_norm_all", old_weight_norm(nn.Conv1d(2, 3, 2), dim=None), draw(1, 2, 4))
case("weight_norm_dim2", old_weight_norm(nn.Linear(3, 2), dim=1), draw(4, 3))
case("parametrized_weight_norm", parametrizations.weight_norm(nn.Linear(3, 2)), draw(4, 3))
case("spectral_norm", parametrizations.spectral_norm(nn.Linear(3, 4)), draw(2, 3))
case("spectral_norm_eval", parametrizations.spectral_norm(nn.Conv1d(2, 3, 2), n_power_iterations=2), draw(1, 2, 4),
     train=False)

# recurrence
x = draw(4, 2, 3)
case("rnn", nn.RNN(3, 2, 2), x)
case("rnn_relu", nn.RNN(3, 2, nonlinearity="relu", bias=False, batch_first=True), draw(2, 4, 3))
case("lstm", nn.LSTM(3, 2, 2, bidirectional=True), x)
case("lstm_state", nn.LSTM(3, 2, batch_first=True), draw(2, 4, 3), draw(1, 2, 2), draw(1, 2, 2),
     call=lambda m, x, h, c: m(x, (h, c)))
case("lstm_proj", nn.LSTM(3, 4, 2, proj_size=2), x)
case("gru", nn.GRU(3, 2, 2, bidirectional=True), x, draw(4, 2, 2))
case("gru_unbatched", nn.GRU(3, 2), draw(4, 3))
case("rnn_cell", nn.RNNCell(3, 2), draw(4, 3), draw(4, 2))
case("lstm_cell", nn.LSTMCell(3, 2), draw(4, 3), draw(4, 2), draw(4, 2), call=lambda m, x, h, c: m(x, (h, c)))
case("gru_cell", nn.GRUCell(3, 2, bias=False), draw(4, 3))

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nn_cases.safetensors")
exact = ("in", "cot", "state/")  # small multiples of powers of two: the same in float32
for k, v in out.items():
    v = v.clone().contiguous()
    if v.dtype == torch.float64 and k.split("/", 1)[1].startswith(exact):
        assert torch.equal(v.float().double(), v), k
        v = v.float()
    out[k] = v
save_file(out, path)
os.chmod(path, 0o644)
print(len({k.split("/")[0] for k in out}), "cases,", os.path.getsize(path), "bytes")
