/* Makes every number of every backward rule wrong, one at a time, and tells which mistakes the gradient checks
 * let pass; see `make mutants`. rewrite.c prepared the sources.
 *
 * First each sample of each op is checked as it is, while every place tells whether what it computes would
 * change: in backward it is one of the op's, otherwise it belongs to forward. Then a child process for each op,
 * place and way to be wrong checks the op's samples that compute it, until one fails. A place is wrong only
 * while the op's own backward runs, so what forward and backward share can be wrong in one of them.
 *
 * Shared code may compute what an op has no use for. So a mistake that changes no gradient of the op is none of
 * that op's; it survives when it changes no gradient at all, nor does any other at that place. What no sample
 * computes survives, too, where backward alone would compute it. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "autograd/internal.h"
#include "tools/mutants/mutants.h"

static const char usage[] = "examples:\n"
                            "  run                  all ops, two processes at a time\n"
                            "  run --jobs 8         eight\n"
                            "  run softmax mul      these ops only\n"
                            "\n"
                            "Exit codes: 0 all mistakes were found, 1 some were not, 2 usage.\n";

enum { SAMPLES = 64, SECONDS = 30, JOBS = 64 };

typedef struct {
    const char *file;
    int line;
    const char *function;
    int kinds;
    bool own; /* only backward rules call the function */
    const char *text;
} place;

#define X(...) {__VA_ARGS__},
static const place places[] = {
#include "places.h"
};
#undef X
enum { PLACES = sizeof places / sizeof *places };

/* ---- what mutated code asks ---------------------------------------------------------------------- */

int mutant_now = MUTANT_NONE;

/* What the samples of an op computed at a place: bit w for sample w. */
typedef struct {
    uint64_t not_zero, finite, not_one; /* finite: and not zero */
} computed;

static struct {
    computed (*backward)[PLACES]; /* [ops], in memory that all processes share */
    computed *forward;
    const fv_op *right;
    fv_op wrong;
    fvi_ops ops;     /* with wrong in the place of right */
    computed *watch; /* where places tell now */
    int op, sample;
    int place; /* that is wrong; MUTANT_WATCH */
    mutant_kind kind;
} run;

static void note(int at, bool not_zero, bool finite, bool not_one)
{
    computed *c = &run.watch[at];
    const uint64_t bit = (uint64_t)1 << (run.sample < SAMPLES ? run.sample : SAMPLES - 1);
    __atomic_fetch_or(&c->not_zero, not_zero ? bit : 0, __ATOMIC_RELAXED);
    __atomic_fetch_or(&c->finite, finite && not_zero ? bit : 0, __ATOMIC_RELAXED);
    __atomic_fetch_or(&c->not_one, not_one ? bit : 0, __ATOMIC_RELAXED);
}

double complex mutant_complex(const mutant_seen *at, double complex x)
{
    static const double factor[MUTANT_KINDS] = {-1, 1.01, 0};
    if (mutant_now == MUTANT_WATCH)
        note(at->place, x != 0, creal(x) - creal(x) == 0, x != 1);
    else if (run.kind <= MUTANT_SCALE)
        return factor[run.kind] * x;
    return mutant_now == MUTANT_WATCH ? x : run.kind == MUTANT_ONE;
}

double mutant_double(const mutant_seen *at, double x)
{
    return creal(mutant_complex(at, x));
}

int mutant_dropped(const mutant_seen *at)
{
    if (mutant_now == MUTANT_WATCH)
        note(at->place, true, true, true);
    return mutant_now != MUTANT_WATCH;
}

/* The samples in which a mistake would change something. */
static uint64_t changed_by(const computed *c, int kind)
{
    return kind == MUTANT_SCALE ? c->finite : kind == MUTANT_ONE ? c->not_one : c->not_zero;
}

/* ---- one check ------------------------------------------------------------------------------------- */

static void wrong_backward(fv_tape *t, fv_var *y)
{
    const int before = mutant_now;
    run.watch = run.backward[run.op];
    mutant_now = run.place;
    run.right->backward(t, y);
    mutant_now = before;
    run.watch = run.forward;
}

static fv_var *run_sample(fv_sampler *s, void *context)
{
    (void)context;
    s->tape->ops = &run.ops;
    return run.right->sample(s, run.sample);
}

static void choose_op(int op)
{
    const fvi_ops *all = fvi_ops_for(fvi_isa_best());
    run.op = op;
    run.right = all->op[op];
    run.wrong = *run.right;
    run.wrong.backward = wrong_backward;
    run.ops = *all;
    run.ops.op[op] = &run.wrong;
}

/* Checks all samples while places tell what they compute; false after a failure. */
static bool watch_op(int op)
{
    bool right = true;
    choose_op(op);
    run.watch = run.forward;
    run.place = mutant_now = MUTANT_WATCH;
    for (run.sample = 0; run.sample < run.right->samples; run.sample++) {
        fv_gradcheck_result r;
        if (!fv_gradcheck(run_sample, NULL, NULL, &r)) {
            fprintf(stderr, "%s, as it is: %s\n", run.right->name, r.error.text);
            right = false;
        }
    }
    return right;
}

/* y = sum of fixed random weights times x, so that no symmetry of an op hides anything. */
static bool project_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    y->value.data[0] = 0;
    return true;
}

static void project_backward(fv_tape *t, fv_var *y)
{
    const fv_rng rng = fv_rng_make(0, 1, "weights");
    fv_real *dx = fv_grad(t, y->in[0]);
    for (size_t i = 0; dx != NULL && i < fvi_count(y->in[0]); i++)
        dx[i] += fv_rng_normal(rng, i) * y->grad[0];
}

static const fv_op project = {
    .name = "projection", .forward = project_forward, .backward = project_backward};

/* The gradients of a sample's inputs, one behind the other, with the mistake or without. */
static double *gradients(bool wrong, size_t *count)
{
    const int chosen = run.place;
    fv_tape *t = fv_tape_new(NULL);
    fv_sampler s = {.tape = t, .only = -1, .only_index = SIZE_MAX};
    fv_tape_begin(t, FV_TRAIN, 0, 0);
    run.place = wrong ? chosen : MUTANT_NONE;
    fv_var *y = run_sample(&s, NULL);
    const bool ok = fv_backward(t, y ? fv_record(t, &project, FV_SCALAR, NULL, 0, 1, &y) : NULL);
    run.place = chosen;
    *count = 0;
    for (int k = 0; ok && k < s.inputs; k++)
        *count += fvi_count(s.input[k]);
    double *all = calloc(*count + 1, sizeof *all), *to = all;
    for (int k = 0; ok && k < s.inputs; k++)
        for (size_t i = 0; i < fvi_count(s.input[k]); i++)
            *to++ = s.input[k]->grad ? creal(s.input[k]->grad[i]) : 0;
    fv_tape_free(t);
    return all;
}

/* Whether the mistake changes a gradient of a sample by more than the checks allow for rounding. */
static bool changes_gradients(void)
{
    size_t count, other;
    double *right = gradients(false, &count), *wrong = gradients(true, &other), most = 0,
           change = 0;
    for (size_t i = 0; i < count && i < other; i++) {
        const double c = fabs(wrong[i] - right[i]);
        most = fabs(right[i]) > most ? fabs(right[i]) : most;
        change = c <= change ? change : c;
    }
    free(right);
    free(wrong);
    return count != other || !(change <= 1e-12 * most);
}

/* UNCHANGED: no gradient is another, so for this op it is no mistake. */
typedef enum { UNCHANGED, SURVIVED, CAUGHT, OTHERWISE, CRASHED, HUNG, OUTCOMES } outcome;

/* In a child: checks the samples of run.op that compute the place, with the mistake in it. */
static outcome try_mutant(uint64_t samples)
{
    choose_op(run.op);
    bool changes = false;
    mutant_now = MUTANT_NONE;
    for (run.sample = 0; run.sample < run.right->samples; run.sample++) {
        fv_gradcheck_result r;
        const int bit = run.sample < SAMPLES ? run.sample : SAMPLES - 1;
        if ((samples >> bit & 1) == 0)
            continue;
        if (!fv_gradcheck(run_sample, NULL, NULL, &r))
            return r.verdict == FV_CHECK_FAILED ? CAUGHT : OTHERWISE;
        changes = changes || changes_gradients();
    }
    return changes ? SURVIVED : UNCHANGED;
}

/* ---- all of them ------------------------------------------------------------------------------------ */

typedef struct {
    pid_t pid;
    int op, place;
    mutant_kind kind;
} job;

static job jobs[JOBS];
static int most_jobs = 2, running;
static long counts[PLACES][MUTANT_KINDS][OUTCOMES];

static const char *mistake(mutant_kind kind)
{
    static const char *const words[MUTANT_KINDS] = {"with another sign", "times 1.01", "dropped",
                                                    "as 1", "not called"};
    return words[kind];
}

static void tell_survivor(const char *op, int at, mutant_kind kind, const char *why)
{
    const place *p = &places[at];
    printf("%s:%d: %s: %s %s: %s\n", p->file, p->line, op, p->text, mistake(kind), why);
    fflush(stdout);
}

static void wait_for_one(void)
{
    int status = 0;
    const pid_t pid = wait(&status);
    for (int i = 0; i < running; i++) {
        if (jobs[i].pid != pid)
            continue;
        const job j = jobs[i];
        const outcome o = WIFEXITED(status)             ? (outcome)WEXITSTATUS(status)
                          : WTERMSIG(status) == SIGALRM ? HUNG
                                                        : CRASHED;
        counts[j.place][j.kind][o < OUTCOMES ? o : CRASHED]++;
        if (o == SURVIVED)
            tell_survivor(fvi_ops_for(fvi_isa_best())->op[j.op]->name, j.place, j.kind, "survives");
        jobs[i] = jobs[--running];
        return;
    }
}

static void start(int op, int at, mutant_kind kind, uint64_t samples)
{
    if (running == most_jobs)
        wait_for_one();
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(SECONDS);
        run.op = op;
        run.place = at;
        run.kind = kind;
        _exit((int)try_mutant(samples));
    }
    if (pid < 0) {
        perror("mutants");
        exit(1);
    }
    jobs[running++] = (job){pid, op, at, kind};
}

/* Every mistake at the places that the op's backward computes. */
static void mutate_op(int op)
{
    for (int at = 0; at < PLACES; at++)
        for (int kind = 0; kind < MUTANT_KINDS; kind++) {
            const computed *c = &run.backward[op][at];
            const uint64_t samples = changed_by(c, kind);
            if ((places[at].kinds >> kind & 1) != 0 && samples != 0)
                start(op, at, (mutant_kind)kind, samples);
        }
}

/* Whether the backward of any op computed a number there. */
static bool computed_at_all(int at)
{
    bool found = false;
    for (int op = 0; op < (int)FVI_OP_COUNT; op++)
        found |= run.backward[op][at].not_zero != 0;
    return found;
}

/* Mistakes of backward rules that no sample of any op would show. */
static void find_unused(void)
{
    extern const mutant_seen __start_mutants[], __stop_mutants[];
    static bool number[PLACES];
    for (const mutant_seen *s = __start_mutants; s < __stop_mutants; s++)
        number[s->place] |= s->is_number != 0;
    for (int at = 0; at < PLACES; at++)
        for (int kind = 0; kind < MUTANT_KINDS; kind++) {
            bool used = !number[at] || !places[at].own || (places[at].kinds >> kind & 1) == 0;
            if (kind == MUTANT_ONE &&
                computed_at_all(at)) /* how many are largest: 1, but for ties */
                continue;
            for (int op = -1; op < (int)FVI_OP_COUNT && !used; op++) {
                const computed *c = op < 0 ? &run.forward[at] : &run.backward[op][at];
                used = changed_by(c, kind == MUTANT_SCALE ? MUTANT_NEGATE : kind) != 0;
            }
            if (!used) {
                counts[at][kind][SURVIVED]++;
                tell_survivor(places[at].function, at, (mutant_kind)kind, "no sample computes it");
            }
        }
}

/* Places that backward rules compute, where no mistake of any kind changes any gradient. */
static void find_idle(void)
{
    for (int at = 0; at < PLACES; at++) {
        long unchanged = 0, others = 0;
        for (int kind = 0; kind < MUTANT_KINDS; kind++)
            for (int o = 0; o < OUTCOMES; o++)
                *(o == UNCHANGED ? &unchanged : &others) += counts[at][kind][o];
        for (int kind = 0; kind < MUTANT_KINDS; kind++)
            if (others == 0 && counts[at][kind][UNCHANGED] > 0) {
                counts[at][kind][SURVIVED]++;
                tell_survivor(places[at].function, at, (mutant_kind)kind, "changes no gradient");
            }
    }
}

static void tell_files(void)
{
    long all[OUTCOMES] = {0}, mutants = 0;
    printf("%-44s %7s %7s %7s %9s %7s %6s %10s\n", "file", "places", "mutants", "caught",
           "otherwise", "crashed", "hung", "survivors");
    for (int at = 0, end; at < PLACES; at = end) {
        long sum[OUTCOMES] = {0}, total = 0, with = 0;
        for (end = at; end < PLACES && strcmp(places[end].file, places[at].file) == 0; end++) {
            long here = 0;
            for (int kind = 0; kind < MUTANT_KINDS; kind++)
                for (int o = 0; o < OUTCOMES; o++) {
                    sum[o] += counts[end][kind][o];
                    here += o == UNCHANGED ? 0 : counts[end][kind][o];
                }
            total += here;
            with += here > 0;
        }
        for (int o = 0; o < OUTCOMES; o++)
            all[o] += sum[o];
        mutants += total;
        if (total > 0)
            printf("%-44s %7ld %7ld %7ld %9ld %7ld %6ld %10ld\n", places[at].file, with, total,
                   sum[CAUGHT], sum[OTHERWISE], sum[CRASHED], sum[HUNG], sum[SURVIVED]);
    }
    printf("%ld more change no gradient of their op\n", all[UNCHANGED]);
    printf("%ld mutants, %ld caught\n", mutants, mutants - all[SURVIVED]);
    exit(all[SURVIVED] > 0);
}

static void *shared(size_t size)
{
    void *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
        perror("mutants");
        exit(1);
    }
    return block;
}

/* Whether the command line asks for the op. */
static bool asked(const char *name, char **names)
{
    bool found = *names == NULL;
    for (; *names != NULL; names++)
        found |= strcmp(*names, name) == 0;
    return found;
}

int main(int argc, char **argv)
{
    char **names = argv + 1;
    if (argc > 2 && strcmp(argv[1], "--jobs") == 0) {
        most_jobs = atoi(argv[2]);
        names += 2;
    }
    if (most_jobs < 1 || most_jobs > JOBS || (*names != NULL && **names == '-')) {
        fputs(usage, stderr);
        return 2;
    }
    const fvi_ops *all = fvi_ops_for(fvi_isa_best());
    run.backward = shared(FVI_OP_COUNT * sizeof *run.backward);
    run.forward = shared(PLACES * sizeof *run.forward);
    for (int op = 0; op < FVI_OP_COUNT; op++) {
        int status = 0;
        if (!asked(all->op[op]->name, names))
            continue;
        /* In a process of its own: threads do not survive a fork. */
        const pid_t pid = fork();
        if (pid == 0)
            _exit(!watch_op(op));
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
            fprintf(stderr, "mutants: %s is not right as it is\n", all->op[op]->name);
            return 1;
        }
    }
    /* A mistake may write anywhere. */
    mprotect(run.backward, FVI_OP_COUNT * sizeof *run.backward, PROT_READ);
    mprotect(run.forward, PLACES * sizeof *run.forward, PROT_READ);
    for (int op = 0; op < FVI_OP_COUNT; op++)
        if (asked(all->op[op]->name, names))
            mutate_op(op);
    while (running > 0)
        wait_for_one();
    if (*names == NULL) {
        find_unused();
        find_idle();
    }
    tell_files();
}
