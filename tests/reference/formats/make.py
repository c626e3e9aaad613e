"""Writes the small files of this folder, with pyarrow, zstandard (or the zstd command), lz4 and tarfile. The tests of tests/stdlib/data read them.

    python make.py

Every file holds the samples 0 .. 40: id, text, and a list of ids. They are in two parts of 23 and 18 samples.
"""
import bz2
import gzip
import io
import json
import lzma
import os
import struct
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq

PARTS = [range(0, 23), range(23, 41)]


def row(i):
    return {"id": i, "text": f"sample {i} \u00e9", "ids": list(range(i % 5))}


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(i, data):
    return varint(i << 3 | 2) + varint(len(data)) + data


def example(r):
    features = {
        "id": field(3, field(1, varint(r["id"]))),
        "text": field(1, field(1, r["text"].encode())),
        "ids": field(3, field(1, b"".join(varint(v) for v in r["ids"]))),
    }
    return field(1, b"".join(field(1, field(1, k.encode()) + field(2, v)) for k, v in features.items()))


def mds(folder):
    """A folder of MosaicML's streaming format, as its MDSWriter lays it out: two shards."""
    os.makedirs(folder, exist_ok=True)
    names, encodings, sizes = ["id", "text", "ids"], ["int", "str", "ndarray:int32"], [8, None, None]
    shards = []
    for k, part in enumerate(PARTS):
        head = json.dumps({"column_encodings": encodings, "column_names": names, "column_sizes": sizes}).encode()
        rows = []
        for r in map(row, part):
            text, ids = r["text"].encode(), struct.pack("<BB", 4, len(r["ids"])) + struct.pack(f"<{len(r['ids'])}i", *r["ids"])
            rows.append(struct.pack("<II", len(text), len(ids)) + struct.pack("<q", r["id"]) + text + ids)
        at = 4 + 4 * (len(rows) + 1) + len(head)
        offsets = [at]
        for x in rows:
            offsets.append(offsets[-1] + len(x))
        data = struct.pack(f"<I{len(offsets)}I", len(rows), *offsets) + head + b"".join(rows)
        name = f"shard.{k:05d}.mds"
        open(f"{folder}/{name}", "wb").write(data)
        shards.append({"column_encodings": encodings, "column_names": names, "column_sizes": sizes, "compression": None, "format": "mds",
                       "raw_data": {"basename": name, "bytes": len(data), "hashes": {}}, "samples": len(rows), "version": 2, "zip_data": None})
    json.dump({"version": 2, "shards": shards}, open(f"{folder}/index.json", "w"))


def structs():
    """structs.parquet and the same rows in structs.jsonl: optional and required structs and lists with required columns below them."""
    import random

    draw = random.Random(1)
    i32 = pa.field("item", pa.int32(), nullable=False)
    inner = pa.struct([pa.field("k", pa.string(), nullable=False), pa.field("l", pa.list_(i32), nullable=False)])
    outer = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.float32()), pa.field("in", inner, nullable=False),
                       pa.field("o", inner)])
    schema = pa.schema([pa.field("s", outer), pa.field("l", pa.list_(pa.field("item", outer))), pa.field("q", outer, nullable=False)])

    def one():
        return {"k": f"k{draw.randrange(9)}", "l": [draw.randrange(99) for _ in range(draw.randrange(3))]}

    def two(lacks):
        if draw.random() < lacks:
            return None
        return {"a": draw.randrange(1000), "b": None if draw.random() < 0.5 else draw.randrange(9) / 4, "in": one(),
                "o": None if draw.random() < 0.5 else one()}

    rows = [{"s": two(0.4), "l": None if draw.random() < 0.3 else [two(0.4) for _ in range(draw.randrange(4))], "q": two(0)} for _ in range(12)]
    pq.write_table(pa.Table.from_pylist(rows, schema), "structs.parquet", row_group_size=7, compression="NONE", store_schema=False)
    with open("structs.jsonl", "w") as f:
        for r in pq.read_table("structs.parquet").to_pylist():
            f.write(json.dumps(r) + "\n")


def main():
    mds("mds")
    for k, part in enumerate(PARTS):
        rows = [row(i) for i in part]
        table = pa.Table.from_pylist(rows, pa.schema([("id", pa.int64()), ("text", pa.string()), ("ids", pa.list_(pa.int32()))]))
        pq.write_table(table, f"part-{k}.parquet", row_group_size=6, compression="zstd", write_page_checksum=True)
        with pa.OSFile(f"part-{k}.arrow", "wb") as f, pa.ipc.new_stream(f, table.schema) as w:
            w.write_table(table, max_chunksize=5)
        lines = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode()
        open(f"part-{k}.jsonl", "wb").write(lines)
        open(f"part-{k}.jsonl.gz", "wb").write(gzip.compress(lines, mtime=0))
        open(f"part-{k}.jsonl.xz", "wb").write(lzma.compress(lines))
        open(f"part-{k}.jsonl.bz2", "wb").write(bz2.compress(lines))
        with pa.CompressedOutputStream(f"part-{k}.jsonl.zst", "zstd") as f:
            f.write(lines)
        with pa.CompressedOutputStream(f"part-{k}.jsonl.lz4", "lz4") as f:
            f.write(lines)
        with tarfile.open(f"part-{k}.tar.gz", "w:gz", format=tarfile.USTAR_FORMAT) as t:
            for r in rows:
                for name, data in ("cls", str(r["id"]).encode()), ("txt", r["text"].encode()), ("json", json.dumps(r["ids"]).encode()):
                    info = tarfile.TarInfo(f"s{r['id']:03d}.{name}")
                    info.size = len(data)
                    t.addfile(info, io.BytesIO(data))
        with open(f"part-{k}.tfrecord", "wb") as f:
            for r in rows:
                data, head = example(r), b""
                head = struct.pack("<Q", len(data))
                f.write(head + struct.pack("<I", crc32c(head)) + data + struct.pack("<I", crc32c(data)))


main()
structs()
