/* Shared by the files of train/ alone. */
#ifndef FVI_TRAIN_H
#define FVI_TRAIN_H

#include "tensor/internal.h"
#include "train/train.h"

/* Whole numbers up to here are exact in a double. */
#define FVI_LAST_WHOLE 9007199254740992.0

/* Whether a task has offsets that start at 0 and never fall; says what is wrong, after the name of the asker. */
bool fvi_task_check(const fv_task *task, const char *who, fv_error *error);

/* Whether a schedule makes sense; says what does not otherwise. NULL does: the rate stays as it is. */
bool fvi_schedule_check(const fv_schedule *schedule, fv_error *error);

#endif
