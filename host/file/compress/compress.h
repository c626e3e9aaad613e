/* Compressed files as a stream of bytes, and compressed blocks of tables. Called by every reader of
 * records (bindings/file/lac_stream.c, tar, TFRecord) and by Arrow and Parquet.
 *
 *   codec.c     which format bytes have        stream.c   files, whatever their format
 *   block.c     blocks inside other formats
 *   gzip.c zstd.c xz.c bzip2.c lz4.c snappy.c  one library each
 *
 * The content decides, not the name. A file whose name ends with .gz and that is not compressed is
 * refused. Reading is strict: a file must end with a complete member, checksums must be right, and
 * only what the format allows may follow (more members, padding between .xz streams, zeros after
 * gzip's last member). Memory is bounded: a window or dictionary of more than 128 MiB is refused. */
#ifndef ACI_COMPRESS_H
#define ACI_COMPRESS_H
#include "accel/base.h"

typedef struct aci_unpacker aci_unpacker;

/* One step of a decoder. It consumes and produces as much as it can. */
typedef struct aci_unpack_io {
  const unsigned char *in;
  size_t n_in, used;
  unsigned char *out;
  size_t n_out, made;
  bool last;  /* no byte follows those of in */
  bool ended; /* set when a member is complete */
} aci_unpack_io;

struct aci_unpacker {
  const char *name, *library;
  /* NULL: the library was not there at build time */
  ac_status (*open)(void **state, ac_err *e);
  ac_status (*step)(void *state, aci_unpack_io *io, ac_err *e);
  ac_status (*next)(void *state, ac_err *e); /* before another member */
  void (*close)(void *state);
  bool whole;                                    /* the decoder itself reads all members (xz) */
  bool zeros;                                    /* zeros may follow the last member */
  bool (*member)(const unsigned char *, size_t); /* whether a member begins here */
};

extern const aci_unpacker aci_unpack_gzip, aci_unpack_zstd, aci_unpack_xz, aci_unpack_lzma,
    aci_unpack_bzip2, aci_unpack_lz4;

/* The format of a file that begins with these bytes. NULL: not compressed, as far as known. */
const aci_unpacker *aci_unpacker_of(const unsigned char *p, size_t n);
/* The format that a name promises ("a.jsonl.gz", "b.tgz"), NULL for none. */
const char *aci_unpacker_named(const char *path);

/* ---- files ---- */
typedef struct aci_content aci_content;

/* Bytes of content that a reader may hold in memory: those that the caller gave (the readers' option
 * `limit`), or if it gave 0, enough for what compresses well and not for what claims to: 128 MiB and 64
 * times the file's size. Every reader that keeps content of a file uses it: whole compressed files,
 * lines, records, members of archives, rows of tables. */
uint64_t aci_unpacked_limit(uint64_t given, uint64_t file);
/* PARSE: "PATH: WHAT is larger than the limit". */
ac_status aci_over_limit(const char *path, const char *what, uint64_t limit, ac_err *e);
#define ACI_RAISE_LIMIT "set the option limit (bytes) if you trust the file"
#define ACI_ROWS_OVER_LIMIT \
  "the rows take more than the limit of %zu bytes in memory; " ACI_RAISE_LIMIT

/* Opens a regular file. most: an error after so many bytes of content, 0 for no limit. */
ac_status aci_content_open(const char *path, uint64_t most, aci_content **out, ac_err *e);
/* n bytes, fewer only at the end. A failed stream stays failed. */
ac_status aci_content_read(aci_content *s, void *p, size_t n, size_t *got, ac_err *e);
/* Leaves n bytes out. *got: fewer at the end. */
ac_status aci_content_skip(aci_content *s, uint64_t n, uint64_t *got, ac_err *e);
/* Goes to a byte of the content. UNSUPPORTED for compressed files. */
ac_status aci_content_seek(aci_content *s, uint64_t at, ac_err *e);
/* NULL for a file that is not compressed. */
const char *aci_content_codec(const aci_content *s);
const char *aci_content_path(const aci_content *s);
uint64_t aci_content_at(const aci_content *s);   /* bytes of content delivered */
uint64_t aci_content_size(const aci_content *s); /* of the file on disk */
/* All content of a compressed file, at most `limit` bytes (aci_unpacked_limit), in a new file in memory
 * without a name. */
ac_status aci_content_unpack(const char *path, uint64_t limit, int *fd, uint64_t *bytes, ac_err *e);
void aci_content_close(aci_content *s);

/* ---- blocks ---- */
typedef enum aci_block_codec {
  ACI_BLOCK_NONE,
  ACI_BLOCK_SNAPPY,
  ACI_BLOCK_GZIP, /* gzip or zlib */
  ACI_BLOCK_ZSTD,
  ACI_BLOCK_LZ4,       /* a block without frame */
  ACI_BLOCK_LZ4_FRAME, /* one frame */
  ACI_BLOCK_LZ4_HADOOP /* big-endian sizes before each block, or one of the other two */
} aci_block_codec;
/* Exactly n_out bytes, or PARSE. */
ac_status aci_unpack_block(aci_block_codec c, const void *in, size_t n_in, void *out, size_t n_out,
                           ac_err *e);

enum { ACI_WINDOW_LOG = 27 }; /* largest window or dictionary: 128 MiB */

ac_status aci_block_snappy(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e);
ac_status aci_block_gzip(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e);
ac_status aci_block_zstd(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e);
ac_status aci_block_lz4(const void *in, size_t n_in, void *out, size_t n_out, ac_err *e);

#endif
