# For users of Comb. Developers' finer tasks: cargo xtask --help.

# A fresh rustup is not in the login shell's PATH yet.
cargo_programs := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin
ifeq (,$(findstring :$(cargo_programs):,:$(PATH):))
export PATH := $(cargo_programs):$(PATH)
endif

.PHONY: help demo test setup setup-test setup-bench bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup ## build Comb, start four cells, kill one, see the others carry on
	cargo build --release -p comb-cli
	@scripts/demo.sh

test: setup-test ## every check and test
	cargo xtask test

setup: ## install what a build needs and this machine lacks
	@scripts/setup.sh

setup-test: ## the same for the tests
	@scripts/setup-test.sh

setup-bench: ## the same for the benchmarks, with the systems they compare to
	@scripts/setup-bench.sh

bench: setup setup-bench ## measure, beside the other systems in the same run (ARGS='…' goes to comb bench)
	cargo xtask bench $(ARGS)

clean: ## remove what was built
	cargo clean
	rm -rf report benches/peers/build
