/* Writes CoNLL-U: a sentence as it was read, byte for byte, but for the tags that are replaced. */
#include "train/data/conllu.h"

static bool write_line(FILE *out, const char *line)
{
    return fputs(line, out) != EOF && putc('\n', out) != EOF;
}

static bool write_word(FILE *out, const char *const *columns, const char *upos)
{
    for (int c = 0; c < FV_CONLLU_COLUMNS; c++) {
        const char *text = c == FV_CONLLU_UPOS && upos != NULL ? upos : columns[c];
        if (fputs(text, out) == EOF || putc(c + 1 < FV_CONLLU_COLUMNS ? '\t' : '\n', out) == EOF)
            return false;
    }
    return true;
}

/* Writes the notes from *note on that stand before a word of the file (or at its end). */
static bool write_notes(FILE *out, const struct fvi_conllu *in, size_t *note, size_t end,
                        size_t word)
{
    for (; *note < end && in->notes[*note].word <= word; ++*note)
        if (!write_line(out, in->notes[*note].line))
            return false;
    return true;
}

bool fv_conllu_write(FILE *out, const fv_conllu *file, size_t sentence, const char *const *upos)
{
    const struct fvi_conllu *in = file->inside;
    if (sentence >= file->sentences)
        return false;
    const size_t first = file->offsets[sentence], end = file->offsets[sentence + 1];
    size_t note = in->note_offsets[sentence];
    const size_t last_note = in->note_offsets[sentence + 1];
    for (size_t word = first; word < end; word++)
        if (!write_notes(out, in, &note, last_note, word) ||
            !write_word(out, file->columns[word], upos ? upos[word - first] : NULL))
            return false;
    if (!write_notes(out, in, &note, last_note, end) || putc('\n', out) == EOF)
        return false;
    if (sentence + 1 < file->sentences || note == in->note_count)
        return true;
    /* Comments after the last sentence go with it. */
    return write_notes(out, in, &note, in->note_count, end) && putc('\n', out) != EOF;
}
