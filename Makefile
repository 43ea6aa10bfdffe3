# The commands of daily work; CMake does the building. Variables that a developer may set:
#   JOBS=2         how many compilers and tests run at once
#   SANITIZERS=    sanitizer builds that `make test-all` also runs; empty: none
#   PREFIX=/usr    where `make install` puts things
JOBS ?= $(shell nproc)
SANITIZERS ?= asan tsan
PREFIX ?= /usr/local
CLANG_FORMAT ?= clang-format-14
CLANG_TIDY ?= clang-tidy
LAUNCHER := $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)
# A source that is not in the cache costs no second run of the preprocessor, and precompiled headers are allowed.
export CCACHE_DEPEND ?= 1
export CCACHE_SLOPPINESS ?= pch_defines,time_macros
# Another build folder below this tree, as that of the wheel, uses the same entries.
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1
BUILD_RELEASE = cmake --build --preset release --parallel $(JOBS)
space := $(subst ,, )
FORMATTED = $(shell git ls-files '*.h' '*.hpp' '*.c' '*.cc')

.PHONY: build test demo benchmarks lint format layers sizes docs messages calls tidy test-all test-quick test-rest test-short test-debian13 test-fuzz test-programs test-docs test-package test-wheel install package wheel clean
.NOTPARALLEL:
.SECONDARY:

# What is installed: the programs, the libraries, the manual. No tests.
build: bootstrap-build configure-release
	$(BUILD_RELEASE) --target farside_installed

# What a change has to pass, in about twelve minutes on two processors, the build included: the checks of the sources, all
# unit and model tests, conformance and stress on every transport, short system tests. Each step has a heading and its
# time, and there is a summary at the end.
test:
	scripts/run_steps bootstrap-build bootstrap-test bootstrap-lint lint test-quick

# All that `make test` leaves out: sanitizers, programs, soak, fuzzing, package, documents, Debian 13. CI runs both.
test-all:
	scripts/run_steps bootstrap-build bootstrap-test bootstrap-programs bootstrap-package test-rest test-fuzz \
	  test-programs test-docs test-package test-wheel test-debian13 $(SANITIZERS:%=test-%)

demo: bootstrap-build bootstrap-demo configure-release
	$(BUILD_RELEASE) --target farside farside_preload
	scripts/demo.py $(DEMO_ARGS)

# docs/benchmarks.md and its plots, on a quiet machine and as root. A run that was stopped goes on.
benchmarks: bootstrap-bench build
	scripts/make_benchmarks.py build/release

# docs/papers.md and its charts: hours.
.PHONY: papers
papers: bootstrap-bench build
	scripts/make_papers.py build/release

# What can be checked without a build; by clang only what differs from main.
lint: format layers sizes docs messages calls clang

format: bootstrap-lint
	@command -v $(CLANG_FORMAT) >/dev/null || echo "formatting is not checked: this release has no $(CLANG_FORMAT)"
	@! command -v $(CLANG_FORMAT) >/dev/null || $(CLANG_FORMAT) --dry-run --Werror $(FORMATTED)

# clang examines what differs from main: seconds for each file, and nothing in a clone of main.
.PHONY: clang test-clang
clang: bootstrap-build bootstrap-lint
	scripts/check_with_clang.py --jobs $(JOBS)

test-clang: bootstrap-build bootstrap-lint
	scripts/check_with_clang.py --all --jobs $(JOBS)

# All checks of .clang-tidy for everything, those of clang's analyzer included: hours.
tidy: bootstrap-build bootstrap-lint configure-tidy
	$(CLANG_TIDY) --quiet -p build/tidy $(filter %.cc,$(FORMATTED))

layers:
	scripts/check_layers.py

sizes:
	scripts/check_sizes.py

docs:
	scripts/check_docs.py
	scripts/option_tables.py --check
	scripts/draw_pictures.py --check

# docs/pictures.
.PHONY: pictures
pictures:
	scripts/draw_pictures.py

# The tables of options in README.md and docs/, from src/abi/option_table.cc and the built programs.
.PHONY: option-tables
option-tables: configure-release
	$(BUILD_RELEASE) --target farside farside-track
	scripts/option_tables.py --describe build/release/bin/farside build/release/libexec/farside/farside-track

messages:
	scripts/check_messages.py

calls:
	scripts/check_calls.py

# Without debug information; it stays in the files below build/release.
install: build
	cmake --install build/release --strip --prefix $(PREFIX)

package: bootstrap-package build
	cd build/release && cpack

# The sdist and the Python wheel, in build/wheel/dist. Needs PyPI.
wheel: bootstrap-build bootstrap-wheel
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) scripts/make_wheel build/wheel

clean:
	rm -rf build

bootstrap-%:
	scripts/bootstrap $*

configure-%:
	cmake --preset $* $(LAUNCHER)

build-%: configure-%
	cmake --build --preset $* --parallel $(JOBS)

# The release build runs every test in one of these two steps; sanitized builds run those that a sanitizer can watch.
QUICK_LABELS = unit|source|simulation|counts
QUICK_STRESS = shm tcp ucx file replicas handler huge
QUICK_SYSTEM = launcher launched_programs token servers allocator mappings identity children redis
QUICK = ^(shadow_stress_($(subst $(space),|,$(QUICK_STRESS)))|system_($(subst $(space),|,$(QUICK_SYSTEM))))$$
test-quick: build-release
	ctest --preset release --parallel $(JOBS) --label-regex '$(QUICK_LABELS)'
	ctest --preset release --parallel $(JOBS) --tests-regex '$(QUICK)'

test-rest: build-release
	ctest --preset release --parallel $(JOBS) --label-exclude '$(QUICK_LABELS)|package' --exclude-regex '$(QUICK)'

# A few minutes of tests that show differences between releases: compilers, libc, fmt, allocator, system calls.
SHORT_UNITS = base_test abi_test fiber_test pager_test sandbox_test
SHORT_SYSTEM = launcher allocator children identity
test-short: bootstrap-build configure-release
	$(BUILD_RELEASE) --target farside farside_preload farside_shared offload_host system_programs $(SHORT_UNITS)
	ctest --preset release --parallel $(JOBS) -R '^($(subst $(space),|,$(SHORT_UNITS) headers_test symbols_test $(SHORT_SYSTEM:%=system_%)))(:|$$)'

test-debian13:
	scripts/in_debian trixie make test-short

# What reads bytes from outside, instrumented for libFuzzer: a minute of it.
test-fuzz: configure-fuzz
	cmake --build --preset fuzz --parallel $(JOBS) --target fuzzers
	ctest --preset fuzz --parallel $(JOBS) --label-regex fuzz

# Programs that nobody here wrote, natively and far. `tests/programs/run` runs all of them.
test-programs: build-release
	tests/programs/run --quick

# The commands of README and the guides that are marked "sh run".
test-docs: build-release
	scripts/check_docs.py --run build/release

# Installs the package on this machine, uses it and purges it. Skipped where that is not possible, as without root.
test-package: bootstrap-package build-release
	ctest --preset release --label-regex package --verbose

# The wheel in a fresh virtual environment.
test-wheel: wheel
	python3 -B python/tests/run build/wheel/dist

test-%: build-%
	ctest --preset $* --parallel $(JOBS) --label-regex 'unit|stress'
