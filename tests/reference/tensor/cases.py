#!/usr/bin/env python3
"""Writes format_cases.h, view_cases.h and f8_cases.h: what PyTorch prints, views and converts.

Run by hand where PyTorch is installed (2.15 wrote the committed files); the tests need only the results.
"""
import itertools
import math
import os

import torch
from torch import _tensor_str

NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
    torch.bool: "BOOL", torch.uint16: "U16", torch.uint32: "U32",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}
HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = "/* Written by cases.py with PyTorch %s; do not edit. */\n" % torch.__version__.split("+")[0]


def number(v):
    v = float(v)
    if math.isnan(v):
        return "NAN"
    if math.isinf(v):
        return "INFINITY" if v > 0 else "-INFINITY"
    return v.hex() if v != int(v) or v == 0 else repr(v)


def expected(t):
    """str(t) with accel's names of dtypes: they decide where lines break, so that replacing text would not do."""
    suffixes = []
    name = "dtype=" + NAMES[t.dtype].lower()
    if t.numel() == 0:
        if t.dim() != 1:
            suffixes.append("size=" + str(tuple(t.shape)))
        if t.dtype != torch.float32:
            suffixes.append(name)
        body = "[]"
    else:
        if t.dtype not in (torch.float32, torch.int64, torch.bool):
            suffixes.append(name)
        body = _tensor_str._tensor_str(t, 7)
    text = _tensor_str._add_suffixes("tensor(" + body, suffixes, 7, False)
    if not suffixes:
        assert text == str(t)
    assert len(text) < 4096, (t.shape, len(text))  # what every C compiler takes as one string
    return text


def braces(values):
    return "{%s}" % ", ".join(values) if values else "{0}"


def c_string(text):
    return '"%s"' % text.replace("\n", '\\n"\n     "')


def format_case(t):
    """t views a storage of at most 60 values, or a long one that counts 0, 1, 2, ... times a step."""
    flat = t.as_strided((t.untyped_storage().nbytes() // t.element_size(),), (1,), 0) if t.numel() else t.reshape(-1)
    values = flat.to(torch.float64)
    if len(values) > 60:
        step = float(values[1])
        assert values.tolist() == (torch.arange(len(values), dtype=torch.float64) * step).to(t.dtype).to(torch.float64).tolist()
        data, step = "{0}", number(step)
    else:
        data, step = braces([number(v) for v in values]), "0"
    return "    {AC_%s, %d, %s, %s, %d, %d, %s, %s,\n     %s},\n" % (
        NAMES[t.dtype], t.dim(), braces([str(s) for s in t.shape]), braces([str(s) for s in t.stride()]),
        t.storage_offset() if t.numel() else 0, len(values), step, data, c_string(expected(t)))


def format_tensors():
    f32 = torch.float32
    inf, nan = math.inf, math.nan
    lists = [
        [1, 2, 3], [1.5, -2.25, 3], [0.0, -0.0], [nan, 1], [inf, -inf, 2.5], [nan, inf], [0, nan], [1e-5, 1], [1e-4, 1e-3],
        [1000, 1], [1001, 1], [1000.5, 1], [1e8, 1e6], [1.1e8, 1e7], [123456789], [0.1, 99.99995], [1e-38, 1e38], [-1234.5678],
        [1e10, nan, 0.0], [9999.99996, 12], [0.00012, 0.0999], [5e-45], [3.4e38, -3.4e38], [-1, 10, 100], [2.5], [1e-10], [7],
        [[1, 2], [3, 4]], [[1.5, nan], [inf, -100]], [[[1.0], [2.0]], [[3.0], [4.5]]], [[[[1]]]], [[0.5]],
    ]
    for dtype in (f32, torch.float64):
        for x in lists:
            yield torch.tensor(x, dtype=dtype)
    for dtype in (torch.float16, torch.bfloat16):
        for x in ([1.5, 0.1], [65504, 1], [3.14159], [nan, 2], [0.0001, 0.5], [1, 2]):
            yield torch.tensor(x, dtype=dtype)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        yield torch.tensor([1.5, -448, 0.015625, nan]).to(dtype)
        yield torch.tensor([2.0, 16.0]).to(dtype)
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8):
        yield torch.tensor([[1, -2, 3], [100, 5, -6]], dtype=dtype)
    for dtype in (torch.uint8, torch.uint16, torch.uint32):
        yield torch.tensor([1, 255, 0], dtype=dtype)
    yield torch.tensor([2**53, -1])
    yield torch.tensor([[True, False], [False, False]])
    yield torch.tensor([True, True])
    for x in (0.0, 1.0, -2.5, nan, -inf, 1e9, 1e-7, 123456.789):
        yield torch.tensor(x)
        yield torch.tensor(x, dtype=torch.float64)
    yield torch.tensor(True)
    yield torch.tensor(-7)
    yield torch.tensor(7, dtype=torch.int8)
    for shape in ((0,), (0, 3), (2, 0, 4)):
        for dtype in (f32, torch.float64, torch.int64, torch.bool):
            yield torch.empty(shape, dtype=dtype)
    # line breaks, with a suffix on either side of column 80
    for n in (9, 10, 11, 12, 20, 23, 25, 40):
        yield torch.arange(n, dtype=torch.float64) / 4
        yield torch.arange(n)
    for n in range(20, 27):
        yield torch.arange(n, dtype=torch.int32)
    yield torch.arange(48).reshape(2, 24)
    yield torch.arange(48, dtype=torch.float64).reshape(2, 2, 3, 4) * 1000.5
    # non-contiguous
    base = torch.arange(24, dtype=f32)
    yield base.reshape(4, 6).t()
    yield base.reshape(2, 3, 4).permute(2, 0, 1)
    yield base[3::5]
    yield base.reshape(4, 6)[1:3, ::2]
    yield torch.tensor([1.5, 2.5])[:, None].expand(2, 4)
    yield torch.tensor([[1], [2]], dtype=torch.int16).expand(3, 2, 2)
    # summaries
    yield torch.tensor([1], dtype=torch.int8).expand(1000)
    yield torch.tensor([1]).expand(1001)
    yield torch.arange(1001)
    yield torch.arange(2000, dtype=f32) * 0.5
    yield torch.arange(2000, dtype=torch.float64).reshape(2, 1000)
    yield torch.arange(2000, dtype=torch.bfloat16).reshape(1000, 2)
    yield torch.arange(3000, dtype=torch.int32).reshape(10, 5, 60)
    yield torch.arange(3000, dtype=f32).reshape(10, 5, 60).permute(1, 2, 0)
    yield torch.arange(9 * 9 * 20).reshape(9, 9, 1, 20)
    yield torch.arange(8 * 7 * 36, dtype=torch.int16).reshape(8, 7, 36)
    yield torch.tensor([0.25]).expand(40, 30)


def view_cases():
    """Every shape with up to 4 dims that has the elements of a few strided tensors, and the strides of view() or none."""
    tensors = [
        torch.empty(12), torch.empty(3, 4), torch.empty(4, 3).t(), torch.empty(2, 3, 2), torch.empty(2, 3, 2).transpose(0, 1),
        torch.empty(2, 3, 2).permute(2, 0, 1), torch.empty(6, 4)[:, :2], torch.empty(3, 8)[:, ::2], torch.empty(4, 1, 3),
        torch.empty(1, 3, 1, 4), torch.empty(3, 1).expand(3, 4), torch.empty(1, 4).expand(3, 4), torch.empty(()).expand(12),
        torch.empty(()), torch.empty(1, 1), torch.empty(0), torch.empty(2, 0, 3), torch.empty(24)[::2], torch.empty(5, 12)[2],
        torch.empty(2, 2, 3, 2)[:, 0], torch.empty(2, 6, 3)[:, ::3], torch.empty(1, 12).t(),
    ]
    for t in tensors:
        shapes = [s for n in range(5) for s in itertools.product((0, 1, 2, 3, 4, 6, 12), repeat=n) if math.prod(s) == t.numel()]
        for shape in shapes if t.numel() else shapes[::60]:
            try:
                strides = t.view(shape).stride()
            except RuntimeError:
                strides = None
            yield "    {%d, %s, %s, %d, %s, %d, %s},\n" % (
                t.dim(), braces([str(s) for s in t.shape]), braces([str(s) for s in t.stride()]), len(shape),
                braces([str(s) for s in shape]), strides is not None, braces([str(s) for s in strides or ()]))


def f8_cases():
    halves = torch.arange(0, 65536, dtype=torch.int32).to(torch.uint16).view(torch.float16).to(torch.float32)
    for dtype, name in ((torch.float8_e4m3fn, "e4m3"), (torch.float8_e5m2, "e5m2")):
        codes = torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32)
        yield "static const float %s_values[256] = {\n" % name
        for i in range(0, 256, 8):
            yield "    %s,\n" % ", ".join(number(v) for v in codes[i:i + 8])
        yield "};\n"
        # inputs: the midpoints between neighbours and their neighbours, and the values of every 397th half
        near = codes[:128][torch.isfinite(codes[:128])]
        middle = (near[1:] + near[:-1]) / 2
        x = torch.cat([middle, torch.nextafter(middle, middle * 2), torch.nextafter(middle, middle * 0), halves[::397],
                       torch.tensor([math.inf, 464.0, 465.0, 480.0, 57344.0, 61440.0, 61441.0, 1e30, 1e-30, 0.0])])
        x = x[~torch.isnan(x)]
        x = torch.cat([x, -x])
        y = x.to(dtype).view(torch.uint8)
        yield "static const float %s_inputs[] = {\n" % name
        for i in range(0, len(x), 8):
            yield "    %s,\n" % ", ".join(number(v) for v in x[i:i + 8])
        yield "};\nstatic const unsigned char %s_codes[] = {\n" % name
        for i in range(0, len(y), 24):
            yield "    %s,\n" % ", ".join(str(int(v)) for v in y[i:i + 24])
        yield "};\n"


def write(name, head, parts, tail):
    with open(os.path.join(HERE, name), "w", encoding="ascii") as f:
        f.write(HEAD + head + "".join(parts) + tail)


write("format_cases.h", "/* dtype, ndim, shape, stride, offset, length of the storage, step (its values count up by it) or 0, values, text */\n"
      "static const format_case format_cases[] = {\n", (format_case(t) for t in format_tensors()), "};\n")
write("view_cases.h", "/* ndim, shape, stride; new ndim, new shape, whether a view exists, its strides */\n"
      "static const view_case view_cases[] = {\n", view_cases(), "};\n")
write("f8_cases.h", "", f8_cases(), "")
