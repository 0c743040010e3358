/* The tests' door to memory: counts what is taken, and refuses it on request. */
#ifndef TEST_MEMORY_H
#define TEST_MEMORY_H

#include <stddef.h>

/* The n-th request from now (from 1) fails; 0: none does. */
void test_fail_after(size_t n);
/* Requests for memory so far. */
size_t test_requests(void);
/* Blocks taken and not given back. */
size_t test_blocks(void);

#endif
