"""Values of special functions to 20 digits and more, by mpmath: python special.py writes ../special.json, for tests/host/ops/map/special_test.lua.

Each row: the name, its numbers in front of x, and pairs of x and the result, as C99 hexadecimal floats rounded once.
"""
import json
import pathlib

import mpmath as mp

mp.mp.dps = 60


def h(v):
    return float(v).hex()


def spread(lo, hi, n):
    return [float(lo + (hi - lo) * (k + 0.37) / n) for k in range(n)]


def powers(lo, hi, n):
    return [float(mp.mpf(10) ** (lo + (hi - lo) * (k + 0.37) / n)) for k in range(n)]


both = lambda xs: xs + [-x for x in xs]
erfcx = lambda x: mp.exp(x * x) * mp.erfc(x)
ndtr = lambda x: mp.erfc(-x / mp.sqrt(2)) / 2
rows = [
    ("lgamma", [], mp.loggamma, spread(0.1, 30, 20) + powers(1, 10, 6)),
    ("digamma", [], mp.digamma, spread(1.6, 30, 16) + powers(-6, 0, 6) + spread(-3.9, -3.1, 4) + powers(1, 10, 6)),
    ("erfinv", [], mp.erfinv, both(powers(-10, -0.4, 10) + spread(0.4, 1, 10) + [1 - 2.0**-40, 1 - 2.0**-52])),
    ("erfcx", [], erfcx, spread(-4, 24, 20) + powers(1.4, 8, 8)),
    ("ndtr", [], ndtr, spread(-30, 6, 20)),
    ("log_ndtr", [], lambda x: mp.log(ndtr(x)), spread(-35, 6, 20) + [-1e3, -1e6]),
    ("ndtri", [], lambda p: mp.sqrt(2) * mp.erfinv(2 * mp.mpf(p) - 1), powers(-30, -1, 12) + spread(0.05, 1, 12)),
    ("i0", [], lambda x: mp.besseli(0, x), both(spread(0, 20, 10))),
    ("i0e", [], lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), both(spread(0, 20, 10)) + powers(1.5, 4, 6)),
    ("i1", [], lambda x: mp.besseli(1, x), both(spread(0, 20, 10))),
    ("i1e", [], lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), both(spread(0, 20, 10)) + powers(1.5, 4, 6)),
    ("polygamma", [1], lambda x: mp.polygamma(1, x), spread(0.1, 20, 12) + [-1.5, -0.3]),
    ("polygamma", [3], lambda x: mp.polygamma(3, x), spread(0.1, 20, 12)),
    ("zeta", [1.5], lambda q: mp.zeta(1.5, q), spread(0.1, 20, 10) + [1e4]),
    ("zeta", [7.25], lambda q: mp.zeta(7.25, q), spread(0.1, 20, 10)),
    ("igamma", [0.7], lambda x: mp.gammainc(0.7, 0, x, regularized=True), powers(-3, 1, 10)),
    ("igamma", [30.0], lambda x: mp.gammainc(30, 0, x, regularized=True), spread(5, 60, 10)),
    ("igammac", [4.5], lambda x: mp.gammainc(4.5, x, mp.inf, regularized=True), spread(0.1, 30, 10)),
    ("sinc", [], lambda x: mp.sin(mp.pi * x) / (mp.pi * x), both(powers(-5, 2, 12))),
]
out = []
for name, front, fn, points in rows:
    out.append({"name": name, "front": front, "points": [[h(x), h(fn(mp.mpf(x)))] for x in points]})
path = pathlib.Path(__file__).resolve().parent.parent / "special.json"
path.write_text("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in out) + "\n]\n")
print(path.name, path.stat().st_size)
