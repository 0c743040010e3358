/* Messages, exit codes, Ctrl-C and option values for the example programs. */
#include "examples/shared/program.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

int program_failed(const char *program, const fv_error *error)
{
    if (error->status == FV_OK)
        return FV_OK;
    fprintf(stderr, "%s: %s\n", program, error->text);
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

static bool set_number(const option *o, const char *text, void *at)
{
    char *end;
    errno = 0;
    const bool whole = o->kind == OPTION_COUNT;
    double x = whole ? (double)strtol(text, &end, 10) : strtod(text, &end);
    if (end == text || *end != 0 || errno != 0 || !(x >= o->low && x <= o->high)) {
        fprintf(stderr, "--%s %s: expected a %snumber from %g to %g\n", o->name, text,
                whole ? "whole " : "", o->low, o->high);
        return false;
    }
    if (whole)
        *(long *)at = (long)x;
    else
        *(double *)at = x == 0 ? FV_NONE : x;
    return true;
}

static bool set_name(const option *o, const char *text, int *at)
{
    for (int k = 0; o->names[k] != NULL; k++)
        if (strcmp(text, o->names[k]) == 0) {
            *at = k;
            return true;
        }
    fprintf(stderr, "--%s %s: expected", o->name, text);
    for (int k = 0; o->names[k] != NULL; k++)
        fprintf(stderr, "%s %s", k ? "," : "", o->names[k]);
    fprintf(stderr, "\n");
    return false;
}

static bool set_option(const option *o, const char *text, void *arguments)
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
        return set_name(o, text, at);
    default:
        return set_number(o, text, at);
    }
}

int read_options(int argc, char **argv, const char *program, const char *usage,
                 const option *options, size_t count, void *arguments)
{
    enum { MOST = 64 };
    struct option table[MOST + 3] = {{0}};
    int found, n = (int)(count < MOST ? count : MOST);
    for (int i = 0; i < n; i++)
        table[i] = (struct option){options[i].name,
                                   options[i].kind == OPTION_FLAG ? no_argument : required_argument,
                                   NULL, i};
    table[n] = (struct option){"help", no_argument, NULL, n};
    table[n + 1] = (struct option){"version", no_argument, NULL, n + 1};
    while ((found = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (found == n) {
            fputs(usage, stdout);
            return FV_OK;
        }
        if (found == n + 1) {
            printf("%s %s (fovea, %s)\n", program, FV_VERSION, FV_BUILD);
            return FV_OK;
        }
        if (found == '?' || !set_option(&options[found], optarg, arguments))
            return FV_USAGE;
    }
    if (optind < argc) {
        fprintf(stderr, "%s: %s: expected an option (see %s --help)\n", program, argv[optind],
                program);
        return FV_USAGE;
    }
    return -1;
}

int missing_option(const char *program, const char *command, const char *name, const char *value)
{
    if (value != NULL)
        return 0;
    fprintf(stderr, "%s %s: --%s is missing (see %s --help)\n", program, command, name, program);
    return 1;
}

char *read_input(size_t *length)
{
    char *text = NULL, block[65536];
    FILE *kept = open_memstream(&text, length);
    size_t n;
    if (kept == NULL)
        return NULL;
    while ((n = fread(block, 1, sizeof block, stdin)) > 0)
        fwrite(block, 1, n, kept);
    bool ok = fclose(kept) == 0 && !ferror(stdin);
    return ok ? text : (free(text), NULL);
}

double peak_memory_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}
