# SPDX-License-Identifier: LGPL-2.1-or-later
# install, uninstall, deb. One list serves all: FILE:DESTINATION:MODE.
#
# DESTDIR= stages the files elsewhere and leaves this host alone; without it the
# host is set up too (users, device rules, unit), and the daemon is not started.

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
SBINDIR ?= $(PREFIX)/sbin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
DOCDIR ?= $(PREFIX)/share/doc/cxl-kv
SYSCONFDIR ?= /etc
UNITDIR ?= $(PREFIX)/lib/systemd/system
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
# Read by systemd and udev below /usr/lib and /usr/local/lib.
HOSTDIR ?= $(PREFIX)/lib

pages = $(foreach page,$(wildcard $(1)),$(page):$(MANDIR)/man$(subst .,,$(suffix $(page)))/$(notdir $(page)):644)
INSTALL_DAEMON := \
	$(B)/bin/cxl-kvd:$(SBINDIR)/cxl-kvd:755 \
	$(B)/bin/cxl-kv:$(BINDIR)/cxl-kv:755 \
	systemd/cxl-kv-online:$(SBINDIR)/cxl-kv-online:755 \
	$(call pages,docs/man/*.[14578]) \
	docs/completion/cxl-kv.bash:$(PREFIX)/share/bash-completion/completions/cxl-kv:644 \
	docs/completion/_cxl-kv:$(ZSHDIR)/_cxl-kv:644 \
	$(B)/gen/cxl-kvd.service:$(UNITDIR)/cxl-kvd.service:644 \
	systemd/cxl-kv.sysusers.conf:$(HOSTDIR)/sysusers.d/cxl-kv.conf:644 \
	systemd/cxl-kv.tmpfiles.conf:$(HOSTDIR)/tmpfiles.d/cxl-kv.conf:644 \
	systemd/60-cxl-kv.rules:$(HOSTDIR)/udev/rules.d/60-cxl-kv.rules:644 \
	systemd/cxl-kv.modprobe.conf:$(DOCDIR)/modprobe.conf.example:644 \
	systemd/cxl-kvd.toml:$(DOCDIR)/cxl-kvd.toml.example:644 \
	README.md:$(DOCDIR)/README.md:644 \
	$(foreach file,$(wildcard docs/*.md docs/grafana/*.json docs/images/*.svg),$(file):$(DOCDIR)/$(file):644) \
	LICENSE:$(DOCDIR)/LICENSE:644
INSTALL_LIB := $(LIBCXLKV):$(LIBDIR)/libcxl_kv.so.0:644
INSTALL_DEV := \
	include/cxl_kv.h:$(INCLUDEDIR)/cxl_kv.h:644 \
	include/cxl_kv_advice.h:$(INCLUDEDIR)/cxl_kv_advice.h:644 \
	include/cxl_kv_store.h:$(INCLUDEDIR)/cxl_kv_store.h:644 \
	include/uapi/linux/cxl_kv.h:$(INCLUDEDIR)/linux/cxl_kv.h:644 \
	$(B)/gen/cxl_kv.pc:$(LIBDIR)/pkgconfig/cxl_kv.pc:644 \
	docs/examples/decode.c:$(DOCDIR)/examples/decode.c:644 \
	docs/examples/store.c:$(DOCDIR)/examples/store.c:644 \
	docs/examples/store.py:$(DOCDIR)/examples/store.py:755 \
	$(call pages,docs/man/*.3)
# The module's source, as dkms wants it below /usr/src; no part of `make install`.
DKMSDIR ?= /usr/src/cxl_kv-$(VERSION)
INSTALL_DKMS := \
	$(foreach file,$(wildcard kmod/*.[ch]) kmod/Kbuild,$(file):$(DKMSDIR)/$(file):644) \
	include/uapi/linux/cxl_kv.h:$(DKMSDIR)/include/uapi/linux/cxl_kv.h:644 \
	$(B)/gen/dkms.conf:$(DKMSDIR)/dkms.conf:644
INSTALL_ALL := $(INSTALL_DAEMON) $(INSTALL_LIB) $(INSTALL_DEV)
CONFIG := $(SYSCONFDIR)/cxl-kv/cxl-kvd.toml

part = $(word $(1),$(subst :, ,$(2)))
install_one = install -D -m $(call part,3,$(1)) $(call part,1,$(1)) $(DESTDIR)$(call part,2,$(1))

.PHONY: install install-dkms uninstall $(B)/gen/cxl-kvd.service $(B)/gen/cxl_kv.pc

# Both depend on the folders above, which may differ from one call to the next.
$(B)/gen/cxl-kvd.service: systemd/cxl-kvd.service.in
	@mkdir -p $(@D)
	@sed 's|@SBINDIR@|$(SBINDIR)|' $< > $@
$(B)/gen/cxl_kv.pc: systemd/cxl_kv.pc.in
	@mkdir -p $(@D)
	@sed 's|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|' $< > $@

$(B)/gen/dkms.conf: kmod/dkms.conf Makefile
	@mkdir -p $(@D)
	@sed 's|#MODULE_VERSION#|$(VERSION)|' $< > $@

install-dkms: $(B)/gen/dkms.conf ## the module's source to /usr/src (DKMSDIR), for `dkms add cxl_kv/VERSION`
	@$(foreach file,$(INSTALL_DKMS),$(call install_one,$(file)) &&) true
	@echo "module source in $(DESTDIR)$(DKMSDIR); \`dkms install cxl_kv/$(VERSION)\` builds it for the running kernel"

INSTALL_BUILT := $(B)/bin/cxl-kvd $(B)/bin/cxl-kv $(LIBCXLKV)
.PHONY: install-built
install-built: $(INSTALL_BUILT)
install: $(INSTALL_BUILT) $(B)/gen/cxl-kvd.service $(B)/gen/cxl_kv.pc ## install below PREFIX (/usr/local); DESTDIR stages
	@$(foreach file,$(INSTALL_ALL),$(call install_one,$(file)) &&) true
	@ln -sf libcxl_kv.so.0 $(DESTDIR)$(LIBDIR)/libcxl_kv.so
	@[ -e $(DESTDIR)$(CONFIG) ] || install -D -m 644 systemd/cxl-kvd.toml $(DESTDIR)$(CONFIG)
	@[ -n "$(DESTDIR)" ] || systemd/host-setup install
	@echo "installed below $(DESTDIR)$(PREFIX); configuration: $(DESTDIR)$(CONFIG)"

uninstall: ## remove what install put there; PURGE=1 also configuration, spilled data, users
	@[ -n "$(DESTDIR)" ] || systemd/host-setup stop
	@rm -f $(foreach file,$(INSTALL_ALL),$(DESTDIR)$(call part,2,$(file))) $(DESTDIR)$(LIBDIR)/libcxl_kv.so
	@for dir in $(addprefix $(DESTDIR)$(DOCDIR),/examples /docs/grafana /docs/images /docs /); do \
		[ ! -d $$dir ] || rmdir --ignore-fail-on-non-empty $$dir; done
	@if cmp -s systemd/cxl-kvd.toml $(DESTDIR)$(CONFIG); then rm $(DESTDIR)$(CONFIG); fi
	@[ -z "$(PURGE)" ] || rm -rf $(DESTDIR)$(SYSCONFDIR)/cxl-kv $(DESTDIR)/var/lib/cxl-kv
	@[ ! -d $(DESTDIR)$(SYSCONFDIR)/cxl-kv ] || rmdir --ignore-fail-on-non-empty $(DESTDIR)$(SYSCONFDIR)/cxl-kv
	@[ -n "$(DESTDIR)" ] || systemd/host-setup remove $(if $(PURGE),purge)
	@for left in $(DESTDIR)$(SYSCONFDIR)/cxl-kv $(DESTDIR)/var/lib/cxl-kv; do \
		[ ! -e $$left ] || echo "kept $$left; \`make uninstall$(if $(DESTDIR), DESTDIR=$(DESTDIR)) PURGE=1\` removes it too"; done

# Debian packages, built in a copy of the tree, so that nothing of this build gets into them.
DEB := $(B)/deb/$(VERSION)
DEB_TREE := $(B)/deb/tree
.PHONY: deb
deb: deps-deb ## Debian packages, in build/deb/VERSION
	@rm -rf $(DEB) $(DEB_TREE) && mkdir -p $(DEB) $(DEB_TREE)/debian/source
	@tar -c --exclude=./$(B) --exclude=./.git . | tar -x -C $(DEB_TREE)
	@cp systemd/debian/* $(DEB_TREE)/debian/
	@echo '3.0 (native)' >$(DEB_TREE)/debian/source/format
	@sed 's/@VERSION@/$(VERSION)/; s/@DATE@/$(shell date -R)/' systemd/debian/changelog >$(DEB_TREE)/debian/changelog
	@echo "  DEB   $(DEB)"
	@cd $(DEB_TREE) && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL DEB_BUILD_OPTIONS=noautodbgsym dpkg-buildpackage -b -us -uc -J >../build.log 2>&1 || \
		{ tail -n 30 ../build.log; echo "all of it: $(B)/deb/build.log"; exit 1; }
	@mv $(B)/deb/*.deb $(B)/deb/*.changes $(B)/deb/*.buildinfo $(DEB)/ && rm -rf $(DEB_TREE)
