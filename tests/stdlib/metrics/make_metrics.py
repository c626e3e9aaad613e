"""Makes metrics_cases.json: what scikit-learn, scipy and numpy say about small data, for metrics_test.lua.

    python3 tests/stdlib/metrics/make_metrics.py
"""
import json, math, os, random
import numpy as np
import scipy.stats
import sklearn.metrics as sk

random.seed(7)
rng = np.random.default_rng(7)
data, cases = [], []


def plain(x):
    x = np.asarray(x, dtype=np.float64)
    if x.ndim == 0:
        return "nan" if math.isnan(x) else float(x)
    return [plain(v) for v in x]


def case(kind, options, p, r, want, weights=None):
    """One metric over data that is written once."""
    key = [p, r]
    if key not in data:
        data.append(key)
    c = {"metric": kind, "options": options, "data": data.index(key) + 1, "want": plain(want)}
    if weights is not None:
        c["weights"] = weights
    cases.append(c)


for k, (n, classes) in enumerate([(1, 2), (2, 2), (7, 2), (40, 2), (200, 2), (5, 3), (60, 3), (300, 7), (400, 25)]):
    r = rng.integers(0, classes, n).tolist()
    p = [v if random.random() < 0.6 else int(rng.integers(0, classes)) for v in r]
    w = [1 / (1 + i % 7) for i in range(n)]  # the test makes the same
    for weights in (None, w):
        more = {} if weights is None else {"weights": "sevenths"}
        kw = {"sample_weight": weights}
        case("Accuracy", {}, p, r, sk.accuracy_score(r, p, **kw), **more)
        case("Matthews", {}, p, r, sk.matthews_corrcoef(r, p, **kw), **more)
        for name, f in (("F1", sk.f1_score), ("Precision", sk.precision_score), ("Recall", sk.recall_score)):
            for average in ("macro", "micro", "weighted", "none") + (("binary",) if classes == 2 else ()):
                for zero in (0, 1, "nan"):
                    z = math.nan if zero == "nan" else zero
                    if zero != 0 and (k % 2 or weights is not None):
                        continue
                    want = f(r, p, average=None if average == "none" else average, zero_division=z, **kw)
                    case(name, {"average": average, "zero_division": zero}, p, r, want, **more)
            if classes > 2:
                labels = [2, 0, classes + 5]
                for average in ("macro", "micro", "weighted", "none"):
                    want = f(r, p, average=None if average == "none" else average, labels=labels, zero_division=0, **kw)
                    case(name, {"average": average, "labels": labels}, p, r, want, **more)
signs = rng.choice([-1, 1], 50).tolist()
other = rng.choice([-1, 1], 50).tolist()
case("Matthews", {}, signs, other, sk.matthews_corrcoef(other, signs))
case("F1", {"pos_label": -1}, signs, other, sk.f1_score(other, signs, pos_label=-1))
case("Matthews", {}, [1] * 9, [0, 1, 1] * 3, sk.matthews_corrcoef([0, 1, 1] * 3, [1] * 9))

logits = rng.normal(size=(60, 6)).round(3)
labels = rng.integers(0, 6, 60)
for k in (1, 2, 5):
    case("Accuracy", {"top_k": k}, logits.tolist(), labels.tolist(),
         sk.top_k_accuracy_score(labels, logits, k=k, labels=range(6)))
scores = rng.random(50).round(3)
truth = rng.integers(0, 2, 50)
case("F1", {"threshold": 0.3}, scores.tolist(), truth.tolist(), sk.f1_score(truth, scores > 0.3))

for n in (2, 3, 10, 200):
    x = rng.normal(size=n).tolist()
    y = (0.5 * np.array(x) + rng.normal(size=n)).tolist()
    case("Pearson", {}, x, y, scipy.stats.pearsonr(x, y)[0])
    case("Spearman", {}, x, y, scipy.stats.spearmanr(x, y)[0])
    xi, yi = rng.integers(0, 5, n).tolist(), rng.integers(0, 5, n).tolist()
    if len(set(xi)) > 1 and len(set(yi)) > 1:
        case("Pearson", {}, xi, yi, scipy.stats.pearsonr(xi, yi)[0])
        case("Spearman", {}, xi, yi, scipy.stats.spearmanr(xi, yi)[0])

values = rng.normal(size=30).tolist()
weights = [1 / (1 + i % 7) for i in range(30)]
case("Mean", {}, values, None, math.fsum(values) / 30)
case("Mean", {}, values, None, np.average(values, weights=weights), weights="sevenths")

# sums of wild sizes: what math.fsum says, to the last bit
sums = []
for n in (1, 2, 5, 30, 100, 300):
    x = (rng.normal(size=n) * 2.0 ** rng.integers(-200, 200, n)).tolist()
    x += [-v for v in x[: n // 2]]
    random.shuffle(x)
    sums.append({"values": [v.hex() for v in x], "want": math.fsum(x).hex()})

def lines(entries):
    return "[\n" + ",\n".join(json.dumps(e, separators=(",", ":")) for e in entries) + "\n]"


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "metrics_cases.json"), "w") as f:
    f.write('{"data": %s,\n"cases": %s,\n"sums": %s}\n' % (lines(data), lines(cases), lines(sums)))
print(len(cases), "cases")
