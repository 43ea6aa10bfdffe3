# The commands of daily work; CMake does the building. Variables that a developer may set:
#   JOBS=2         how many compilers and tests run at once
#   SANITIZERS=    sanitizer builds that `make test` also runs; empty: none
#   PREFIX=/usr    where `make install` puts things
JOBS ?= $(shell nproc)
SANITIZERS ?= asan tsan
PREFIX ?= /usr/local
CLANG_FORMAT ?= clang-format-14
CLANG_TIDY ?= clang-tidy-14
LAUNCHER := $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)
FORMATTED = $(shell git ls-files '*.h' '*.hpp' '*.c' '*.cc')

.PHONY: build test demo lint tidy layers install clean
.NOTPARALLEL:
.SECONDARY:

build: bootstrap-build build-release

test: bootstrap-build bootstrap-test layers test-release $(SANITIZERS:%=test-%)

demo: bootstrap-build bootstrap-demo build-release
	scripts/demo.py $(DEMO_ARGS)

lint: bootstrap-lint layers
	$(CLANG_FORMAT) --dry-run --Werror $(FORMATTED)

tidy: bootstrap-lint build-release
	$(CLANG_TIDY) --quiet -p build/release $(filter %.cc,$(FORMATTED))

layers:
	scripts/check_layers.py

install: build-release
	cmake --install build/release --prefix $(PREFIX)

clean:
	rm -rf build

bootstrap-%:
	scripts/bootstrap $*

build-%:
	cmake --preset $* $(LAUNCHER)
	cmake --build --preset $* --parallel $(JOBS)

# The release build runs every test; sanitized builds run those that a sanitizer can watch. Real programs get a second
# try, which shows in the output: their time limits are at the mercy of what else the machine does.
test-release: build-release
	ctest --preset release --parallel $(JOBS) --label-exclude system
	ctest --preset release --parallel $(JOBS) --label-regex system --repeat until-pass:2

test-%: build-%
	ctest --preset $* --parallel $(JOBS) --label-regex 'unit|stress'
