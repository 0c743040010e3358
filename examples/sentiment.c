/* sentiment: trains, evaluates and uses a classifier of short texts on lines of label and text. */
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "examples/shared/classifier.h"
#include "examples/shared/program.h"

static const char usage[] =
    "examples:\n"
    "  sentiment train --train examples/data/tiny-reviews-train.tsv \\\n"
    "      --dev examples/data/tiny-reviews-dev.tsv --out reviews.npz --epochs 20\n"
    "  sentiment eval --model reviews.npz --data examples/data/tiny-reviews-dev.tsv\n"
    "  echo 'Not bad at all.' | sentiment predict --model reviews.npz\n"
    "\n"
    "usage: sentiment train --train FILE [--dev FILE] --out MODEL.npz [options]\n"
    "       sentiment eval --model MODEL.npz --data FILE [--json]\n"
    "       sentiment predict --model MODEL.npz <TEXTS\n"
    "\n"
    "A training file has one text a line: its label, a tab, the text, without quoting;\n"
    "two labels or more. predict reads one text a line and prints label, probability and\n"
    "text, split by tabs. FILE may be - for standard input.\n"
    "\n"
    "train options                                            default\n"
    "  --epochs N          passes over the training data      6\n"
    "  --seed N            of initial values, order, dropout  1\n"
    "  --threads N         any number gives the same bits     all cores\n"
    "  --resume            goes on from --out if it is there\n"
    "  --save-every N      also writes --out every N steps\n"
    "  --metrics FILE      appends one JSON line an epoch\n"
    "  --batch N           texts in a batch                   50\n"
    "  --lr X              highest learning rate              0.001\n"
    "  --width N  --heads N  --layers N  --hidden N           64 4 1 64\n"
    "  --hash-rows N       rows for pieces of words           16384\n"
    "  --min-count N       rarer words are unknown            2\n"
    "  --longest N         words of a text that are read      400\n"
    "  --dropout X  --input-dropout X  --word-dropout X       0.3 0.3 0.1\n"
    "  --smoothing X       of labels                          0.1\n"
    "  --quiet             no progress bar\n"
    "other options\n"
    "  --separator space   label and text are split by the first blank instead of a tab\n"
    "  --json              eval: one JSON object\n"
    "  --help  --version\n"
    "\n"
    "exit codes: 0 ok, 1 failed, 2 usage, 3 data, 4 checkpoint, 5 not finite, 6 disk, 130 "
    "interrupted\n";

typedef struct {
    const char *train, *dev, *out, *model, *data, *metrics;
    long epochs, seed, threads, save_every, batch;
    double lr;
    bool resume, quiet, json;
    int separator; /* 0: tab, 1: space */
    classifier_options classifier;
} arguments;

static const char *const separators[] = {"tab", "space", NULL};

static const option options[] = {
#define AT(x) offsetof(arguments, x)
    {"train", OPTION_TEXT, AT(train), 0, 0, NULL},
    {"dev", OPTION_TEXT, AT(dev), 0, 0, NULL},
    {"out", OPTION_TEXT, AT(out), 0, 0, NULL},
    {"model", OPTION_TEXT, AT(model), 0, 0, NULL},
    {"data", OPTION_TEXT, AT(data), 0, 0, NULL},
    {"metrics", OPTION_TEXT, AT(metrics), 0, 0, NULL},
    {"epochs", OPTION_COUNT, AT(epochs), 1, 10000, NULL},
    {"seed", OPTION_COUNT, AT(seed), 0, 2147483647, NULL},
    {"threads", OPTION_COUNT, AT(threads), 1, 1024, NULL},
    {"save-every", OPTION_COUNT, AT(save_every), 1, 1000000000, NULL},
    {"batch", OPTION_COUNT, AT(batch), 1, 1000000, NULL},
    {"lr", OPTION_NUMBER, AT(lr), 1e-9, 1e30, NULL},
    {"resume", OPTION_FLAG, AT(resume), 0, 0, NULL},
    {"quiet", OPTION_FLAG, AT(quiet), 0, 0, NULL},
    {"json", OPTION_FLAG, AT(json), 0, 0, NULL},
    {"separator", OPTION_NAME, AT(separator), 0, 0, separators},
    {"width", OPTION_COUNT, AT(classifier.width), 1, 8192, NULL},
    {"heads", OPTION_COUNT, AT(classifier.heads), 1, 256, NULL},
    {"layers", OPTION_COUNT, AT(classifier.layers), 1, 100, NULL},
    {"hidden", OPTION_COUNT, AT(classifier.hidden), 1, 65536, NULL},
    {"hash-rows", OPTION_COUNT, AT(classifier.hash_rows), 1, 16777216, NULL},
    {"min-count", OPTION_COUNT, AT(classifier.min_count), 1, 1000000, NULL},
    {"longest", OPTION_COUNT, AT(classifier.longest), 1, 100000, NULL},
    {"dropout", OPTION_NUMBER, AT(classifier.dropout), 0, 0.99, NULL},
    {"input-dropout", OPTION_NUMBER, AT(classifier.input_dropout), 0, 0.99, NULL},
    {"word-dropout", OPTION_NUMBER, AT(classifier.word_dropout), 0, 0.99, NULL},
    {"smoothing", OPTION_NUMBER, AT(classifier.smoothing), 0, 0.99, NULL},
};

static fv_tsv *read_texts(const arguments *a, const char *path, fv_error *error)
{
    fv_tsv *file = fv_tsv_read(path, a->separator ? ' ' : '\t', error);
    if (file == NULL || file->samples > 0)
        return file;
    fv_fail(error, FV_DATA, "%s: holds no texts, expected lines of label and text", file->path);
    fv_tsv_free(file);
    return NULL;
}

static bool look_up(classifier_data *data, const classifier *m, const fv_tsv *file, fv_error *error)
{
    if (!classifier_read(data, m, file->samples, file->text, file->label, file->path, file->lines,
                         error))
        return false;
    if (data->cut > 0)
        fprintf(stderr, "%s: %zu texts are longer than %ld words; the rest of them is not read\n",
                file->path, data->cut, m->o.longest);
    return true;
}

/* ---- train --------------------------------------------------------------------------------------------- */

typedef struct {
    classifier_data train; /* first: classifier_loss takes it */
    classifier_data dev;
    int32_t *labels;
    fv_error *error;
} session;

static double dev_accuracy(void *model)
{
    session *s = model;
    size_t right = 0;
    if (s->labels == NULL || !classifier_predict(&s->dev, s->labels, NULL, s->error))
        return 0;
    for (size_t i = 0; i < s->dev.texts; i++)
        right += s->labels[i] == s->dev.label[i];
    return s->dev.texts ? (double)right / (double)s->dev.texts : 0;
}

static bool fit(const arguments *a, classifier *m, session *s, fv_fit_result *result,
                fv_error *error)
{
    char *meta = classifier_json(m, error);
    const fv_task task = {.model = s,
                          .samples = s->train.texts,
                          .offsets = s->train.offsets,
                          .loss = classifier_loss,
                          .evaluate = s->dev.model ? dev_accuracy : NULL};
    const fv_fit_opts opts = {
        .epochs = (int)a->epochs,
        .batch = {.batch_samples = (size_t)a->batch},
        .seed = (uint64_t)a->seed,
        .threads = (int)a->threads,
        .optimizer = {.kind = FV_ADAMW, .lr = a->lr, .weight_decay = 0.01},
        .schedule = {.kind = FV_LINEAR, .warmup = 50},
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
    classifier m = {0};
    session s = {.error = error};
    fv_fit_result result = {0};
    fv_tsv *train_file = read_texts(a, a->train, error);
    fv_tsv *dev_file = train_file && a->dev ? read_texts(a, a->dev, error) : NULL;
    bool ok = train_file && (a->dev == NULL || dev_file) &&
              classifier_new(&m, &a->classifier, train_file, (uint64_t)a->seed, error) &&
              look_up(&s.train, &m, train_file, error) &&
              (dev_file == NULL || look_up(&s.dev, &m, dev_file, error));
    if (ok && dev_file)
        s.labels = calloc(dev_file->samples + 1, sizeof *s.labels);
    if (ok && !a->quiet)
        fprintf(stderr, "training on %zu texts, %zu labels, %zu words; %zu parameters\n",
                train_file->samples, fv_vocab_size(m.labels) - 1, s.train.words,
                fv_params_numbers(m.params));
    ok = ok && fit(a, &m, &s, &result, error);
    ok = ok && error->status == FV_OK;
    if (ok) {
        if (dev_file)
            printf("dev accuracy %.2f %%  ", 100 * result.score);
        printf("%.1f s of training, %llu steps, %.0f MB at most\ncheckpoint %s\n", result.seconds,
               (unsigned long long)result.steps, peak_memory_mb(), a->out);
    }
    free(s.labels);
    classifier_data_free(&s.train);
    classifier_data_free(&s.dev);
    classifier_free(&m);
    fv_tsv_free(train_file);
    fv_tsv_free(dev_file);
    return ok;
}

/* ---- eval ---------------------------------------------------------------------------------------------- */

static void print_scores(const classifier *m, const fv_confusion *c, size_t texts)
{
    printf("texts %zu  accuracy %.2f %%\n\nlabel            precision   recall       F1\n", texts,
           100 * fv_confusion_accuracy(c));
    for (size_t i = 0; i < c->classes; i++) {
        double precision, recall, f1;
        fv_confusion_class(c, i, &precision, &recall, &f1);
        printf("%-16s %9.2f %8.2f %8.2f\n", fv_vocab_text(m->labels, (int32_t)i + 1),
               100 * precision, 100 * recall, 100 * f1);
    }
    printf("\ngold by row, predicted by column\n");
    for (size_t i = 0; i < c->classes; i++) {
        printf("%-16s", fv_vocab_text(m->labels, (int32_t)i + 1));
        for (size_t j = 0; j < c->classes; j++)
            printf("%8zu", c->count[i * c->classes + j]);
        printf("\n");
    }
}

static void print_json(const classifier *m, const fv_confusion *c, size_t texts)
{
    json_t *labels = json_object();
    for (size_t i = 0; i < c->classes; i++) {
        double precision, recall, f1;
        fv_confusion_class(c, i, &precision, &recall, &f1);
        json_object_set_new(
            labels, fv_vocab_text(m->labels, (int32_t)i + 1),
            json_pack("{s:f, s:f, s:f}", "precision", precision, "recall", recall, "f1", f1));
    }
    json_t *all = json_pack("{s:I, s:f, s:o}", "texts", (json_int_t)texts, "accuracy",
                            fv_confusion_accuracy(c), "labels", labels);
    json_dumpf(all, stdout, JSON_REAL_PRECISION(6));
    printf("\n");
    json_decref(all);
}

static bool eval(const arguments *a, fv_error *error)
{
    classifier m = {0};
    classifier_data data = {0};
    fv_confusion confusion = {0};
    fv_tsv *file = NULL;
    int32_t *labels = NULL;
    bool ok = classifier_load(&m, a->model, error) &&
              (file = read_texts(a, a->data, error)) != NULL && look_up(&data, &m, file, error) &&
              fv_confusion_init(&confusion, fv_vocab_size(m.labels) - 1, error);
    if (ok && (labels = calloc(file->samples + 1, sizeof *labels)) == NULL)
        ok = fv_fail(error, FV_FAILED, "eval: out of memory");
    ok = ok && classifier_predict(&data, labels, NULL, error);
    for (size_t i = 0; ok && i < data.texts; i++)
        fv_confusion_add(&confusion, data.label[i], labels[i]);
    if (ok && a->json)
        print_json(&m, &confusion, data.texts);
    else if (ok)
        print_scores(&m, &confusion, data.texts);
    free(labels);
    fv_confusion_free(&confusion);
    classifier_data_free(&data);
    classifier_free(&m);
    fv_tsv_free(file);
    return ok;
}

/* ---- predict -------------------------------------------------------------------------------------------- */

/* Cuts text into lines in place; NULL when memory is out. */
static const char **cut_lines(char *text, size_t length, size_t *count)
{
    size_t lines = 1;
    for (size_t i = 0; i < length; i++)
        lines += text[i] == '\n';
    const char **line = calloc(lines, sizeof *line);
    *count = 0;
    for (char *p = text, *end; line != NULL && p < text + length; p = end + 1) {
        end = memchr(p, '\n', (size_t)(text + length - p));
        end = end ? end : text + length;
        *end = 0;
        if (end > p && end[-1] == '\r')
            end[-1] = 0;
        line[(*count)++] = p;
    }
    return line;
}

static bool predict(const arguments *a, fv_error *error)
{
    classifier m = {0};
    classifier_data data = {0};
    size_t length = 0, count = 0;
    int32_t *labels = NULL;
    double *probability = NULL;
    const char **lines = NULL;
    char *text = classifier_load(&m, a->model, error) ? read_input(&length, error) : NULL;
    bool ok = text != NULL && (lines = cut_lines(text, length, &count)) != NULL &&
              classifier_read(&data, &m, count, lines, NULL, "standard input", NULL, error) &&
              (labels = calloc(count + 1, sizeof *labels)) != NULL &&
              (probability = calloc(count + 1, sizeof *probability)) != NULL &&
              classifier_predict(&data, labels, probability, error);
    for (size_t i = 0; ok && i < count; i++)
        printf("%s\t%.4f\t%s\n", fv_vocab_text(m.labels, labels[i] + 1), probability[i], lines[i]);
    if (!ok)
        fv_fail(error, FV_FAILED, "standard input: out of memory"); /* unless there was an error */
    free(labels);
    free(probability);
    free(lines);
    free(text);
    classifier_data_free(&data);
    classifier_free(&m);
    return ok;
}

static void run(const char *command, const arguments *a, fv_error *error)
{
    if (strcmp(command, "train") == 0) {
        if (has_option(command, "train", a->train, error) &&
            has_option(command, "out", a->out, error))
            train(a, error);
    } else if (strcmp(command, "eval") == 0) {
        if (has_option(command, "model", a->model, error) &&
            has_option(command, "data", a->data, error))
            eval(a, error);
    } else if (strcmp(command, "predict") == 0) {
        if (has_option(command, "model", a->model, error))
            predict(a, error);
    } else {
        fv_fail(error, FV_USAGE, "%s%sexpected train, eval or predict", command,
                *command ? ": " : "");
    }
}

int main(int argc, char **argv)
{
    static const char name[] = "sentiment";
    arguments a = {.epochs = 6, .seed = 1, .batch = 50, .lr = 0.001};
    fv_error error = {FV_OK, ""};
    const char *command = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
    const int skip = *command != 0;
    signal(SIGPIPE, SIG_IGN); /* a reader that went away is an error like a full disk */
    if (read_options(argc - skip, argv + skip, name, usage, options,
                     sizeof options / sizeof *options, &a, &error))
        run(command, &a, &error);
    return program_end(name, &error);
}
