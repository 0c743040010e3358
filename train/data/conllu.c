/* Reads CoNLL-U, the format of Universal Dependencies (universaldependencies.org/format.html).
 *
 * The form is checked, the content is not: ids, ranges, empty nodes and columns must be as the format says;
 * tags, features, heads and relations may be anything. Beyond the format it takes CRLF, a byte-order mark,
 * several blank lines (lines of spaces count as blank), a missing last blank line, comments without a
 * sentence (they are kept), and values in the columns of ranges and empty nodes. It refuses comments
 * behind the first word of a sentence, since a blank line is likely to be missing there. */
#include "train/data/conllu.h"

#include <string.h>

#include "train/files/files.h"

static const char *const column_names[FV_CONLLU_COLUMNS] = {
    "ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC"};

/* What is known in the middle of a sentence. */
typedef struct {
    fv_conllu *file;
    fvi_lines lines;
    size_t words, empty_nodes; /* of this sentence; empty nodes since its last word */
    size_t range_end;          /* the last word of its last range; 0: there was none */
    size_t range_line;         /* where that one stands */
    const char *range_id;
    bool began; /* it has a line that is no comment */
    fv_error *error;
} reader;

static bool out_of_memory(reader *r)
{
    return fv_fail(r->error, FV_FAILED, "%s: out of memory at line %zu", r->lines.name,
                   r->lines.number);
}

/* ---- columns ----------------------------------------------------------------------------------------- */

/* A line cut at its tabs; there may be more of them than starts. */
typedef struct {
    char *start[FV_CONLLU_COLUMNS];
    size_t length[FV_CONLLU_COLUMNS];
    size_t count;
} cells;

static cells find_cells(char *line, size_t length)
{
    cells c = {0};
    char *start = line, *end = line + length;
    for (;;) {
        char *tab = memchr(start, '\t', (size_t)(end - start));
        if (c.count < FV_CONLLU_COLUMNS) {
            c.start[c.count] = start;
            c.length[c.count] = (size_t)((tab ? tab : end) - start);
        }
        c.count++;
        if (tab == NULL)
            return c;
        start = tab + 1;
    }
}

static bool check_count(reader *r, const cells *c, const char *line, size_t length)
{
    if (c->count == FV_CONLLU_COLUMNS)
        return true;
    const char *foreign = fvi_foreign(line, length);
    if (foreign != NULL)
        return fv_fail(r->error, FV_DATA, "%s:%zu:1: %s, expected CoNLL-U text", r->lines.name,
                       r->lines.number, foreign);
    bool spaces = c->count == 1 && memchr(line, ' ', length) != NULL;
    return fv_fail(r->error, FV_DATA, "%s:%zu: %zu column%s, expected %d separated by tabs%s",
                   r->lines.name, r->lines.number, c->count, c->count == 1 ? "" : "s",
                   FV_CONLLU_COLUMNS, spaces ? ", not spaces" : "");
}

/* Forms, lemmas and notes may be of several words; no column starts or ends with a space. */
static const char *misplaced_space(int column, const char *text, size_t length)
{
    if (text[0] == ' ')
        return "at the start of";
    if (text[length - 1] == ' ')
        return "at the end of";
    bool allowed =
        column == FV_CONLLU_FORM || column == FV_CONLLU_LEMMA || column == FV_CONLLU_MISC;
    return !allowed && memchr(text, ' ', length) != NULL ? "inside" : NULL;
}

static bool check_cells(reader *r, const cells *c, const char *line)
{
    for (int i = 0; i < FV_CONLLU_COLUMNS; i++) {
        const char *space = c->length[i] > 0 ? misplaced_space(i, c->start[i], c->length[i]) : NULL;
        if (c->length[i] > 0 && space == NULL)
            continue;
        size_t place = fvi_characters(line, (size_t)(c->start[i] - line)) + 1;
        if (space != NULL)
            return fv_fail(r->error, FV_DATA, "%s:%zu:%zu: a space %s %s, expected none",
                           r->lines.name, r->lines.number, place, space, column_names[i]);
        return fv_fail(r->error, FV_DATA, "%s:%zu:%zu: empty %s, expected text or \"_\"",
                       r->lines.name, r->lines.number, place, column_names[i]);
    }
    return true;
}

/* ---- ids ----------------------------------------------------------------------------------------------- */

typedef enum { NOT_AN_ID, WORD, RANGE, EMPTY_NODE } id_kind;
typedef struct {
    id_kind kind;
    size_t first, second; /* 2; 2-3; 5.1 */
} id;

/* A number without leading zeros; one too large for size_t becomes another, larger than any id that fits. */
static bool parse_number(const char **text, const char *end, size_t *number)
{
    const char *digit = *text;
    size_t n = 0;
    for (; digit < end && *digit >= '0' && *digit <= '9'; digit++)
        if (!fvi_mul(n, 10, &n) || !fvi_add(n, (size_t)(*digit - '0'), &n))
            n = SIZE_MAX / 10;
    bool good = digit > *text && (**text != '0' || digit == *text + 1);
    *text = digit;
    *number = n;
    return good;
}

static id parse_id(const char *text, size_t length)
{
    const char *end = text + length;
    id found = {.kind = WORD};
    if (!parse_number(&text, end, &found.first))
        return (id){0};
    if (text < end) {
        found.kind = *text == '-' ? RANGE : *text == '.' ? EMPTY_NODE : NOT_AN_ID;
        text++;
        if (!parse_number(&text, end, &found.second) || text < end)
            return (id){0};
    }
    return found;
}

static bool check_word(reader *r, size_t number, const char *text)
{
    if (number == r->words + 1)
        return true;
    return fv_fail(r->error, FV_DATA, "%s:%zu:1: id \"%s\" is out of order, expected %zu",
                   r->lines.name, r->lines.number, text, r->words + 1);
}

static bool check_range(reader *r, id range, const char *text)
{
    if (range.first > range.second)
        return fv_fail(r->error, FV_DATA,
                       "%s:%zu:1: range \"%s\" runs backwards, expected a-b with "
                       "a <= b",
                       r->lines.name, r->lines.number, text);
    if (range.first <= r->range_end && r->words < r->range_end)
        return fv_fail(r->error, FV_DATA,
                       "%s:%zu:1: range \"%s\" overlaps the one of line %zu, "
                       "expected none before word %zu",
                       r->lines.name, r->lines.number, text, r->range_line, r->range_end + 1);
    if (range.first != r->words + 1)
        return fv_fail(r->error, FV_DATA,
                       "%s:%zu:1: range \"%s\" stands before word %zu, expected before word %zu",
                       r->lines.name, r->lines.number, text, r->words + 1, range.first);
    return true;
}

static bool check_empty_node(reader *r, id node, const char *text)
{
    if (node.first == r->words && node.second == r->empty_nodes + 1)
        return true;
    return fv_fail(r->error, FV_DATA,
                   "%s:%zu:1: empty node \"%s\" is out of order, expected %zu.%zu", r->lines.name,
                   r->lines.number, text, r->words, r->empty_nodes + 1);
}

/* ---- lines --------------------------------------------------------------------------------------------- */

static bool keep_note(reader *r, const char *line)
{
    struct fvi_conllu *in = r->file->inside;
    if (!fvi_grow(&in->notes, in->note_count, &in->note_room, sizeof *in->notes))
        return out_of_memory(r);
    in->notes[in->note_count++] = (fvi_note){line, r->file->words};
    return true;
}

static bool read_comment(reader *r, const char *line)
{
    if (r->words == 0)
        return keep_note(r, line);
    return fv_fail(r->error, FV_DATA,
                   "%s:%zu:1: a comment inside a sentence, expected word %zu or a blank line",
                   r->lines.name, r->lines.number, r->words + 1);
}

static bool keep_word(reader *r, const cells *c)
{
    fv_conllu *file = r->file;
    struct fvi_conllu *in = file->inside;
    if (!fvi_grow(&in->columns, file->words, &in->column_room, sizeof *in->columns) ||
        !fvi_grow(&in->lines, file->words, &in->line_room, sizeof *in->lines))
        return out_of_memory(r);
    for (int i = 0; i < FV_CONLLU_COLUMNS; i++) {
        c->start[i][c->length[i]] = 0;
        in->columns[file->words][i] = c->start[i];
    }
    in->lines[file->words++] = r->lines.number;
    r->words++;
    r->empty_nodes = 0;
    return true;
}

static bool read_columns(reader *r, char *line, size_t length)
{
    cells c = find_cells(line, length);
    if (!check_count(r, &c, line, length) || !check_cells(r, &c, line))
        return false;
    id found = parse_id(c.start[FV_CONLLU_ID], c.length[FV_CONLLU_ID]);
    char shown[FVI_SHOWN];
    c.start[0][c.length[0]] = 0; /* for the messages; put back below */
    const char *text = fvi_shown(c.start[0], shown);
    c.start[0][c.length[0]] = '\t';
    r->began = true;
    switch (found.kind) {
    case WORD:
        return check_word(r, found.first, text) && keep_word(r, &c);
    case RANGE:
        if (!check_range(r, found, text))
            return false;
        r->range_end = found.second;
        r->range_line = r->lines.number;
        r->file->ranges++;
        return keep_note(r, line);
    case EMPTY_NODE:
        if (!check_empty_node(r, found, text))
            return false;
        r->empty_nodes++;
        r->file->empty_nodes++;
        return keep_note(r, line);
    case NOT_AN_ID:
        break;
    }
    return fv_fail(r->error, FV_DATA, "%s:%zu:1: id \"%s\" is not a number, expected %zu",
                   r->lines.name, r->lines.number, text, r->words + 1);
}

/* ---- sentences ------------------------------------------------------------------------------------------- */

/* Writes where the next sentence starts, in words and in notes. */
static bool keep_offsets(reader *r)
{
    fv_conllu *file = r->file;
    struct fvi_conllu *in = file->inside;
    if (!fvi_grow(&in->offsets, file->sentences, &in->offset_room, sizeof *in->offsets) ||
        !fvi_grow(&in->note_offsets, file->sentences, &in->note_offset_room,
                  sizeof *in->note_offsets))
        return out_of_memory(r);
    in->offsets[file->sentences] = file->words;
    in->note_offsets[file->sentences] = in->note_count;
    return true;
}

static bool end_sentence(reader *r)
{
    if (!r->began) /* blank lines in a row; comments so far go to the next sentence */
        return true;
    if (r->range_end > r->words)
        return fv_fail(r->error, FV_DATA,
                       "%s:%zu:1: the range ends at word %zu, expected at most %zu, the last one",
                       r->lines.name, r->range_line, r->range_end, r->words);
    if (r->words == 0)
        return fv_fail(r->error, FV_DATA, "%s:%zu: a sentence without words, expected word 1",
                       r->lines.name, r->lines.number);
    r->words = r->empty_nodes = r->range_end = 0;
    r->began = false;
    r->file->sentences++;
    return keep_offsets(r);
}

static bool is_blank(const char *line)
{
    return line[strspn(line, " ")] == 0;
}

static bool read_all(reader *r)
{
    char *line;
    size_t length;
    if (!keep_offsets(r))
        return false;
    for (;;) {
        if (!fvi_lines_next(&r->lines, &line, &length, r->error))
            return false;
        if (line == NULL)
            return end_sentence(r);
        bool good = is_blank(line)   ? end_sentence(r)
                    : line[0] == '#' ? read_comment(r, line)
                                     : read_columns(r, line, length);
        if (!good)
            return false;
    }
}

/* Takes over the bytes; one more byte behind them must be writable. */
static fv_conllu *read_bytes(const char *name, char *bytes, size_t length, fv_error *error)
{
    fv_conllu *file = fvi_calloc(1, sizeof *file);
    struct fvi_conllu *in = fvi_calloc(1, sizeof *in);
    char *kept_name = fvi_text(name, strlen(name));
    if (file == NULL || in == NULL || kept_name == NULL) {
        fv_fail(error, FV_FAILED, "%s: out of memory", name);
        fvi_free(bytes);
        fvi_free(kept_name);
        fvi_free(in);
        fvi_free(file);
        return NULL;
    }
    in->bytes = bytes;
    in->name = kept_name;
    file->inside = in;
    file->path = kept_name;
    reader r = {.file = file, .error = error};
    fvi_lines_begin(&r.lines, kept_name, bytes, length);
    if (!read_all(&r)) {
        fv_conllu_free(file);
        return NULL;
    }
    file->offsets = in->offsets;
    file->columns = (const char *const(*)[FV_CONLLU_COLUMNS])in->columns;
    file->lines = in->lines;
    return file;
}

fv_conllu *fv_conllu_read(const char *path, fv_error *error)
{
    size_t length;
    char *bytes = fvi_read_file(path, &length, error, FV_DATA);
    return bytes == NULL ? NULL : read_bytes(fvi_name(path), bytes, length, error);
}

fv_conllu *fv_conllu_parse(const char *name, const char *bytes, size_t length, fv_error *error)
{
    char *copy = fvi_text(bytes ? bytes : "", length);
    if (copy != NULL)
        return read_bytes(name, copy, length, error);
    fv_fail(error, FV_FAILED, "%s: out of memory for %zu bytes", name, length);
    return NULL;
}

void fv_conllu_free(fv_conllu *file)
{
    if (file == NULL)
        return;
    struct fvi_conllu *in = file->inside;
    fvi_free(in->bytes);
    fvi_free(in->name);
    fvi_free(in->offsets);
    fvi_free(in->columns);
    fvi_free(in->lines);
    fvi_free(in->notes);
    fvi_free(in->note_offsets);
    fvi_free(in);
    fvi_free(file);
}
