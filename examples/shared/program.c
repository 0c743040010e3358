/* Messages, exit codes, Ctrl-C and option values for the example programs. */
#include "examples/shared/program.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
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

bool option_number(const char *option, const char *text, double low, double high, double *out)
{
    char *end;
    errno = 0;
    double x = strtod(text, &end);
    if (end == text || *end != 0 || errno != 0 || !(x >= low && x <= high)) {
        fprintf(stderr, "--%s %s: expected a number from %g to %g\n", option, text, low, high);
        return false;
    }
    *out = x;
    return true;
}

bool option_count(const char *option, const char *text, long low, long high, long *out)
{
    char *end;
    errno = 0;
    long x = strtol(text, &end, 10);
    if (end == text || *end != 0 || errno != 0 || x < low || x > high) {
        fprintf(stderr, "--%s %s: expected a whole number from %ld to %ld\n", option, text, low,
                high);
        return false;
    }
    *out = x;
    return true;
}

bool file_exists(const char *path)
{
    return strcmp(path, "-") == 0 || access(path, F_OK) == 0;
}

double peak_memory_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

double seconds(void)
{
    static struct timespec first;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (first.tv_sec == 0)
        first = now;
    return (double)(now.tv_sec - first.tv_sec) + 1e-9 * (double)(now.tv_nsec - first.tv_nsec);
}
