/* The example programs stopped by Ctrl-C or kill -9, and resumed to the same bytes. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "fovea.h"
#include "tests/programs.h"

#if !defined(FV_F64) && !defined(FV_COMPLEX) /* the programs are of the float build */

TestSuite(stop, .init = programs_begin, .fini = programs_end);

/* Starts a command again and again with --resume, ends it a little later each time, by Ctrl-C or by kill -9,
 * and lets the last go on: its file must be the one of a run that nobody disturbed. */
static void stop_anywhere(const char *command)
{
    cr_assert_eq(programs_run("%s --epochs 6 --out whole >out", command), 0);
    for (int round = 0; round < 8; round++) {
        const int code = programs_run(
            "exec 2>err2; %s --epochs 6 --out parts --resume --threads %d %s >out 2>err & "
            "sleep 0.0%d; kill -%s $!; wait $!",
            command, 1 + round % 2, round % 3 ? "" : "--save-every 1", 1 + round,
            round % 4 < 2 ? "INT" : "KILL");
        cr_expect(code == 0 || code == FV_INTERRUPTED || code == 128 + SIGKILL, "exit code %d",
                  code);
    }
    cr_expect_eq(programs_run("%s --epochs 6 --out parts --resume >out", command), 0);
    cr_expect_eq(programs_run("cmp whole parts"), 0);
}

Test(stop, a_tagger_resumes_where_it_stopped)
{
    stop_anywhere(TRAIN "--dev train.conllu");
}

Test(stop, a_classifier_resumes_where_it_stopped)
{
    stop_anywhere(LEARN "--dev train.tsv");
}

#define WAIT_FOR_AN_EPOCH "until test -e t.npz || ! kill -0 $pid; do sleep 0.01; done 2>err2; "

/* The step that a checkpoint was saved at. */
static unsigned long long saved_step(const char *name)
{
    fv_checkpoint *file = fv_checkpoint_open(programs_path(name), NULL);
    cr_assert_not_null(file);
    json_t *root = json_loads(fv_checkpoint_json(file), 0, NULL);
    const json_int_t step =
        json_integer_value(json_object_get(json_object_get(root, "cursor"), "step"));
    json_decref(root);
    fv_checkpoint_close(file);
    return (unsigned long long)step;
}

Test(stop, ctrl_c_saves_and_says_how_to_go_on)
{
    char expected[200];
    cr_expect_eq(programs_run(TRAIN
                              "--out t.npz --epochs 2000 >out 2>err & pid=$!; " WAIT_FOR_AN_EPOCH
                              "kill -INT $pid; wait $pid"),
                 130);
    snprintf(expected, sizeof expected,
             "pos_tagging: stopped after step %llu of 8000, saved to t.npz; the same command with "
             "--resume goes on from there\n",
             saved_step("t.npz"));
    cr_expect_str_empty(programs_get("out", NULL));
    cr_expect_str_eq(programs_get("err", NULL), expected);
}

/* Both signals wait while the program is held: it meets the second before it can have saved. */
Test(stop, a_second_ctrl_c_ends_at_once)
{
    const int code =
        programs_run(TRAIN "--out t.npz --epochs 10000 >out 2>err & pid=$!; " WAIT_FOR_AN_EPOCH
                           "kill -STOP $pid; kill -TERM $pid; kill -INT $pid; kill -CONT $pid; "
                           "wait $pid");
    cr_expect(code == 128 + SIGINT || code == 128 + SIGTERM, "exit code %d", code);
    cr_expect_str_empty(programs_get("err", NULL));
    cr_expect_eq(programs_run("$POS eval --model t.npz --data train.conllu >out"), 0);
}

#endif
