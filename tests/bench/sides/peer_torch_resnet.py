"""PyTorch's side of resnet18.lua. All configurations but eager keep images with their channels last."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import peer_torch_common as common


def conv(source, to, kernel, stride):
    return nn.Conv2d(source, to, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, source, to, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(source, to, 3, stride), nn.BatchNorm2d(to)
        self.conv2, self.bn2 = conv(to, to, 3, 1), nn.BatchNorm2d(to)
        self.downsample = None
        if stride != 1 or source != to:
            self.downsample = nn.Sequential(conv(source, to, 1, stride), nn.BatchNorm2d(to))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.conv1, self.bn1 = conv(3, width, 3, 1), nn.BatchNorm2d(width)
        source = width
        for i in range(4):
            to = width << i
            setattr(self, f"layer{i + 1}", nn.Sequential(Block(source, to, 2 if i else 1), Block(to, to, 1)))
            source = to
        self.fc = nn.Linear(source, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(x.mean((2, 3)))


def resnet18(o):
    model = ResNet18(o.width, 10)
    model.load_state_dict(common.load(o.data, "weights"), strict=False)  # counts of batches are not in every file
    images = common.load(o.data, "images")
    x, y = images["x"], images["y"]
    if o.config != "eager":
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, **common.fused(o))
    loss_of = common.compiled(o, lambda x, y: F.cross_entropy(model(x), y))

    def step(_):
        with common.autocast(o):
            loss = loss_of(x, y)
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        opt.step()
        opt.zero_grad()
        return loss, forward, backward

    return common.train(o, step)
