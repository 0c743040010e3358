/* Runs the example programs: see programs.h. */
#include "tests/programs.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Word/TAG, one sentence a line. */
static const char tagged[] = "The/DET dog/NOUN saw/VERB the/DET light/NOUN ./PUNCT\n"
                             "I/PRON saw/VERB her/PRON ./PUNCT\n"
                             "She/PRON cuts/VERB wood/NOUN with/ADP a/DET saw/NOUN ./PUNCT\n"
                             "Light/ADJ dogs/NOUN bark/VERB !/PUNCT\n"
                             "We/PRON will/AUX see/VERB ./PUNCT\n";
static const char reviews[] = "good\ta fine film\nbad\ta dull film\ngood\tfine and warm\n"
                              "bad\tdull and cold\ngood\twarm\nbad\tcold film\n";

static char folder[] = "/tmp/fovea-programs-XXXXXX";

const char *programs_path(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

int programs_run(const char *format, ...)
{
    char command[4000];
    int length = snprintf(command, sizeof command, "cd %s && { ", folder);
    va_list args;
    va_start(args, format);
    length += vsnprintf(command + length, sizeof command - (size_t)length, format, args);
    va_end(args);
    cr_assert_lt((size_t)length + 4, sizeof command);
    strcpy(command + length, "\n}");
    const int status = system(command);
    cr_assert(WIFEXITED(status), "%s: ended by a signal", command);
    return WEXITSTATUS(status);
}

void programs_put(const char *name, const char *bytes, size_t length)
{
    FILE *file = fopen(programs_path(name), "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, length, file), length);
    fclose(file);
}

static char content[1 << 20];

const char *programs_get(const char *name, size_t *length)
{
    FILE *file = fopen(programs_path(name), "rb");
    size_t n = file ? fread(content, 1, sizeof content - 1, file) : 0;
    content[n] = 0;
    if (length != NULL)
        *length = n;
    if (file != NULL)
        fclose(file);
    return content;
}

static void find_programs(void)
{
    char path[4000];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 20);
    cr_assert_gt(length, 0);
    path[length] = 0;
    char *name = strrchr(path, '/') + 1;
    strcpy(name, "pos_tagging");
    if (access(path, X_OK) != 0)
        cr_skip_test("%s: not built", path);
    setenv("POS", path, 1);
    strcpy(name, "sentiment");
    setenv("SENT", path, 1);
}

void programs_begin(void)
{
    find_programs();
    cr_assert_not_null(mkdtemp(folder));
    char conllu[2000] = "", words[sizeof tagged];
    int length = 0, number = 0;
    memcpy(words, tagged, sizeof tagged);
    for (char *word = words, *end; *word; word = end + 1) {
        end = word + strcspn(word, " \n");
        const char last = *end;
        *end = 0;
        char *tag = strrchr(word, '/');
        *tag++ = 0;
        length += sprintf(conllu + length, "%d\t%s\t_\t%s\t_\t_\t_\t_\t_\t_\n%s", ++number, word,
                          tag, last == '\n' ? "\n" : "");
        number = last == '\n' ? 0 : number;
    }
    programs_put("train.conllu", conllu, (size_t)length);
    programs_put("train.tsv", reviews, strlen(reviews));
}

void programs_end(void)
{
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_expect_eq(system(command), 0);
}

void programs_fail(const failure *failures, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const failure *f = &failures[i];
        const int code = programs_run("( %s ) 2>err", f->command);
        const char *text = programs_get("err", NULL);
        cr_expect_eq(code, f->code, "%s: exit code %d, not %d", f->command, code, f->code);
        cr_expect_eq(strncmp(text, f->says, strlen(f->says)), 0, "%s: %s", f->command, text);
        cr_expect(*text && strchr(text, '\n') == text + strlen(text) - 1, "%s: not one line: %s",
                  f->command, text);
    }
}
