# fovea: `make` builds, `make demo` trains the tagger, `make test` checks everything, `make help` lists the rest.
#
# On the command line: CC=clang  OPENMP=0 (one thread)  V=1 (show the commands)  BUILD=folder
# PREFIX=/usr  WERROR= (warnings stay warnings)  BUILDS=float (only that one)

CC       ?= cc
CXX      ?= c++
AR       ?= ar
INSTALL  ?= install
CFLAGS   ?= -O3 -g
CPPFLAGS ?=
LDFLAGS  ?=
WERROR   ?= -Werror
OPENMP   ?= 1
THREADS  ?= 2
BUILD    ?= build
PYTHON   ?= python3
DESTDIR  ?=
PREFIX   ?= /usr/local
bindir     ?= $(PREFIX)/bin
libdir     ?= $(PREFIX)/lib
includedir ?= $(PREFIX)/include

# Libraries that are not the core's own work.
ZLIB_LIBS      ?= -lz
JANSSON_LIBS   ?= -ljansson
UTF8PROC_LIBS  ?= -lutf8proc
CRITERION_LIBS ?= -lcriterion

VERSION := $(shell sed -n 's/^\#define FV_VERSION "\(.*\)"/\1/p' tensor/tensor.h)
WARN    := -Wall -Wextra -Wpedantic -Wshadow -Wconversion $(WERROR)
BASE    := -std=c11 -I. -D_POSIX_C_SOURCE=200809L -fPIC -fno-semantic-interposition -MMD -MP $(WARN)
LIBS    := $(ZLIB_LIBS) $(JANSSON_LIBS) $(UTF8PROC_LIBS) -lm
ifeq ($(OPENMP),1)
BASE    += -fopenmp
LIBS    += -fopenmp
else
BASE    += -Wno-unknown-pragmas
endif

# ---- what is compiled how -------------------------------------------------------------------------
# Files in tensor/kernel and autograd/ops are compiled once for each instruction set (see tensor/internal.h).
ONCE    := $(wildcard tensor/*.c autograd/*.c autograd/check/*.c layers/*.c train/*.c train/*/*.c)
EACH    := $(wildcard tensor/kernel/*.c autograd/ops/*.c)
KERNEL  := -ffp-contract=fast -fno-math-errno -fno-trapping-math
# Ops say themselves where a product and a sum are one (fvi_fma): left to the compiler, the choice, and with it
# the last bits, differs between instruction sets. In the kernels every number is one chain.
CONTRACT = $(if $(filter autograd/ops/%,$<),-ffp-contract=off)
ISA_base   := -DFVI_ISA=base -DFVI_ONCE=1
ISA_avx2   := -DFVI_ISA=avx2 -mavx2 -mfma
ISA_avx512 := -DFVI_ISA=avx512 -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx2 -mfma -mprefer-vector-width=512

MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
ISAS_float   := base $(if $(filter x86_64,$(MACHINE)),avx2 avx512)
ISAS_double  := $(ISAS_float)
ISAS_complex := base

BUILDS      := float double complex
DEF_float   :=
DEF_double  := -DFV_F64
DEF_complex := -DFV_COMPLEX
LIB_float   := fovea
LIB_double  := fovea64
LIB_complex := foveac

HEADERS  := fovea.h tensor/tensor.h autograd/autograd.h autograd/ops.h autograd/op.h layers/layers.h train/train.h
TESTS    := $(wildcard tests/*.c)
SHARED   := $(wildcard examples/shared/*.c)
# Programs that differentiate exactly are of the complex build, one that compares to the last digits of the double
# build, all others of the float build.
EXACT    := examples/gradcheck_attention.c examples/my_op.c
DOUBLE   := examples/theorems.c
PROGRAMS := $(filter-out $(SHARED) $(EXACT) $(DOUBLE),$(wildcard examples/*.c))
BINARIES := $(PROGRAMS:examples/%.c=$(BUILD)/bin/%)
EXACT_BINARIES := $(if $(filter complex,$(BUILDS)),$(EXACT:examples/%.c=$(BUILD)/bin/%)) \
                  $(if $(filter double,$(BUILDS)),$(DOUBLE:examples/%.c=$(BUILD)/bin/%))
CONFORM  := $(wildcard conformance/*.c)
BENCHES  := $(patsubst bench/%.c,$(BUILD)/bench/%,$(wildcard bench/*.c))
SOURCES  := $(ONCE) $(EACH) $(wildcard *.h */*.h */*/*.h tests/*.c examples/*.c examples/*/*.c bench/*.c conformance/*.c fuzz/*.c \
            tools/*.c tools/*/*.c)

ifdef V
Q   :=
say  =
else
Q   := @
MAKEFLAGS += --no-print-directory
say  = @printf '  %-8s %s\n' '$(1)' '$(2)'
endif
# $(call need,header package,..): says which headers are missing and the Debian packages that hold them.
need = missing= packages=; for pair in $(1); do header=$${pair%=*}; \
	echo "\#include <$$header>" | $(CC) $(CPPFLAGS) $(CFLAGS) -x c -fsyntax-only - 2>/dev/null || \
	{ missing="$$missing $$header"; packages="$$packages $${pair\#*=}"; }; done; \
	if [ -n "$$missing" ]; then \
	echo "fovea: $(CC) does not find:$$missing. On Debian: apt install$$packages" >&2; exit 1; fi

.PHONY: all libraries objects demo test test-long docs-check gradcheck mutants headers lint ops-doc format bench bench-ops bench-attention asan install uninstall install-check \
        dist clean help tests-built FORCE
.SECONDARY:
.DELETE_ON_ERROR:

all: $(BINARIES) $(EXACT_BINARIES) $(BUILD)/lib/libfovea.a $(BUILD)/lib/libfovea.so ## the library and the programs (float)
libraries: $(foreach b,$(BUILDS),$(BUILD)/lib/lib$(LIB_$(b)).a $(BUILD)/lib/lib$(LIB_$(b)).so) ## the library as float, double and complex

# ---- rules ----------------------------------------------------------------------------------------
# Compiler and flags of the last run: when they change everything is built anew, after a look for the
# libraries, so that a missing one is the first and only message.
FLAGS = $(CC) $(BASE) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(LIBS)
$(BUILD)/flags: FORCE
	@echo '$(FLAGS)' | cmp -s - $@ || { \
	command -v $(firstword $(CC)) >/dev/null || \
	{ echo 'fovea: there is no compiler $(CC). On Debian: apt install build-essential' >&2; exit 1; }; \
	$(call need,zlib.h=zlib1g-dev jansson.h=libjansson-dev utf8proc.h=libutf8proc-dev uthash.h=uthash-dev \
	  $(if $(filter 1,$(OPENMP)),omp.h=$(if $(findstring clang,$(CC)),libomp-dev,libgomp1))); \
	mkdir -p $(BUILD) && echo '$(FLAGS)' >$@; }
$(BUILD)/criterion: $(BUILD)/flags
	@$(call need,criterion/criterion.h=libcriterion-dev)
	@touch $@

# One C file: $(1) build, $(2) folder of its instruction set, $(3) flags of that.
define compile
$(BUILD)/obj/$(1)/$(2)%.o: %.c $(BUILD)/flags
	$$(call say,CC,$(1) $(2:%/=%) $$<)
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(BASE) $$(CPPFLAGS) $$(CFLAGS) $(3) $$(CONTRACT) $(DEF_$(1)) -c $$< -o $$@

endef
# One build $(1): objects, archive, shared library, test runner. Only fv_ names leave the shared library.
define build
OBJECTS_$(1) := $$(ONCE:%.c=$(BUILD)/obj/$(1)/%.o) \
                $$(foreach isa,$$(ISAS_$(1)),$$(EACH:%.c=$(BUILD)/obj/$(1)/$$(isa)/%.o))
TESTS_$(1)   := $$(TESTS:%.c=$(BUILD)/obj/$(1)/%.o)
$(call compile,$(1))
$(foreach isa,$(ISAS_$(1)),$(call compile,$(1),$(isa)/,$(KERNEL) $(ISA_$(isa))))
$(BUILD)/lib/lib$(LIB_$(1)).a: $$(OBJECTS_$(1))
	$$(call say,AR,$$@)
	@mkdir -p $$(@D) && rm -f $$@
	$(Q)$$(AR) rcs $$@ $$^
$(BUILD)/lib/lib$(LIB_$(1)).so: $$(OBJECTS_$(1)) tools/exports.map
	$$(call say,LD,$$@)
	@mkdir -p $$(@D)
	$(Q)$$(CC) -shared -Wl,-z,defs -Wl,-soname,$$(@F).0 -Wl,--version-script=tools/exports.map $$(CFLAGS) $$(LDFLAGS) \
	  $$(OBJECTS_$(1)) $$(LIBS) -o $$@
$$(TESTS_$(1)): | $(BUILD)/criterion
$(BUILD)/bin/tests-$(1): $$(TESTS_$(1)) $(BUILD)/lib/lib$(LIB_$(1)).a
	$$(call say,LD,$$@)
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) $$^ $$(LIBS) $$(CRITERION_LIBS) -o $$@
-include $$(OBJECTS_$(1):.o=.d) $$(TESTS_$(1):.o=.d)
endef
$(foreach b,$(BUILDS),$(eval $(call build,$(b))))

objects: $(foreach b,$(BUILDS),$(OBJECTS_$(b))) ## compiles all three builds without linking

$(BINARIES): $(BUILD)/bin/%: $(BUILD)/obj/float/examples/%.o $(SHARED:%.c=$(BUILD)/obj/float/%.o) $(BUILD)/lib/libfovea.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LIBS) -o $@
$(BENCHES): $(BUILD)/bench/%: $(BUILD)/obj/float/bench/%.o $(BUILD)/lib/libfovea.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LIBS) -o $@
# Vectors of other projects are compared in double.
$(BUILD)/bin/conformance: $(CONFORM:%.c=$(BUILD)/obj/double/%.o) $(BUILD)/lib/libfovea64.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LIBS) -o $@
-include $(wildcard $(BUILD)/obj/double/conformance/*.d)
$(EXACT:examples/%.c=$(BUILD)/bin/%): $(BUILD)/bin/%: $(BUILD)/obj/complex/examples/%.o $(BUILD)/lib/libfoveac.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LIBS) -o $@
$(DOUBLE:examples/%.c=$(BUILD)/bin/%): $(BUILD)/bin/%: $(BUILD)/obj/double/examples/%.o $(BUILD)/lib/libfovea64.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LIBS) -o $@
GRADCHECKS := $(foreach b,$(filter $(BUILDS),complex double),$(BUILD)/bin/gradcheck-$(b))
define gradcheck
$(BUILD)/bin/gradcheck-$(1): $(BUILD)/obj/$(1)/tools/gradcheck_table.o $(BUILD)/lib/lib$(LIB_$(1)).a
	$$(call say,LD,$$@)
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) $$^ $$(LIBS) -o $$@
endef
$(foreach b,$(filter-out float,$(BUILDS)),$(eval $(call gradcheck,$(b))))
# Copies of the ops and of what they multiply with, in which each number of a gradient can be made wrong.
MUTATED := $(filter-out %/update.c,$(wildcard autograd/ops/*.[ch] tensor/kernel/*.[ch]))
MUTANTS := $(patsubst %.c,$(BUILD)/mutants/%.o,$(filter %.c,$(MUTATED)))
$(BUILD)/mutants/rewrite: $(addprefix tools/mutants/,rewrite.c parse.c functions.c tokens.c rewrite.h mutants.h) $(BUILD)/flags
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -I. $(WARN) -O1 -g $(filter %.c,$^) -o $@
$(BUILD)/mutants/places.h: $(BUILD)/mutants/rewrite $(MUTATED)
	$(call say,REWRITE,$(@D))
	$(Q)$< $(@D) $(MUTATED)
MUTANT_CC = $(CC) -I$(BUILD)/mutants $(BASE) $(CPPFLAGS) -w -O1 -g $(DEF_complex)
$(MUTANTS): $(BUILD)/mutants/%.o: $(BUILD)/mutants/places.h
	$(call say,CC,mutants $*.c)
	$(Q)$(MUTANT_CC) $(KERNEL) $(ISA_base) -include tools/mutants/mutants.h -c $(BUILD)/mutants/$*.c -o $@
$(BUILD)/mutants/run: tools/mutants/run.c $(MUTANTS) $(BUILD)/lib/libfoveac.a
	$(call say,LD,$@)
	$(Q)$(MUTANT_CC) $^ $(LDFLAGS) $(LIBS) -o $@
-include $(MUTANTS:.o=.d)
-include $(wildcard $(BUILD)/obj/complex/examples/*.d $(BUILD)/obj/double/examples/*.d $(BUILD)/obj/*/tools/*.d \
          $(BUILD)/obj/float/examples/*.d $(BUILD)/obj/float/examples/*/*.d $(BUILD)/obj/float/bench/*.d)

# ---- runs -----------------------------------------------------------------------------------------
DEMO := $(BUILD)/demo
demo: $(BUILD)/bin/pos_tagging ## trains the tagger on tiny data, tags five sentences, draws its attention
	@mkdir -p $(DEMO)
	$(Q)$< train --train examples/data/tiny-train.conllu --dev examples/data/tiny-dev.conllu --out $(DEMO)/tagger.npz \
	  --epochs 30
	$(Q)$< eval --model $(DEMO)/tagger.npz --data examples/data/tiny-dev.conllu
	$(Q)$< show --model $(DEMO)/tagger.npz --data examples/data/tiny-dev.conllu --count 5 \
	  --attention $(DEMO)/attention.svg

tests-built: $(BUILDS:%=$(BUILD)/bin/tests-%) $(BINARIES) $(EXACT_BINARIES)
test: tests-built headers docs-check ## all tests in all three builds
	$(Q)for b in $(BUILDS); do echo "== $$b"; $(BUILD)/bin/tests-$$b --jobs $(THREADS) || exit 1; done

gradcheck: $(GRADCHECKS) ## a table of every op's gradient errors, exact and by differences
	$(Q)failed=0; for b in $(GRADCHECKS); do $$b || failed=1; done; exit $$failed

mutants: $(BUILD)/mutants/run ## mistakes in every backward rule, one at a time: does a gradient check see each?
	$(Q)$< --jobs $(THREADS)

docs-check: $(BUILD)/flags ## the C blocks of README and docs compile
	$(Q)tools/check_docs.sh $(CC) -std=c11 -I. $(WARN)

test-long: ## the same with FOVEA_LONG=1, which the slow tests ask for, then asan
	$(Q)FOVEA_LONG=1 $(MAKE) test
	$(Q)FOVEA_LONG=1 $(MAKE) asan

SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
asan: ## the float and double tests under the address and undefined behaviour sanitizers
	$(Q)for b in float double; do $(MAKE) BUILD=$(BUILD)/asan CFLAGS='-O2 -g $(SANITIZE) -DFV_POISON' \
	  $(BUILD)/asan/bin/tests-$$b $(BINARIES:$(BUILD)/%=$(BUILD)/asan/%) && echo "== $$b, sanitized" && \
	  $(BUILD)/asan/bin/tests-$$b --jobs $(THREADS) || exit 1; done

bench: $(BENCHES) ## builds and runs the benchmarks, beside PyTorch where PYTHON has it
	$(Q)for b in $(BENCHES); do echo "== $$b"; $$b || exit 1; done
	$(Q)PYTHON='$(PYTHON)' $(PYTHON) bench/run.py --build $(BUILD)

bench-ops: $(BUILD)/bench/ops ## the speed of single ops, beside a triad and PyTorch's
	$(Q)for n in 1 $(THREADS); do $< --threads $$n || exit 1; done
	$(Q)for n in 1 $(THREADS); do PYTHON='$(PYTHON)' $(PYTHON) bench/ops.py --build $(BUILD) --threads $$n || exit 1; done

bench-attention: $(BUILD)/bench/attention ## attention beside PyTorch's, and its time and memory against size
	$(Q)PYTHON='$(PYTHON)' $(PYTHON) bench/attention.py --build $(BUILD)
	$(Q)$(PYTHON) bench/attention.py --build $(BUILD) --curve

# Each public header alone, as C11 and C++17, in all three builds.
headers: $(HEADERS:%=$(BUILD)/headers/%) ## each public header compiles alone, as C11 and as C++17
$(BUILD)/headers/%: % $(HEADERS) $(BUILD)/flags
	$(call say,HEADER,$<)
	@mkdir -p $(@D)
	$(Q)for def in $(foreach b,$(BUILDS),'$(DEF_$(b))'); do \
	  $(CC) -std=c11 -I. $(WARN) -Werror $$def -fsyntax-only -x c $< && \
	  $(CXX) -std=c++17 -I. $(WARN) -Werror $$def -fsyntax-only -x c++ $< || exit 1; done
	@touch $@

lint: ## layering, file lengths, format, comments, forbidden calls
	$(Q)tools/lint.sh

ops-doc: ## writes docs/ops.md anew
	$(Q)tools/list_ops.sh >docs/ops.md

format: ## lays out all sources by clang-format
	$(Q)command -v clang-format >/dev/null || { echo 'fovea: apt install clang-format' >&2; exit 1; }
	$(Q)clang-format -i $(SOURCES)

# ---- installing -----------------------------------------------------------------------------------
# Installed headers name each other from their own folder ("../tensor/tensor.h"), so a program needs no
# -I for the folders inside fovea/. Programs get the prefix fovea-.
D := $(DESTDIR)
install: libraries $(BINARIES) ## headers, libraries, fovea.pc and programs, under DESTDIR and PREFIX
	$(Q)$(INSTALL) -d $(D)$(bindir) $(D)$(libdir)/pkgconfig $(addprefix $(D)$(includedir)/fovea/,$(sort $(dir $(HEADERS))))
	$(Q)for h in $(HEADERS); do \
	  case $$h in */*) up=../;; *) up=;; esac; \
	  sed "s|^#include \"|&$$up|" $$h >$(BUILD)/header.h && \
	  $(INSTALL) -m 644 $(BUILD)/header.h $(D)$(includedir)/fovea/$$h || exit 1; done
	$(Q)rm -f $(BUILD)/header.h
	$(Q)for lib in $(foreach b,$(BUILDS),$(LIB_$(b))); do \
	  $(INSTALL) -m 644 $(BUILD)/lib/lib$$lib.a $(D)$(libdir)/ && \
	  $(INSTALL) -m 755 $(BUILD)/lib/lib$$lib.so $(D)$(libdir)/lib$$lib.so.$(VERSION) && \
	  ln -sf lib$$lib.so.$(VERSION) $(D)$(libdir)/lib$$lib.so.0 && \
	  ln -sf lib$$lib.so.0 $(D)$(libdir)/lib$$lib.so || exit 1; done
	$(Q)$(foreach b,$(BUILDS),printf '%s\n' 'Name: $(LIB_$(b))' 'Description: attention models in C ($(b))' \
	  'Version: $(VERSION)' 'Cflags: -I$(includedir) $(DEF_$(b))' 'Libs: -L$(libdir) -l$(LIB_$(b))' \
	  'Libs.private: $(LIBS)' >$(D)$(libdir)/pkgconfig/$(LIB_$(b)).pc;)
	$(Q)for p in $(BINARIES); do $(INSTALL) -m 755 $$p $(D)$(bindir)/fovea-$${p##*/} || exit 1; done

uninstall: ## removes what install put there
	$(Q)rm -f $(foreach b,$(BUILDS),$(addprefix $(D)$(libdir)/lib$(LIB_$(b)),.a .so .so.0 .so.$(VERSION)) \
	  $(D)$(libdir)/pkgconfig/$(LIB_$(b)).pc) $(BINARIES:$(BUILD)/bin/%=$(D)$(bindir)/fovea-%)
	$(Q)rm -rf $(D)$(includedir)/fovea

install-check: ## installs into the build folder and builds programs against that
	$(Q)CC='$(CC)' tools/check_install.sh $(MAKE) $(BUILD)

DIST := fovea-$(VERSION)
dist: ## a source tarball in the build folder
	@mkdir -p $(BUILD)
	$(Q)if git rev-parse --git-dir >/dev/null 2>&1; then git archive --prefix=$(DIST)/ HEAD; \
	  else tar -cf - --exclude='./$(BUILD)' --exclude-vcs --transform='s|^\.|$(DIST)|' .; fi \
	  | gzip -n9 >$(BUILD)/$(DIST).tar.gz
	@echo $(BUILD)/$(DIST).tar.gz

clean: ## removes everything built
	$(Q)rm -rf $(BUILD)

help: ## this list
	@if [ -t 1 ] && [ -z "$$NO_COLOR" ]; then on='\033[1m' off='\033[0m'; fi; \
	sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1=\2/p' $(firstword $(MAKEFILE_LIST)) | \
	while IFS== read -r name text; do printf "  $$on%-13s$$off %s\n" "$$name" "$$text"; done; \
	sed -n '3,4s/^# /  /p' $(firstword $(MAKEFILE_LIST))
