"""Writes examples/mrpc/*.parquet from the CSV files beside them, for examples/41_parquet_text.lua. Needs pyarrow.

    python3 tests/reference/mrpc_parquet.py
"""
import csv
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

folder = pathlib.Path(__file__).parents[2] / "examples" / "mrpc"
for name in "train", "dev":
    with open(folder / f"{name}.csv", newline="") as f:
        rows = list(csv.DictReader(f))
    table = pa.table({
        "sentence1": [r["sentence1"] for r in rows],
        "sentence2": [r["sentence2"] for r in rows],
        "label": pa.array([int(r["label"] == "equivalent") for r in rows], pa.int64()),
        "idx": pa.array(range(len(rows)), pa.int32()),
    })
    pq.write_table(table, folder / f"{name}.parquet", compression="NONE", row_group_size=16)
