/* Reads a zip that may be damaged, or made to do harm: every field is checked before it is used. */
#define ZLIB_CONST /* so that zlib promises to leave its input alone */
#include "train/files/npz.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    FLAGS = FVI_ZIP_UTF8 | 6, /* that are understood: names in UTF-8, how hard deflate tried */
    ENCRYPTED = 1,            /* other flags */
    SIZES_BEHIND = 8,         /* sizes stand behind the data */
    IN_EXTRA = -1,            /* a 32-bit size that stands in the extra fields instead */
    ZIP64 = 1,                /* that extra field: numpy writes it even for small members */
    DEFLATE_RATIO = 1032      /* a match of 258 bytes takes two bits at least */
};

/* What local header and directory entry both hold (without the version), and what follows each. */
typedef struct {
    unsigned flags, method;
    uint32_t when, crc;
    uint64_t packed_length, length;
    uint64_t offset; /* of the local header; in the directory only */
    size_t name_length, extra_length;
    const unsigned char *name, *extra;
} header;

static uint64_t get_size(const unsigned char *bytes)
{
    const uint64_t size = fvi_get(bytes, 4);
    return size == UINT32_MAX ? (uint64_t)IN_EXTRA : size;
}

/* From the 26 bytes that both records share, and the name and extra fields at name. */
static header get_header(const unsigned char *bytes, const unsigned char *name)
{
    header h = {
        .flags = (unsigned)fvi_get(bytes + 2, 2),
        .method = (unsigned)fvi_get(bytes + 4, 2),
        .when = (uint32_t)fvi_get(bytes + 6, 4),
        .crc = (uint32_t)fvi_get(bytes + 10, 4),
        .packed_length = get_size(bytes + 14),
        .length = get_size(bytes + 18),
        .name_length = (size_t)fvi_get(bytes + 22, 2),
        .extra_length = (size_t)fvi_get(bytes + 24, 2),
    };
    h.name = name;
    h.extra = name + h.name_length;
    return h;
}

/* Fetches sizes from the extra field of 64-bit sizes. False: the extra fields are malformed. */
static bool get_extra(header *h)
{
    uint64_t *const sizes[] = {&h->length, &h->packed_length}; /* in the field's order */
    const unsigned char *at = h->extra;
    size_t left = h->extra_length;
    while (left > 0) {
        if (left < 4)
            return false;
        const unsigned id = (unsigned)fvi_get(at, 2);
        size_t size = (size_t)fvi_get(at + 2, 2);
        if (size > left - 4)
            return false;
        const unsigned char *value = at + 4;
        at += 4 + size;
        left -= 4 + size;
        for (int i = 0; i < 2 && id == ZIP64; i++)
            if (*sizes[i] == (uint64_t)IN_EXTRA && size >= 8) {
                *sizes[i] = fvi_get(value, 8);
                value += 8;
                size -= 8;
            }
    }
    return h->length <= FVI_FILE_MAX && h->packed_length <= FVI_FILE_MAX;
}

/* Where reading is: the next local header and the next directory entry. */
typedef struct {
    fvi_zip *zip;
    size_t local, entry;
    uint64_t directory; /* where the local headers and their data end */
    fv_error *error;
} walk;

static bool bad(const walk *w, const header *h, const char *what)
{
    return fv_fail(w->error, FV_CHECKPOINT, "%s: %.*s: %s", w->zip->path,
                   (int)(h->name_length < 200 ? h->name_length : 200), (const char *)h->name, what);
}

static bool next_entry(walk *w, header *h)
{
    const fvi_zip *zip = w->zip;
    const unsigned char *at = zip->bytes + w->entry;
    const size_t left = zip->end - w->entry;
    if (left < FVI_ZIP_CENTRAL_SIZE || fvi_get(at, 4) != FVI_ZIP_CENTRAL)
        return fv_fail(
            w->error, FV_CHECKPOINT,
            "%s: entry %zu of the zip directory is damaged (no entry starts at byte %zu)",
            zip->path, zip->count + 1, w->entry);
    *h = get_header(at + 6, at + FVI_ZIP_CENTRAL_SIZE);
    const size_t comment = (size_t)fvi_get(at + 32, 2),
                 size = FVI_ZIP_CENTRAL_SIZE + h->name_length + h->extra_length + comment;
    if (left < size)
        return fv_fail(w->error, FV_CHECKPOINT,
                       "%s: entry %zu of the zip directory is damaged (longer than the directory)",
                       zip->path, zip->count + 1);
    if (!fvi_zip_name_ok((const char *)h->name, h->name_length))
        return bad(w, h, "not a plain relative name");
    if (fvi_get(at + 34, 2) != 0)
        return bad(w, h, "stands on another disk of a split zip");
    if (!get_extra(h))
        return bad(w, h, "bad extra fields, or longer than what is read");
    h->offset = fvi_get(at + 42, 4);
    w->entry += size;
    return true;
}

/* What the header announces, and what the bytes before the directory can hold of it. */
static bool check_header(const walk *w, const header *h)
{
    if (h->flags & ENCRYPTED)
        return bad(w, h, "is encrypted");
    if (h->flags & SIZES_BEHIND)
        return bad(w, h, "was written as a stream, without sizes in front");
    if (h->flags & ~(unsigned)FLAGS)
        return bad(w, h, "has flags that are not understood");
    if (h->method != FVI_ZIP_STORED && h->method != FVI_ZIP_DEFLATED)
        return bad(w, h, "is packed by another method than deflate");
    if (h->packed_length > w->directory - w->local)
        return bad(w, h, "announces more bytes than the file has");
    if (h->method == FVI_ZIP_STORED && h->packed_length != h->length)
        return bad(w, h, "is not packed, but its two sizes differ");
    if (h->length / DEFLATE_RATIO > h->packed_length)
        return bad(w, h, "announces more bytes than deflate can make of what is there");
    return true;
}

/* The local header of an entry, which must stand where the member before it ended. */
static bool check_local(walk *w, const header *entry)
{
    const unsigned char *at = w->zip->bytes + w->local;
    const uint64_t left = w->directory - w->local;
    if (entry->offset != w->local)
        return bad(w, entry, "does not start where the member before it ends");
    if (left < FVI_ZIP_LOCAL_SIZE || fvi_get(at, 4) != FVI_ZIP_LOCAL)
        return bad(w, entry, "its header is damaged");
    header local = get_header(at + 4, at + FVI_ZIP_LOCAL_SIZE);
    const size_t size = FVI_ZIP_LOCAL_SIZE + local.name_length + local.extra_length;
    if (left < size || !get_extra(&local))
        return bad(w, entry, "its header is damaged");
    if (local.flags != entry->flags || local.method != entry->method || local.when != entry->when ||
        local.crc != entry->crc || local.packed_length != entry->packed_length ||
        local.length != entry->length || local.name_length != entry->name_length ||
        memcmp(local.name, entry->name, local.name_length) != 0)
        return bad(w, entry, "its header and the zip directory differ");
    w->local += size;
    return true;
}

static bool add_member(walk *w)
{
    fvi_zip *zip = w->zip;
    header h;
    if (!next_entry(w, &h) || !check_local(w, &h) || !check_header(w, &h))
        return false;
    char *name = fvi_arena_take(&zip->names, h.name_length + 1, 1);
    if (name == NULL)
        return fv_fail(w->error, FV_FAILED, "%s: out of memory", zip->path);
    memcpy(name, h.name, h.name_length);
    name[h.name_length] = 0;
    zip->members[zip->count++] = (fvi_member){.name = name,
                                              .packed = zip->bytes + w->local,
                                              .packed_length = (size_t)h.packed_length,
                                              .length = (size_t)h.length,
                                              .crc = h.crc,
                                              .deflated = h.method == FVI_ZIP_DEFLATED};
    w->local += (size_t)h.packed_length;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const fvi_member *)a)->name, ((const fvi_member *)b)->name);
}

/* The end record is the last thing in the file: without a comment, or with the one that this library
 * writes. No single wrong bit turns the one length into the other. */
static bool find_end(fvi_zip *zip, size_t length, fv_error *error)
{
    static const size_t comments[] = {FVI_ZIP_SEAL, 0};
    for (size_t i = 0; i < 2; i++) {
        const size_t size = FVI_ZIP_END_SIZE + comments[i];
        if (length < size)
            continue;
        zip->end = length - size;
        const unsigned char *at = zip->bytes + zip->end;
        if (fvi_get(at, 4) == FVI_ZIP_END && fvi_get(at + 20, 2) == comments[i])
            return true;
    }
    if (length < 4 || (fvi_get(zip->bytes, 4) != FVI_ZIP_LOCAL))
        return fv_fail(error, FV_CHECKPOINT, "%s: not a zip file, expected an .npz", zip->path);
    return fv_fail(error, FV_CHECKPOINT,
                   "%s: the zip's end record is missing or damaged (a file that was cut short?)",
                   zip->path);
}

bool fvi_zip_parse(fvi_zip *zip, const char *path, const void *bytes, size_t length,
                   fv_error *error)
{
    *zip = (fvi_zip){.path = path, .bytes = bytes};
    if (!find_end(zip, length, error))
        return false;
    const unsigned char *end = zip->bytes + zip->end;
    const size_t count = (size_t)fvi_get(end + 8, 2);
    const uint64_t size = fvi_get(end + 12, 4), directory = fvi_get(end + 16, 4);
    if (fvi_get(end + 4, 4) != 0 || count != fvi_get(end + 10, 2) || count > FVI_ZIP_COUNT_MAX ||
        directory + size != zip->end || size / FVI_ZIP_CENTRAL_SIZE < count)
        return fv_fail(error, FV_CHECKPOINT,
                       "%s: the zip's end record does not fit the file (damaged, split, or zip64)",
                       path);
    zip->members = fvi_calloc(count + 1, sizeof *zip->members); /* never none */
    if (zip->members == NULL)
        return fv_fail(error, FV_FAILED, "%s: out of memory for %zu members", path, count);
    walk w = {.zip = zip, .entry = (size_t)directory, .directory = directory, .error = error};
    while (zip->count < count)
        if (!add_member(&w))
            return false;
    if (w.entry != zip->end || w.local != directory)
        return fv_fail(error, FV_CHECKPOINT, "%s: bytes that belong to no member", path);
    qsort(zip->members, count, sizeof *zip->members, by_name);
    for (size_t i = 1; i < count; i++)
        if (by_name(&zip->members[i - 1], &zip->members[i]) == 0)
            return fv_fail(error, FV_CHECKPOINT, "%s: %.200s: two members have this name", path,
                           zip->members[i].name);
    return true;
}

/* Inflates to exactly the announced length, from exactly the bytes that are there: Z_OK. Z_MEM_ERROR when
 * memory is out, Z_DATA_ERROR else. */
static int inflate_whole(const fvi_member *m, unsigned char *out)
{
    unsigned char none;
    z_stream z = {.zalloc = fvi_zlib_take, .zfree = fvi_zlib_give};
    z.next_in = m->packed;
    z.avail_in = (uInt)m->packed_length;
    z.next_out = m->length > 0 ? out : &none;
    z.avail_out = (uInt)m->length;
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return Z_MEM_ERROR;
    const int result = inflate(&z, Z_FINISH);
    inflateEnd(&z);
    if (result == Z_MEM_ERROR)
        return Z_MEM_ERROR;
    return result == Z_STREAM_END && z.avail_out == 0 && z.avail_in == 0 ? Z_OK : Z_DATA_ERROR;
}

bool fvi_zip_unpack(const fvi_zip *zip, const fvi_member *m, unsigned char *out, fv_error *error)
{
    int result = Z_OK;
    if (m->deflated)
        result = inflate_whole(m, out);
    else if (m->length > 0)
        memcpy(out, m->packed, m->length);
    if (result == Z_MEM_ERROR)
        return fv_fail(error, FV_FAILED, "%s: %s: out of memory", zip->path, m->name);
    if (result != Z_OK)
        return fv_fail(error, FV_CHECKPOINT,
                       "%s: %s: does not unpack to the size it announces (damaged file)", zip->path,
                       m->name);
    if (crc32_z(0, out, m->length) != m->crc)
        return fv_fail(error, FV_CHECKPOINT, "%s: %s: checksum differs (damaged file)", zip->path,
                       m->name);
    return true;
}

bool fvi_zip_check_whole(const fvi_zip *zip, fv_error *error)
{
    const unsigned char *end = zip->bytes + zip->end;
    char seal[FVI_ZIP_SEAL + 1];
    if (fvi_get(end + 20, 2) == 0)
        return true;
    fvi_zip_seal(zip->bytes, zip->end, seal);
    if (memcmp(end + FVI_ZIP_END_SIZE, seal, FVI_ZIP_SEAL) != 0)
        return fv_fail(error, FV_CHECKPOINT,
                       "%s: the checksum of the whole file differs (damaged file)", zip->path);
    return true;
}

void fvi_zip_free(fvi_zip *zip)
{
    fvi_free(zip->members);
    fvi_arena_free(&zip->names);
    *zip = (fvi_zip){0};
}
