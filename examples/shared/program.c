/* Messages, exit codes, Ctrl-C and option values for the example programs. */
#include "examples/shared/program.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

int program_end(const char *program, fv_error *error)
{
    const char *help = error->status == FV_USAGE ? program : NULL;
    if (fflush(stdout) != 0 || ferror(stdout))
        fv_fail(error, FV_DISK, "standard output: cannot write: %s", strerror(errno));
    if (error->status == FV_OK)
        return FV_OK;
    fprintf(stderr, "%s: %s%s%s%s%s\n", program, error->text, help ? " (see " : "",
            help ? help : "", help ? " --help)" : "",
            error->status == FV_INTERRUPTED ? "; the same command with --resume goes on from there"
                                            : "");
    return (int)error->status;
}

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    if (stop != 0)
        _exit(128 + number);
    stop = 1;
}

const volatile sig_atomic_t *program_stop_flag(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &stop;
}

/* ---- options ------------------------------------------------------------------------------------------ */

static bool set_number(const option *o, const char *text, void *at, fv_error *error)
{
    char *end;
    errno = 0;
    const bool whole = o->kind == OPTION_COUNT;
    double x = whole ? (double)strtol(text, &end, 10) : strtod(text, &end);
    if (end == text || *end != 0 || errno != 0 || !(x >= o->low && x <= o->high))
        return fv_fail(error, FV_USAGE, "--%s %s: expected a %snumber from %.10g to %.10g", o->name,
                       text, whole ? "whole " : "", o->low, o->high);
    if (whole)
        *(long *)at = (long)x;
    else
        *(double *)at = x == 0 ? FV_NONE : x;
    return true;
}

static bool set_name(const option *o, const char *text, int *at, fv_error *error)
{
    char expected[200] = "";
    size_t used = 0;
    for (int k = 0; o->names[k] != NULL; k++) {
        if (strcmp(text, o->names[k]) == 0) {
            *at = k;
            return true;
        }
        const char *before = k == 0 ? "" : o->names[k + 1] != NULL ? ", " : " or ";
        if (used < sizeof expected)
            used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%s", before,
                                     o->names[k]);
    }
    return fv_fail(error, FV_USAGE, "--%s %s: expected %s", o->name, text, expected);
}

static bool set_option(const option *o, const char *text, void *arguments, fv_error *error)
{
    void *at = (char *)arguments + o->at;
    switch (o->kind) {
    case OPTION_TEXT:
        *(const char **)at = text;
        return true;
    case OPTION_FLAG:
        *(bool *)at = true;
        return true;
    case OPTION_NAME:
        return set_name(o, text, at, error);
    default:
        return set_number(o, text, at, error);
    }
}

enum { MOST_OPTIONS = 64, FIRST = 256 /* what getopt_long says for option 0: no letter */ };

/* What getopt_long did not like: sign is its answer, optopt the option where it knows it. */
static bool fail_option(int sign, const struct option *table, const char *word, fv_error *error)
{
    if (sign == ':')
        return fv_fail(error, FV_USAGE, "%s: expected a value behind it", word);
    if (optopt >= FIRST)
        return fv_fail(error, FV_USAGE, "--%s: takes no value", table[optopt - FIRST].name);
    if (optopt > 0)
        return fv_fail(error, FV_USAGE, "-%c: unknown option", optopt);
    return fv_fail(error, FV_USAGE, "%s: unknown option, or short for several", word);
}

bool read_options(int argc, char **argv, const char *program, const char *usage,
                  const option *options, size_t count, void *arguments, fv_error *error)
{
    struct option table[MOST_OPTIONS + 3] = {{0}};
    int found, n = (int)(count < MOST_OPTIONS ? count : MOST_OPTIONS);
    for (int i = 0; i < n; i++)
        table[i] = (struct option){options[i].name,
                                   options[i].kind == OPTION_FLAG ? no_argument : required_argument,
                                   NULL, FIRST + i};
    table[n] = (struct option){"help", no_argument, NULL, FIRST + n};
    table[n + 1] = (struct option){"version", no_argument, NULL, FIRST + n + 1};
    while ((found = getopt_long(argc, argv, ":", table, NULL)) != -1) {
        if (found == FIRST + n) {
            fputs(usage, stdout);
            return false;
        }
        if (found == FIRST + n + 1) {
            printf("%s %s (fovea, %s)\n", program, FV_VERSION, FV_BUILD);
            return false;
        }
        if (found < FIRST)
            return fail_option(found, table, argv[optind - 1], error);
        if (!set_option(&options[found - FIRST], optarg, arguments, error))
            return false;
    }
    return optind == argc || fv_fail(error, FV_USAGE, "%s: expected an option", argv[optind]);
}

bool has_option(const char *command, const char *name, const char *value, fv_error *error)
{
    return value != NULL || fv_fail(error, FV_USAGE, "%s: --%s is missing", command, name);
}

/* ---- standard input -------------------------------------------------------------------------------------- */

static bool check_utf8(const char *text, size_t length, fv_error *error)
{
    size_t at, line = 1, start = 0;
    if (fv_utf8_valid(text, length, &at))
        return true;
    for (size_t i = 0; i < at; i++)
        if (text[i] == '\n') {
            line++;
            start = i + 1;
        }
    return fv_fail(error, FV_DATA,
                   "standard input:%zu:%zu: byte 0x%02x is not UTF-8, expected UTF-8 text", line,
                   at - start + 1, (unsigned)(unsigned char)text[at]);
}

char *read_input(size_t *length, fv_error *error)
{
    static const char mark[] = "\xef\xbb\xbf";
    char *text = NULL, block[65536];
    FILE *kept = open_memstream(&text, length);
    bool ok = kept != NULL;
    for (size_t n; ok && (n = fread(block, 1, sizeof block, stdin)) > 0;)
        ok = fwrite(block, 1, n, kept) == n;
    if (ferror(stdin))
        fv_fail(error, FV_DATA, "standard input: cannot read: %s", strerror(errno));
    ok = kept != NULL && fclose(kept) == 0 && ok;
    if (!ok)
        fv_fail(error, FV_FAILED, "standard input: out of memory");
    if (ferror(stdin) || !ok || !check_utf8(text, *length, error)) {
        free(text);
        return NULL;
    }
    if (strncmp(text, mark, 3) == 0)
        memmove(text, text + 3, (*length -= 3) + 1);
    return text;
}

double peak_memory_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}
