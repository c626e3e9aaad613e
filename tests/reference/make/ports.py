"""Losses of PyTorch for the models of tests/stdlib/nn/ports_test.lua, which are the same line for line.

    python tests/reference/make/ports.py

Parameter k (from 0) of a model is sin(0.37 j + k) / sqrt(fan in), data are formulas as well, everything is f64. Writes
tests/reference/ports.json: losses of SGD steps, and the norm of the first gradient.
"""
import json
import math
import pathlib

import torch
from torch import nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
HERE = pathlib.Path(__file__).resolve().parent.parent


def fill(model):
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            fan = p.numel() // p.shape[0] if p.dim() > 1 else 4
            p.copy_((torch.arange(p.numel()) * 0.37 + k).sin().reshape(p.shape) / math.sqrt(fan))
    return model


def wave(*shape, by=0.7, plus=0.0):
    return (torch.arange(math.prod(shape)) * by + plus).sin().reshape(shape)


class SpatialTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.localization = nn.Sequential(nn.Conv2d(1, 4, 5), nn.MaxPool2d(2, stride=2), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.MaxPool2d(2, stride=2), nn.ReLU())
        self.fc_loc = nn.Sequential(nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 6))
        self.conv = nn.Conv2d(1, 4, 5)
        self.fc = nn.Linear(144, 5)

    def forward(self, x):
        theta = self.fc_loc(self.localization(x).flatten(1)).view(-1, 2, 3)
        theta = theta * 0.3 + torch.tensor([[1.0, 0, 0], [0, 1, 0]])
        x = F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)
        return self.fc(F.relu(F.max_pool2d(self.conv(x), 2)).flatten(1))


def tones(text, rate=64):
    """A tone of 8 + 4 c cycles a second for each class c, with silence between: 16 samples a symbol."""
    parts = []
    for c in text:
        t = torch.arange(16) / rate
        parts += [(2 * math.pi * (8 + 4 * c) * t).sin(), torch.zeros(8)]
    return torch.cat(parts)


def spectrogram(x, size=16, hop=4):
    """Magnitudes of windowed frames, (N, size / 2 + 1, frames)."""
    return torch.stft(x, size, hop, window=torch.hann_window(size), center=False, return_complex=True).abs()


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(9, 12, 3, padding=1)
        self.rnn = nn.GRU(12, 10, bidirectional=True)
        self.out = nn.Linear(20, 5)

    def forward(self, x, lengths):
        h = F.relu(self.conv(x)).permute(2, 0, 1)
        packed = nn.utils.rnn.pack_padded_sequence(h, lengths, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0])
        return self.out(h).log_softmax(2)


class Block(nn.Module):
    def __init__(self, channels, out, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(2, channels), nn.Conv2d(channels, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.norm2, self.conv2 = nn.GroupNorm(2, out), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(channels, out, 1)

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.conv2(F.silu(self.norm2(h))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.down, self.middle = Block(4, 4, 8), Block(4, 8, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.up = Block(12, 4, 8)
        self.last = nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, x, t):
        angle = t.unsqueeze(1) * (-math.log(100) * torch.arange(4) / 4).exp()
        t = self.embed(torch.cat([angle.sin(), angle.cos()], 1))
        a = self.down(self.first(x), t)
        b = F.interpolate(a, scale_factor=0.5, mode="bilinear", antialias=True)
        b = self.middle(b, t)
        n, c, h, w = b.shape
        tokens = b.flatten(2).transpose(1, 2)
        b = b + self.attention(tokens, tokens, tokens, need_weights=False)[0].transpose(1, 2).reshape(n, c, h, w)
        up = F.interpolate(b, size=a.shape[2:], mode="bicubic")
        return self.last(self.up(torch.cat([up, a], 1), t))


def train(model, loss_of, lr, steps, record):
    sgd, losses, norm = torch.optim.SGD(model.parameters(), lr=lr), [], None
    for step in range(steps):
        sgd.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        if norm is None:
            norm = math.sqrt(sum((p.grad ** 2).sum().item() for p in model.parameters()))
        sgd.step()
        if step < record:
            losses.append(loss.item())
    return {"losses": losses, "norm": norm}


out = {}
x, labels = wave(6, 1, 16, 16), torch.tensor([0, 3, 1, 4, 2, 0])
out["spatial_transformer"] = train(fill(SpatialTransformer()), lambda m, s: F.cross_entropy(m(x), labels), 0.2, 6, 6)

texts = [[1, 2, 3], [3, 3, 1, 4], [2], [4, 1]]
longest = max(len(t) for t in texts)
sound = torch.stack([F.pad(tones(t), (0, 24 * (longest - len(t)))) for t in texts])
features = spectrogram(sound)
lengths = [(24 * len(t) - 16) // 4 + 1 for t in texts]
targets = torch.tensor([c for t in texts for c in t])


def speech(m, step):
    return F.ctc_loss(m(features, lengths), targets, lengths, [len(t) for t in texts])


out["recogniser"] = train(fill(Recogniser()), speech, 0.3, 8, 8)

clean, noise = wave(3, 2, 8, 8), wave(3, 2, 8, 8, by=1.3, plus=0.5)
times = torch.tensor([0.1, 0.5, 0.9])


def denoise(m, step):
    keep = (1 - times)[:, None, None, None]
    return F.mse_loss(m(clean * keep.sqrt() + noise * (1 - keep).sqrt(), times * 10 + step), noise)


out["unet"] = train(fill(UNet()), denoise, 0.05, 5, 5)
(HERE / "ports.json").write_text(json.dumps(out, indent=1) + "\n")
print({k: v["losses"] for k, v in out.items()})
