/* build/bin/conformance DIR: runs every case.json below a folder through the library's ops and compares
 * with the outputs that it names. Built on the double library. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "conformance/conformance.h"

static const char usage[] =
    "examples:\n"
    "  conformance ../shared/conformance/onnx          runs all cases below a folder\n"
    "  conformance ../shared/conformance/onnx/Conv     those of one operator\n"
    "  conformance --json DIR                          the same as one JSON object\n"
    "\n"
    "usage: conformance [--json] [--quiet] DIR\n"
    "  --json     counts, failures and skips as JSON on standard output\n"
    "  --quiet    no line for each skip, only the table\n"
    "  --help     this text\n"
    "A case is a folder with case.json and .npy arrays: see docs/conformance.md.\n"
    "Exit code: 0 when no case failed, 1 when one did, 2 usage, 3 when no case was read.\n";

/* ---- the tables ------------------------------------------------------------------------------------ */

bool run_operation(call *c)
{
    static const operation *const tables[] = {
        elementwise_operations, shape_operations,  choosing_operations, reduction_operations,
        product_operations,     norm_operations,   loss_operations,     recurrent_operations,
        attention_operations,   missing_operations};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const operation *o = tables[i]; o->name != NULL; o++) {
            if (strcmp(o->name, c->op) != 0)
                continue;
            const int needs = o->needs != 0 ? o->needs : o->lacks == NULL;
            for (int k = 0; k < needs; k++)
                if (input(c, k) == NULL)
                    return fv_refuse(c->t, c->op, "input %d is absent", k) != NULL;
            fv_var *y = o->run != NULL      ? o->run(c)
                        : o->unary != NULL  ? o->unary(c->t, input(c, 0))
                        : o->binary != NULL ? o->binary(c->t, input(c, 0), input(c, 1))
                                            : lacks(c, o->lacks);
            if (c->lacks != NULL || !fv_tape_ok(c->t) || (y == NULL && wants(c, 0)))
                return false;
            give(c, 0, y);
            return true;
        }
    lacks(c, "an operator that the table does not list");
    return false;
}

/* ---- folders --------------------------------------------------------------------------------------- */

/* Paths of folders with a case.json, in the order of their names. */
typedef struct {
    char **at;
    size_t count, room;
} paths;

static bool is_file(const char *folder, const char *name)
{
    char path[4096];
    struct stat s;
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length < (int)sizeof path && stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

static bool add_path(paths *p, const char *path)
{
    if (p->count == p->room) {
        const size_t room = p->room > 0 ? 2 * p->room : 64;
        char **at = realloc(p->at, room * sizeof *at);
        if (at == NULL)
            return false;
        p->at = at;
        p->room = room;
    }
    p->at[p->count] = strdup(path);
    return p->at[p->count] != NULL && ++p->count;
}

/* Folders are at most so deep below the one that is asked for. */
static bool find_cases(paths *p, const char *folder, int depth)
{
    struct dirent **entries;
    if (is_file(folder, "case.json") && !add_path(p, folder))
        return false;
    const int count = scandir(folder, &entries, NULL, alphasort);
    bool ok = count >= 0;
    for (int i = 0; i < count; i++) {
        char path[4096];
        struct stat s;
        const char *slash = folder[0] != 0 && folder[strlen(folder) - 1] == '/' ? "" : "/";
        const int length = snprintf(path, sizeof path, "%s%s%s", folder, slash, entries[i]->d_name);
        if (ok && entries[i]->d_name[0] != '.' && depth > 0 && length < (int)sizeof path &&
            stat(path, &s) == 0 && S_ISDIR(s.st_mode))
            ok = find_cases(p, path, depth - 1);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return ok;
}

/* ---- report ---------------------------------------------------------------------------------------- */

/* Skips by operator and reason, in the order of the operators' names. */
static int by_operator(const void *a, const void *b)
{
    const outcome *x = *(const outcome *const *)a, *y = *(const outcome *const *)b;
    const int order = strcmp(x->op, y->op);
    return order != 0 ? order : strcmp(x->text, y->text);
}

/* Ends the group of equal outcomes that starts at list[i]; where the next one starts. */
static size_t next_group(const outcome *const *list, size_t count, size_t i)
{
    size_t end = i + 1;
    while (end < count && by_operator(&list[i], &list[end]) == 0)
        end++;
    return end;
}

static void report_text(const outcome *all, size_t count, const outcome *const *skips,
                        const size_t counts[3], bool quiet)
{
    for (size_t i = 0; i < count; i++)
        if (all[i].verdict == FAILED)
            printf("failed   %s: %s\n", all[i].name, all[i].text);
        else if (all[i].verdict == SKIPPED && !quiet)
            printf("skipped  %s: %s: %s\n", all[i].name, all[i].op, all[i].text);
    if (counts[SKIPPED] > 0)
        printf("\n%-26s %5s  %s\n", "skipped operator", "cases", "what the library does not have");
    for (size_t i = 0; i < counts[SKIPPED];) {
        const size_t end = next_group(skips, counts[SKIPPED], i);
        printf("%-26s %5zu  %s\n", skips[i]->op, end - i, skips[i]->text);
        i = end;
    }
    printf("\n%zu passed, %zu failed, %zu skipped\n", counts[PASSED], counts[FAILED],
           counts[SKIPPED]);
}

static void report_json(const outcome *all, size_t count, const outcome *const *skips,
                        const size_t counts[3])
{
    json_t *failures = json_array(), *skipped = json_array(), *operators = json_object();
    static const char *const names[] = {"passed", "failed", "skipped"};
    for (size_t i = 0; i < count; i++) {
        json_t *row = json_object_get(operators, all[i].op);
        if (row == NULL) {
            row = json_pack("{s:i,s:i,s:i}", names[0], 0, names[1], 0, names[2], 0);
            json_object_set_new(operators, all[i].op, row);
        }
        json_t *n = json_object_get(row, names[all[i].verdict]);
        json_integer_set(n, json_integer_value(n) + 1);
        if (all[i].verdict == FAILED)
            json_array_append_new(failures, json_pack("{s:s,s:s,s:s}", "case", all[i].name,
                                                      "operator", all[i].op, "text", all[i].text));
    }
    for (size_t i = 0; i < counts[SKIPPED];) {
        const size_t end = next_group(skips, counts[SKIPPED], i);
        json_array_append_new(skipped, json_pack("{s:s,s:i,s:s}", "operator", skips[i]->op, "cases",
                                                 (int)(end - i), "reason", skips[i]->text));
        i = end;
    }
    json_t *whole_report =
        json_pack("{s:i,s:i,s:i,s:o,s:o,s:o}", names[0], (int)counts[PASSED], names[1],
                  (int)counts[FAILED], names[2], (int)counts[SKIPPED], "failures", failures,
                  "skips", skipped, "operators", operators);
    json_dumpf(whole_report, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(whole_report);
}

static int run_all(const char *folder, bool json, bool quiet)
{
    paths p = {0};
    size_t counts[3] = {0};
    if (!find_cases(&p, folder, 8) || p.count == 0) {
        fprintf(stderr, "conformance: %s: %s\n", folder,
                p.count == 0 && errno != 0 ? strerror(errno) : "no case.json below it");
        return 3;
    }
    fv_tape *t = fv_tape_new(NULL);
    outcome *all = calloc(p.count, sizeof *all);
    const outcome **skips = calloc(p.count, sizeof *skips);
    int code = 1;
    if (t == NULL || all == NULL || skips == NULL)
        fprintf(stderr, "conformance: out of memory\n");
    else {
        for (size_t i = 0; i < p.count; i++) {
            run_case(t, p.at[i], &all[i]);
            if (all[i].verdict == SKIPPED)
                skips[counts[SKIPPED]] = &all[i];
            counts[all[i].verdict]++;
        }
        qsort(skips, counts[SKIPPED], sizeof *skips, by_operator);
        if (json)
            report_json(all, p.count, skips, counts);
        else
            report_text(all, p.count, skips, counts, quiet);
        code = counts[FAILED] > 0;
    }
    for (size_t i = 0; i < p.count; i++)
        free(p.at[i]);
    free(p.at);
    free(all);
    free(skips);
    fv_tape_free(t);
    return code;
}

int main(int argc, char **argv)
{
    const char *folder = NULL;
    bool json = false, quiet = false;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            return 0;
        } else if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--quiet") == 0)
            quiet = true;
        else if (argv[i][0] == '-' || folder != NULL) {
            fprintf(stderr, "conformance: %s: %s (see conformance --help)\n", argv[i],
                    argv[i][0] == '-' ? "unknown option" : "expected one folder");
            return 2;
        } else
            folder = argv[i];
    if (folder == NULL) {
        fprintf(stderr, "conformance: expected a folder (see conformance --help)\n");
        return 2;
    }
    return run_all(folder, json, quiet);
}
