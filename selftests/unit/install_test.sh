#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# make install and uninstall, staged: what is there afterwards, what is left, what is kept.
set -u
cd "$(dirname "$0")/../.." || exit 1
unset MAKEFLAGS MAKELEVEL MFLAGS
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
number=0 status=0
report() {
	number=$((number + 1))
	if [ "$1" = 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; status=1; fi
}
staged() { make -s DESTDIR="$tmp" "$@" >"$tmp.log" 2>&1 || { sed 's/^/# /' "$tmp.log"; return 1; }; }
files() { find "$tmp" \( -type f -o -type l \) -printf '%P\n' | sort; }

staged install PREFIX=/usr
report $? "install"
missing=$(for file in usr/bin/cxl-kv usr/sbin/cxl-kvd usr/lib/libcxl_kv.so.0 usr/lib/libcxl_kv.so \
	usr/include/cxl_kv.h usr/include/linux/cxl_kv.h usr/lib/systemd/system/cxl-kvd.service \
	usr/lib/udev/rules.d/60-cxl-kv.rules usr/lib/sysusers.d/cxl-kv.conf \
	$(for page in docs/man/*; do echo "usr/share/man/man${page##*.}/${page##*/}"; done) \
	etc/cxl-kv/cxl-kvd.toml; do [ -e "$tmp/$file" ] || echo "# no $file"; done)
[ -z "$missing" ]
report $? "what people look for is there $missing"

grep -q '^ExecStart=/usr/sbin/cxl-kvd$' "$tmp/usr/lib/systemd/system/cxl-kvd.service" &&
	! grep -rq '@[A-Z]*@' "$tmp/usr/lib/systemd" "$tmp/usr/lib/pkgconfig"
report $? "the unit and the .pc file name the installed paths"

# What no package of `make deb` takes, with the paths that debian/rules gives.
rm -rf "$tmp"
staged install install-dkms PREFIX=/usr LIBDIR=/usr/lib/x UNITDIR=/lib/systemd/system HOSTDIR=/usr/lib \
	ZSHDIR=/usr/share/zsh/vendor-completions
homeless=$(cat systemd/debian/*.install systemd/debian/not-installed | awk '!/^#/ { print $1 }' | {
	mapfile -t taken
	files | while read -r file; do
		for path in "${taken[@]}"; do
			# shellcheck disable=SC2053 # paths have patterns
			[[ $file == $path || $file == $path/* ]] && continue 2
		done
		echo "# $file"
	done
})
[ -z "$homeless" ]
report $? "each installed file is in a Debian package $homeless"
rm -rf "$tmp"
staged install PREFIX=/usr

"$tmp/usr/bin/cxl-kv" --version | grep -q '^cxl-kv [0-9]'
report $? "the installed command runs"

cat >"$tmp.c" <<'END'
#include <cxl_kv.h>
int main(void) { return cxl_kv_version()[0] == 0; }
END
gcc "$tmp.c" -o "$tmp.out" -isystem "$tmp/usr/include" -L"$tmp/usr/lib" -lcxl_kv &&
	LD_LIBRARY_PATH=$tmp/usr/lib "$tmp.out"
report $? "a program builds and runs against the installed library"
rm -f "$tmp.c" "$tmp.out"

echo '# mine' >>"$tmp/etc/cxl-kv/cxl-kvd.toml"
staged install PREFIX=/usr && grep -q '^# mine' "$tmp/etc/cxl-kv/cxl-kvd.toml"
report $? "a changed configuration survives installing again"

staged uninstall PREFIX=/usr && [ "$(files)" = etc/cxl-kv/cxl-kvd.toml ]
report $? "uninstall leaves the changed configuration and nothing else"
grep -q "make uninstall DESTDIR=$tmp PURGE=1" "$tmp.log"
report $? "and names the command that removes it there, not on the host"

staged uninstall PREFIX=/usr PURGE=1 && [ -z "$(files)" ] && [ ! -e "$tmp/etc/cxl-kv" ]
report $? "uninstall PURGE=1 after that removes what was kept"

staged install PREFIX=/usr && staged uninstall PREFIX=/usr PURGE=1 && [ -z "$(files)" ] &&
	[ ! -e "$tmp/etc/cxl-kv" ]
report $? "uninstall PURGE=1 leaves nothing"

if command -v systemd-analyze >/dev/null; then
	mkdir -p "$tmp/unit"
	# The program has to exist for the check; where it will be is not where it is now.
	sed "s|@SBINDIR@|$PWD/build/bin|" systemd/cxl-kvd.service.in >"$tmp/unit/cxl-kvd.service"
	said=$(systemd-analyze verify --man=no "$tmp/unit/cxl-kvd.service" 2>&1)
	[ -z "$said" ] || awk '{ print "# " $0 }' <<<"$said"
	[ -z "$said" ]
	report $? "systemd-analyze verify has nothing to say"
	exposure=$(systemd-analyze security --no-pager --offline=yes "$tmp/unit/cxl-kvd.service" |
		sed -n 's/.*exposure level.*: \([0-9.]*\) .*/\1/p')
	awk -v e="$exposure" 'BEGIN { exit !(e != "" && e <= 2.0) }'
	report $? "systemd-analyze security: exposure $exposure, at most 2.0"
fi
rm -f "$tmp.log"
echo "1..$number"
exit $status
