/* Rewrites C sources so that each number which flows into a gradient can be made wrong at run time.
 *
 *     rewrite OUT file.c file.h ..
 *
 * writes OUT/file.c and so on, line by line as they were, with MUTANT(number, witness, expression) of mutants.h
 * around each place, and OUT/places.h, a row for each. The compiler tells later which are numbers (the witness
 * has their type), and run.c which of them a backward rule computes. A statement that parse.c does not
 * understand stays as it is, and is named on stderr. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/mutants/rewrite.h"

static char *source;
static int before; /* places of the texts before this one */

/* Tokens first .. last on one line, without comments. */
static void write_flat(FILE *out, int first, int last, bool quoted)
{
    for (int i = first; i <= last; i++) {
        const token *t = &tokens[i];
        if (i > first && tokens[i].at > tokens[i - 1].at + tokens[i - 1].size)
            fputc(' ', out);
        for (size_t k = 0; k < t->size; k++) {
            if (quoted && (t->at[k] == '"' || t->at[k] == '\\'))
                fputc('\\', out);
            fputc(t->at[k], out);
        }
    }
}

/* The text from .. to with its places marked, and a row of places.h for each. */
static void write_text(const char *from, const char *to, FILE *out, FILE *rows)
{
    const char *p = from;
    for (int i = 0; i < count; i++) {
        fwrite(p, 1, (size_t)(tokens[i].at - p), out);
        p = tokens[i].at;
        for (int w = placed - 1; w >= 0; w--) { /* the outermost was found last */
            const place *x = &places[w];
            if (x->first != i)
                continue;
            if (x->kinds == 1 << MUTANT_CALL)
                fprintf(out, "MUTANT_CALL(%d, ", before + w);
            else {
                fprintf(out, "MUTANT(%d, ", before + w);
                write_flat(out, x->from, x->to, false);
                fprintf(out, ", ");
            }
        }
        fwrite(p, 1, tokens[i].size, out);
        p += tokens[i].size;
        for (int w = 0; w < placed; w++)
            if (places[w].last == i)
                fputc(')', out);
    }
    fwrite(p, 1, (size_t)(to - p), out);
    for (int w = 0; w < placed; w++) {
        const place *x = &places[w];
        const function *f = x->function >= 0 ? &functions[x->function] : NULL;
        fprintf(rows, "X(\"%s\", %d, \"%s\", %d, %d, \"", path, tokens[x->first].line,
                f ? f->name : "", x->kinds, f == NULL || !f->forward);
        write_flat(rows, x->first, x->last, true);
        fprintf(rows, "\")\n");
    }
    before += placed;
    placed = 0;
}

/* The end of the directive that starts at p. */
static const char *directive_end(const char *p)
{
    while (*p != 0 && (*p != '\n' || p[-1] == '\\'))
        p++;
    return p;
}

/* The next #define that has a function in it, and where its body starts; NULL: none. */
static const char *next_define(const char *p, const char **body)
{
    while ((p = strstr(p, "#define")) != NULL) {
        const char *end = directive_end(p);
        const char *close = strchr(p, ')'), *brace = memchr(p, '{', (size_t)(end - p));
        const bool alone = p == source || p[-1] == '\n';
        if (alone && brace != NULL && close != NULL && close < brace &&
            memchr(p, ';', (size_t)(end - p)) != NULL) {
            *body = close + 1;
            return p;
        }
        p = end;
    }
    return NULL;
}

static int line_of(const char *p)
{
    int line = 1;
    for (const char *s = source; s < p; s++)
        line += *s == '\n';
    return line;
}

/* One file in pieces: what stands between such #defines, and their bodies. */
static void transform(bool gather, FILE *out, FILE *rows)
{
    const char *p = source, *end = source + strlen(source);
    while (p < end) {
        const char *body = NULL, *define = next_define(p, &body), *stop = define ? define : end;
        for (int part = 0; part < 2 && p < end; part++) {
            read_tokens(p, stop, line_of(p), part == 1);
            parse_text(gather);
            if (!gather)
                write_text(p, stop, out, rows);
            p = stop;
            if (define == NULL)
                return;
            if (part == 0) {
                if (!gather)
                    fwrite(p, 1, (size_t)(body - p), out);
                p = body;
                stop = directive_end(define);
            }
        }
    }
}

static char *read_all(const char *name)
{
    FILE *f = fopen(name, "r");
    long size = -1;
    if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) < 0) {
        fprintf(stderr, "rewrite: cannot read %s\n", name);
        exit(1);
    }
    rewind(f);
    char *text = need(calloc((size_t)size + 1, 1));
    if (fread(text, 1, (size_t)size, f) != (size_t)size) {
        fprintf(stderr, "rewrite: cannot read %s\n", name);
        exit(1);
    }
    fclose(f);
    return text;
}

/* OUT/name, with its folders. */
static FILE *create(const char *folder, const char *name)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", folder, name);
    for (char *slash = full + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        mkdir(full, 0777);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    if (f == NULL) {
        fprintf(stderr, "rewrite: cannot write %s\n", full);
        exit(1);
    }
    return f;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "rewrite OUT file.c file.h ..\n");
        return 2;
    }
    FILE *rows = create(argv[1], "places.h");
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 2; i < argc; i++) {
            FILE *out = pass ? create(argv[1], argv[i]) : NULL;
            path = argv[i];
            source = read_all(path);
            transform(pass == 0, out, rows);
            if (out != NULL)
                fclose(out);
            free(source);
        }
        follow_calls();
    }
    fclose(rows);
    return 0;
}
