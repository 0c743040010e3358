/* The progress bar: redrawn in place on a terminal, one plain line now and then elsewhere. */
#include "train/train.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <utf8proc.h>

#include "train/report/decimal.h"

enum { COLUMNS = 80, MAX_COLUMNS = 400, MIN_BAR = 10, MAX_BAR = 40 };
static const double REDRAW = 0.1, PLAIN = 10; /* seconds between two drawings */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int terminal_columns(FILE *out)
{
    struct winsize size = {0};
    if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return COLUMNS;
    return size.ws_col < MAX_COLUMNS ? size.ws_col : MAX_COLUMNS;
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && *value != 0;
}

void fv_progress_begin(fv_progress *p, FILE *out, uint64_t done, uint64_t total)
{
    const char *kind = getenv("TERM");
    *p = (fv_progress){.out = out, .total = total, .done = done, .first = done};
    p->started = p->drawn = now();
    p->terminal = out != NULL && fileno(out) >= 0 && isatty(fileno(out)) &&
                  !(kind != NULL && strcmp(kind, "dumb") == 0);
    p->color = p->terminal && !is_set("NO_COLOR");
}

/* ---- the line ---------------------------------------------------------------------------------- */

/* A line under way: bytes, and the columns that they take on a terminal. */
typedef struct {
    char text[4 * MAX_COLUMNS + 200];
    size_t length;
    int columns;
} line;

/* Adds text up to a column; what would move the cursor becomes a question mark. */
static void add(line *l, int limit, const char *text)
{
    while (*text != 0) {
        utf8proc_int32_t character;
        utf8proc_ssize_t bytes = utf8proc_iterate((const utf8proc_uint8_t *)text, -1, &character);
        bool shown = bytes > 0 && utf8proc_category(character) != UTF8PROC_CATEGORY_CC;
        int columns = shown ? utf8proc_charwidth(character) : 1;
        size_t size = shown ? (size_t)bytes : 1;
        if (l->columns + columns > limit || l->length + size >= sizeof l->text - 100)
            return;
        memcpy(l->text + l->length, shown ? text : "?", size);
        l->length += size;
        l->columns += columns;
        text += bytes > 0 ? bytes : 1;
    }
    l->text[l->length] = 0;
}

/* Adds bytes that take no column: colours. */
static void add_code(line *l, bool wanted, const char *code)
{
    if (!wanted)
        return;
    memcpy(l->text + l->length, code, strlen(code) + 1);
    l->length += strlen(code);
}

/* 75 -> "1:15", 3675 -> "1:01:15"; nothing worth reading is longer than 999 hours. */
static void time_text(double seconds, char text[32])
{
    if (!(seconds < 999.0 * 3600)) {
        memcpy(text, ">999 h", 7);
        return;
    }
    unsigned whole = seconds > 0 ? (unsigned)(seconds + 0.5) : 0;
    if (whole >= 3600)
        snprintf(text, 32, "%u:%02u:%02u", whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(text, 32, "%u:%02u", whole / 60, whole % 60);
}

/* "  35.2 steps/s", or seconds a step when a step takes longer than one. */
static void rate_text(double rate, char text[64])
{
    char number[40];
    bool slow = rate < 1;
    double shown = slow ? 1 / rate : rate;
    fvi_decimal(number, shown, shown >= 100 ? 0 : 1);
    snprintf(text, 64, "  %s %s", number, slow ? "s/step" : "steps/s");
}

static void add_bar(line *l, int width, double share, bool color)
{
    int filled = (int)(share * width);
    add(l, MAX_COLUMNS, "  [");
    add_code(l, color, "\033[32m");
    for (int i = 0; i < width; i++) {
        if (i == filled)
            add_code(l, color, "\033[0;2m");
        add(l, MAX_COLUMNS, i < filled ? "=" : i == filled ? ">" : "-");
    }
    add_code(l, color, "\033[0m");
    add(l, MAX_COLUMNS, "]");
}

/* What stands after the bar: "  420/1000  35.2 steps/s  0:16 left  text"; the rate is this run's. */
static void describe(const fv_progress *p, bool ended, const char *text, line *out)
{
    char part[160], rate[64], left[32];
    snprintf(part, sizeof part, "  %llu/%llu", (unsigned long long)p->done,
             (unsigned long long)p->total);
    add(out, MAX_COLUMNS, part);
    double seconds = now() - p->started;
    double steps = p->done > p->first ? (double)(p->done - p->first) : 0;
    if (steps > 0 && seconds > 0) {
        rate_text(steps / seconds, rate);
        double rest = p->total > p->done ? (double)(p->total - p->done) : 0;
        time_text(ended ? seconds : rest * seconds / steps, left);
        snprintf(part, sizeof part, "%s  %s%s%s", rate, ended ? "in " : "", left,
                 ended ? "" : " left");
        add(out, MAX_COLUMNS, part);
    }
    if (text != NULL && *text != 0) {
        add(out, MAX_COLUMNS, "  ");
        add(out, MAX_COLUMNS, text);
    }
}

static void draw(const fv_progress *p, bool ended, const char *text)
{
    line rest = {.length = 0}, all = {.length = 0};
    double share = p->total > 0 ? (double)p->done / (double)p->total : 1;
    if (share > 1)
        share = 1;
    describe(p, ended, text, &rest);
    char percent[16];
    snprintf(percent, sizeof percent, "%3d %%", (int)(100 * share));
    /* The last column stays free: some terminals wrap when it is written. */
    int limit = p->terminal && !ended ? terminal_columns(p->out) - 1 : MAX_COLUMNS;
    add_code(&all, p->terminal, "\r");
    add(&all, limit, percent);
    int bar = limit - all.columns - rest.columns - (int)strlen("  []");
    if (p->terminal && !ended && bar >= MIN_BAR)
        add_bar(&all, bar < MAX_BAR ? bar : MAX_BAR, share, p->color);
    add(&all, limit, rest.text);
    add_code(&all, p->terminal, "\033[K");
    add_code(&all, ended || !p->terminal, "\n");
    fwrite(all.text, 1, all.length, p->out);
    fflush(p->out);
}

void fv_progress_update(fv_progress *p, uint64_t done, const char *text)
{
    if (p->out == NULL)
        return;
    p->done = done;
    double time = now();
    if (time - p->drawn < (p->terminal ? REDRAW : PLAIN))
        return;
    p->drawn = time;
    draw(p, false, text);
}

void fv_progress_end(fv_progress *p, const char *text)
{
    if (p->out == NULL)
        return;
    if (text != NULL) {
        draw(p, true, text);
    } else if (p->terminal) {
        fputs("\r\033[K", p->out);
        fflush(p->out);
    }
    p->out = NULL;
}
