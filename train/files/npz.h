/* Archives of arrays: zip files (PKWARE's APPNOTE.TXT) that hold numpy's .npy files (numpy, NEP 1), in memory. */
#ifndef FVI_NPZ_H
#define FVI_NPZ_H

#include "train/files/files.h"

/* ---- zip ------------------------------------------------------------------------------------------ */

/* Bytes that grow at their end. */
typedef struct {
    unsigned char *at;
    size_t length, room;
} fvi_bytes;
/* Makes room for more bytes behind length; false when memory is out. */
bool fvi_bytes_reserve(fvi_bytes *bytes, size_t more);
void fvi_bytes_free(fvi_bytes *bytes);
/* Little-endian numbers of width bytes, on every machine. fvi_put takes room that was reserved. */
static inline void fvi_put(fvi_bytes *bytes, uint64_t value, int width)
{
    unsigned char *at = bytes->at + bytes->length;
    for (int i = 0; i < width; i++)
        at[i] = (unsigned char)(value >> 8 * i);
    bytes->length += (size_t)width;
}
static inline uint64_t fvi_get(const unsigned char *bytes, int width)
{
    uint64_t value = 0;
    for (int i = 0; i < width; i++)
        value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

/* A zip being written. Set path (for messages) and error, add members, end it; then file holds the whole.
 * Its bytes are a function of names and contents: no times, no machine, no user. */
typedef struct {
    const char *path;
    fv_error *error;
    fvi_bytes file, directory;
    size_t count;
} fvi_zip_writer;
/* How a member is deflated (and stored as it is when that is not shorter): numbers by runs of equal
 * bytes and Huffman codes only, which on weights is both three times as fast and smaller. */
typedef enum { FVI_NUMBERS, FVI_TEXT } fvi_packing;
bool fvi_zip_add(fvi_zip_writer *zip, const char *name, const void *bytes, size_t length,
                 fvi_packing packing);
/* Adds directory and end record. Its comment is a CRC-32 of all bytes before the record: deflate can be
 * damaged without a change of what it unpacks to, and most header fields mean nothing to a reader. */
bool fvi_zip_end(fvi_zip_writer *zip);
void fvi_zip_writer_free(fvi_zip_writer *zip);

/* One file in a zip that was read; packed points into the zip's bytes. */
typedef struct {
    const char *name;
    const unsigned char *packed;
    size_t packed_length, length;
    uint32_t crc;
    bool deflated;
} fvi_member;
/* A zip that was read: its members sorted by name. */
typedef struct {
    const char *path;
    const unsigned char *bytes;
    size_t end; /* where the end record starts */
    fvi_member *members;
    size_t count;
    fvi_arena names;
} fvi_zip;
/* Checks the whole structure: members stand one behind the other from the first byte to the directory,
 * directory and local headers agree, names are plain, relative and different, methods are stored or
 * deflate, sizes are what deflate can reach. bytes must outlive the zip. Free it after false too. */
bool fvi_zip_parse(fvi_zip *zip, const char *path, const void *bytes, size_t length,
                   fv_error *error);
/* Unpacks a member into out[member->length] and checks its CRC-32. */
bool fvi_zip_unpack(const fvi_zip *zip, const fvi_member *member, unsigned char *out,
                    fv_error *error);
/* Checks the CRC-32 of the whole file that fvi_zip_end writes; other programs' files have none. */
bool fvi_zip_check_whole(const fvi_zip *zip, fv_error *error);
void fvi_zip_free(fvi_zip *zip);

/* What writer and reader agree on. */
enum {
    FVI_ZIP_LOCAL = 0x04034b50,
    FVI_ZIP_CENTRAL = 0x02014b50,
    FVI_ZIP_END = 0x06054b50,
    FVI_ZIP_LOCAL_SIZE = 30, /* of the records, without names */
    FVI_ZIP_CENTRAL_SIZE = 46,
    FVI_ZIP_END_SIZE = 22,
    FVI_ZIP_UTF8 = 0x800, /* the flag of names beyond ASCII */
    FVI_ZIP_STORED = 0,
    FVI_ZIP_DEFLATED = 8,
    FVI_ZIP_NAME_MAX = 1000, /* bytes of a name */
    FVI_ZIP_COUNT_MAX = 65534,
    FVI_ZIP_SEAL = 20 /* length of the comment */
};
/* Writes the comment for the bytes before the end record. */
void fvi_zip_seal(const unsigned char *bytes, size_t length, char text[FVI_ZIP_SEAL + 1]);
/* Whether a name is relative, without "." and "..", control characters and backslashes. */
bool fvi_zip_name_ok(const char *name, size_t length);
/* Memory for zlib (zalloc, zfree). */
void *fvi_zlib_take(void *unused, unsigned count, unsigned size);
void fvi_zlib_give(void *unused, void *block);

/* ---- npy ------------------------------------------------------------------------------------------ */

/* An array as it stands in an .npy file (version 1.0, C order, little-endian); data points into it. */
typedef struct {
    fv_shape shape;
    size_t count;
    char kind;    /* 'f' real, 'i' whole, 'u' without sign, 'b' 0 or 1, 'S' bytes */
    size_t width; /* bytes of an element */
    const unsigned char *data;
} fvi_npy;
/* Parses a whole .npy file; path and name stand in messages. */
bool fvi_npy_parse(fvi_npy *npy, const char *path, const char *name, const unsigned char *bytes,
                   size_t length, fv_error *error);
/* Copies the numbers (not of 'S'), converted to this build's type. */
void fvi_npy_copy(const fvi_npy *npy, fv_real *out);
/* Appends a whole .npy file: real parts as '<f4' (float build) or '<f8'; one whole number as '<u8'. */
bool fvi_npy_write(fvi_bytes *bytes, fv_tensor x);
bool fvi_npy_write_u64(fvi_bytes *bytes, uint64_t value);

#endif
