/* What a CoNLL-U file keeps behind fv_conllu. */
#ifndef FVI_CONLLU_H
#define FVI_CONLLU_H

#include "train/data/data.h"

/* A comment, a range or an empty node: a whole line, which stands before that word of the file. */
typedef struct {
    const char *line;
    size_t word;
} fvi_note;

struct fvi_conllu {
    char *bytes; /* the file, its lines (and the columns of its words) cut by NULs in place */
    char *name;
    size_t *offsets; /* [sentences + 1] into the words */
    const char *(*columns)[FV_CONLLU_COLUMNS];
    size_t *lines;
    fvi_note *notes; /* those beyond note_offsets[sentences] are comments after the last sentence */
    size_t *note_offsets; /* [sentences + 1] into the notes */
    size_t note_count;
    size_t offset_room, column_room, line_room, note_room, note_offset_room;
};

#endif
