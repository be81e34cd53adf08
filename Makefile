# For users of Comb. Developers' finer tasks: cargo xtask --help.

# A fresh rustup is not in the login shell's PATH yet.
cargo_programs := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin
ifeq (,$(findstring :$(cargo_programs):,:$(PATH):))
export PATH := $(cargo_programs):$(PATH)
endif

target := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help demo test soak setup setup-cc setup-test setup-bench setup-dist bench combcc install install-files install-combcc install-combcc-files trace-sql install-trace-sql dist deb clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup ## build Comb, start four cells with programs in them, kill one, see the others carry on
	cargo build --release -p comb-cli --bins
	@$(target)/release/comb demo $(ARGS)

test: setup-test ## every check and test
	cargo xtask test

HOURS ?= 4

soak: setup-test ## tests that take hours: simulated storms, then random stress of shared memory for HOURS=4
	cargo xtask soak --hours $(HOURS)

setup: ## install what a build needs and this machine lacks
	@scripts/setup.sh

setup-cc: ## the same for combcc: clang and LLVM's headers
	@scripts/setup-cc.sh

setup-test: ## the same for the tests
	@scripts/setup-test.sh

setup-bench: ## the same for the benchmarks, with the systems they compare to
	@scripts/setup-bench.sh

bench: setup setup-bench ## measure, beside the other systems in the same run (ARGS='…' goes to comb bench)
	cargo xtask bench $(ARGS)

PREFIX ?= /usr/local
version = $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)

LIBDIR ?= $(PREFIX)/lib
UNITDIR ?= $(PREFIX)/lib/systemd/system

install: setup ## comb, libcomb and comb.h under PREFIX=/usr/local, with man pages, completions and units (DESTDIR=… goes before it)
	cargo build --release -p comb-cli -p comb-capi -p comb-library-os
	@$(MAKE) --no-print-directory install-files

install-files:
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(LIBDIR)/pkgconfig
	install -m 755 $(target)/release/comb $(DESTDIR)$(PREFIX)/bin/comb
	install -d $(DESTDIR)$(PREFIX)/lib/comb
	install -m 755 $(target)/release/comb-guest $(DESTDIR)$(PREFIX)/lib/comb/comb-guest
	install -m 644 $(target)/release/libcomb_library_os.a $(DESTDIR)$(PREFIX)/lib/comb/libcomb_library_os.a
	install -m 755 $(target)/release/libcomb.so $(DESTDIR)$(LIBDIR)/libcomb.so
	install -m 644 crates/capi/include/comb.h $(DESTDIR)$(PREFIX)/include/comb.h
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(version)|' crates/capi/comb.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/comb.pc
	scripts/install-extras.sh $(target)/release/comb $(target)/extras '$(DESTDIR)' $(PREFIX) $(UNITDIR)

combcc: setup setup-cc ## the compiler that makes threads run on many cells, into target/release
	cargo build --release -p comb-cc -p comb-cli -p comb-capi
	$(MAKE) --no-print-directory -C cc
	ln -sf combcc $(target)/release/combc++

install-combcc: combcc install install-combcc-files ## combcc and combc++ as well, with what they put into programs in PREFIX/lib/comb

install-combcc-files:
	install -m 755 $(target)/release/combcc $(DESTDIR)$(PREFIX)/bin/combcc
	ln -sf combcc $(DESTDIR)$(PREFIX)/bin/combc++
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	gzip -9n < cc/combcc.1 > $(DESTDIR)$(PREFIX)/share/man/man1/combcc.1.gz
	chmod 644 $(DESTDIR)$(PREFIX)/share/man/man1/combcc.1.gz
	ln -sf combcc.1.gz $(DESTDIR)$(PREFIX)/share/man/man1/combc++.1.gz
	install -d $(DESTDIR)$(PREFIX)/lib/comb/openmp
	install -m 644 cc/build/comb/*.* $(DESTDIR)$(PREFIX)/lib/comb
	install -m 644 cc/build/comb/openmp/* $(DESTDIR)$(PREFIX)/lib/comb/openmp

# An engine for SQL takes longer to build than all of Comb, and is not of its workspace.
trace-sql: setup ## what answers comb trace sql, into target/release: ten minutes to an hour on two cores, by what else they do
	cargo build --release -p comb-cli --bin comb
	cargo build --release --locked --manifest-path crates/trace-sql/Cargo.toml --target-dir $(target)

install-trace-sql: trace-sql install ## comb-trace-sql as well
	install -m 755 $(target)/release/comb-trace-sql $(DESTDIR)$(PREFIX)/bin/comb-trace-sql

setup-dist: ## install what packages are made with
	@scripts/setup-dist.sh

dist: setup-dist ## a comb that needs no library, for any Linux: target/dist/comb-…-x86_64.tar.gz
	@scripts/dist.sh

deb: setup-dist ## a package for Debian and its kin: target/deb/comb_…_amd64.deb (with combcc after make combcc)
	@scripts/deb.sh

clean: ## remove what was built
	cargo clean
	rm -rf report benches/peers/build apps/build cc/build cc/*/build
