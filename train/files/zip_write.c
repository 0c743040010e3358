/* Writes a zip in memory, the same bytes for the same contents. */
#define ZLIB_CONST /* so that zlib promises to leave its input alone */
#include "train/files/npz.h"

#include <string.h>
#include <zlib.h>

enum {
    VERSION_NEEDED = 20,
    MADE_BY = 3 << 8 | VERSION_NEEDED, /* Unix, so that the mode below counts */
    DATE = 1 << 5 | 1,                 /* 1980-01-01, the first day a zip knows */
    FASTEST = 1                        /* with Z_RLE the level changes nothing */
};
static const uint32_t MODE = (uint32_t)0100644 << 16;

bool fvi_bytes_reserve(fvi_bytes *bytes, size_t more)
{
    size_t wanted;
    if (!fvi_add(bytes->length, more, &wanted))
        return false;
    if (wanted <= bytes->room)
        return true;
    if (wanted < bytes->room + bytes->room / 2)
        wanted = bytes->room + bytes->room / 2;
    unsigned char *at = fvi_resize(bytes->at, wanted, 1);
    if (at == NULL)
        return false;
    bytes->at = at;
    bytes->room = wanted;
    return true;
}

void fvi_bytes_free(fvi_bytes *bytes)
{
    fvi_free(bytes->at);
    *bytes = (fvi_bytes){0};
}

static void put_bytes(fvi_bytes *bytes, const void *from, size_t length)
{
    if (length > 0)
        memcpy(bytes->at + bytes->length, from, length);
    bytes->length += length;
}

void *fvi_zlib_take(void *unused, unsigned count, unsigned size)
{
    (void)unused;
    return fvi_calloc(count, size);
}

void fvi_zlib_give(void *unused, void *block)
{
    (void)unused;
    fvi_free(block);
}

bool fvi_zip_name_ok(const char *name, size_t length)
{
    if (length == 0 || length > FVI_ZIP_NAME_MAX)
        return false;
    size_t start = 0; /* of a part between slashes */
    for (size_t i = 0; i <= length; i++) {
        const unsigned char c = i < length ? (unsigned char)name[i] : '/';
        if (c < ' ' || c == 0x7f || c == '\\')
            return false;
        if (c != '/')
            continue;
        const size_t part = i - start;
        if (part == 0 || (part <= 2 && memcmp(name + start, "..", part) == 0))
            return false;
        start = i + 1;
    }
    return true;
}

void fvi_zip_seal(const unsigned char *bytes, size_t length, char text[FVI_ZIP_SEAL + 1])
{
    snprintf(text, FVI_ZIP_SEAL + 1, "fovea crc32 %08lx", crc32_z(0, bytes, length));
}

/* Deflates into room for fewer than length bytes: 0 bytes mean that they would not do. */
static bool deflate_shorter(unsigned char *out, const void *bytes, size_t length,
                            fvi_packing packing, size_t *packed)
{
    z_stream z = {.zalloc = fvi_zlib_take, .zfree = fvi_zlib_give};
    const int level = packing == FVI_TEXT ? Z_DEFAULT_COMPRESSION : FASTEST;
    const int strategy = packing == FVI_TEXT ? Z_DEFAULT_STRATEGY : Z_RLE;
    *packed = 0;
    if (length < 2)
        return true;
    if (deflateInit2(&z, level, Z_DEFLATED, -MAX_WBITS, MAX_MEM_LEVEL, strategy) != Z_OK)
        return false;
    z.next_in = bytes;
    z.avail_in = (uInt)length;
    z.next_out = out;
    z.avail_out = (uInt)length - 1;
    if (deflate(&z, Z_FINISH) == Z_STREAM_END)
        *packed = (size_t)(z.next_out - out);
    deflateEnd(&z);
    return true;
}

/* What a member's local header and its entry in the directory both say, in the same order. */
static void put_header(fvi_bytes *to, const fvi_member *m)
{
    bool ascii = true;
    for (const char *c = m->name; *c; c++)
        ascii = ascii && (unsigned char)*c < 0x80;
    fvi_put(to, VERSION_NEEDED, 2);
    fvi_put(to, ascii ? 0 : FVI_ZIP_UTF8, 2);
    fvi_put(to, m->deflated ? FVI_ZIP_DEFLATED : FVI_ZIP_STORED, 2);
    fvi_put(to, 0, 2); /* midnight */
    fvi_put(to, DATE, 2);
    fvi_put(to, m->crc, 4);
    fvi_put(to, m->packed_length, 4);
    fvi_put(to, m->length, 4);
    fvi_put(to, strlen(m->name), 2);
    fvi_put(to, 0, 2); /* no extra fields */
}

static void put_entry(fvi_bytes *directory, const fvi_member *m, size_t offset)
{
    fvi_put(directory, FVI_ZIP_CENTRAL, 4);
    fvi_put(directory, MADE_BY, 2);
    put_header(directory, m);
    fvi_put(directory, 0, 6); /* no comment, first disk, not known to be text */
    fvi_put(directory, MODE, 4);
    fvi_put(directory, offset, 4);
    put_bytes(directory, m->name, strlen(m->name));
}

static bool too_long(const fvi_zip_writer *zip, const char *name, size_t length)
{
    fv_fail(zip->error, FV_DISK, "%s: %s: %zu bytes more make the file longer than %llu bytes",
            zip->path, name, length, (unsigned long long)FVI_FILE_MAX);
    return false;
}

bool fvi_zip_add(fvi_zip_writer *zip, const char *name, const void *bytes, size_t length,
                 fvi_packing packing)
{
    fvi_bytes *file = &zip->file;
    const size_t offset = file->length, name_length = strlen(name);
    if (!fvi_zip_name_ok(name, name_length))
        return fv_fail(zip->error, FV_USAGE, "%s: %.200s: a file cannot hold a member of this name",
                       zip->path, name);
    if (zip->count == FVI_ZIP_COUNT_MAX)
        return fv_fail(zip->error, FV_DISK, "%s: more than %d members", zip->path,
                       FVI_ZIP_COUNT_MAX);
    if (length > FVI_FILE_MAX)
        return too_long(zip, name, length);
    size_t header = FVI_ZIP_LOCAL_SIZE + name_length, needed;
    fvi_member m = {.name = name, .length = length};
    if (!fvi_add(header, length, &needed) || !fvi_bytes_reserve(file, needed) ||
        !fvi_bytes_reserve(&zip->directory, FVI_ZIP_CENTRAL_SIZE + name_length) ||
        !deflate_shorter(file->at + offset + header, bytes, length, packing, &m.packed_length))
        return fv_fail(zip->error, FV_FAILED, "%s: %s: out of memory", zip->path, name);
    m.deflated = m.packed_length > 0;
    if (!m.deflated)
        m.packed_length = length;
    if (offset + header + m.packed_length > FVI_FILE_MAX)
        return too_long(zip, name, length);
    m.crc = (uint32_t)crc32_z(0, bytes, length);
    fvi_put(file, FVI_ZIP_LOCAL, 4);
    put_header(file, &m);
    put_bytes(file, name, name_length);
    if (m.deflated)
        file->length += m.packed_length; /* they are there already */
    else
        put_bytes(file, bytes, length);
    put_entry(&zip->directory, &m, offset);
    zip->count++;
    return true;
}

bool fvi_zip_end(fvi_zip_writer *zip)
{
    fvi_bytes *file = &zip->file, *directory = &zip->directory;
    const size_t offset = file->length, more = directory->length + FVI_ZIP_END_SIZE + FVI_ZIP_SEAL;
    char seal[FVI_ZIP_SEAL + 1];
    if (more > FVI_FILE_MAX - offset)
        return too_long(zip, "the directory", more);
    if (!fvi_bytes_reserve(file, more))
        return fv_fail(zip->error, FV_FAILED, "%s: out of memory", zip->path);
    put_bytes(file, directory->at, directory->length);
    fvi_zip_seal(file->at, file->length, seal);
    fvi_put(file, FVI_ZIP_END, 4);
    fvi_put(file, 0, 4); /* the only disk */
    fvi_put(file, zip->count, 2);
    fvi_put(file, zip->count, 2);
    fvi_put(file, directory->length, 4);
    fvi_put(file, offset, 4);
    fvi_put(file, FVI_ZIP_SEAL, 2);
    put_bytes(file, seal, FVI_ZIP_SEAL);
    return true;
}

void fvi_zip_writer_free(fvi_zip_writer *zip)
{
    fvi_bytes_free(&zip->file);
    fvi_bytes_free(&zip->directory);
}
