/* Shared by the readers and the text functions of train/data/. */
#ifndef FVI_DATA_H
#define FVI_DATA_H

#include "tensor/internal.h"
#include "train/train.h"

/* A walk over the lines of a text that lies in memory. Line ends become NULs as the walk goes. */
typedef struct {
    const char *name; /* of the file, for messages */
    char *next, *end; /* what is still to be walked; *end must be writable */
    size_t number;    /* of the line last given, from 1 */
} fvi_lines;

/* What messages call the file at a path. */
static inline const char *fvi_name(const char *path)
{
    return path[0] == '-' && path[1] == 0 ? "standard input" : path;
}
/* Starts behind a byte-order mark, if there is one. */
void fvi_lines_begin(fvi_lines *lines, const char *name, char *bytes, size_t length);
/* Gives the next line, without its LF or CRLF; *line is NULL after the last one. False when the line is
 * not UTF-8, or holds a NUL or a carriage return. */
bool fvi_lines_next(fvi_lines *lines, char **line, size_t *length, fv_error *error);
/* Says what a line looks like when it opens a file of quite another kind; NULL when it does not. */
const char *fvi_foreign(const char *line, size_t length);

/* The start of a text, short enough for a message and cut at a whole character. */
enum { FVI_SHOWN = 48 };
const char *fvi_shown(const char *text, char out[FVI_SHOWN]);
/* How many characters of well-formed UTF-8 these bytes hold. */
size_t fvi_characters(const char *text, size_t length);

/* The character at *text, which moves behind it; the replacement character U+FFFD for a byte that is not
 * UTF-8. Not to be called at the final NUL. */
int32_t fvi_next_character(const char **text);
/* Writes a character as UTF-8, at most 4 bytes; how many. */
size_t fvi_put_character(int32_t character, char *out);

/* Sorts items so that before(context, a, b) holds for neighbours wherever it holds at all; equal ones keep
 * their order (merge sort, no recursion). scratch is as long as items. */
void fvi_sort(size_t count, size_t *items, size_t *scratch,
              bool (*before)(const void *context, size_t a, size_t b), const void *context);

#endif
