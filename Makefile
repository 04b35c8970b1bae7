# SPDX-License-Identifier: LGPL-2.1-or-later
# cxl-kv: build, test, demo. `make help` lists the targets.
# New sources are found by folder; only new Debian packages need a line here.

VERSION := 0.1.0
B := build

# Debian 12 packages. DEMO: build the product, run the demos. DEV: tests, benchmarks, checks.
DEPS_DEMO := build-essential pkg-config liburing-dev libtomlplusplus-dev nlohmann-json3-dev \
	libjson-c-dev libcli11-dev libfmt-dev libisal-dev libhwy-dev liblzma-dev libnuma-dev libsystemd-dev \
	xz-utils libncurses-dev jq clang libbpf-dev bpftool
DEPS_DEV := python3 libgtest-dev libbenchmark-dev fio clang-format shellcheck mandoc python3-prometheus-client
# Packages, and the clean Debian that they are tested in.
DEPS_DEB := debhelper dpkg-dev fakeroot lintian mmdebstrap
# The guests. Their kernel is no dependency: selftests/vm/kernel finds or fetches it.
DEPS_VM := qemu-system-x86 busybox-static kmod cpio xz-utils zstd numactl dwarves systemd udev libcap2-bin dmsetup cryptsetup-bin
# A kernel of their own for the module's tests.
DEPS_DEBUG_KERNEL := bc bison flex libelf-dev patch
DEPS_KERNELS := debootstrap

# `make V=1` shows whole command lines.
Q := $(if $(filter 1,$(V)),,@)

# `make` uses every core; `make -j1` still means one.
ifeq ($(MAKELEVEL)$(filter clean,$(MAKECMDGOALS)),0)
MAKEFLAGS += -j$(shell nproc)
endif

CC := gcc
CXX := g++
WARN := -Wall -Wextra -Wshadow -Werror
OPT := -O2 -g
SANITIZE :=
CPPFLAGS := -Iinclude -Iinclude/uapi -Idaemon -Ibpf -Iselftests -isystem $(B)/gen -D_GNU_SOURCE -DCXL_KV_VERSION='"$(VERSION)"'
COMMON := $(WARN) $(OPT) $(SANITIZE) -fPIC -fstack-protector-strong -MMD -MP
CFLAGS := -std=gnu11 $(COMMON)
CXXFLAGS := -std=c++20 $(COMMON)
LDFLAGS := $(SANITIZE)
LIBS := -lbpf -lfmt -luring -lisal -lnuma -lhwy -llzma -lpthread
DAEMON_LIBS := -lsystemd
CLI_LIBS := -lncursesw -ltinfo

DAEMON_LIB_SRC := $(wildcard $(addprefix daemon/,$(addsuffix /*.cc,base core sys codec sim)))
DAEMON_SRC := $(wildcard daemon/*.cc)
CLI_SRC := $(wildcard daemon/cli/*.cc)
CLIENT_SRC := $(wildcard daemon/client/*.c)
ENGINE_SRC := $(wildcard selftests/engine/*.cc)
PEERS_SRC := $(wildcard selftests/peers/*.cc)
TESTLIB_SRC := $(wildcard selftests/lib/*.cc)
UNIT_SRC := $(wildcard selftests/unit/*_test.cc)
NATIVE_SRC := $(wildcard selftests/native/*_test.cc)
LONG_SRC := $(wildcard selftests/long/*_test.cc)
VMTEST_SRC := $(wildcard selftests/vm/*/*_test.cc)
BENCH_SRC := $(wildcard selftests/bench/*_bench.cc)

obj = $(addprefix $(B)/obj/,$(addsuffix .o,$(basename $(1))))
LIBDAEMON := $(B)/lib/libdaemon.a
LIBCLI := $(B)/lib/libcli.a
LIBCXLKV := $(B)/lib/libcxl_kv.so
UNIT := $(UNIT_SRC:selftests/%.cc=$(B)/%)
NATIVE := $(NATIVE_SRC:selftests/%.cc=$(B)/%)
LONG := $(LONG_SRC:selftests/%.cc=$(B)/%)
# Programs for the guest, which sees this tree: they need root and the module.
VMTEST := $(VMTEST_SRC:selftests/vm/%.cc=$(B)/vmtest/%)
BENCH := $(BENCH_SRC:selftests/%.cc=$(B)/%)
EXAMPLES := $(patsubst docs/%.c,$(B)/%,$(wildcard docs/examples/*.c))
# The engine without its main, for tests that drive it.
ENGINE_OBJ := $(filter-out %/main.o,$(call obj,$(ENGINE_SRC)))
PEERS_OBJ := $(filter-out %/main.o,$(call obj,$(PEERS_SRC)))

CHECK_SUITES := check-unit check-native check-vm

.PHONY: help all deps deps-demo deps-vm deps-dev deps-deb demo demo-native kmod check check-unit check-native check-vm bench bench-guest clean
.DEFAULT_GOAL := all

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-21s %s\n", $$1, $$2 }' Makefile systemd/install.mk

all: $(B)/bin/cxl-kvd $(B)/bin/cxl-kv $(LIBCXLKV) $(B)/bin/kv-engine $(EXAMPLES) ## daemon, command line, library, engine

deps: ## install every Debian package (root or sudo)
	selftests/deps $(DEPS_DEMO) $(DEPS_DEV) $(DEPS_DEB) $(DEPS_VM) $(DEPS_DEBUG_KERNEL) $(DEPS_KERNELS)

deps-demo deps-vm deps-dev deps-deb: deps-%:
	@selftests/deps $(DEPS_DEMO) $(if $(filter vm dev,$*),$(DEPS_VM)) $(if $(filter dev,$*),$(DEPS_DEV)) \
		$(if $(filter deb,$*),$(DEPS_DEB))

# Names what is missing before a compiler fails on it; asked once for each list of packages.
$(B)/deps-demo.ok: Makefile
	@mkdir -p $(@D)
	@selftests/deps -n $(DEPS_DEMO)
	@touch $@
$(B)/deps-dev.ok: Makefile
	@mkdir -p $(@D)
	@selftests/deps -n $(DEPS_DEV)
	@touch $@
$(call obj,$(UNIT_SRC) $(LONG_SRC) $(NATIVE_SRC) $(VMTEST_SRC) $(BENCH_SRC) $(TESTLIB_SRC)): | $(B)/deps-dev.ok

$(B)/obj/%.o: %.cc | $(B)/deps-demo.ok
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	$(Q)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@

$(B)/obj/%.o: %.c | $(B)/deps-demo.ok
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

# The BPF object and its skeleton, which the daemon carries inside.
$(B)/bpf/%.o: bpf/%.bpf.c bpf/cxl_kv_bpf.h | $(B)/deps-demo.ok
	@mkdir -p $(@D)
	@echo "  BPF   $<"
	$(Q)clang -O2 -g -target bpf -Wall -Werror -I/usr/include/$(shell $(CC) -dumpmachine) -c $< -o $@

.SECONDARY: $(B)/bpf/cxl_kv.o
$(B)/gen/%_bpf.skel.h: $(B)/bpf/%.o
	@mkdir -p $(@D)
	$(Q)bpftool gen skeleton $< name $*_bpf > $@.tmp && mv $@.tmp $@

$(B)/obj/daemon/sys/sampler.o: $(B)/gen/cxl_kv_bpf.skel.h

$(LIBDAEMON): $(call obj,$(DAEMON_LIB_SRC))
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

# The commands without their main, for tests that call them.
$(LIBCLI): $(filter-out %/main.o,$(call obj,$(CLI_SRC)))
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(LIBCXLKV): $(call obj,$(CLIENT_SRC)) daemon/client/libcxl_kv.map
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libcxl_kv.so.0 -Wl,--version-script=daemon/client/libcxl_kv.map \
		$(filter %.o,$^) -o $@ -ljson-c -lpthread
	@ln -sf $(@F) $@.0

$(B)/bin/cxl-kvd: $(call obj,$(DAEMON_SRC)) $(LIBDAEMON)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CXX) $(LDFLAGS) $^ -o $@ $(LIBS) $(DAEMON_LIBS)

$(B)/bin/cxl-kv: $(B)/obj/daemon/cli/main.o $(LIBCLI) $(LIBDAEMON) $(call obj,$(CLIENT_SRC))
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CXX) $(LDFLAGS) $^ -o $@ $(LIBS) $(CLI_LIBS) -ljson-c

$(B)/bin/kv-engine: $(call obj,$(ENGINE_SRC) $(wildcard daemon/codec/*.cc) daemon/base/log.cc daemon/base/read_file.cc daemon/sim/trace_file.cc) $(LIBCXLKV)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CXX) $(LDFLAGS) $(filter %.o,$^) -o $@ -L$(B)/lib -lcxl_kv -Wl,-rpath,'$$ORIGIN/../lib' -lfmt -lhwy -llzma -lpthread

$(B)/peers/workload: $(call obj,$(PEERS_SRC) selftests/lib/control_peer.cc) $(LIBCXLKV)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CXX) $(LDFLAGS) $(filter %.o,$^) -o $@ -L$(B)/lib -lcxl_kv -Wl,-rpath,'$$ORIGIN/../lib' -lfmt -lpthread

$(EXAMPLES): $(B)/examples/%: $(B)/obj/docs/examples/%.o $(LIBCXLKV)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $(filter %.o,$^) -o $@ -L$(B)/lib -lcxl_kv -Wl,-rpath,'$$ORIGIN/../lib'

TEST_LINK = $(CXX) $(LDFLAGS) $^ -o $@ -L$(B)/lib -Wl,-rpath,'$$ORIGIN/../lib' $(LIBS) $(CLI_LIBS) -ljson-c
$(UNIT) $(LONG): $(B)/%: $(B)/obj/selftests/%.o $(call obj,$(TESTLIB_SRC)) $(ENGINE_OBJ) $(PEERS_OBJ) $(LIBCLI) $(LIBDAEMON) $(LIBCXLKV)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(TEST_LINK) -lgtest

$(NATIVE): $(B)/native/%: $(B)/obj/selftests/native/%.o $(call obj,$(TESTLIB_SRC)) $(ENGINE_OBJ) $(LIBCLI) $(LIBDAEMON) $(LIBCXLKV)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(TEST_LINK) -lgtest

$(VMTEST): $(B)/vmtest/%: $(B)/obj/selftests/vm/%.o $(call obj,$(TESTLIB_SRC)) $(LIBDAEMON) $(LIBCXLKV)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(TEST_LINK) -Wl,-rpath,'$$ORIGIN/../../lib' -lgtest

$(BENCH): $(B)/bench/%: $(B)/obj/selftests/bench/%.o $(call obj,$(filter-out %/tap_main.cc,$(TESTLIB_SRC))) $(ENGINE_OBJ) $(LIBDAEMON) $(LIBCXLKV)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(TEST_LINK) -lbenchmark

# The module, for the kernel whose headers are in KDIR: by default the guest's.
kmod: ## the kernel module, build/kmod/RELEASE/cxl_kv.ko (KDIR=, KARGS="C=2 W=1")
	@$(if $(KDIR),,selftests/vm/kernel)
	+@kmod/build.sh $(or $(KDIR),$(B)/guest/headers) $(B)/kmod $(KARGS)

demo-native: deps-demo ## many conversations whose KV cache is four times the memory it may use, no VM
	@$(MAKE) --no-print-directory all
	@selftests/demo-native

demo: ## a guest with a CXL-like node and an NVMe drive: KV cache in three tiers (DEMO_GUEST=cxl)
	@selftests/demo -n
	@$(MAKE) --no-print-directory deps-vm
	@$(MAKE) --no-print-directory all kmod
	@selftests/demo

check-unit: all $(UNIT) ## tests that need no root
	@selftests/run $(wildcard selftests/unit/*.sh) selftests/check-layers selftests/check-licenses $(UNIT)

# Test programs, and the daemon that they start, in a build folder of their own.
.PHONY: test-programs check-sanitize check-thread-sanitize
test-programs: $(UNIT) $(NATIVE) $(B)/bin/cxl-kvd $(B)/bin/cxl-kv $(B)/bin/kv-engine $(EXAMPLES)
# What -O2 sees is initialized -O1 with sanitizers does not: gcc warns of its own <regex>.
OPT_SANITIZE := OPT='-O1 -g1 -Wno-maybe-uninitialized'
ASAN := B=$(B)/sanitize $(OPT_SANITIZE) SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=undefined'
TSAN := B=$(B)/tsan $(OPT_SANITIZE) SANITIZE=-fsanitize=thread
check-sanitize: ## unit and native tests under ASan and UBSan (root)
	@$(MAKE) --no-print-directory $(ASAN) test-programs
	@selftests/run-sanitized $(B)/sanitize/reports $(patsubst $(B)/%,$(B)/sanitize/%,$(UNIT) $(NATIVE))

check-thread-sanitize: ## likewise under TSan
	@$(MAKE) --no-print-directory $(TSAN) test-programs
	@selftests/run-sanitized $(B)/tsan/reports $(patsubst $(B)/%,$(B)/tsan/%,$(UNIT) $(NATIVE))

check-crash: $(B)/unit/store_crash_test ## 1,000 kills of a process that uses the spill store
	@CXL_KV_KILLS=1000 $<

# What recovery runs, without the rest of the daemon, which clang would have to build too.
FUZZ_SRC := selftests/fuzz/store_fuzz.cc daemon/base/log.cc $(addprefix daemon/sys/spill_store_,$(addsuffix .cc, \
	disk file index log checkpoint scan recovery super inspect))
FUZZ_SECONDS := 300
$(B)/fuzz/store_fuzz: $(FUZZ_SRC) $(wildcard daemon/sys/spill_store*.h)
	@mkdir -p $(@D)
	clang++ $(CPPFLAGS) -std=c++20 $(WARN) -O1 -g -fsanitize=fuzzer,address,undefined \
		-fno-sanitize-recover=undefined $(FUZZ_SRC) -o $@ -lfmt -lisal

.PHONY: check-crash fuzz fuzz-socket
fuzz-socket: ## peers that send a daemon under ASan and UBSan anything (root; FUZZ_SECONDS=300)
	@$(MAKE) --no-print-directory $(ASAN) $(B)/sanitize/bin/cxl-kvd $(B)/sanitize/native/socket_fuzz_test
	@CXL_KV_FUZZ_SECONDS=$(FUZZ_SECONDS) selftests/run-sanitized $(B)/sanitize/reports $(B)/sanitize/native/socket_fuzz_test

fuzz: $(B)/fuzz/store_fuzz ## recovery of the spill store from anything, under ASan and UBSan (FUZZ_SECONDS=300)
	@mkdir -p $(B)/fuzz/corpus
	$< -max_total_time=$(FUZZ_SECONDS) -max_len=16384 -artifact_prefix=$(B)/fuzz/ $(B)/fuzz/corpus

# Programs that take many minutes, so not part of `make check`.
CHECK_LONG := $(LONG) $(B)/native/session_soak_test
.PHONY: check-long
check-long: all kmod $(CHECK_LONG) ## many minutes: two soaks of 10, a guest, fuzzing, sanitizers (root; CXL_KV_SOAK_SECONDS=600)
	@CXL_KV_SOAK_SECONDS=$${CXL_KV_SOAK_SECONDS:-600} selftests/run -t 3600 $(CHECK_LONG) $(wildcard selftests/vm/long/*)
	@$(MAKE) --no-print-directory fuzz-socket
	@$(MAKE) --no-print-directory check-sanitize
	@$(MAKE) --no-print-directory check-thread-sanitize

check-native: all $(NATIVE) ## tests that need userfaultfd (root)
	@selftests/run $(wildcard selftests/native/*.sh) $(NATIVE)

# Tests of the native kind that guests run as well, with the module.
VM_NATIVE := $(addprefix $(B)/native/,client_daemon_test record_test)
check-vm: all kmod $(VMTEST) $(VM_NATIVE) ## tests in guests with two memory tiers (QEMU, no KVM needed)
	@selftests/run -t 1800 $(wildcard selftests/vm/suites/*)

.PHONY: check-kernels
check-kernels: all kmod $(VMTEST) $(VM_NATIVE) ## the module on Debian's kernels, 6.12 to the newest (root; chroots below build/kernels; hours)
	@selftests/deps -n $(DEPS_VM) $(DEPS_KERNELS)
	@selftests/run -t 14400 $(wildcard selftests/vm/kernels/*)

.PHONY: check-debug-kernel
check-debug-kernel: all $(VMTEST) $(VM_NATIVE) ## the module in a kernel with KASAN, lockdep, kmemleak and faults, built for it (hours)
	@selftests/deps -n $(DEPS_VM) $(DEPS_DEBUG_KERNEL)
	@selftests/run -t 14400 $(wildcard selftests/vm/debug-kernel/parts/*)

check-deb: deps-deb all ## the packages on a clean Debian, in a chroot and in a guest (root; not in check)
	@selftests/vm/kernel
	@$(MAKE) --no-print-directory deb
	@selftests/run -t 3000 selftests/check-deb

.PHONY: check-deb
check: deps-dev ## everything, with its own set-up; one total at the end
	@MAKE='$(MAKE)' selftests/check $(CHECK_SUITES)

lint: deps-dev ## what can be said without running: layers, formatting, sizes, scripts, pages
	@selftests/run selftests/lint

format: ## clang-format on everything but the kernel's files
	git ls-files -co --exclude-standard -- '*.c' '*.cc' '*.h' | grep -vE '^(kmod|bpf|include/uapi)/' | xargs clang-format -i

bench: all $(BENCH) ## benchmarks, native
	@for b in $(BENCH); do echo "== $$b"; $$b || exit 1; done
	@for t in policy_tables policy_quality; do echo "== $$t"; selftests/bench/$$t || [ $$? = 4 ] || exit 1; done

bench-guest: all $(B)/bench/mover_bench $(B)/bench/wake_bench ## the mover beside a bare loop, waking beside recomputing, in a guest: only ratios mean something
	@selftests/vm/run --node1 ram --name bench --deadline 900 --stream sh -c '$(B)/bench/mover_bench && $(B)/bench/wake_bench warm 0'

.PHONY: bench-peers
bench-peers: all $(B)/peers/workload ## KV pages in the right node: ours, DAMON and the kernel, a guest each (root; a kernel below build/kernels)
	@selftests/deps -n $(DEPS_VM) $(DEPS_KERNELS)
	@selftests/peers/bench

clean: ## remove everything that was built, and the kernels and chroots of check-kernels
	rm -rf $(B)

include systemd/install.mk

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)
