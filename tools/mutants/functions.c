/* The functions of all files: who calls whom, and what a rule of either direction may reach. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mutants/rewrite.h"

function *functions;
static int known;

static int find_named(const char *name, size_t size, const char *where)
{
    int found = -1;
    for (int i = 0; i < known; i++)
        if (strncmp(functions[i].name, name, size) == 0 && functions[i].name[size] == 0 &&
            (found < 0 || functions[i].path == where))
            found = i;
    return found;
}

int find_function(const token *name)
{
    return find_named(name->at, name->size, path);
}

/* Whether parameters have a pointer to numbers that is not const, or a product to run. */
static bool writes_numbers(int open)
{
    for (int i = open + 1; i < tokens[open].pair; i++)
        if (is(i, "fvi_product") || is(i, "FVI_LOOP") ||
            ((is(i, "fv_real") || is(i, "fvi_wide")) && (is(i + 1, "*") || is(i + 2, "[")) &&
             !is(i - 1, "const")))
            return true;
    return false;
}

/* The words among the tokens from .. to - 1, a blank around each. */
static char *words_of(int from, int to)
{
    size_t size = 2;
    for (int i = from; i < to; i++)
        size += tokens[i].size + 1;
    char *words = need(malloc(size)), *p = words;
    *p++ = ' ';
    for (int i = from; i < to; i++)
        if (is_word(i)) {
            memcpy(p, tokens[i].at, tokens[i].size);
            p += tokens[i].size;
            *p++ = ' ';
        }
    *p = 0;
    return words;
}

void add_function(int name, int body)
{
    static int room;
    if (known == room) {
        room = 2 * room + 500;
        functions = need(realloc(functions, (size_t)room * sizeof *functions));
    }
    function *f = &functions[known++];
    char *text = words_of(name, name + 1);
    text[strlen(text) - 1] = 0; /* the blank behind */
    *f = (function){.name = text + 1,
                    .path = path,
                    .words = words_of(body, tokens[body].pair),
                    .writes = writes_numbers(name + 1)};
    f->answers = is(name - 1, "bool") && !f->writes;
    f->backward = strstr(f->name, "back") != NULL || is(name - 1, "##");
    f->forward = strstr(f->name, "forward") != NULL;
}

/* Whatever a body mentions may be called; and so on until that is all. */
void follow_calls(void)
{
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < known; i++) {
            const function *f = &functions[i];
            const char *p = f->words;
            while ((f->backward || f->forward) && *++p != 0) {
                const size_t size = strcspn(p, " ");
                const int called = find_named(p, size, f->path);
                function *g = &functions[called >= 0 ? called : i];
                p += size;
                if (called < 0 || (g->backward >= f->backward && g->forward >= f->forward))
                    continue;
                g->backward |= f->backward;
                g->forward |= f->forward;
                more = true;
            }
        }
    }
}
