/* What the tests and the fuzzer of checkpoints reach past the public interface. Private to train/. */
#ifndef FVI_CHECKPOINT_H
#define FVI_CHECKPOINT_H

#include "train/files/npz.h"
#include "train/train.h"

/* fv_checkpoint_save with other system calls, and fv_checkpoint_open from bytes in memory. */
bool fvi_checkpoint_save_by(const fvi_system *system, const char *path, const fv_params *params,
                            const fv_optimizer *optimizer, const char *json, fv_error *error);
fv_checkpoint *fvi_checkpoint_parse(const char *path, const void *bytes, size_t length,
                                    fv_error *error);

#endif
