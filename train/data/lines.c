/* Lines of text files from strangers: checked as they are walked, with errors that name the place. */
#include "train/data/data.h"

#include <string.h>

void fvi_lines_begin(fvi_lines *lines, const char *name, char *bytes, size_t length)
{
    *lines = (fvi_lines){.name = name, .next = bytes, .end = bytes + length};
    if (length >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
        lines->next += 3;
}

static bool starts(const char *line, size_t length, const char *with)
{
    size_t n = strlen(with);
    return length >= n && memcmp(line, with, n) == 0;
}

const char *fvi_foreign(const char *line, size_t length)
{
    if (starts(line, length, "\x1f\x8b"))
        return "a file compressed by gzip";
    if (starts(line, length, "PK\x03\x04"))
        return "a zip archive";
    if (starts(line, length, "\xff\xfe") || starts(line, length, "\xfe\xff"))
        return "UTF-16 text";
    if (starts(line, length, "version git-lfs") || starts(line, length, "version https://git-lfs"))
        return "a Git LFS pointer in place of the file (git lfs pull fetches it)";
    while (length > 0 && *line == ' ')
        line++, length--;
    if (starts(line, length, "<!DOCTYPE") || starts(line, length, "<!doctype") ||
        starts(line, length, "<html") || starts(line, length, "<HTML"))
        return "a web page (HTML)";
    return NULL;
}

static bool not_utf8(const fvi_lines *lines, const char *line, size_t length, size_t at,
                     fv_error *error)
{
    const char *foreign = fvi_foreign(line, length);
    if (foreign != NULL)
        return fv_fail(error, FV_DATA, "%s:%zu:%zu: %s, expected UTF-8 text", lines->name,
                       lines->number, at + 1, foreign);
    if (line[at] == 0)
        return fv_fail(error, FV_DATA, "%s:%zu:%zu: a NUL byte, expected UTF-8 text", lines->name,
                       lines->number, at + 1);
    return fv_fail(error, FV_DATA, "%s:%zu:%zu: byte 0x%02x is not UTF-8, expected UTF-8 text",
                   lines->name, lines->number, at + 1, (unsigned)(unsigned char)line[at]);
}

bool fvi_lines_next(fvi_lines *lines, char **line, size_t *length, fv_error *error)
{
    char *start = lines->next;
    *line = NULL;
    *length = 0;
    if (start == lines->end)
        return true;
    const size_t left = (size_t)(lines->end - start);
    char *end = memchr(start, '\n', left);
    lines->next = end ? end + 1 : lines->end;
    lines->number++;
    if (end == NULL)
        end = lines->end;
    if (end > start && end[-1] == '\r')
        end--;
    *end = 0;
    const size_t n = (size_t)(end - start);
    size_t at;
    if (!fv_utf8_valid(start, n, &at))
        return not_utf8(lines, start, n, at, error);
    /* Files of old Macs end lines in CR alone; taken as text they would be one long line, often a comment. */
    const char *stray = memchr(start, '\r', n);
    if (stray != NULL)
        return fv_fail(error, FV_DATA,
                       "%s:%zu:%zu: a carriage return inside the line, expected LF or CRLF ends",
                       lines->name, lines->number,
                       fvi_characters(start, (size_t)(stray - start)) + 1);
    *line = start;
    *length = n;
    return true;
}

const char *fvi_shown(const char *text, char out[FVI_SHOWN])
{
    size_t n = strnlen(text, FVI_SHOWN);
    if (n < FVI_SHOWN)
        return memcpy(out, text, n + 1);
    n = FVI_SHOWN - 4;
    while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--;
    memcpy(out, text, n);
    memcpy(out + n, "...", 4);
    return out;
}
