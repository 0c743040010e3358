/* Reads labelled texts, one a line: label, separator, text, nothing quoted.
 *
 * The text is all that follows the first separator, further separators included, and may be empty (an empty
 * review is a review); a line without a label is refused. LF or CRLF, a byte-order mark, a missing last line
 * end are fine; a blank line is not, for it may be a lost sample. */
#include "train/data/data.h"

#include <string.h>

#include "train/files/files.h"

struct fvi_tsv {
    char *bytes, *name;
    const char **label, **text;
    size_t *lines;
    size_t label_room, text_room, line_room;
};

static bool keep(fv_tsv *file, const char *label, const char *text, size_t line)
{
    struct fvi_tsv *in = file->inside;
    if (!fvi_grow(&in->label, file->samples, &in->label_room, sizeof *in->label) ||
        !fvi_grow(&in->text, file->samples, &in->text_room, sizeof *in->text) ||
        !fvi_grow(&in->lines, file->samples, &in->line_room, sizeof *in->lines))
        return false;
    in->label[file->samples] = label;
    in->text[file->samples] = text;
    in->lines[file->samples++] = line;
    return true;
}

static bool read_line(fv_tsv *file, const fvi_lines *at, char *line, size_t length, char separator,
                      fv_error *error)
{
    char name[4] = {'"', separator, '"', 0};
    const char *shown = separator == '\t' ? "a tab" : separator == ' ' ? "a space" : name;
    char *cut = memchr(line, separator, length);
    const char *foreign = fvi_foreign(line, length), *wrong = NULL;
    if (length == 0)
        wrong = "an empty line";
    else if (cut == NULL)
        wrong = foreign ? foreign : "no separator";
    else if (cut == line)
        wrong = "an empty label";
    if (wrong != NULL)
        return fv_fail(error, FV_DATA, "%s:%zu:1: %s, expected label, %s, text", at->name,
                       at->number, wrong, shown);
    *cut = 0;
    return keep(file, line, cut + 1, at->number) ||
           fv_fail(error, FV_FAILED, "%s: out of memory at line %zu", at->name, at->number);
}

static bool read_all(fv_tsv *file, size_t length, char separator, fv_error *error)
{
    fvi_lines lines;
    char *line;
    fvi_lines_begin(&lines, file->path, file->inside->bytes, length);
    for (;;) {
        if (!fvi_lines_next(&lines, &line, &length, error))
            return false;
        if (line == NULL)
            return true;
        if (!read_line(file, &lines, line, length, separator, error))
            return false;
    }
}

/* Takes over the bytes; one more byte behind them must be writable. */
static fv_tsv *read_bytes(const char *name, char *bytes, size_t length, char separator,
                          fv_error *error)
{
    fv_tsv *file = fvi_calloc(1, sizeof *file);
    struct fvi_tsv *in = fvi_calloc(1, sizeof *in);
    char *kept_name = fvi_text(name, strlen(name));
    if (file == NULL || in == NULL || kept_name == NULL) {
        fv_fail(error, FV_FAILED, "%s: out of memory", name);
        fvi_free(bytes);
        fvi_free(kept_name);
        fvi_free(in);
        fvi_free(file);
        return NULL;
    }
    *in = (struct fvi_tsv){.bytes = bytes, .name = kept_name};
    *file = (fv_tsv){.path = kept_name, .inside = in};
    if (!read_all(file, length, separator, error)) {
        fv_tsv_free(file);
        return NULL;
    }
    file->label = in->label;
    file->text = in->text;
    file->lines = in->lines;
    return file;
}

/* Whether a separator can be one; 0 becomes a tab. */
static bool choose_separator(char *separator, fv_error *error)
{
    if (*separator == 0)
        *separator = '\t';
    unsigned char c = (unsigned char)*separator;
    if (c < 0x80 && c != '\n' && c != '\r')
        return true;
    return fv_fail(error, FV_USAGE, "separator 0x%02x: expected one ASCII character, no line end",
                   (unsigned)c);
}

fv_tsv *fv_tsv_read(const char *path, char separator, fv_error *error)
{
    size_t length;
    if (!choose_separator(&separator, error))
        return NULL;
    char *bytes = fvi_read_file(path, &length, error, FV_DATA);
    return bytes == NULL ? NULL : read_bytes(fvi_name(path), bytes, length, separator, error);
}

fv_tsv *fv_tsv_parse(const char *name, const char *bytes, size_t length, char separator,
                     fv_error *error)
{
    if (!choose_separator(&separator, error))
        return NULL;
    char *copy = fvi_text(bytes ? bytes : "", length);
    if (copy != NULL)
        return read_bytes(name, copy, length, separator, error);
    fv_fail(error, FV_FAILED, "%s: out of memory for %zu bytes", name, length);
    return NULL;
}

void fv_tsv_free(fv_tsv *file)
{
    if (file == NULL)
        return;
    struct fvi_tsv *in = file->inside;
    fvi_free(in->bytes);
    fvi_free(in->name);
    fvi_free(in->label);
    fvi_free(in->text);
    fvi_free(in->lines);
    fvi_free(in);
    fvi_free(file);
}
