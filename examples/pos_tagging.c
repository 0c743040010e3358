/* pos_tagging: trains, evaluates and uses a part-of-speech tagger on CoNLL-U files. */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "examples/shared/program.h"
#include "examples/shared/tagger.h"

static const char usage[] =
    "examples:\n"
    "  pos_tagging train --train examples/data/tiny-train.conllu \\\n"
    "      --dev examples/data/tiny-dev.conllu --out tagger.npz --epochs 30\n"
    "  pos_tagging eval --model tagger.npz --data examples/data/tiny-dev.conllu\n"
    "  echo 'I saw the light saw .' | pos_tagging tag --model tagger.npz --attention saw.svg\n"
    "\n"
    "usage: pos_tagging train --train FILE [--dev FILE] --out MODEL.npz [options]\n"
    "       pos_tagging eval --model MODEL.npz --data FILE [--json]\n"
    "       pos_tagging tag --model MODEL.npz [--attention FILE.svg] <FILE >TAGGED.conllu\n"
    "       pos_tagging show --model MODEL.npz --data FILE [--count N]\n"
    "\n"
    "train learns UPOS and, to learn it better, XPOS and DEPREL where a file has them;\n"
    "eval compares with a tagged file; tag reads CoNLL-U, or lines of words split by\n"
    "blanks, and writes CoNLL-U; show prints sentences with their gold tags beside the\n"
    "tagger's. FILE may be - for standard input.\n"
    "\n"
    "train options                                            default\n"
    "  --epochs N          passes over the training data      16\n"
    "  --seed N            of initial values, order, dropout  1\n"
    "  --threads N         any number gives the same bits     all cores\n"
    "  --resume            goes on from --out if it is there\n"
    "  --save-every N      also writes --out every N steps\n"
    "  --metrics FILE      appends one JSON line an epoch\n"
    "  --batch-words N     words in a batch                   500\n"
    "  --lr X              highest learning rate              0.0015\n"
    "  --positions KIND    relative, learned or sinusoidal    relative\n"
    "  --width N  --heads N  --layers N  --hidden N           128 4 2 256\n"
    "  --tables N          width of the embeddings            128\n"
    "  --hash-rows N       rows for pieces of words           16384\n"
    "  --min-count N       rarer forms count as unknown       2\n"
    "  --dropout X  --input-dropout X  --word-dropout X       0.2 0.3 0.15\n"
    "  --attention-dropout X  --smoothing X                   0.1 0.1\n"
    "  --no-auxiliary      learn UPOS alone\n"
    "  --quiet             no progress bar\n"
    "other options\n"
    "  --attention FILE.svg  tag, show: draws the attention of one sentence, a panel a head\n"
    "  --sentence N  --layer N  which sentence (from 1) and layer (from 1; default the last)\n"
    "  --json              eval: one JSON object\n"
    "  --help  --version\n"
    "\n"
    "exit codes: 0 ok, 1 failed, 2 usage, 3 data, 4 checkpoint, 5 not finite, 6 disk, 130 "
    "interrupted\n";

typedef struct {
    const char *train, *dev, *out, *model, *data, *attention, *metrics;
    long epochs, seed, threads, save_every, batch_words, count, sentence, layer;
    double lr;
    bool resume, quiet, json;
    tagger_options tagger;
} arguments;

/* ---- options ------------------------------------------------------------------------------------------ */

static const char *const positions[] = {"relative", "learned", "sinusoidal", NULL};

static const option options[] = {
#define AT(x) offsetof(arguments, x)
    {"train", OPTION_TEXT, AT(train), 0, 0, NULL},
    {"dev", OPTION_TEXT, AT(dev), 0, 0, NULL},
    {"out", OPTION_TEXT, AT(out), 0, 0, NULL},
    {"model", OPTION_TEXT, AT(model), 0, 0, NULL},
    {"data", OPTION_TEXT, AT(data), 0, 0, NULL},
    {"attention", OPTION_TEXT, AT(attention), 0, 0, NULL},
    {"metrics", OPTION_TEXT, AT(metrics), 0, 0, NULL},
    {"epochs", OPTION_COUNT, AT(epochs), 1, 10000, NULL},
    {"seed", OPTION_COUNT, AT(seed), 0, 2147483647, NULL},
    {"threads", OPTION_COUNT, AT(threads), 1, 1024, NULL},
    {"save-every", OPTION_COUNT, AT(save_every), 1, 1000000000, NULL},
    {"batch-words", OPTION_COUNT, AT(batch_words), 1, 10000000, NULL},
    {"count", OPTION_COUNT, AT(count), 1, 1000000, NULL},
    {"sentence", OPTION_COUNT, AT(sentence), 1, 1000000000, NULL},
    {"layer", OPTION_COUNT, AT(layer), 1, 1000, NULL},
    {"lr", OPTION_NUMBER, AT(lr), 1e-9, 1e30, NULL},
    {"resume", OPTION_FLAG, AT(resume), 0, 0, NULL},
    {"quiet", OPTION_FLAG, AT(quiet), 0, 0, NULL},
    {"json", OPTION_FLAG, AT(json), 0, 0, NULL},
    {"positions", OPTION_NAME, AT(tagger.positions), 0, 0, positions},
    {"width", OPTION_COUNT, AT(tagger.width), 1, 8192, NULL},
    {"heads", OPTION_COUNT, AT(tagger.heads), 1, 256, NULL},
    {"layers", OPTION_COUNT, AT(tagger.layers), 1, 100, NULL},
    {"hidden", OPTION_COUNT, AT(tagger.hidden), 1, 65536, NULL},
    {"tables", OPTION_COUNT, AT(tagger.table_width), 1, 8192, NULL},
    {"hash-rows", OPTION_COUNT, AT(tagger.hash_rows), 1, 16777216, NULL},
    {"min-count", OPTION_COUNT, AT(tagger.min_count), 1, 1000000, NULL},
    {"dropout", OPTION_NUMBER, AT(tagger.dropout), 0, 0.99, NULL},
    {"input-dropout", OPTION_NUMBER, AT(tagger.input_dropout), 0, 0.99, NULL},
    {"attention-dropout", OPTION_NUMBER, AT(tagger.attention_dropout), 0, 0.99, NULL},
    {"word-dropout", OPTION_NUMBER, AT(tagger.word_dropout), 0, 0.99, NULL},
    {"smoothing", OPTION_NUMBER, AT(tagger.smoothing), 0, 0.99, NULL},
    {"no-auxiliary", OPTION_FLAG, AT(tagger.no_auxiliary), 0, 0, NULL},
};

/* A file with tags to learn from or to compare with. */
static fv_conllu *read_gold(const char *path, fv_error *error)
{
    fv_conllu *file = fv_conllu_read(path, error);
    if (file == NULL || file->words > 0)
        return file;
    fv_fail(error, FV_DATA, "%s: holds no words, expected tagged sentences", file->path);
    fv_conllu_free(file);
    return NULL;
}

/* ---- train --------------------------------------------------------------------------------------------- */

typedef struct {
    tagger_data train; /* first: tagger_loss takes it */
    tagger_data dev;
    int32_t *tags;
    fv_error *error;
} session;

static double dev_accuracy(void *model)
{
    session *s = model;
    size_t right = 0;
    if (s->tags == NULL || !tagger_predict(&s->dev, s->tags, s->error))
        return 0;
    for (size_t w = 0; w < s->dev.file->words; w++)
        right += s->tags[w] == s->dev.label[0][w];
    return s->dev.file->words ? (double)right / (double)s->dev.file->words : 0;
}

static bool fit(const arguments *a, tagger *m, session *s, fv_fit_result *result, fv_error *error)
{
    char *meta = tagger_json(m, error);
    const fv_task task = {.model = s,
                          .samples = s->train.file->sentences,
                          .offsets = s->train.file->offsets,
                          .loss = tagger_loss,
                          .evaluate = s->dev.file ? dev_accuracy : NULL};
    const fv_fit_opts opts = {
        .epochs = (int)a->epochs,
        .batch = {.batch_rows = (size_t)a->batch_words},
        .seed = (uint64_t)a->seed,
        .threads = (int)a->threads,
        .optimizer = {.kind = FV_ADAMW, .lr = a->lr, .beta2 = 0.99, .weight_decay = 0.01},
        .schedule = {.kind = FV_LINEAR, .warmup = 0.1},
        .clip = 1,
        .checkpoint = a->out,
        .save_every = (uint64_t)a->save_every,
        .resume = a->resume,
        .meta = meta,
        .metrics = a->metrics,
        .progress = a->quiet ? NULL : stderr,
        .stop = program_stop_flag(),
    };
    bool ok = meta != NULL && fv_fit(m->params, &task, &opts, result, error);
    free(meta);
    return ok;
}

static bool train(const arguments *a, fv_error *error)
{
    tagger m = {0};
    session s = {.error = error};
    fv_fit_result result = {0};
    fv_conllu *train_file = read_gold(a->train, error);
    fv_conllu *dev_file = train_file && a->dev ? read_gold(a->dev, error) : NULL;
    bool ok = train_file && (a->dev == NULL || dev_file) &&
              tagger_new(&m, &a->tagger, train_file, (uint64_t)a->seed, error) &&
              tagger_read(&s.train, &m, train_file, true, error) &&
              (dev_file == NULL || tagger_read(&s.dev, &m, dev_file, true, error));
    if (ok && dev_file)
        s.tags = calloc(dev_file->words + 1, sizeof *s.tags);
    if (ok && !a->quiet)
        fprintf(stderr, "training on %zu sentences, %zu words; %zu parameters\n",
                train_file->sentences, train_file->words, fv_params_numbers(m.params));
    ok = ok && fit(a, &m, &s, &result, error);
    ok = ok && error->status == FV_OK;
    if (ok) {
        if (dev_file)
            printf("dev accuracy %.2f %%  ", 100 * result.score);
        printf("%.1f s of training, %llu steps, %.0f MB at most\ncheckpoint %s\n", result.seconds,
               (unsigned long long)result.steps, peak_memory_mb(), a->out);
    }
    free(s.tags);
    tagger_data_free(&s.train);
    tagger_data_free(&s.dev);
    tagger_free(&m);
    fv_conllu_free(train_file);
    fv_conllu_free(dev_file);
    return ok;
}

/* ---- eval ---------------------------------------------------------------------------------------------- */

typedef struct {
    fv_confusion all;
    size_t known, known_right, unknown, unknown_right;
} scores;

static double share(size_t part, size_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static void print_scores(const scores *s)
{
    const size_t words = s->known + s->unknown;
    printf("words            %8zu  accuracy %.2f %%\n", words,
           100 * fv_confusion_accuracy(&s->all));
    printf("  known          %8zu  accuracy %.2f %%\n", s->known,
           100 * share(s->known_right, s->known));
    printf("  unknown        %8zu  accuracy %.2f %%\n\n", s->unknown,
           100 * share(s->unknown_right, s->unknown));
    printf("tag      count  precision   recall       F1\n");
    for (size_t i = 0; i < FV_UPOS_TAGS; i++) {
        double precision, recall, f1;
        size_t count = 0;
        for (size_t j = 0; j < FV_UPOS_TAGS; j++)
            count += s->all.count[i * FV_UPOS_TAGS + j];
        fv_confusion_class(&s->all, i, &precision, &recall, &f1);
        printf("%-6s %7zu   %8.2f %8.2f %8.2f\n", fv_upos_name((int32_t)i), count, 100 * precision,
               100 * recall, 100 * f1);
    }
    printf("\ngold by row, tagged by column\n       ");
    for (int32_t j = 0; j < FV_UPOS_TAGS; j++)
        printf("%6s", fv_upos_name(j));
    for (size_t i = 0; i < FV_UPOS_TAGS; i++) {
        printf("\n%-7s", fv_upos_name((int32_t)i));
        for (size_t j = 0; j < FV_UPOS_TAGS; j++)
            printf("%6zu", s->all.count[i * FV_UPOS_TAGS + j]);
    }
    printf("\n");
}

static void print_json(const scores *s)
{
    json_t *tags = json_object(), *rows = json_array();
    for (size_t i = 0; i < FV_UPOS_TAGS; i++) {
        double precision, recall, f1;
        json_t *row = json_array();
        fv_confusion_class(&s->all, i, &precision, &recall, &f1);
        json_object_set_new(
            tags, fv_upos_name((int32_t)i),
            json_pack("{s:f, s:f, s:f}", "precision", precision, "recall", recall, "f1", f1));
        for (size_t j = 0; j < FV_UPOS_TAGS; j++)
            json_array_append_new(row,
                                  json_integer((json_int_t)s->all.count[i * FV_UPOS_TAGS + j]));
        json_array_append_new(rows, row);
    }
    json_t *all = json_pack(
        "{s:I, s:f, s:I, s:f, s:I, s:f, s:o, s:o}", "words", (json_int_t)(s->known + s->unknown),
        "accuracy", fv_confusion_accuracy(&s->all), "words_known", (json_int_t)s->known,
        "accuracy_known", share(s->known_right, s->known), "words_unknown", (json_int_t)s->unknown,
        "accuracy_unknown", share(s->unknown_right, s->unknown), "tags", tags, "confusion", rows);
    json_dumpf(all, stdout, JSON_REAL_PRECISION(6));
    printf("\n");
    json_decref(all);
}

static bool eval(const arguments *a, fv_error *error)
{
    tagger m = {0};
    tagger_data data = {0};
    scores s = {0};
    fv_conllu *file = NULL;
    int32_t *tags = NULL;
    bool ok = tagger_load(&m, a->model, error) && (file = read_gold(a->data, error)) != NULL &&
              tagger_read(&data, &m, file, true, error) &&
              fv_confusion_init(&s.all, FV_UPOS_TAGS, error);
    if (ok && (tags = calloc(file->words + 1, sizeof *tags)) == NULL)
        ok = fv_fail(error, FV_FAILED, "eval: out of memory");
    ok = ok && tagger_predict(&data, tags, error);
    for (size_t w = 0; ok && w < file->words; w++) {
        const int32_t gold = data.label[0][w];
        fv_confusion_add(&s.all, gold, tags[w]);
        if (tagger_knows(&m, file->columns[w][FV_CONLLU_FORM])) {
            s.known++;
            s.known_right += gold == tags[w];
        } else {
            s.unknown++;
            s.unknown_right += gold == tags[w];
        }
    }
    if (ok && a->json)
        print_json(&s);
    else if (ok)
        print_scores(&s);
    free(tags);
    fv_confusion_free(&s.all);
    tagger_data_free(&data);
    fv_conllu_free(file);
    tagger_free(&m);
    return ok;
}

/* ---- tag and show ----------------------------------------------------------------------------------------- */

/* Draws the attention of one sentence in one layer, with the tags behind the words. */
static bool draw_attention(const arguments *a, const tagger_data *data, const int32_t *tags,
                           fv_error *error)
{
    const fv_conllu *file = data->file;
    const tagger *m = data->model;
    if ((size_t)a->sentence > file->sentences)
        return fv_fail(error, FV_USAGE, "--sentence %ld: %s holds %zu sentences", a->sentence,
                       file->path, file->sentences);
    if (a->layer > m->o.layers)
        return fv_fail(error, FV_USAGE, "--layer %ld: the model has %ld layers", a->layer,
                       m->o.layers);
    const size_t sentence = (size_t)a->sentence - 1,
                 layer = (size_t)(a->layer ? a->layer : m->o.layers) - 1;
    const size_t first = file->offsets[sentence], n = file->offsets[sentence + 1] - first;
    if (n > FV_SVG_WORDS) /* before weights of that size are made */
        return fv_fail(error, FV_USAGE, "--sentence %ld: has %zu words, a picture at most %d",
                       a->sentence, n, FV_SVG_WORDS);
    const fv_segments *segments;
    fv_var *outputs[TAGGER_HEADS];
    fv_tape *t = fv_tape_new(NULL);
    if (t == NULL)
        return fv_fail(error, FV_FAILED, "attention: out of memory");
    fv_tape_begin(t, FV_EVAL, 0, 0);
    tagger_forward(m, t, data, &sentence, 1, &segments, outputs);
    fv_tensor w = fv_attention_weights(t, fv_tape_find(t, "self_attention", layer), 0);
    const char **words = fv_tape_alloc(t, n, sizeof *words),
               **names = fv_tape_alloc(t, n, sizeof *names);
    float *weights = fv_tape_alloc(t, (size_t)m->o.heads * n * n, sizeof *weights);
    char title[80];
    bool ok = fv_tape_ok(t) || fv_fail(error, FV_FAILED, "attention: %s", fv_tape_error(t)->text);
    for (size_t i = 0; ok && i < n; i++) {
        words[i] = file->columns[first + i][FV_CONLLU_FORM];
        names[i] = fv_upos_name(tags[first + i]);
    }
    for (size_t i = 0; ok && i < (size_t)m->o.heads * n * n; i++)
        weights[i] = (float)w.data[i];
    snprintf(title, sizeof title, "Attention of layer %zu", layer + 1);
    ok = ok &&
         fv_svg_attention(a->attention, title, n, words, names, (size_t)m->o.heads, weights, error);
    fv_tape_free(t);
    return ok;
}

/* Lines of words split by blanks, as CoNLL-U without tags. NULL when memory is out. */
static char *lines_to_conllu(const char *text, size_t length, size_t *out_length)
{
    FILE *out;
    char *made = NULL;
    const char *end = text + length;
    if ((out = open_memstream(&made, out_length)) == NULL)
        return NULL;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        const char *last = stop ? stop : end;
        size_t word = 0;
        for (const char *c = line; c < last;) {
            size_t n = 0;
            while (c + n < last && strchr(" \t\r", c[n]) == NULL)
                n++;
            if (n > 0)
                fprintf(out, "%zu\t%.*s\t_\t_\t_\t_\t_\t_\t_\t_\n", ++word, (int)n, c);
            c += n + 1;
        }
        if (word > 0)
            fputc('\n', out);
        line = last + 1;
    }
    return fclose(out) == 0 ? made : (free(made), NULL);
}

/* CoNLL-U has tabs, or no word at all; "# text" would be one of its comments. */
static bool is_conllu(const char *text)
{
    return strchr(text, '\t') != NULL || strncmp(text, "# ", 2) == 0;
}

static fv_conllu *read_words(const char *path, fv_error *error)
{
    size_t length;
    if (path != NULL && strcmp(path, "-") != 0)
        return fv_conllu_read(path, error);
    char *text = read_input(&length, error);
    if (text == NULL)
        return NULL;
    if (!is_conllu(text)) {
        char *made = lines_to_conllu(text, length, &length);
        free(text);
        text = made;
    }
    fv_conllu *file = text ? fv_conllu_parse("standard input", text, length, error) : NULL;
    if (text == NULL)
        fv_fail(error, FV_FAILED, "standard input: out of memory");
    free(text);
    return file;
}

/* Tags a file with a model; on success all four are to be freed. */
static bool tagged(const arguments *a, tagger *m, tagger_data *data, fv_conllu **file,
                   int32_t **tags, fv_error *error)
{
    bool ok = tagger_load(m, a->model, error) && (*file = read_words(a->data, error)) != NULL &&
              tagger_read(data, m, *file, false, error);
    if (ok && (*tags = calloc((*file)->words + 1, sizeof **tags)) == NULL)
        ok = fv_fail(error, FV_FAILED, "%s: out of memory", (*file)->path);
    ok = ok && tagger_predict(data, *tags, error);
    return ok && (a->attention == NULL || draw_attention(a, data, *tags, error));
}

static bool write_tagged(const fv_conllu *file, const int32_t *tags, fv_error *error)
{
    bool ok = true;
    const char **names = calloc(file->words + 1, sizeof *names);
    if (names == NULL)
        return fv_fail(error, FV_FAILED, "tag: out of memory");
    for (size_t w = 0; w < file->words; w++)
        names[w] = fv_upos_name(tags[w]);
    for (size_t s = 0; ok && s < file->sentences; s++)
        ok = fv_conllu_write(stdout, file, s, names + file->offsets[s]);
    free(names);
    return ok || fv_fail(error, FV_DISK, "standard output: cannot write: %s", strerror(errno));
}

static void show_sentences(const fv_conllu *file, const int32_t *tags, size_t count)
{
    for (size_t s = 0; s < file->sentences && s < count; s++) {
        size_t right = 0, words = file->offsets[s + 1] - file->offsets[s];
        printf(s == 0 ? "word                 tagged gold\n" : "\n");
        for (size_t w = file->offsets[s]; w < file->offsets[s + 1]; w++) {
            const char *gold = file->columns[w][FV_CONLLU_UPOS], *tag = fv_upos_name(tags[w]);
            bool same = strcmp(gold, tag) == 0;
            right += same;
            printf("%-20s %-6s %-6s%s\n", file->columns[w][FV_CONLLU_FORM], tag, gold,
                   same ? "" : "  <--");
        }
        printf("%zu of %zu right\n", right, words);
    }
}

static bool tag(const arguments *a, bool show, fv_error *error)
{
    tagger m = {0};
    tagger_data data = {0};
    fv_conllu *file = NULL;
    int32_t *tags = NULL;
    bool ok = tagged(a, &m, &data, &file, &tags, error);
    if (ok && show)
        show_sentences(file, tags, (size_t)a->count);
    else if (ok)
        ok = write_tagged(file, tags, error);
    if (ok && a->attention)
        fprintf(show ? stdout : stderr, "attention picture %s\n", a->attention);
    free(tags);
    tagger_data_free(&data);
    fv_conllu_free(file);
    tagger_free(&m);
    return ok;
}

static void run(const char *command, const arguments *a, fv_error *error)
{
    const bool show = strcmp(command, "show") == 0;
    if (strcmp(command, "train") == 0) {
        if (has_option(command, "train", a->train, error) &&
            has_option(command, "out", a->out, error))
            train(a, error);
    } else if (strcmp(command, "eval") == 0) {
        if (has_option(command, "model", a->model, error) &&
            has_option(command, "data", a->data, error))
            eval(a, error);
    } else if (show || strcmp(command, "tag") == 0) {
        if (has_option(command, "model", a->model, error) &&
            (!show || has_option(command, "data", a->data, error)))
            tag(a, show, error);
    } else {
        fv_fail(error, FV_USAGE, "%s%sexpected train, eval, tag or show", command,
                *command ? ": " : "");
    }
}

int main(int argc, char **argv)
{
    static const char name[] = "pos_tagging";
    arguments a = {
        .epochs = 16, .seed = 1, .batch_words = 500, .lr = 0.0015, .count = 5, .sentence = 1};
    fv_error error = {FV_OK, ""};
    const char *command = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
    const int skip = *command != 0;
    signal(SIGPIPE, SIG_IGN); /* a reader that went away is an error like a full disk */
    if (read_options(argc - skip, argv + skip, name, usage, options,
                     sizeof options / sizeof *options, &a, &error))
        run(command, &a, &error);
    return program_end(name, &error);
}
