/* The 17 universal part-of-speech tags (Nivre et al., "Universal Dependencies v2", 2020, arXiv 2004.10643). */
#include "train/data/data.h"

#include <string.h>

static const char *const tags[FV_UPOS_TAGS] = {"ADJ",   "ADP",   "ADV", "AUX",  "CCONJ", "DET",
                                               "INTJ",  "NOUN",  "NUM", "PART", "PRON",  "PROPN",
                                               "PUNCT", "SCONJ", "SYM", "VERB", "X"};

const char *fv_upos_name(int32_t tag)
{
    return tag < 0 || tag >= FV_UPOS_TAGS ? NULL : tags[tag];
}

int32_t fv_upos_tag(const char *name)
{
    for (int32_t tag = 0; name != NULL && tag < FV_UPOS_TAGS; tag++)
        if (strcmp(name, tags[tag]) == 0)
            return tag;
    return -1;
}

bool fv_conllu_upos(const fv_conllu *file, size_t word, int32_t *tag, fv_error *error)
{
    if (word >= file->words)
        return fv_fail(error, FV_USAGE, "%s: word %zu of %zu", file->path, word, file->words);
    const char *const *columns = file->columns[word];
    *tag = fv_upos_tag(columns[FV_CONLLU_UPOS]);
    if (*tag >= 0)
        return true;
    char shown[FVI_SHOWN];
    size_t place = 1; /* in characters; each column before it ends in a tab */
    for (int c = 0; c < FV_CONLLU_UPOS; c++)
        place += fvi_characters(columns[c], strlen(columns[c])) + 1;
    return fv_fail(error, FV_DATA, "%s:%zu:%zu: UPOS \"%s\", expected one of the 17 UPOS tags",
                   file->path, file->lines[word], place, fvi_shown(columns[FV_CONLLU_UPOS], shown));
}
