# fovea: `make` builds, `make demo` trains the tagger, `make test` checks everything, `make help` lists the rest.

CC       ?= cc
AR       ?= ar
CFLAGS   ?= -O3 -g
PREFIX   ?= /usr/local
DESTDIR  ?=
BUILD    ?= build
OPENMP   ?= 1
THREADS  ?= 2
WERROR   ?= -Werror
VERSION  := 0.1.0

# Libraries that are not the core's own work: Debian's libjansson-dev and libutf8proc-dev, uthash-dev (headers).
ZLIB_LIBS     ?= -lz
JANSSON_LIBS  ?= -ljansson
UTF8PROC_LIBS ?= -lutf8proc
CRITERION_LIBS ?= -lcriterion

WARN  := -Wall -Wextra -Wpedantic -Wshadow -Wconversion $(WERROR)
BASE  := -std=c11 -I. -D_POSIX_C_SOURCE=200809L -fPIC -fvisibility=hidden -MMD -MP $(WARN)
LIBS  := $(ZLIB_LIBS) $(JANSSON_LIBS) $(UTF8PROC_LIBS) -lm
ifeq ($(OPENMP),1)
BASE  += -fopenmp
LIBS  += -fopenmp
else
BASE  += -Wno-unknown-pragmas
endif

# ---- what is compiled how -----------------------------------------------------------------------
# Files in tensor/kernel and autograd/ops are compiled once for each instruction set (see tensor/internal.h).
ONCE    := $(wildcard tensor/*.c autograd/*.c layers/*.c train/*.c train/*/*.c)
EACH    := $(wildcard tensor/kernel/*.c autograd/ops/*.c)
KERNEL  := -ffp-contract=fast -fno-math-errno -fno-trapping-math
ISA_base   := -DFVI_ISA=base -DFVI_ONCE=1
ISA_avx2   := -DFVI_ISA=avx2 -mavx2 -mfma
ISA_avx512 := -DFVI_ISA=avx512 -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx2 -mfma -mprefer-vector-width=512

MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
ISAS_float   := base $(if $(filter x86_64,$(MACHINE)),avx2 avx512)
ISAS_double  := $(ISAS_float)
ISAS_complex := base

BUILDS        := float double complex
DEF_float     :=
DEF_double    := -DFV_F64
DEF_complex   := -DFV_COMPLEX
LIB_float     := $(BUILD)/lib/libfovea
LIB_double    := $(BUILD)/lib/libfovea64
LIB_complex   := $(BUILD)/lib/libfoveac

TESTS    := $(wildcard tests/*.c)
PROGRAMS := $(filter-out examples/common.c,$(wildcard examples/*.c))
BINARIES := $(PROGRAMS:examples/%.c=$(BUILD)/bin/%)

ifdef V
Q :=
else
Q := @
MAKEFLAGS += --no-print-directory
endif
say = @printf '  %-8s %s\n' '$(1)' '$(2)'

.PHONY: all demo test test-long lint format bench asan install uninstall dist clean help tests-built
all: $(BINARIES) $(LIB_float).a $(LIB_float).so ## the library and the programs (float)

# One set of rules for each build: objects, archive, shared library, test runner.
define build_rules
OBJ_$(1) := $$(ONCE:%.c=$(BUILD)/obj/$(1)/%.o) \
            $$(foreach isa,$$(ISAS_$(1)),$$(EACH:%.c=$(BUILD)/obj/$(1)/$$(isa)/%.o))
$(BUILD)/obj/$(1)/%.o: %.c
	$$(call say,CC,$(1) $$<)
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(BASE) $$(CPPFLAGS) $$(CFLAGS) $(DEF_$(1)) -c $$< -o $$@
$(LIB_$(1)).a: $$(OBJ_$(1))
	$$(call say,AR,$$@)
	@mkdir -p $$(@D)
	$(Q)rm -f $$@; $$(AR) rcs $$@ $$^
$(LIB_$(1)).so: $$(OBJ_$(1))
	$$(call say,LD,$$@)
	@mkdir -p $$(@D)
	$(Q)$$(CC) -shared -Wl,-soname,$$(@F).0 $$(CFLAGS) $$(LDFLAGS) $$^ $(LIBS) -o $$@
$(BUILD)/bin/tests-$(1): $$(TESTS:%.c=$(BUILD)/obj/$(1)/%.o) $(LIB_$(1)).a
	$$(call say,LD,$$@)
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) $$^ $(LIBS) $(CRITERION_LIBS) -o $$@
$(foreach isa,$(ISAS_$(1)),$(call isa_rule,$(1),$(isa)))
-include $$(OBJ_$(1):.o=.d) $$(TESTS:%.c=$(BUILD)/obj/$(1)/%.d)
endef
define isa_rule
$(BUILD)/obj/$(1)/$(2)/%.o: %.c
	$$(call say,CC,$(1) $(2) $$<)
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(BASE) $$(CPPFLAGS) $$(CFLAGS) $$(KERNEL) $(ISA_$(2)) $(DEF_$(1)) -c $$< -o $$@

endef
$(foreach b,$(BUILDS),$(eval $(call build_rules,$(b))))

$(BUILD)/bin/%: $(BUILD)/obj/float/examples/%.o $(BUILD)/obj/float/examples/common.o $(LIB_float).a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LIBS) -o $@
-include $(wildcard $(BUILD)/obj/float/examples/*.d)

.SECONDARY:

# ---- checks ---------------------------------------------------------------------------------------
tests-built: $(BUILDS:%=$(BUILD)/bin/tests-%) $(BINARIES)
test: tests-built ## all tests in all three builds
	$(Q)for b in $(BUILDS); do echo "== $$b"; $(BUILD)/bin/tests-$$b --jobs $(THREADS) || exit 1; done

clean: ## removes everything built
	$(Q)rm -rf $(BUILD)

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | while IFS= read -r l; do \
	  printf '  \033[1m%-10s\033[0m %s\n' "$${l%%:*}" "$${l##*## }"; done
