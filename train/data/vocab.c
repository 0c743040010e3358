/* Vocabularies: texts are counted, then get ids by frequency; id 0 stands for every other text.
 *
 * A hash table (uthash) finds texts, an array holds them by id. Once frozen, a vocabulary only answers. */
#include "train/data/data.h"

#include <jansson.h>
#include <string.h>

#define HASH_NONFATAL_OOM                1
#define uthash_malloc(size)              fv_memory(NULL, size)
#define uthash_free(block, size)         fvi_free(block)
#define HASH_FUNCTION(key, length, hash) ((hash) = (unsigned)fvi_hash(key, length))
#include <uthash.h>

typedef struct {
    UT_hash_handle hh;
    size_t count;
    int32_t id;
    char text[];
} entry;

struct fv_vocab {
    entry *table;  /* uthash's head */
    entry **texts; /* [size]: while counting, as they came; when frozen, texts[id - 1] */
    size_t size, room;
    size_t unknown; /* occurrences of texts without an id */
    bool frozen;
};

fv_vocab *fv_vocab_new(fv_error *error)
{
    fv_vocab *vocab = fvi_calloc(1, sizeof *vocab);
    if (vocab == NULL)
        fv_fail(error, FV_FAILED, "vocabulary: out of memory");
    return vocab;
}

void fv_vocab_free(fv_vocab *vocab)
{
    if (vocab == NULL)
        return;
    HASH_CLEAR(hh, vocab->table);
    for (size_t i = 0; i < vocab->size; i++)
        fvi_free(vocab->texts[i]);
    fvi_free(vocab->texts);
    fvi_free(vocab);
}

static entry *find(const fv_vocab *vocab, const char *text, size_t length)
{
    entry *found = NULL;
    if (length <= UINT32_MAX) /* uthash's limit, and add's */
        HASH_FIND(hh, vocab->table, text, length, found);
    return found;
}

/* A new entry at the end of texts, not counted yet; NULL when memory is out. */
static entry *add(fv_vocab *vocab, const char *text, size_t length)
{
    size_t bytes;
    if (length > UINT32_MAX || !fvi_add(length, sizeof(entry) + 1, &bytes) ||
        !fvi_grow(&vocab->texts, vocab->size, &vocab->room, sizeof(entry *)))
        return NULL;
    entry *new = fvi_calloc(1, bytes);
    if (new == NULL)
        return NULL;
    memcpy(new->text, text, length + 1);
    HASH_ADD_KEYPTR(hh, vocab->table, new->text, length, new);
    if (new->hh.tbl == NULL) { /* how uthash tells that memory is out */
        fvi_free(new);
        return NULL;
    }
    return vocab->texts[vocab->size++] = new;
}

bool fv_vocab_count(fv_vocab *vocab, const char *text, fv_error *error)
{
    if (vocab->frozen)
        return fv_fail(error, FV_USAGE, "vocabulary: frozen, it counts no more");
    size_t length = strlen(text);
    entry *found = find(vocab, text, length);
    if (found == NULL)
        found = add(vocab, text, length);
    if (found == NULL)
        return fv_fail(error, FV_FAILED, "vocabulary: out of memory after %zu texts", vocab->size);
    found->count++;
    return true;
}

static bool more_frequent(const void *context, size_t a, size_t b)
{
    const fv_vocab *vocab = context;
    const entry *x = vocab->texts[a], *y = vocab->texts[b];
    return x->count != y->count ? x->count > y->count : strcmp(x->text, y->text) < 0;
}

static void drop(fv_vocab *vocab, entry *text)
{
    vocab->unknown += text->count;
    HASH_DEL(vocab->table, text);
    fvi_free(text);
}

bool fv_vocab_freeze(fv_vocab *vocab, size_t min_count, size_t max_size, fv_error *error)
{
    const size_t n = vocab->size;
    if (vocab->frozen)
        return fv_fail(error, FV_USAGE, "vocabulary: already frozen");
    if (n >= INT32_MAX)
        return fv_fail(error, FV_FAILED, "vocabulary: %zu texts, ids end at %d", n, INT32_MAX);
    vocab->frozen = n == 0;
    if (n == 0)
        return true;
    size_t *order = fvi_calloc(n, sizeof *order), *scratch = fvi_calloc(n, sizeof *scratch);
    entry **sorted = fvi_calloc(n, sizeof *sorted);
    if (order != NULL && scratch != NULL && sorted != NULL) {
        for (size_t i = 0; i < n; i++)
            order[i] = i;
        fvi_sort(n, order, scratch, more_frequent, vocab);
        vocab->size = 0;
        for (size_t i = 0; i < n; i++) {
            entry *text = vocab->texts[order[i]];
            if (text->count < min_count || (max_size > 0 && vocab->size >= max_size)) {
                drop(vocab, text);
                continue;
            }
            sorted[vocab->size++] = text;
            text->id = (int32_t)vocab->size;
        }
        fvi_free(vocab->texts);
        vocab->texts = sorted;
        vocab->room = n;
        sorted = NULL;
        vocab->frozen = true;
    }
    fvi_free(order);
    fvi_free(scratch);
    fvi_free(sorted);
    return vocab->frozen || fv_fail(error, FV_FAILED, "vocabulary: out of memory for %zu texts", n);
}

int32_t fv_vocab_id(const fv_vocab *vocab, const char *text)
{
    const entry *found = find(vocab, text, strlen(text));
    return found ? found->id : 0;
}

static const entry *at(const fv_vocab *vocab, int32_t id)
{
    return vocab->frozen && id > 0 && (size_t)id <= vocab->size ? vocab->texts[id - 1] : NULL;
}

const char *fv_vocab_text(const fv_vocab *vocab, int32_t id)
{
    const entry *found = at(vocab, id);
    return found ? found->text : NULL;
}

size_t fv_vocab_occurrences(const fv_vocab *vocab, int32_t id)
{
    const entry *found = at(vocab, id);
    return found ? found->count : id == 0 ? vocab->unknown : 0;
}

size_t fv_vocab_size(const fv_vocab *vocab)
{
    return vocab->frozen ? vocab->size + 1 : 1;
}

/* ---- JSON ------------------------------------------------------------------------------------------------ */

/* Text that grows as jansson writes it. */
typedef struct {
    char *bytes;
    size_t used, room;
} buffer;

static int append(const char *bytes, size_t length, void *context)
{
    buffer *b = context;
    size_t needed;
    if (!fvi_add(b->used, length, &needed) || !fvi_add(needed, 1, &needed))
        return -1;
    if (needed > b->room) {
        size_t room;
        if (!fvi_mul(needed, 2, &room))
            return -1;
        char *more = fvi_resize(b->bytes, room, 1);
        if (more == NULL)
            return -1;
        b->bytes = more;
        b->room = room;
    }
    memcpy(b->bytes + b->used, bytes, length);
    b->used += length;
    b->bytes[b->used] = 0;
    return 0;
}

char *fv_vocab_to_json(const fv_vocab *vocab, fv_error *error)
{
    buffer out = {0};
    if (!vocab->frozen) {
        fv_fail(error, FV_USAGE, "vocabulary: not frozen, it has no ids to write");
        return NULL;
    }
    json_t *array = json_array();
    bool good = array != NULL;
    for (size_t i = 0; good && i < vocab->size; i++) {
        const char *text = vocab->texts[i]->text;
        if (!fv_utf8_valid(text, strlen(text), NULL))
            good = fv_fail(error, FV_USAGE, "vocabulary: the text of id %zu is not UTF-8", i + 1);
        else
            good = json_array_append_new(array, json_string_nocheck(text)) == 0;
    }
    good = good && json_dump_callback(array, append, &out, JSON_COMPACT) == 0;
    json_decref(array);
    if (good)
        return out.bytes;
    fv_fail(error, FV_FAILED, "vocabulary: out of memory for %zu texts", vocab->size);
    fvi_free(out.bytes);
    return NULL;
}

static const char *const json_types[] = {"an object",     "an array", "a text", "a whole number",
                                         "a real number", "true",     "false",  "null"};

static bool take_text(fv_vocab *vocab, const json_t *item, size_t place, fv_error *error)
{
    if (!json_is_string(item))
        return fv_fail(error, FV_DATA, "vocabulary: item %zu is %s, expected a text", place,
                       json_types[json_typeof(item)]);
    const char *text = json_string_value(item);
    const entry *twin = find(vocab, text, strlen(text));
    char shown[FVI_SHOWN];
    if (twin != NULL)
        return fv_fail(error, FV_DATA,
                       "vocabulary: items %d and %zu are both \"%s\", expected no "
                       "text twice",
                       twin->id, place, fvi_shown(text, shown));
    entry *new = add(vocab, text, strlen(text));
    if (new == NULL)
        return fv_fail(error, FV_FAILED, "vocabulary: out of memory after %zu texts", vocab->size);
    new->id = (int32_t)vocab->size;
    return true;
}

static bool take_array(fv_vocab *vocab, const json_t *root, fv_error *error)
{
    if (!json_is_array(root))
        return fv_fail(error, FV_DATA, "vocabulary: the JSON is %s, expected an array of texts",
                       json_types[json_typeof(root)]);
    if (json_array_size(root) >= INT32_MAX)
        return fv_fail(error, FV_DATA, "vocabulary: %zu texts, ids end at %d",
                       json_array_size(root), INT32_MAX);
    for (size_t i = 0; i < json_array_size(root); i++)
        if (!take_text(vocab, json_array_get(root, i), i + 1, error))
            return false;
    vocab->frozen = true;
    return true;
}

fv_vocab *fv_vocab_from_json(const char *json, fv_error *error)
{
    json_error_t place;
    json_t *root = json_loads(json ? json : "", JSON_DECODE_ANY, &place); /* of bounded depth */
    if (root == NULL) {
        fv_fail(error, FV_DATA, "vocabulary:%d:%d: %s, expected a JSON array of texts", place.line,
                place.column, place.text);
        return NULL;
    }
    fv_vocab *vocab = fv_vocab_new(error);
    if (vocab != NULL && !take_array(vocab, root, error)) {
        fv_vocab_free(vocab);
        vocab = NULL;
    }
    json_decref(root);
    return vocab;
}
